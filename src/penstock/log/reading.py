"""Finding batches in a log's segments: from an offset on, below an end, as they lie in the file.

Called by log.partition_log, on the loop with what the page cache holds, on an I/O thread with what the disk holds.
Laws:
- Nothing is told of a batch at or above the end that was handed in.
- An index only says where to begin; a batch is given only after the header in the file has said which it is.
- What was read on an I/O thread is given only after its checksums were found right (check_batches). What the page
  cache held is not looked into: the loop has no time for that, and most of it was checked when it was written.
- CorruptMessage says that the file does not hold what the log knows to be there: damage, since torn ends are cut off
  when a log is opened.
"""

from bisect import bisect_right
from struct import Struct

from penstock.errors import CorruptMessage
from penstock.log.segment import Segment
from penstock.model import Offset
from penstock.records.batch import HEADER_BYTES, crc_is_right, read_header

# base_offset, batch_length, last_offset_delta: all that finding a batch takes.
_STEP = Struct(">qi11xi")

# An index that leaves much more than this to be walked through is short, and made anew.
_WALK_BYTES_MAX = 1 << 20

# What a segment gives if none of its batches reaches the offset: the next one does.
NOT_HERE = memoryview(b"")


def read_segment(
    segment: Segment,
    offset: Offset,
    size_max: int,
    end: Offset,
    index_interval_bytes: int,
    at_least_one: bool,
    cached_only: bool,
) -> memoryview | None:
    """Batches of one segment; NOT_HERE if none reaches `offset`, None if only the disk knows and `cached_only`."""
    if cached_only and not segment.is_loaded:
        return None
    read = segment.file.read_cached if cached_only else segment.file.read
    limit = segment.size  # before next_offset, which an append moves first
    if end < segment.next_offset:
        below = _position_below(segment, end, cached_only)
        if below is None:
            return None
        limit = min(limit, below)
    index = segment.offset_index
    start, next_entry = index.window(offset - segment.base_offset)
    promised = segment.base_offset + index.last_offset_at(start) if start else None
    skipped = (next_entry if next_entry is not None else segment.size) - start
    wanted = min(limit - start, size_max + min(skipped, index_interval_bytes + HEADER_BYTES))
    if wanted <= 0:
        return NOT_HERE
    chunk = read(start, wanted)
    if chunk is None:
        return None
    at = 0
    walked_max = start + _WALK_BYTES_MAX + 4 * index_interval_bytes
    while True:
        if at + HEADER_BYTES > len(chunk):
            # The batch we look for begins beyond what was read (or cached): go on from there.
            start, at = start + at, 0
            if start >= limit:
                return NOT_HERE
            chunk = read(start, min(limit - start, max(size_max, HEADER_BYTES)))
            if chunk is None or (cached_only and len(chunk) < HEADER_BYTES):
                return None
            if len(chunk) < HEADER_BYTES:
                raise no_batch(segment, start)
        base_offset, batch_length, last_delta = _STEP.unpack_from(chunk, at)
        size, last_offset = batch_length + 12, base_offset + last_delta
        if promised is not None and promised != last_offset:
            segment.distrust_index()
            return _read_without_index(segment, offset, size_max, end, index_interval_bytes, at_least_one, cached_only)
        if not (
            HEADER_BYTES <= size <= limit - start - at
            and segment.base_offset <= base_offset <= last_offset < segment.next_offset
        ):
            raise no_batch(segment, start + at)
        if last_offset >= offset:
            break
        promised = None
        at += size
        if start + at > walked_max + size:
            return _read_without_index(segment, offset, size_max, end, index_interval_bytes, at_least_one, cached_only)
    if size > size_max and not at_least_one:
        return chunk[:0]
    if at + size <= len(chunk):
        return chunk[at : at + max(size_max, size)]
    start += at
    chunk = read(start, min(limit - start, max(size_max, size)))
    if chunk is None or (cached_only and len(chunk) < size):
        return None
    if len(chunk) < size:
        raise no_batch(segment, start)
    return chunk


def _read_without_index(
    segment: Segment,
    offset: Offset,
    size_max: int,
    end: Offset,
    index_interval_bytes: int,
    at_least_one: bool,
    cached_only: bool,
) -> memoryview | None:
    """The index is wrong or far too short: make it anew, where that may block, and read again."""
    if cached_only:
        return None
    segment.rebuild_indexes(index_interval_bytes)
    return read_segment(segment, offset, size_max, end, index_interval_bytes, at_least_one, cached_only)


def no_batch(segment: Segment, position: int) -> CorruptMessage:
    return CorruptMessage(f"{segment.directory.name}: no record batch at byte {position} of {segment.path().name}")


def check_batches(segment: Segment, batches: memoryview) -> None:
    """CorruptMessage if one of these batches is not what its checksum says; one cut short at the end is passed over.

    On an I/O thread: it takes as long as reading them all does.
    """
    at, size = 0, len(batches)
    while size - at >= HEADER_BYTES:
        header = read_header(batches, at)
        where = f"{segment.directory.name}: the batch at offset {header.base_offset} of {segment.path().name}"
        if header.size < HEADER_BYTES:
            raise CorruptMessage(f"{where} cannot be {header.size} bytes long")
        if header.size > size - at:
            return
        if not crc_is_right(batches, header, at):
            raise CorruptMessage(f"{where} is not what its CRC says")
        at += header.size


def end_of_empty_batches(batches: memoryview) -> Offset | None:
    """The offset after them if compaction has left none of these batches a record; None if one has any."""
    at, end = 0, None
    while len(batches) - at >= HEADER_BYTES:
        base_offset, batch_length, last_delta = _STEP.unpack_from(batches, at)
        if batch_length + 12 != HEADER_BYTES:
            return None
        end = Offset(base_offset + last_delta + 1)
        at += HEADER_BYTES
    return end


def _position_below(segment: Segment, end: Offset, cached_only: bool) -> int | None:
    """Where the first batch that reaches `end` starts; None if finding it would ask the disk."""
    if not cached_only:
        return segment.position_of(end)
    index = segment.offset_index
    position, _ = index.window(end - segment.base_offset)
    promised = segment.base_offset + index.last_offset_at(position) if position else None
    while position < segment.size:
        head = segment.file.read_cached(position, HEADER_BYTES)
        if head is None or len(head) < HEADER_BYTES:
            return None
        base_offset, batch_length, last_delta = _STEP.unpack_from(head)
        if batch_length + 12 < HEADER_BYTES or (promised is not None and promised != base_offset + last_delta):
            return None  # the other road has the time to find out what is wrong
        if base_offset + last_delta >= end:
            break
        promised = None
        position += batch_length + 12
    return position


def read_segments(
    segments: list[Segment],
    bases: list[int],
    offset: Offset,
    size_max: int,
    end: Offset,
    interval: int,
    at_least_one: bool,
    cached_only: bool,
) -> memoryview | None:
    """The first batches from `offset` on, below `end`, wherever they lie. `bases` are where the segments begin.

    Also called on an I/O thread, while the loop adds and takes away segments.
    """
    slot = max(min(bisect_right(bases, offset), len(segments)) - 1, 0)
    while slot and segments[slot].base_offset > offset:  # old ones went after `bases` was made
        slot -= 1
    empty = memoryview(b"")
    while slot < len(segments) and offset < end:
        segment = segments[slot]
        # Asked first: only of a segment that was closed before we looked is the end known to stand still.
        is_closed = slot + 1 < len(segments)
        found = NOT_HERE
        if segment.next_offset > offset:
            found = read_segment(segment, offset, size_max, end, interval, at_least_one, cached_only)
            if found is NOT_HERE and is_closed and segment.next_offset <= end:
                # Compaction leaves holes in a segment, never at its end: these records are lost.
                raise no_batch(segment, segment.size)
        if found is NOT_HERE:
            slot += 1
            continue
        if found and not cached_only:
            check_batches(segment, found)
        beyond = end_of_empty_batches(found) if found else None
        if beyond is None:
            return found
        # librdkafka takes an answer of nothing but emptied batches for one too small to hold a message.
        empty, offset = found, beyond
    return empty
