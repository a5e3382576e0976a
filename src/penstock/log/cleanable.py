"""How much of a log may be compacted now, and whether that is worth the work.

Called by log.directory before it hands a job to log.cleaner. Looks at a log and changes nothing; closed segments
must know their largest timestamp (Segment.load_max_timestamp).
"""

from collections.abc import Mapping, Sequence

from penstock.log.aborted import AbortedTransaction
from penstock.log.clean_job import CleanJob, SourceSegment
from penstock.log.index import TIME_ENTRY_BYTES
from penstock.log.partition_log import PartitionLog
from penstock.log.producers import ProducerTail
from penstock.log.segment import Segment
from penstock.model import Offset


def plan_cleaning(
    log: PartitionLog,
    dirty_start: Offset,
    last_stable_offset: Offset,
    now_ms: int,
    *,
    dedupe_buffer_bytes: int,
    unpacked_bytes_max: int,
    producers: Mapping[int, ProducerTail],
    aborted: Sequence[AbortedTransaction] = (),
) -> CleanJob | None:
    """The next compaction of this log, None if it can wait. May block, once `max.compaction.lag.ms` is set."""
    config, closed = log.config, log.segments[:-1]
    if not log.log_start <= dirty_start <= log.next_offset:
        # The log was cut at either end since the last compaction: what that one said no longer holds.
        dirty_start = log.log_start
    dirty_end = find_dirty_end(closed, dirty_start, last_stable_offset, config.min_compaction_lag_ms, now_ms)
    clean_bytes = sum(segment.size for segment in closed if segment.next_offset <= dirty_start)
    dirty = [segment for segment in closed if segment.next_offset > dirty_start and segment.base_offset < dirty_end]
    dirty_bytes = sum(segment.size for segment in dirty)
    if dirty_end <= dirty_start or not dirty_bytes:
        return None
    is_worth_it = dirty_bytes / (clean_bytes + dirty_bytes) > config.min_cleanable_dirty_ratio
    if not is_worth_it and not _is_overdue(dirty, config.max_compaction_lag_ms, now_ms):
        return None
    interval = max(config.index_interval_bytes, 1)
    return CleanJob(
        directory=log.directory,
        segments=tuple(
            SourceSegment(
                segment.base_offset,
                segment.next_offset,
                segment.size,
                index_bytes=segment.size // interval * TIME_ENTRY_BYTES,
            )
            for segment in closed
            if segment.base_offset < dirty_end
        ),
        dirty_start=dirty_start,
        dirty_end=dirty_end,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        unpacked_bytes_max=unpacked_bytes_max,
        dedupe_buffer_bytes=dedupe_buffer_bytes,
        producers=dict(producers),
        aborted=tuple(aborted),
        markers_end=log.snapshot_offset,
    )


def find_dirty_end(
    closed: Sequence[Segment], dirty_start: Offset, last_stable_offset: Offset, lag_ms: int, now_ms: int
) -> Offset:
    """The first offset that may not be compacted: of the active segment, of an open transaction, of a young segment."""
    if not closed:
        return dirty_start
    end = min(last_stable_offset, closed[-1].next_offset)
    for segment in closed:
        if lag_ms > 0 and segment.next_offset > dirty_start and segment.max_timestamp > now_ms - lag_ms:
            end = min(end, segment.base_offset)
            break
    return Offset(max(dirty_start, end))


def _is_overdue(dirty: Sequence[Segment], lag_ms: int, now_ms: int) -> bool:
    """Whether the oldest record that was never compacted has waited longer than it may."""
    if lag_ms >= now_ms:
        return False
    for segment in dirty:
        first_timestamp = segment.first_timestamp
        if first_timestamp < 0 and segment.size:
            first_timestamp = segment.header_at(0).max_timestamp
        if 0 <= first_timestamp < now_ms - lag_ms:
            return True
    return False
