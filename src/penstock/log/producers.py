"""What a partition remembers of each producer: a retried batch is written once and in order, a transaction ends once.

Called by log.partition_log (check, then record, on every batch that has a producer id) and log.recovery.
Laws (TRAPS P1-P3, P7, P8):
- The last five batches of each producer are kept; a repeat of one is answered with its first offset.
- Sequence numbers run 0 … 2^31-1 and start again at 0; a new epoch starts at 0, also if a marker brought it.
- A transaction is open from its first batch to its marker. Whoever has one open is not forgotten.
- State follows the log: it is rebuilt from a snapshot and the batches after it, never from memory alone.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from penstock.errors import (
    DuplicateSequence,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from penstock.log.aborted import AbortedDigest, AbortedTransaction
from penstock.model import Offset
from penstock.records.batch import CONTROL_MASK, SEQUENCE_MAX, TRANSACTIONAL_MASK, BatchHeader
from penstock.records.checksum import crc32c
from penstock.records.markers import ControlType, Marker

BATCHES_KEPT = 5
SNAPSHOT_VERSION = 2
BEGINS_MASK = TRANSACTIONAL_MASK | CONTROL_MASK  # transactional and no marker: this may begin a transaction
NONE = -1  # no transaction open, no coordinator known, no sequence

_SNAPSHOT_HEAD = Struct(">hIii")  # version, crc of what follows it, number of aborted digests, number of producers
_CRC_COVERS_FROM = 6
_DIGEST = Struct(">qiI")  # segment, entries, checksum
# id, epoch, coordinator epoch, last timestamp, first offset of the open transaction, its time, batches
_PRODUCER = Struct(">qhiqqqB")
_BATCH = Struct(">iiqq")  # first sequence, last sequence, first offset, timestamp


class KeptBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


def _no_batches() -> deque[KeptBatch]:
    return deque(maxlen=BATCHES_KEPT)


@dataclass(slots=True)
class Producer:
    epoch: int
    last_timestamp: int
    open_transaction: int = NONE  # its first offset
    open_since_ms: int = NONE  # by the broker's clock
    coordinator_epoch: int = NONE  # of the last marker
    batches: deque[KeptBatch] = field(default_factory=_no_batches)
    # Its offset, as far as it was seen since the log was opened: not in snapshots.
    last_marker: int = field(default=NONE, compare=False)


class ProducerTail(NamedTuple):
    """The last thing a producer wrote: the offset of its last record, None if only a marker is left."""

    last_offset: int | None
    epoch: int


class ProducerState(NamedTuple):
    """A producer as DescribeProducers shows it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
    txn_since_ms: int


class _Ended(NamedTuple):
    """A transaction that has its marker: it counts as open until the marker is committed."""

    marker_offset: int
    first_offset: int


class Producers:
    """All producers one partition has heard of."""

    __slots__ = ("_by_id", "_ended", "_open", "is_stable")

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}
        # First offsets of open transactions. They begin in log order, so the first of the dict is the lowest.
        self._open: dict[int, None] = {}
        self._ended: deque[_Ended] = deque()
        # No transaction is open, or was when first_unstable() was last asked: the one thing that every fetch asks.
        self.is_stable = True

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, producer_id: int) -> Producer | None:
        return self._by_id.get(producer_id)

    def check(self, header: BatchHeader) -> KeptBatch | None:
        """The earlier copy of this batch, None if it is the next one in order, or the error it has earned."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            # Forgotten or never seen: whatever it starts with is where it starts.
            return None
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {producer.epoch}; {header.producer_epoch} came"
            )
        if header.producer_epoch > producer.epoch or not producer.batches:
            # What a coordinator writes in somebody's transaction has no sequence, which is -1.
            if header.base_sequence > 0:
                raise OutOfOrderSequence(f"a new epoch starts at sequence 0, not {header.base_sequence}", expected=0)
        elif header.base_sequence >= 0:
            expected = (producer.batches[-1].last_sequence + 1) & SEQUENCE_MAX
            if header.base_sequence != expected:
                last_sequence = header.last_sequence
                for batch in producer.batches:
                    if batch.first_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                        return batch
                raise _misplaced(producer, header, expected)
        if producer.open_transaction >= 0 and not header.attributes & TRANSACTIONAL_MASK:
            raise InvalidTxnState(f"producer {header.producer_id} has a transaction open, and this batch is not of it")
        return None

    def check_marker(self, marker: Marker, producer_id: int, producer_epoch: int, *, is_version_2: bool) -> None:
        """Raise what a marker has earned that comes from the past, of its producer or of its coordinator."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            return
        # Version 2 gives every marker a new epoch: one with the epoch of what is open here ended something earlier.
        is_late = is_version_2 and producer_epoch == producer.epoch and producer.open_transaction >= 0
        if producer_epoch < producer.epoch or is_late:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {producer.epoch}; a marker has {producer_epoch}"
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"producer {producer_id} has a marker of coordinator epoch {producer.coordinator_epoch}; "
                f"{marker.coordinator_epoch} came"
            )

    def record(self, header: BatchHeader, base_offset: Offset, now_ms: int) -> None:
        """Take note of a batch that is in the log. Alive is who writes now, however old the times are that it writes.

        A control batch has no sequence but may bring a new epoch; what it ends is told by end_transaction().
        """
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            producer = self._by_id[header.producer_id] = Producer(header.producer_epoch, now_ms)
        elif header.producer_epoch != producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_timestamp = max(now_ms, header.max_timestamp)
        if header.base_sequence >= 0:
            producer.batches.append(
                KeptBatch(header.base_sequence, header.last_sequence, base_offset, header.max_timestamp)
            )
        if header.attributes & BEGINS_MASK == TRANSACTIONAL_MASK and producer.open_transaction < 0:
            producer.open_transaction, producer.open_since_ms = base_offset, now_ms
            self._open[base_offset] = None
            self.is_stable = False

    def end_transaction(self, marker: Marker, producer_id: int, offset: int) -> AbortedTransaction | None:
        """Take note of a marker that is in the log, after record(); gives the transaction that it aborts."""
        if marker.control_type is ControlType.UNKNOWN:
            return None
        producer = self._by_id[producer_id]
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_marker = offset
        first_offset = producer.open_transaction
        if first_offset < 0:
            return None
        producer.open_transaction = producer.open_since_ms = NONE
        del self._open[first_offset]
        self._ended.append(_Ended(offset, first_offset))
        if marker.control_type is ControlType.COMMIT:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, next(iter(self._open), offset + 1))

    def first_unstable(self, high_watermark: int) -> int | None:
        """The first offset of the earliest transaction whose marker is not below the high watermark."""
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            ended.popleft()
        first = next(iter(self._open), None)
        if ended:
            earliest = min(each.first_offset for each in ended)
            return earliest if first is None else min(first, earliest)
        self.is_stable = first is None
        return first

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        producer = self._by_id.get(producer_id)
        return producer is not None and producer.open_transaction >= 0 and producer.epoch == producer_epoch

    def last_marker(self, producer_id: int) -> int:
        """Changes with every marker: whoever compares two readings knows whether a transaction ended in between."""
        producer = self._by_id.get(producer_id)
        return NONE if producer is None else producer.last_marker

    def states(self) -> list[ProducerState]:
        return [
            ProducerState(
                producer_id,
                each.epoch,
                each.batches[-1].last_sequence if each.batches else NONE,
                each.last_timestamp,
                each.coordinator_epoch,
                each.open_transaction,
                each.open_since_ms,
            )
            for producer_id, each in self._by_id.items()
        ]

    def expire(self, before_ms: int) -> int:
        """Forget producers silent since `before_ms`, except those with an open transaction; how many went."""
        silent = [
            producer_id
            for producer_id, producer in self._by_id.items()
            if producer.last_timestamp < before_ms and producer.open_transaction < 0
        ]
        for producer_id in silent:
            del self._by_id[producer_id]
        return len(silent)

    def tails(self) -> dict[int, ProducerTail]:
        """The last record of each producer: what compaction must not lose, since recovery rebuilds from it."""
        return {producer_id: ProducerTail(_last_offset(each), each.epoch) for producer_id, each in self._by_id.items()}

    def encode(self, aborted: Sequence[AbortedDigest] = ()) -> bytes:
        """The content of a snapshot, which also vouches for the files of aborted transactions."""
        parts = [_DIGEST.pack(*digest) for digest in aborted]
        for producer_id, producer in self._by_id.items():
            parts.append(
                _PRODUCER.pack(
                    producer_id,
                    producer.epoch,
                    producer.coordinator_epoch,
                    producer.last_timestamp,
                    producer.open_transaction,
                    producer.open_since_ms,
                    len(producer.batches),
                )
            )
            parts.extend(_BATCH.pack(*batch) for batch in producer.batches)
        body = b"".join(parts)
        head = _SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, 0, len(aborted), len(self._by_id))
        checksum = crc32c(body, crc32c(head[_CRC_COVERS_FROM:]))
        return _SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, checksum, len(aborted), len(self._by_id)) + body

    @classmethod
    def decode(cls, content: bytes) -> "Producers | None":
        """None when the snapshot is torn, corrupt or of another version: the caller rebuilds from the log."""
        if len(content) < _SNAPSHOT_HEAD.size:
            return None
        version, checksum, digests, count = _SNAPSHOT_HEAD.unpack_from(content)
        if version != SNAPSHOT_VERSION or crc32c(memoryview(content)[_CRC_COVERS_FROM:]) != checksum:
            return None
        body = memoryview(content)[_SNAPSHOT_HEAD.size :]
        producers = cls()
        at = digests * _DIGEST.size
        for _ in range(count):
            producer_id, epoch, coordinator, timestamp, first, since_ms, batches = _PRODUCER.unpack_from(body, at)
            at += _PRODUCER.size
            producer = Producer(epoch, timestamp, first, since_ms, coordinator)
            for _ in range(batches):
                producer.batches.append(KeptBatch._make(_BATCH.unpack_from(body, at)))
                at += _BATCH.size
            producers._by_id[producer_id] = producer
        opened = sorted(each.open_transaction for each in producers._by_id.values() if each.open_transaction >= 0)
        producers._open = dict.fromkeys(opened)
        producers.is_stable = not opened
        return producers


def decode_digests(content: bytes) -> list[AbortedDigest]:
    """What a snapshot that Producers.decode() took says of the files of aborted transactions."""
    _, _, count, _ = _SNAPSHOT_HEAD.unpack_from(content)
    end = _SNAPSHOT_HEAD.size + count * _DIGEST.size
    return list(map(AbortedDigest._make, _DIGEST.iter_unpack(content[_SNAPSHOT_HEAD.size : end])))


def _misplaced(producer: Producer, header: BatchHeader, expected: int) -> DuplicateSequence | OutOfOrderSequence:
    behind = (producer.batches[0].first_sequence - header.last_sequence) & SEQUENCE_MAX
    if 0 < behind < SEQUENCE_MAX // 2:
        return DuplicateSequence(f"sequence {header.base_sequence} is older than the {BATCHES_KEPT} batches kept")
    return OutOfOrderSequence(
        f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} was expected",
        expected=expected,
    )


def _last_offset(producer: Producer) -> int | None:
    if not producer.batches:
        return None
    last = producer.batches[-1]
    return last.base_offset + ((last.last_sequence - last.first_sequence) & SEQUENCE_MAX)
