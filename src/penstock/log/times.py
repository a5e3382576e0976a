"""Where in a log a time begins: the first record of at least a timestamp, and the newest timestamp of all.

Called by handlers.offsets: `look` on the loop, then `first_at` or `newest_timestamp` on an I/O thread.
Laws (TRAPS L8):
- What lies below the log start, or at or above the end that was handed in, is never found.
- Indexes only say where to begin and which segments to pass over; an offset is told only after its batch was read.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType
from penstock.log.partition_log import PartitionLog
from penstock.log.segment import NO_TIMESTAMP, Segment
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import BatchHeader, crc_is_right
from penstock.records.record import scan_records, unfold


class Found(NamedTuple):
    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


class Hint(NamedTuple):
    """An entry of a time index: the batch that ends at `offset` is the first to reach `timestamp`."""

    timestamp: int
    offset: Offset


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A segment as it was when the loop looked."""

    segment: Segment
    size: int
    next_offset: Offset
    # The loop writes to the active segment and its time index, so it has asked them itself.
    is_active: bool = False
    newest: int = NO_TIMESTAMP
    hint: Hint | None = None


@dataclass(frozen=True, slots=True)
class LogView:
    segments: tuple[SegmentView, ...]
    log_start: Offset
    end: Offset
    unpacked_bytes_max: int


def look(log: PartitionLog, end: Offset, timestamp: int = NO_TIMESTAMP) -> LogView:
    """What a thread needs to search the log below `end` for `timestamp`. Called on the loop, which changes the log."""
    log.settle()
    views = [SegmentView(segment, segment.size, segment.next_offset) for segment in log.segments]
    if views:
        active = log.segments[-1]
        hint = _hint(active, timestamp)
        views[-1] = SegmentView(active, active.size, active.next_offset, True, active.max_timestamp, hint)
    return LogView(tuple(views), log.log_start, end, log.config.unpacked_bytes_max)


def first_at(view: LogView, timestamp: int) -> Found | None:
    """The first record of at least `timestamp`; None if there is none. `view` was taken for this timestamp. Blocks."""
    for part in _visible(view):
        if _newest_of(part) < timestamp:
            continue
        for position, header in _headers(view, part, _start(part, timestamp, view.log_start)):
            if header.max_timestamp >= timestamp:
                for found in _records(view, part.segment, position, header):
                    if found.timestamp >= timestamp:
                        return found
    return None


def newest_timestamp(view: LogView) -> int | None:
    """The largest timestamp of any record; None in a log without records or without times. Blocks."""
    newest = NO_TIMESTAMP
    for part in _visible(view):
        known = _newest_of(part)
        is_whole = part.segment.base_offset >= view.log_start and part.next_offset <= view.end
        if known > newest:
            newest = known if is_whole else max(newest, _newest_by_reading(view, part))
    return newest if newest != NO_TIMESTAMP else None


def _visible(view: LogView) -> Iterator[SegmentView]:
    for part in view.segments:
        if part.next_offset > view.log_start and part.segment.base_offset < view.end:
            yield part


def _newest_of(part: SegmentView) -> int:
    """The segment's largest timestamp by its batches' headers."""
    if part.is_active:
        return part.newest
    part.segment.load_max_timestamp()
    return part.segment.max_timestamp


def _hint(segment: Segment, timestamp: int) -> Hint | None:
    """The last entry before the timestamp: no batch up to it has a record of that time."""
    index = segment.time_index
    slot = bisect_left(index.timestamps, timestamp) - 1
    return Hint(index.timestamps[slot], Offset(segment.base_offset + index.offsets[slot])) if slot >= 0 else None


def _start(part: SegmentView, timestamp: int, log_start: Offset) -> int:
    """A position at or before the first batch that may hold the timestamp at or after the log start."""
    segment = part.segment
    start = segment.start_near(Offset(max(log_start, segment.base_offset)))
    hint = part.hint if part.is_active else _hint(segment, timestamp)
    if hint is None:
        return start
    position = segment.position_of(hint.offset)
    header = segment.header_at(position) if position < part.size else None
    # An index is a cache and may be of another file: believed only if it leads to the batch it was made for.
    is_right = header is not None and (header.max_timestamp, header.last_offset) == hint
    return max(start, position) if is_right else start


def _headers(view: LogView, part: SegmentView, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """The batches from `position` on that have an offset inside the view."""
    while position < part.size:
        header = part.segment.header_at(position)
        if header.base_offset >= view.end:
            return
        if header.last_offset >= view.log_start:
            yield position, header
        position += header.size


def _newest_by_reading(view: LogView, part: SegmentView) -> int:
    newest = NO_TIMESTAMP
    start = part.segment.start_near(Offset(max(view.log_start, part.segment.base_offset)))
    for at, header in _headers(view, part, start):
        if header.max_timestamp <= newest or not header.record_count:
            continue
        if header.base_offset >= view.log_start and header.last_offset < view.end:
            newest = header.max_timestamp
        else:
            seen = (found.timestamp for found in _records(view, part.segment, at, header))
            newest = max(newest, max(seen, default=NO_TIMESTAMP))
    return newest


def _records(view: LogView, segment: Segment, position: int, header: BatchHeader) -> Iterator[Found]:
    """The times of a batch's records that are inside the view."""
    batch = segment.file.read(position, header.size)
    if len(batch) < header.size or not crc_is_right(batch, header):
        raise CorruptMessage(f"{segment.path().name}: the batch at byte {position} is damaged")
    epoch = LeaderEpoch(header.leader_epoch)
    try:
        for span in scan_records(unfold(batch, header, view.unpacked_bytes_max), header):
            offset = header.base_offset + span.offset_delta
            if view.log_start <= offset < view.end:
                own = header.base_timestamp + span.timestamp_delta
                yield Found(Offset(offset), header.max_timestamp if header.is_log_append_time else own, epoch)
    except (InvalidRecord, MessageTooLarge, UnsupportedCompressionType, CorruptMessage):
        # The CRC is right, so this is what a producer sent, unread until now. Its header still says which offsets
        # and times it has; where it begins is early enough for any of them.
        offset = max(header.base_offset, view.log_start)
        yield Found(Offset(offset), header.max_timestamp, epoch)
