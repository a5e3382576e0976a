"""Arithmetic of offsets: ranges cut into tasks, and a limit shared out among partitions.

Called by batch_reader.py and stream_planning.py. Plain functions: the same numbers in, the same plan out, which a
replayed batch relies on.
"""

import heapq
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from penstock.model import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one task reads: start <= offset < end."""

    at: TopicPartition
    topic_id: UUID | None
    start: int
    end: int

    @property
    def size(self) -> int:
        """Offsets, not records: compaction and transactions leave some without one."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.at} from {self.start} to {self.end}"


def cut_ranges(ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Empty ranges left out; none above max_records; at least min_partitions, as long as there is an offset for each.

    Big ranges come first: the task that takes longest then starts soonest.
    """
    # Sorted before ties are broken: whatever the order they come in, the plan is the same.
    whole = sorted((one for one in ranges if one.size > 0), key=lambda one: one.at)
    parts = [(one, -(-one.size // max_records) if max_records else 1) for one in whole]
    if min_partitions is not None:
        parts = _cut_further(parts, min_partitions)
    pieces = [piece for one, count in parts for piece in _cut(one, count)]
    return sorted(pieces, key=lambda piece: (-piece.size, piece.at, piece.start))


def share_limit(limit: int, lags: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """How many offsets each partition may read, in proportion to its lag, as Spark's connector shares them.

    A partition that lags gets one at least, so that small ones never starve; the sum can exceed the limit by those.
    """
    total = sum(lag for lag in lags.values() if lag > 0)
    if total <= limit:
        return {at: max(lag, 0) for at, lag in lags.items()}
    # Whole numbers throughout: offsets outgrow what a float holds exactly.
    return {at: min(lag, max(1, limit * lag // total)) if lag > 0 else 0 for at, lag in lags.items()}


def _cut_further(parts: list[tuple[OffsetRange, int]], wanted: int) -> list[tuple[OffsetRange, int]]:
    """Give one more part to whichever range has the biggest parts, until there are enough."""
    counts = [count for _, count in parts]
    heap = [(-one.size / count, index) for index, (one, count) in enumerate(parts)]
    heapq.heapify(heap)
    missing = min(wanted, sum(one.size for one, _ in parts)) - sum(counts)
    while missing > 0 and heap:
        _, index = heapq.heappop(heap)
        size = parts[index][0].size
        if counts[index] < size:
            counts[index] += 1
            missing -= 1
            heapq.heappush(heap, (-size / counts[index], index))
    return [(one, count) for (one, _), count in zip(parts, counts, strict=True)]


def _cut(one: OffsetRange, count: int) -> Iterable[OffsetRange]:
    edges = [one.start + one.size * step // count for step in range(count + 1)]
    return (OffsetRange(one.at, one.topic_id, start, end) for start, end in itertools.pairwise(edges))
