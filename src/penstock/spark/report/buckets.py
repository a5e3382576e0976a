"""When records came, by day and by hour, out of offsets alone. Plain functions.

Called by report.gathering. A log answers "the first offset at or after this time"; two such answers, one bucket apart,
say how many came between. The answers never go down as time goes up, whatever order the timestamps are in.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.model import TopicPartition
from penstock.spark.report.facts import Bucket


class Log(NamedTuple):
    """One partition: its offsets and what they take on disk, if that is known."""

    start: int
    end: int
    bytes: int | None

    @property
    def rows(self) -> int:
        return max(0, self.end - self.start)


def edges(now_ms: int, bucket_ms: int, count: int) -> list[int]:
    """The beginnings of the last `count` buckets; the last of them holds now."""
    last = now_ms - now_ms % bucket_ms
    return [last - bucket_ms * back for back in range(count - 1, -1, -1)]


def fill(
    logs: Mapping[TopicPartition, Log],
    starts_ms: Sequence[int],
    offsets: Sequence[Mapping[TopicPartition, int]],
    oldest_ms: int | None,
) -> tuple[Bucket, ...]:
    """`offsets[i][at]`: the first offset at or after `starts_ms[i]`, or -1 where nothing is that young."""
    assert len(starts_ms) == len(offsets)
    positions = {at: [_position(log, found.get(at, -1)) for found in offsets] + [log.end] for at, log in logs.items()}
    buckets: list[Bucket] = []
    for number, start_ms in enumerate(starts_ms):
        rows = 0
        size: float | None = 0.0
        for at, log in logs.items():
            came = max(0, positions[at][number + 1] - positions[at][number])
            rows += came
            if size is not None and came:
                size = None if log.bytes is None else size + came * log.bytes / log.rows
        has_begun = oldest_ms is not None and oldest_ms < start_ms
        is_over = number < len(starts_ms) - 1
        known = size is not None and any(log.bytes is not None for log in logs.values())
        buckets.append(
            Bucket(start_ms, rows, round(size) if known and size is not None else None, has_begun and is_over)
        )
    return tuple(buckets)


def _position(log: Log, offset: int) -> int:
    return log.end if offset < 0 else min(max(offset, log.start), log.end)
