"""A segment file read batch by batch, with everything that is wrong with it and where.

Called by cli.log. Reads only, needs no broker and takes no lock: a broker may be writing the file meanwhile.
What is wrong does not end the reading: past a damaged place the next batch that is whole is looked for.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.records.batch import CRC_COVERS_FROM, HEADER_BYTES, MAGIC, BatchHeader, crc_is_right, read_header
from penstock.records.checksum import crc32c
from penstock.records.compression import Codec
from penstock.records.markers import decode_marker
from penstock.records.record import NO_TIMESTAMP, Record, decode_records

# What one batch may unfold to while we look into it.
UNFOLDED_BYTES_MAX = 256 * 1024 * 1024
_SEARCH_BYTES = 1 << 20
_MAGIC_AT = 16
# A batch that carries on after damage has an offset near those before it; this rules out nearly all chance hits.
_OFFSET_JUMP_MAX = 2**31

CUT_ADVICE = "The end of a log is torn when the machine or the broker dies: the broker cuts it off when it starts."
DAMAGE_ADVICE = "Bytes that were written have changed: suspect the disk. Restore the partition from a copy."


class Problem(NamedTuple):
    """Something that is not as it should be. `at_byte` counts from the start of the file."""

    what: str
    at_byte: int | None = None
    advice: str = ""

    def __str__(self) -> str:
        return f"at byte {self.at_byte}: {self.what}" if self.at_byte is not None else self.what


class BatchSeen(NamedTuple):
    position: int
    header: BatchHeader
    is_crc_right: bool


class RecordSeen(NamedTuple):
    record: Record
    # What a control record says, for the one record of a control batch.
    marker: str | None


@dataclass(slots=True)
class SegmentSummary:
    """Filled while a segment is read; what indexes are compared with."""

    base_offset: int
    next_offset: int
    leader_epoch: int = -1
    batches: int = 0
    records: int = 0
    max_timestamp: int = NO_TIMESTAMP
    # By position: last offset and largest timestamp of each batch.
    ends: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])


Seen = BatchSeen | RecordSeen | Problem


def inspect_segment(
    path: Path, summary: SegmentSummary, *, look_inside: bool, deep: bool, advance: Callable[[int], object]
) -> Iterator[Seen]:
    """Everything in the file, in order. `look_inside` unpacks every batch; `deep` also asks whether all adds up."""
    with path.open("rb", buffering=0) as file:
        fd = file.fileno()
        size = os.fstat(fd).st_size
        position = 0
        while position < size:
            header, fault = _header_at(fd, position, size)
            if header is None:
                found = _next_whole_batch(fd, position + 1, size, summary.next_offset)
                yield _broken(fd, position, size, fault, found)
                if found is None:
                    advance(size - position)
                    return
                advance(found[0] - position)
                position = found[0]
                continue
            batch = os.pread(fd, header.size, position)
            if len(batch) < header.size:
                return  # cut off under our eyes
            yield from _inspect_batch(BatchSeen(position, header, crc_is_right(batch, header)), batch, summary)
            if look_inside or deep:
                yield from _look_inside(batch, header, position, deep)
            position += header.size
            advance(header.size)


def _inspect_batch(seen: BatchSeen, batch: bytes, summary: SegmentSummary) -> Iterator[Seen]:
    yield seen
    header, position = seen.header, seen.position
    summary.batches += 1
    summary.records += header.record_count
    if not seen.is_crc_right:
        actual = crc32c(memoryview(batch)[CRC_COVERS_FROM:])
        yield Problem(
            f"bad CRC: the batch of offset {header.base_offset} says {header.crc:08x}, its bytes give {actual:08x}",
            position,
            DAMAGE_ADVICE,
        )
        return  # nothing else that it says can be trusted
    if header.base_offset < summary.next_offset:
        expected = "its file's name" if summary.batches == 1 else "the batch before it"
        yield Problem(
            f"offset {header.base_offset} goes back: by {expected} it should be {summary.next_offset} or more", position
        )
    if header.leader_epoch < summary.leader_epoch:
        yield Problem(f"leader epoch {header.leader_epoch} after {summary.leader_epoch}", position)
    summary.next_offset = max(summary.next_offset, header.next_offset)
    summary.leader_epoch = max(summary.leader_epoch, header.leader_epoch)
    summary.max_timestamp = max(summary.max_timestamp, header.max_timestamp)
    summary.ends[position] = (header.last_offset, header.max_timestamp)


def _look_inside(batch: bytes, header: BatchHeader, position: int, deep: bool) -> Iterator[Seen]:
    newest = NO_TIMESTAMP
    try:
        for record in decode_records(batch, header, UNFOLDED_BYTES_MAX):
            newest = max(newest, record.timestamp)
            yield RecordSeen(record, _marker(record) if header.is_control else None)
    except PenstockError as error:
        yield Problem(f"the records of the batch of offset {header.base_offset}: {error}", position)
        return
    # Not every client gets this right, and no consumer minds; only searching by time does.
    if deep and header.record_count and newest != header.max_timestamp:
        yield Problem(
            f"the newest record of the batch is of {newest}, its header says {header.max_timestamp}", position
        )


def _marker(record: Record) -> str:
    marker = decode_marker(record)
    return f"{marker.control_type.name.lower()} by coordinator epoch {marker.coordinator_epoch}"


def _header_at(fd: int, position: int, size: int) -> tuple[BatchHeader | None, str]:
    left = size - position
    if left < HEADER_BYTES:
        return None, f"{left} bytes are left, a batch header takes {HEADER_BYTES}"
    header = read_header(os.pread(fd, HEADER_BYTES, position))
    if header.magic != MAGIC:
        return None, f"no batch starts here: its format would be {header.magic}, not {MAGIC}"
    if header.size < HEADER_BYTES or header.last_offset_delta < 0 or header.record_count < 0 or header.base_offset < 0:
        return None, "no batch starts here: its header makes no sense"
    if header.size > left:
        return None, f"the batch of offset {header.base_offset} takes {header.size} bytes, {left} are left"
    return header, ""


def _broken(fd: int, position: int, size: int, fault: str, found: tuple[int, BatchHeader] | None) -> Problem:
    if found is not None:
        at, header = found
        what = f"{fault}; {at - position} bytes are lost, the next whole batch is at byte {at}, offset"
        return Problem(f"{what} {header.base_offset}", position, DAMAGE_ADVICE)
    if size - position >= HEADER_BYTES and _is_zero(fd, position, size):
        return Problem(f"the last {size - position} bytes are zeroes", position, CUT_ADVICE)
    return Problem(f"torn tail: {fault}", position, CUT_ADVICE)


def _is_zero(fd: int, position: int, size: int) -> bool:
    while position < size:
        chunk = os.pread(fd, min(_SEARCH_BYTES, size - position), position)
        if not chunk or any(chunk):
            return not chunk
        position += len(chunk)
    return True


def _next_whole_batch(fd: int, position: int, size: int, offset_min: int) -> tuple[int, BatchHeader] | None:
    """The first place from `position` on that is a batch with the right CRC and an offset that could follow."""
    magic = bytes((MAGIC,))
    while position + HEADER_BYTES <= size:
        chunk = os.pread(fd, _SEARCH_BYTES + HEADER_BYTES, position)
        at = chunk.find(magic, _MAGIC_AT)
        while at >= 0 and at - _MAGIC_AT + HEADER_BYTES <= len(chunk):
            start = at - _MAGIC_AT
            header = read_header(chunk, start)
            is_near = offset_min <= header.base_offset < offset_min + _OFFSET_JUMP_MAX
            if is_near and HEADER_BYTES <= header.size <= size - position - start:
                batch = os.pread(fd, header.size, position + start)
                if len(batch) == header.size and crc_is_right(batch, header):
                    return position + start, header
            at = chunk.find(magic, at + 1)
        position += _SEARCH_BYTES
    return None


def codec_name(header: BatchHeader) -> str:
    codec = header.compression
    return Codec(codec).name.lower() if codec in Codec.__members__.values() else f"codec {codec}"


def batch_document(seen: BatchSeen) -> dict[str, Any]:
    header = seen.header
    return {
        "position": seen.position,
        "size_bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "crc_ok": seen.is_crc_right,
        "codec": codec_name(header),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "timestamp_type": "append" if header.is_log_append_time else "create",
        "leader_epoch": header.leader_epoch,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }
