"""Batches that somebody else has given their offsets: what a leader sent, what recovery finds in a file.

Called by log.partition_log (append_replicated) and log.recovery. Nothing here writes.
Laws (TRAPS L6):
- A batch is taken only whole and with its checksum right. What the checksum does not cover is range-checked: offsets
  only rise (compaction leaves holes, nothing goes back), leader epochs never fall.
- All of an answer is checked before any of it is written.
"""

from typing import NamedTuple

from penstock.errors import CorruptMessage, PenstockError
from penstock.log.aborted import AbortedTransactions
from penstock.log.producers import Producers
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import CONTROL_MASK, CRC_COVERS_FROM, HEADER_BYTES, MAGIC, BatchHeader, read_header
from penstock.records.checksum import crc32c
from penstock.records.markers import Marker, decode_marker
from penstock.records.record import decode_records

MARKER_BYTES_MAX = 1 << 16  # of the records of a control batch, which has one


class ReplicatedBatch(NamedTuple):
    header: BatchHeader
    marker: Marker | None


def check_replicated(
    records: memoryview, next_offset: Offset, latest_epoch: LeaderEpoch, *, is_first: bool
) -> list[ReplicatedBatch]:
    """The whole batches of a leader's answer, in order; a batch cut short at the end is left out.

    With `is_first` the first batch may begin below `next_offset`, if it reaches beyond: a log that starts in the middle
    of a batch, where records were deleted, begins with the whole of it.
    Per batch: one header, one view for the checksum, no copy.
    """
    batches: list[ReplicatedBatch] = []
    position, size = 0, len(records)
    expected, epoch = int(next_offset), max(latest_epoch, 0)
    while size - position >= HEADER_BYTES:
        header = read_header(records, position)
        end = position + header.size
        if header.magic != MAGIC or header.size < HEADER_BYTES or header.last_offset_delta < 0:
            raise CorruptMessage(f"the leader sent no batch header at byte {position}, for offset {expected}")
        if end > size:
            break
        if crc32c(records[position + CRC_COVERS_FROM : end]) != header.crc:
            raise CorruptMessage(f"the leader sent a batch at offset {header.base_offset} with a wrong CRC-32C")
        if header.base_offset < expected and not (is_first and not batches and header.last_offset >= expected):
            raise CorruptMessage(f"the leader sent offset {header.base_offset}, {expected} was next")
        if header.leader_epoch < epoch:
            raise CorruptMessage(f"the leader sent a batch of epoch {header.leader_epoch} after {epoch}")
        marker = marker_of(records[position:end], header) if header.attributes & CONTROL_MASK else None
        batches.append(ReplicatedBatch(header, marker))
        position, expected, epoch = end, header.next_offset, header.leader_epoch
    return batches


def marker_of(batch: memoryview, header: BatchHeader) -> Marker | None:
    """What a control batch says: the one thing that stands in no header. CorruptMessage if nobody can tell."""
    if not header.record_count:
        return None  # compaction empties a marker once nothing else is left of its transaction
    try:
        return decode_marker(next(decode_records(batch, header, MARKER_BYTES_MAX)))
    except CorruptMessage:
        raise
    except (PenstockError, StopIteration) as error:
        raise CorruptMessage(f"the control batch at offset {header.base_offset} holds no marker: {error}") from error


def follow(
    producers: Producers, aborted: AbortedTransactions, header: BatchHeader, marker: Marker | None, now_ms: int
) -> None:
    """Take note of a batch that has a producer and stands in the log."""
    base_offset = Offset(header.base_offset)
    producers.record(header, base_offset, now_ms)
    if marker is not None:
        ended = producers.end_transaction(marker, header.producer_id, base_offset)
        if ended is not None:
            aborted.append(ended)
