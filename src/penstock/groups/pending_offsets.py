"""Offsets that one group has been given inside transactions that are still open: kept apart until a marker decides.

Called by groups.offsets.
Invariants:
- Offsets come in log order, and the latest in the log counts: one that something later has replaced in the meantime
  says nothing when its transaction is committed at last. Compaction keeps the same one, so a reload agrees.
- A partition is unstable from the moment an offset for it is sent to the log until the last of its transactions ends,
  also when what they say has been overtaken: how they end is not known before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from penstock.groups.group_records import CommittedOffset, OffsetRecord

PartitionKey: TypeAlias = tuple[str, int]


class PendingOffsets:
    __slots__ = ("_by_partition", "_by_producer", "_in_flight")

    def __init__(self) -> None:
        # For each partition the producers that have an offset pending for it, the latest in the log last; None: a later
        # one is committed already.
        self._by_partition: dict[PartitionKey, dict[int, CommittedOffset | None]] = {}
        self._by_producer: dict[int, set[PartitionKey]] = {}
        self._in_flight: Counter[PartitionKey] = Counter()

    def __bool__(self) -> bool:
        return bool(self._by_partition or self._in_flight)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._by_partition or key in self._in_flight

    def keys(self) -> set[PartitionKey]:
        return self._by_partition.keys() | self._in_flight.keys()

    def offsets(self) -> Iterator[tuple[PartitionKey, CommittedOffset]]:
        for key, by_producer in self._by_partition.items():
            for committed in by_producer.values():
                if committed is not None:
                    yield key, committed

    def sent(self, records: Iterable[OffsetRecord]) -> None:
        self._in_flight.update((record.topic, record.partition) for record in records)

    def refused(self, records: Iterable[OffsetRecord]) -> None:
        for record in records:
            count_down(self._in_flight, (record.topic, record.partition))

    def add(self, producer_id: int, key: PartitionKey, committed: CommittedOffset) -> None:
        count_down(self._in_flight, key)
        by_producer = self._by_partition.setdefault(key, {})
        # Anew, not in the old one's place: the order is the log's.
        by_producer.pop(producer_id, None)
        by_producer[producer_id] = committed
        self._by_producer.setdefault(producer_id, set()).add(key)

    def overtake(self, key: PartitionKey) -> None:
        """An offset was committed later in the log than all that are pending for the partition."""
        by_producer = self._by_partition.get(key)
        if by_producer is not None:
            self._by_partition[key] = dict.fromkeys(by_producer)

    def drop(self, key: PartitionKey) -> None:
        """The offset was deleted, and with it those that are pending."""
        for producer_id in self._by_partition.pop(key, {}):
            self._leave(producer_id, key)

    def end(self, producer_id: int, is_commit: bool) -> Iterator[tuple[PartitionKey, CommittedOffset]]:
        """Forget what the producer has pending; if it is committed, give what counts now."""
        for key in self._by_producer.pop(producer_id, ()):
            by_producer = self._by_partition[key]
            if is_commit:
                for earlier in by_producer:
                    if earlier == producer_id:
                        break
                    by_producer[earlier] = None
            committed = by_producer.pop(producer_id)
            if not by_producer:
                del self._by_partition[key]
            if is_commit and committed is not None:
                yield key, committed

    def _leave(self, producer_id: int, key: PartitionKey) -> None:
        keys = self._by_producer[producer_id]
        keys.discard(key)
        if not keys:
            del self._by_producer[producer_id]


def count_down(in_flight: Counter[PartitionKey], key: PartitionKey) -> None:
    """One less of what is on its way to the log; while a log is loaded, nothing is."""
    count = in_flight.get(key)
    if count is None:
        return
    if count == 1:
        del in_flight[key]
    else:
        in_flight[key] = count - 1
