"""What the broker and the worker process that compacts tell each other: a job, and what came of it.

Called by log.cleanable, log.cleaner, log.compactor and log.compaction. Apart from the work, which only the worker
imports.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import PenstockError
from penstock.log.aborted import AbortedTransaction
from penstock.log.producers import ProducerTail

OFFSET_MAX = 2**63 - 1


class CleaningFailed(PenstockError):
    """The log is as it was; what the worker left behind is removed with the next job or the next start."""


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A closed segment as the log knows it."""

    base_offset: int
    next_offset: int
    size: int
    index_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanJob:
    """All that a worker process needs to know."""

    directory: Path
    segments: tuple[SourceSegment, ...]  # closed, oldest first, from the first of the log
    dirty_start: int  # below, an earlier compaction has left each key once
    dirty_end: int  # at and above, nothing may change
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    unpacked_bytes_max: int  # of one batch
    dedupe_buffer_bytes: int
    producers: Mapping[int, ProducerTail] = field(default_factory=dict[int, ProducerTail])
    aborted: tuple[AbortedTransaction, ...] = ()
    markers_end: int = OFFSET_MAX  # at and above, markers stay: no snapshot of the producers knows yet what they ended


@dataclass(frozen=True, slots=True)
class CleanedSegment:
    """A compacted segment that waits as `.cleaned` files for its swap."""

    base_offset: int
    next_offset: int
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    replaces: tuple[int, ...]  # base offsets, the first is its own
    aborts_gone: tuple[int, ...] = ()  # offsets of abort markers that are not in it any more


@dataclass(frozen=True, slots=True)
class CleanResult:
    cleaned: tuple[CleanedSegment, ...]  # to be swapped in, oldest first; segments that would not change are left out
    clean_end: int  # the next job's dirty_start
    bytes_read: int
    bytes_kept: int
