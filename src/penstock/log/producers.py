"""What a partition remembers of each idempotent producer, so that a retried batch is written once and in order.

Called by log.partition_log (check, then record, on every batch that has a producer id) and log.recovery.
Laws (TRAPS P1-P3):
- The last five batches of each producer are kept; a repeat of one is answered with its first offset.
- Sequence numbers run 0 … 2^31-1 and start again at 0; a new epoch starts at 0.
- State follows the log: it is rebuilt from a snapshot and the headers after it, never from memory alone.
"""

from collections import deque
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from penstock.errors import DuplicateSequence, InvalidProducerEpoch, OutOfOrderSequence
from penstock.model import Offset
from penstock.records.batch import SEQUENCE_MAX, BatchHeader

BATCHES_KEPT = 5
SNAPSHOT_VERSION = 1

_SNAPSHOT_HEAD = Struct(">hIi")  # version, crc of what follows it, number of producers
_CRC_COVERS_FROM = 6
_PRODUCER = Struct(">qhqqB")  # id, epoch, last timestamp, first offset of the open transaction or -1, batches
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
    open_transaction: int = -1
    batches: deque[KeptBatch] = field(default_factory=_no_batches)


class ProducerTail(NamedTuple):
    """The last thing a producer wrote: the offset of its last record, None if only a marker is left."""

    last_offset: int | None
    epoch: int


class Producers:
    """All producers one partition has heard of."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}

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
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(f"a new epoch starts at sequence 0, not {header.base_sequence}")
            return None
        if not producer.batches:
            return None
        last_sequence = header.last_sequence
        for batch in producer.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                return batch
        expected = (producer.batches[-1].last_sequence + 1) & SEQUENCE_MAX
        if header.base_sequence == expected:
            return None
        behind = (producer.batches[0].first_sequence - last_sequence) & SEQUENCE_MAX
        if 0 < behind < SEQUENCE_MAX // 2:
            raise DuplicateSequence(f"sequence {header.base_sequence} is older than the {BATCHES_KEPT} batches kept")
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} was expected"
        )

    def record(self, header: BatchHeader, base_offset: Offset, now_ms: int) -> None:
        """Take note of a batch that is in the log. Control batches keep a producer alive but have no sequence.

        Alive is who writes now, however old the times are that it writes.
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

    def clear(self) -> None:
        self._by_id.clear()

    def encode(self) -> bytes:
        parts: list[bytes] = []
        for producer_id, producer in self._by_id.items():
            parts.append(
                _PRODUCER.pack(
                    producer_id,
                    producer.epoch,
                    producer.last_timestamp,
                    producer.open_transaction,
                    len(producer.batches),
                )
            )
            parts.extend(_BATCH.pack(*batch) for batch in producer.batches)
        body = b"".join(parts)
        head = _SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, 0, len(self._by_id))
        checksum = crc32c(body, crc32c(head[_CRC_COVERS_FROM:]))
        return _SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, checksum, len(self._by_id)) + body

    @classmethod
    def decode(cls, content: bytes) -> "Producers | None":
        """None when the snapshot is torn, corrupt or of another version: the caller rebuilds from the log."""
        if len(content) < _SNAPSHOT_HEAD.size:
            return None
        version, checksum, count = _SNAPSHOT_HEAD.unpack_from(content)
        if version != SNAPSHOT_VERSION or crc32c(memoryview(content)[_CRC_COVERS_FROM:]) != checksum:
            return None
        body = memoryview(content)[_SNAPSHOT_HEAD.size :]
        producers = cls()
        at = 0
        for _ in range(count):
            producer_id, epoch, timestamp, transaction, batches = _PRODUCER.unpack_from(body, at)
            at += _PRODUCER.size
            producer = Producer(epoch, timestamp, transaction)
            for _ in range(batches):
                producer.batches.append(KeptBatch._make(_BATCH.unpack_from(body, at)))
                at += _BATCH.size
            producers._by_id[producer_id] = producer
        return producers


def _last_offset(producer: Producer) -> int | None:
    if not producer.batches:
        return None
    last = producer.batches[-1]
    return last.base_offset + ((last.last_sequence - last.first_sequence) & SEQUENCE_MAX)
