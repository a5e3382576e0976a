"""Where partitions start and end, what a group has committed, how large logs are: asked once, for many at a time.

Called by the topics, groups, consume and doctor commands.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.admin.cluster import Cluster, admin_types
from penstock.admin.failures import CommandFailed
from penstock.errors import ErrorCode
from penstock.model import Endpoint, TopicPartition
from penstock.wire.apis import ApiKey

# Instead of a timestamp: what ListOffsets has names for.
EARLIEST = -2
LATEST = -1


class TopicPartitions(NamedTuple):
    """A topic, or some of its partitions; empty stands for all of them."""

    topic: str
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LogDir:
    """One directory of one broker, as it describes it. None where a broker does not say."""

    broker: int
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    sizes: Mapping[TopicPartition, int]


class Found(NamedTuple):
    """An offset, or why there is none."""

    offset: int | None
    error: Any = None


def find_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], at: int, *, is_read_committed: bool = False
) -> dict[TopicPartition, Found]:
    """The offset of EARLIEST, LATEST or a timestamp, for each partition; no offset when nothing is that new.

    To a reader of committed data, LATEST is where the first open transaction begins.
    """
    from confluent_kafka import IsolationLevel
    from confluent_kafka import TopicPartition as Asked

    wanted = set(partitions)
    if not wanted:
        return {}
    specs = admin_types().OffsetSpec
    spec = {EARLIEST: specs.earliest(), LATEST: specs.latest()}.get(at) or specs.for_timestamp(at)
    isolation = IsolationLevel.READ_COMMITTED if is_read_committed else IsolationLevel.READ_UNCOMMITTED
    asked = {Asked(one.topic, one.partition): spec for one in wanted}
    futures = cluster.ask(cluster.admin.list_offsets, asked, isolation_level=isolation)
    found: dict[TopicPartition, Found] = {}
    for one, future in futures.items():
        answer, error = cluster.outcome(future)
        offset = None if answer is None or answer.offset < 0 else answer.offset
        found[TopicPartition(one.topic, one.partition)] = Found(offset, error)
    return found


def committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """Everything the group has committed; empty for a group that has not, or that does not exist."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    futures = cluster.ask(cluster.admin.list_consumer_group_offsets, [ConsumerGroupTopicPartitions(group)])
    answer: Any = cluster.result(futures[group], f"asking for the offsets of group {group}")
    return {
        TopicPartition(one.topic, one.partition): one.offset
        for one in answer.topic_partitions or ()
        if one.error is None and one.offset >= 0
    }


def describe_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, Any]:
    """librdkafka's TopicDescription of each; the failure names the first that is not there. Never creates one."""
    from confluent_kafka import TopicCollection

    wanted = sorted(set(names))
    if not wanted:
        return {}
    futures = cluster.ask(cluster.admin.describe_topics, TopicCollection(wanted))
    return cluster.results(futures, "describing topic")


def expand(cluster: Cluster, chosen: Iterable[TopicPartitions]) -> list[TopicPartition]:
    """Every partition meant, in order; the failure says which topic or partition does not exist."""
    chosen = list(chosen)
    topics = describe_topics(cluster, (one.topic for one in chosen))
    found: set[TopicPartition] = set()
    for topic, numbers in chosen:
        there = {partition.id for partition in topics[topic].partitions}
        for number in numbers or sorted(there):
            if number not in there:
                raise CommandFailed(f"topic {topic} has no partition {number}", f"It has {len(there)}, from 0 on.")
            found.add(TopicPartition(topic, number))
    return sorted(found)


def describe_log_dirs(cluster: Cluster) -> list[LogDir]:
    """Every broker's directories. Empty where our own connection can't ask: see Cluster.is_plaintext."""
    if not cluster.is_plaintext:
        return []
    found: list[LogDir] = []
    for broker in cluster.metadata().brokers.values():
        try:
            reply = cluster.request(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}, Endpoint(broker.host, broker.port))
        except CommandFailed:
            continue  # sizes are an extra: what was asked for does not fail for want of them
        found.extend(_log_dir(broker.id, result) for result in reply.results)
    return found


def _log_dir(broker: int, result: Any) -> LogDir:
    code = int(result.error_code)
    total, usable = getattr(result, "total_bytes", -1), getattr(result, "usable_bytes", -1)
    return LogDir(
        broker,
        result.log_dir,
        error_name(code) if code else None,
        total if total >= 0 else None,
        usable if usable >= 0 else None,
        {
            TopicPartition(topic.name, partition.partition_index): partition.partition_size
            for topic in result.topics
            for partition in topic.partitions
            if not partition.is_future_key
        },
    )


def error_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code}"
