"""Transactions as their coordinators know them and as partitions hold them, asked for and put into plain values.

Called by `penstock transactions` and cli.hanging. librdkafka asks for none of this, so it goes over connections of our
own. Every broker is asked, since each knows only the transactional ids it coordinates; asking creates nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.offsets import error_name
from penstock.errors import ErrorCode
from penstock.model import Endpoint, TopicPartition
from penstock.wire.apis import ApiKey

T = TypeVar("T")

# Kafka's own names of the states, as ListTransactions takes and gives them.
ONGOING = "Ongoing"
ENDING = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
STATES = ("Empty", ONGOING, *ENDING, "CompleteCommit", "CompleteAbort", "Dead")
# Another broker coordinates the id, or nobody has ever used it.
NOT_KNOWN = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})
NAMES_PER_REQUEST = 1000


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionView:
    """What a coordinator says of a transactional id."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    # None while no transaction is open.
    since_ms: int | None
    # While it ends, only those that have no marker yet.
    partitions: frozenset[TopicPartition]


class OpenTransaction(NamedTuple):
    """What a partition's leader says of a producer that has written there and not ended its transaction."""

    at: TopicPartition
    start_offset: int
    producer_id: int
    producer_epoch: int
    # Of the coordinator that wrote this producer's last marker here; -1 if none ever did.
    coordinator_epoch: int
    last_write_ms: int


def is_open(state: str) -> bool:
    return state == ONGOING or state in ENDING


def list_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    longer_than_ms: int | None = None,
    pattern: str | None = None,
) -> list[ListedTransaction]:
    """Of every broker; fails if one cannot say, since what it coordinates would look unknown."""
    body = {
        "state_filters": states,
        "producer_id_filters": producer_ids,
        "duration_filter": -1 if longer_than_ms is None else longer_than_ms,
        "transactional_id_pattern": pattern,
    }
    # An older broker would not see the filter, and list everything.
    version_min = 2 if pattern is not None else 1 if longer_than_ms is not None else 0
    found: list[ListedTransaction] = []
    for broker, endpoint in _brokers(cluster).items():
        reply = cluster.request(ApiKey.LIST_TRANSACTIONS, body, endpoint, version_min)
        _require_done(reply.error_code, f"listing the transactions of broker {broker}")
        if reply.unknown_state_filters:
            raise CommandFailed(f"broker {broker} knows no state {', '.join(reply.unknown_state_filters)}")
        found += (
            ListedTransaction(one.transactional_id, one.producer_id, one.transaction_state, broker)
            for one in reply.transaction_states
        )
    return sorted(found)


def describe_transactions(cluster: Cluster, transactional_ids: Sequence[str]) -> list[TransactionView]:
    """What is known of these ids; those that no broker coordinates or knows are left out."""
    found: dict[str, TransactionView] = {}
    for broker, endpoint in _brokers(cluster).items():
        for some in _portions(transactional_ids):
            reply = cluster.request(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": some}, endpoint)
            for one in reply.transaction_states:
                if int(one.error_code) in NOT_KNOWN:
                    continue
                _require_done(one.error_code, f"describing transactional id {one.transactional_id}")
                found[one.transactional_id] = _view(one, broker)
    return [found[name] for name in transactional_ids if name in found]


def open_transactions(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
    """Asks the leaders; a partition that does not answer is a failure."""
    return [
        one
        for endpoint, led in _by_leader(cluster, partitions).items()
        for some in _portions(led)
        for topic in cluster.request(ApiKey.DESCRIBE_PRODUCERS, {"topics": _by_topic(some)}, endpoint).topics
        for partition in topic.partitions
        for one in _open_in(TopicPartition(topic.name, partition.partition_index), partition)
    ]


def write_abort(cluster: Cluster, one: OpenTransaction) -> None:
    """End a hanging transaction: the partition gets the marker its coordinator will never write."""
    marker = {
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "transaction_result": False,
        "topics": _by_topic([one.at]),
        # Where no coordinator has written a marker yet there is none to be fenced by, and -1 is no epoch.
        "coordinator_epoch": max(0, one.coordinator_epoch),
    }
    (endpoint,) = _by_leader(cluster, [one.at])
    reply = cluster.request(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, endpoint)
    for answer in reply.markers:
        for topic in answer.topics:
            for partition in topic.partitions:
                _require_done(
                    partition.error_code, f"aborting the transaction at offset {one.start_offset} of {one.at}"
                )


def _brokers(cluster: Cluster) -> dict[int, Endpoint]:
    return {broker.id: Endpoint(broker.host, broker.port) for broker in cluster.metadata().brokers.values()}


def led_partitions(cluster: Cluster, topic: str | None = None) -> list[TopicPartition]:
    """Of one topic or of all, internal ones too: a transaction of offsets can hang as well."""
    return [
        TopicPartition(name, number)
        for name, found in cluster.metadata().topics.items()
        for number, partition in found.partitions.items()
        if topic in (None, name) and partition.leader >= 0
    ]


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    """As requests name partitions."""
    topics: dict[str, list[int]] = {}
    for at in sorted(partitions):
        topics.setdefault(at.topic, []).append(at.partition)
    return [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()]


def _require_done(error_code: int, doing: str) -> None:
    code = int(error_code)
    if code:
        advice = "Try again in a moment." if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else ""
        raise CommandFailed(f"{doing}: {error_name(code)}", advice)


def _by_leader(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Mapping[Endpoint, list[TopicPartition]]:
    metadata = cluster.metadata()
    found: dict[Endpoint, list[TopicPartition]] = {}
    for at in partitions:
        topic = metadata.topics.get(at.topic)
        partition = topic.partitions.get(at.partition) if topic is not None else None
        if partition is None:
            raise CommandFailed(f"there is no partition {at}", "`penstock topics list` shows which topics there are.")
        leader = metadata.brokers.get(partition.leader)
        if leader is None:
            raise CommandFailed(f"{at} has no leader", "`penstock doctor` may find out why.")
        found.setdefault(Endpoint(leader.host, leader.port), []).append(at)
    return found


def _portions(names: Sequence[T]) -> Iterator[Sequence[T]]:
    """Brokers refuse requests that name too much at once."""
    for start in range(0, len(names), NAMES_PER_REQUEST):
        yield names[start : start + NAMES_PER_REQUEST]


def _open_in(at: TopicPartition, described: Any) -> Iterator[OpenTransaction]:
    _require_done(described.error_code, f"asking for the producers of {at}")
    for producer in described.active_producers:
        if producer.current_txn_start_offset >= 0:
            yield OpenTransaction(
                at,
                producer.current_txn_start_offset,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.last_timestamp,
            )


def _view(one: Any, coordinator: int) -> TransactionView:
    started = one.transaction_start_time
    return TransactionView(
        one.transactional_id,
        coordinator,
        one.producer_id,
        one.producer_epoch,
        one.transaction_state,
        round(one.transaction_timeout.total_seconds() * 1000),
        None if started is None else round(started.timestamp() * 1000),
        frozenset(TopicPartition(topic.topic, number) for topic in one.topics for number in topic.partitions),
    )
