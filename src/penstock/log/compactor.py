"""Compaction as the broker runs it: which log is worth it, the job in the worker, the result swapped in.

Called by broker, a round every `log.cleaner.backoff.ms`. Deciding what may go is log.cleanable's and log.compaction's.
Laws:
- The loop never unpacks a record: the work is done by the process behind log.cleaner.
- Segments of a log that is being compacted are not removed by anyone else (`LogDirectory.busy`).
- Readers keep the files they have open; a replaced segment is closed only after `file.delete.delay.ms`.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.disk import Disk
from penstock.errors import PenstockError
from penstock.log.checkpoints import SavedOffset, read_saved_offsets, write_saved_offsets
from penstock.log.clean_job import CleanedSegment, CleaningFailed, CleanJob, CleanResult
from penstock.log.cleanable import plan_cleaning
from penstock.log.directory import LogDirectory
from penstock.log.partition_log import PartitionLog
from penstock.log.segment import Segment
from penstock.log.swap import swap_in
from penstock.metrics import BrokerMetrics
from penstock.model import Offset, TopicPartition

if TYPE_CHECKING:
    from penstock.log.cleaner import Cleaner

logger = logging.getLogger(__name__)

CLEANED_UP_TO = "cleaner-offset-checkpoint"


class Compactor:
    def __init__(
        self, disk: Disk, logs: LogDirectory, config: BrokerConfig, clock: Clock, metrics: BrokerMetrics
    ) -> None:
        self._disk = disk
        self._logs = logs
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._cleaner: Cleaner | None = None  # since the first job
        self._checkpoint = logs.root / CLEANED_UP_TO
        # Up to where each log has each key once already. Lost, it only makes the next round look further back.
        self._cleaned_up_to = read_saved_offsets(disk, self._checkpoint)
        logs.on_cut = self._forget_above

    async def run_round(self, stable_offset: Callable[[TopicPartition], Offset | None]) -> int:
        """Compact every log that is worth it, one after the other; how many were."""
        if not self._config.log_cleaner_enable:
            return 0
        done = 0
        for at, log in list(self._logs.logs.items()):
            if not log.config.compact or log.failure is not None or len(log.segments) < 2:
                continue
            # Since the round began another log may have taken its place, and the offset would be that one's.
            end = stable_offset(at) if self._logs.logs.get(at) is log else None
            if end is not None:
                done += await self._compact(log, end)
        if done:
            logs = self._logs.logs
            live = {
                at: saved
                for at, saved in self._cleaned_up_to.items()
                if at in logs and logs[at].topic_id == saved.topic_id
            }
            self._cleaned_up_to = live
            await self._disk.run(write_saved_offsets, self._disk, self._checkpoint, dict(live))
        return done

    def backlog(self) -> Iterator[tuple[float, bool]]:
        """For each compacted log the share of it that was never compacted, and whether that is more than it may be."""
        for log in self._logs.logs.values():
            if not log.config.compact or log.failure is not None:
                continue
            saved = self._cleaned_up_to.get(log.at)
            clean_end = saved.offset if saved is not None and saved.topic_id == log.topic_id else log.log_start
            closed = log.segments[:-1]
            total = sum(segment.size for segment in closed)
            dirty = sum(segment.size for segment in closed if segment.next_offset > clean_end)
            ratio = dirty / total if total else 0.0
            yield ratio, ratio > log.config.min_cleanable_dirty_ratio

    def close(self) -> None:
        if self._cleaner is not None:
            self._cleaner.close()

    def _forget_above(self, at: TopicPartition, end: Offset) -> None:
        """What is written there from now on was never compacted."""
        saved = self._cleaned_up_to.get(at)
        if saved is not None and saved.offset > end:
            self._cleaned_up_to[at] = SavedOffset(end, saved.topic_id)

    async def _compact(self, log: PartitionLog, stable_offset: Offset) -> bool:
        self._logs.busy.add(log.at)
        try:
            job = await self._plan(log, stable_offset)
            if job is None:
                return False
            result = await self._worker().clean(job)
            await self._take(log, result)
        except (PenstockError, OSError) as error:
            if self._logs.logs.get(log.at) is log:
                logger.warning("%s was not compacted: %s", log.at, error)
                self._metrics.compaction_failures.value += 1
            return False
        finally:
            self._logs.busy.discard(log.at)
        self._cleaned_up_to[log.at] = SavedOffset(Offset(result.clean_end), log.topic_id)
        self._metrics.compactions.value += 1
        self._metrics.compacted_bytes.value += result.bytes_read - result.bytes_kept
        return True

    async def _plan(self, log: PartitionLog, stable_offset: Offset) -> CleanJob | None:
        closed = log.segments[:-1]
        await self._disk.run(_learn_timestamps, closed)
        saved = self._cleaned_up_to.get(log.at)
        return plan_cleaning(
            log,
            # An earlier topic of the same name had other keys.
            saved.offset if saved is not None and saved.topic_id == log.topic_id else log.log_start,
            stable_offset,
            self._clock.now_ms(),
            dedupe_buffer_bytes=self._config.log_cleaner_dedupe_buffer_size,
            unpacked_bytes_max=log.config.unpacked_bytes_max,
            producers=log.producers.tails(),
            aborted=log.aborted_transactions(log.log_start, stable_offset),
        )

    def _worker(self) -> "Cleaner":
        if self._cleaner is None:
            # Only now: most brokers have nothing to compact, and none has when it starts.
            from penstock.log.cleaner import Cleaner

            self._cleaner = Cleaner()
        return self._cleaner

    async def _take(self, log: PartitionLog, result: CleanResult) -> None:
        for cleaned in result.cleaned:
            await log.turns.run(partial(self._swap, log, cleaned))

    async def _swap(self, log: PartitionLog, cleaned: CleanedSegment) -> None:
        """In the log's turn: else a checkpoint that still knows these markers could put them down after the swap."""
        first = _slot_of(log, cleaned)
        if first is None or log.is_ended:
            raise CleaningFailed(f"{log.at}: its segments changed meanwhile")
        old = log.segments[first : first + len(cleaned.replaces)]
        await self._disk.run(_open_all, old)
        log.aborted.forget(cleaned.aborts_gone)
        await self._disk.run(swap_in, self._disk, log.directory, cleaned.base_offset, cleaned.replaces)
        if log.is_ended:
            return  # deleted while we were swapping: its files are on their way out too
        first = _slot_of(log, cleaned)
        assert first is not None, "nobody removes segments of a busy log"
        log.replace_segments(first, len(old), [self._segment(log, cleaned, old[-1].next_offset)])
        log.aborted.distrust_files()
        self._logs.close_later(log, old)

    def _segment(self, log: PartitionLog, cleaned: CleanedSegment, next_offset: Offset) -> Segment:
        segment = Segment(self._disk, log.directory, Offset(cleaned.base_offset), self._clock.now_ms())
        segment.size = cleaned.size
        # Where the old ones ended: the next segment starts there, whatever compaction left of the last batches.
        segment.next_offset = next_offset
        segment.max_timestamp = cleaned.max_timestamp
        segment.max_timestamp_offset = cleaned.max_timestamp_offset
        return segment


def _slot_of(log: PartitionLog, cleaned: CleanedSegment) -> int | None:
    """Where the segments that are to be replaced stand; None if they are not all there any more."""
    bases = [segment.base_offset for segment in log.segments[:-1]]
    if cleaned.base_offset not in bases:
        return None
    first = bases.index(Offset(cleaned.base_offset))
    return first if tuple(bases[first : first + len(cleaned.replaces)]) == cleaned.replaces else None


def _open_all(segments: list[Segment]) -> None:
    """Readers go on in the old files, so they must be open before their names are taken away."""
    for segment in segments:
        _ = segment.file, segment.offset_index, segment.time_index


def _learn_timestamps(segments: list[Segment]) -> None:
    for segment in segments:
        segment.load_max_timestamp()
