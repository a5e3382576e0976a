"""One Kafka cluster as a reader needs it: its topics, who leads them, where their offsets are.

Called by the readers of the data source, in the driver and in tasks; safe for threads.
Laws:
- Errors that pass (a leader that moves, a broker that restarts) are ridden out until the deadline, then Unreachable.
- Errors that do not pass come at once: NotAdmitted, NotServed, FetchRefused.
- A topic counts as gone only when brokers have said so for GONE_AFTER_S: one that has just started knows nothing yet.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeVar
from uuid import UUID

from penstock.errors import ErrorCode
from penstock.model import TopicPartition
from penstock.spark.fetching.errors import FetchRefused, NotAdmitted, TopicGone
from penstock.spark.fetching.list_offsets import (
    VERSION_MAX,
    VERSION_MIN,
    Found,
    Wanted,
    encode_list_offsets,
    parse_list_offsets,
)
from penstock.spark.fetching.metadata import ClusterAnswer, Leader, ask_metadata
from penstock.spark.fetching.patience import Patience
from penstock.spark.fetching.pool import PASSING, ConnectionPool
from penstock.spark.fetching.settings import ConnectionSettings
from penstock.wire.apis import ApiKey

Isolation = Literal["read_committed", "read_uncommitted"]
T = TypeVar("T")

GONE_AFTER_S = 5.0
# A machine that is silent must leave time for asking the others.
QUESTION_TIMEOUT_S_MAX = 10.0
_QUESTIONS_MIN = 4
_QUESTION_TIMEOUT_S_MIN = 1.0
_DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_FATAL = frozenset(
    {
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
_ABSENT = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})


class TopicFacts(NamedTuple):
    topic: str
    topic_id: UUID | None
    leaders: dict[int, int]  # partition -> leader's id (-1: none)


class Cluster:
    def __init__(self, settings: ConnectionSettings, *, deadline_s: float | None = None) -> None:
        """`deadline_s` is for `topics` and `list_offsets`; the time of one request if None."""
        self.settings = settings
        self.pool = ConnectionPool(settings)
        self._deadline_s = settings.request_timeout_s if deadline_s is None else deadline_s
        self._lock = threading.Lock()
        self._leaders: dict[TopicPartition, Leader] = {}

    def topics(self, names: Sequence[str] | None) -> dict[str, TopicFacts | None]:
        """These, or all but the internal ones. One that is missing maps to None."""
        patience = Patience(self._deadline_s)
        has_doubted = False
        while True:
            ask = partial(self.refresh, names, patience, prefers_idle=not has_doubted)
            answer = self._try("asking for topics", patience, ask)
            facts, why_not = self._facts(answer, names)
            if why_not is None:
                # What one broker has not heard of yet, another may know: it is not the one at hand that is asked again.
                if has_doubted or None not in facts.values():
                    return facts
                has_doubted = True
            elif patience.is_spent:
                raise self.pool.unreachable("asking for topics", patience.spent_s, why_not)
            patience.pause()

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation
    ) -> dict[TopicPartition, tuple[int, int]]:
        """(offset, timestamp) for each time in ms, -1 for the end, -2 for the start; offset -1: nothing that young."""
        patience = Patience(self._deadline_s)
        absence = Absence()
        done: dict[TopicPartition, tuple[int, int]] = {}
        what = "asking for offsets"
        while left := {at: timestamp for at, timestamp in wanted.items() if at not in done}:
            why_not: object = None
            for node_id, mine in self._try(
                what, patience, lambda left=left: self._by_leader(left, absence, patience)
            ).items():
                try:
                    found = self._ask_offsets(node_id, mine, isolation == "read_committed", patience)
                except PASSING as error:
                    why_not = error
                    self.forget(mine)
                    continue
                for at in mine:
                    code, offset, timestamp = found.get(at, Found(ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1))
                    if code == ErrorCode.NONE:
                        done[at] = offset, timestamp
                        continue
                    check_code(code, at)
                    self.forget([at])
                    why_not = f"{at}: {error_name(code)}"
            if len(done) < len(wanted):
                if patience.is_spent:
                    raise self.pool.unreachable(what, patience.spent_s, why_not or "partitions have no leader")
                patience.pause()
        return done

    def close(self) -> None:
        self.pool.close()

    # For fetching.partition_fetcher

    def leader(self, at: TopicPartition, patience: Patience) -> Leader | None:
        """As far as known, else asked once; None if there is no such partition. Raises what PASSING names.

        One that exists while nobody leads it has a leader of id -1: that passes, and must not be taken for absence.
        """
        with self._lock:
            leader = self._leaders.get(at)
        if leader is not None:
            return leader
        topic = self.refresh([at.topic], patience).topics.get(at.topic)
        if topic is None or topic.error_code in _ABSENT:
            return None
        if topic.error_code != ErrorCode.NONE and at.partition not in topic.leaders:
            return Leader(-1, -1, topic.topic_id)
        return topic.leaders.get(at.partition)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are not where they were: ask again before the next request."""
        with self._lock:
            for at in partitions:
                self._leaders.pop(at, None)

    def refresh(self, names: Sequence[str] | None, patience: Patience, *, prefers_idle: bool = True) -> ClusterAnswer:
        """Ask one broker once."""
        # The broker at hand, unless that has not helped for a while: it may be the one that is wrong.
        is_at_hand = prefers_idle and patience.spent_s < 1.0
        with self.pool.lend_any(prefers_idle=is_at_hand, patience_s=patience.left_s) as connection:
            answer = ask_metadata(connection, names, self._question_timeout_s(patience))
        self.pool.learn(answer.brokers)
        with self._lock:
            for name, topic in answer.topics.items():
                if topic.error_code in _DENIED:
                    if names is not None:
                        check_code(topic.error_code, name)
                    continue
                for partition, leader in topic.leaders.items():
                    # Where nobody leads, it is asked again each time.
                    if leader.node_id >= 0:
                        self._leaders[TopicPartition(name, partition)] = leader
        return answer

    def _facts(
        self, answer: ClusterAnswer, names: Sequence[str] | None
    ) -> tuple[dict[str, TopicFacts | None], str | None]:
        """What the answer says, and why it will not do, if it won't."""
        facts: dict[str, TopicFacts | None] = {}
        for name in answer.topics if names is None else names:
            topic = answer.topics.get(name)
            if topic is None or topic.error_code in _ABSENT:
                facts[name] = None
            elif topic.error_code != ErrorCode.NONE and not topic.leaders:
                if names is not None:
                    return facts, f"{name}: {error_name(topic.error_code)}"
            elif not (topic.is_internal and names is None):
                leaders = {partition: leader.node_id for partition, leader in sorted(topic.leaders.items())}
                facts[name] = TopicFacts(name, topic.topic_id, leaders)
        if names is None:
            facts = {name: topic for name, topic in facts.items() if topic is not None}
        return facts, None

    def _by_leader(
        self, wanted: Mapping[TopicPartition, int], absence: "Absence", patience: Patience
    ) -> dict[int, dict[TopicPartition, tuple[int, int]]]:
        """node id -> partition -> (leader epoch, time); partitions without a leader are left for the next round."""
        with self._lock:
            missing = {at.topic for at in wanted if at not in self._leaders}
        if missing:
            answer = self.refresh(sorted(missing), patience)
            for at in wanted:
                topic = answer.topics.get(at.topic)
                if at.topic in missing and (topic is None or at.partition not in topic.leaders):
                    is_told = topic is None or topic.error_code in (*_ABSENT, ErrorCode.NONE)
                    if is_told and absence.is_certain(at):
                        raise TopicGone(at)
                else:
                    absence.ended(at)
        grouped: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        with self._lock:
            for at, timestamp in wanted.items():
                leader = self._leaders.get(at)
                if leader is not None:
                    grouped.setdefault(leader.node_id, {})[at] = leader.epoch, timestamp
        return grouped

    def _ask_offsets(
        self, node_id: int, mine: Mapping[TopicPartition, tuple[int, int]], is_committed: bool, patience: Patience
    ) -> dict[TopicPartition, Found]:
        topics: dict[str, list[Wanted]] = {}
        for at, (epoch, timestamp) in mine.items():
            topics.setdefault(at.topic, []).append(Wanted(at.partition, epoch, timestamp))
        with self.pool.lend(node_id) as connection:
            version = connection.version(ApiKey.LIST_OFFSETS, VERSION_MIN, VERSION_MAX)
            body = encode_list_offsets(version, is_committed, topics)
            timeout_s = self._question_timeout_s(patience)
            return parse_list_offsets(version, connection.call(ApiKey.LIST_OFFSETS, version, body, timeout_s=timeout_s))

    def _question_timeout_s(self, patience: Patience) -> float:
        share_s = max(min(patience.limit_s / _QUESTIONS_MIN, patience.left_s), _QUESTION_TIMEOUT_S_MIN)
        return min(self.settings.request_timeout_s, QUESTION_TIMEOUT_S_MAX, share_s)

    def _try(self, what: str, patience: Patience, act: Callable[[], T]) -> T:
        while True:
            try:
                return act()
            except PASSING as error:
                if patience.is_spent:
                    raise self.pool.unreachable(what, patience.spent_s, error) from error
                patience.pause()


class Absence:
    """Since when brokers say that partitions are not there, without saying otherwise in between."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, float] = {}

    def is_certain(self, at: TopicPartition) -> bool:
        """Told once more."""
        now = time.monotonic()
        return now - self._since.setdefault(at, now) >= GONE_AFTER_S

    def ended(self, at: TopicPartition) -> None:
        self._since.pop(at, None)


def check_code(code: int, what: object) -> None:
    """Raise for an error that no new attempt will mend."""
    if code in _DENIED:
        raise NotAdmitted(f"{what}: the broker denies the right to read it ({error_name(code)}); ask for the ACL READ")
    if code in _FATAL:
        raise FetchRefused(f"{what}: the broker answers {error_name(code)}")


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
