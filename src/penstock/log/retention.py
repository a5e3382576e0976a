"""Which old segments a log may let go, by age, by size, and below its start. Pure; log.directory acts on it."""

from penstock.log.partition_log import PartitionLog
from penstock.model import Offset

UNLIMITED = -1


def start_after_retention(log: PartitionLog, end: Offset, now_ms: int) -> Offset:
    """Where the log should start now. Never above `end`, the offset up to which everything is committed.

    Only whole segments go, oldest first, and the walk stops at the first that must stay: a log has no holes.
    """
    config = log.config
    start = log.log_start
    if "delete" not in config.cleanup_policy:
        return start
    excess = log.size - config.retention_bytes if config.retention_bytes != UNLIMITED else 0
    for segment in log.segments:
        if segment.next_offset > end or segment.size == 0:
            break
        is_too_old = (
            config.retention_ms != UNLIMITED
            and segment.max_timestamp >= 0
            and now_ms - segment.max_timestamp > config.retention_ms
        )
        is_too_much = config.retention_bytes != UNLIMITED and excess >= segment.size
        if not (is_too_old or is_too_much):
            break
        excess -= segment.size
        start = max(start, segment.next_offset)
    return start
