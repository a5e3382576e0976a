"""Offsets that one group has committed: by topic and partition, what is on its way to the log, and when they expire.

Called by groups.group_shard.
Invariants:
- A committed offset changes only as records are applied and transactions end, both in log order.
- An offset of a transaction is not shown before that is committed, and stays unstable until it has ended.
- An offset committed for a topic is not shown for another of the same name: a topic made anew starts anew.
- An offset whose commit is under way, or pending in a transaction, does not expire.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from penstock.groups.classic_group import CONSUMER_PROTOCOL_TYPE
from penstock.groups.consumer_groups import Group
from penstock.groups.group_records import CommittedOffset, OffsetRecord
from penstock.groups.group_state import EMPTY, STABLE
from penstock.groups.pending_offsets import PartitionKey, PendingOffsets, count_down
from penstock.model import NO_TOPIC_ID


class OffsetToCommit(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class GroupOffsets:
    __slots__ = ("_by_topic", "_in_flight", "_pending")

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}
        self._in_flight: Counter[PartitionKey] = Counter()
        self._pending = PendingOffsets()

    def __bool__(self) -> bool:
        return bool(self._by_topic or self._in_flight or self._pending)

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self._by_topic.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def get(self, topic: str, topic_id: UUID, partition: int) -> CommittedOffset | None:
        committed = self._by_topic.get(topic, {}).get(partition)
        if committed is None or not is_of_topic(committed, topic_id):
            return None
        return committed

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether a transaction may yet change what is committed for the partition."""
        return (topic, partition) in self._pending

    def apply(self, record: OffsetRecord) -> None:
        topic, partition = record.topic, record.partition
        if record.committed is not None:
            self._by_topic.setdefault(topic, {})[partition] = record.committed
            count_down(self._in_flight, (topic, partition))
            self._pending.overtake((topic, partition))
            return
        self._pending.drop((topic, partition))
        partitions = self._by_topic.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            self._by_topic.pop(topic, None)

    def apply_in_transaction(self, producer_id: int, record: OffsetRecord) -> None:
        assert record.committed is not None
        self._pending.add(producer_id, (record.topic, record.partition), record.committed)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        for (topic, partition), committed in self._pending.end(producer_id, is_commit):
            self._by_topic.setdefault(topic, {})[partition] = committed

    def sent(self, records: Iterable[OffsetRecord], *, is_transactional: bool = False) -> None:
        if is_transactional:
            self._pending.sent(records)
            return
        for record in records:
            self._in_flight[record.topic, record.partition] += 1

    def refused(self, records: Iterable[OffsetRecord], *, is_transactional: bool = False) -> None:
        if is_transactional:
            self._pending.refused(records)
            return
        for record in records:
            count_down(self._in_flight, (record.topic, record.partition))

    def known(self) -> set[PartitionKey]:
        """What is committed or may yet be: what a deletion has to cover."""
        return {(topic, partition) for topic, partition, _ in self} | self._in_flight.keys() | self._pending.keys()

    def of_topic(self, topic: str, topic_id: UUID) -> list[PartitionKey]:
        partitions = self._by_topic.get(topic, {})
        keys = {(topic, index) for index, committed in partitions.items() if is_of_topic(committed, topic_id)}
        for key, committed in self._pending.offsets():
            if key[0] == topic and is_of_topic(committed, topic_id):
                keys.add(key)
        return sorted(keys)

    def expired(self, group: Group, retention_ms: int, now_ms: int) -> list[PartitionKey]:
        """Those nobody has needed for the retention time, by the rules of KIP-211.

        A group without members keeps its offsets for the retention time from the day the last one left; one that only
        ever stored offsets, from each commit. While a group has members its offsets stay, but for topics that a settled
        group no longer subscribes to. While it rebalances, nothing expires: who is subscribed is just being asked.
        """
        if group.is_simple:
            kept_since_ms = 0
        elif group.state is EMPTY:
            kept_since_ms = group.state_ms
        elif group.state is STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
            return [key for key in self._older_than(0, retention_ms, now_ms) if not group.is_subscribed_to(key[0])]
        else:
            return []
        return list(self._older_than(kept_since_ms, retention_ms, now_ms))

    def _older_than(self, kept_since_ms: int, retention_ms: int, now_ms: int) -> Iterator[PartitionKey]:
        for topic, partition, committed in self:
            if (topic, partition) in self._in_flight or (topic, partition) in self._pending:
                continue
            expire_ms = committed.expire_ms
            if expire_ms < 0:
                # A commit made since the group emptied, by an administrator for one, counts from itself.
                expire_ms = max(kept_since_ms, committed.commit_ms) + retention_ms
            if expire_ms <= now_ms:
                yield topic, partition


def is_of_topic(committed: CommittedOffset, topic_id: UUID) -> bool:
    """False if it was committed for a topic of the same name that has since been deleted."""
    # By value of the ids' numbers: comparing UUIDs takes five times as long. Without an id the name has to do.
    mine, other = committed.topic_id.int, topic_id.int
    return mine == other or NO_TOPIC_ID.int in (mine, other)
