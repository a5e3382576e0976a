"""A log made durable, with what the next start needs of it: indexes, producers, aborted transactions, recovery point.

Called by log.directory: for all logs now and then and at the end, for one log before its oldest segments go.
Laws:
- A recovery point is written only after everything below it was synced, and after the snapshot that belongs to it.
- The files of a log are written in the log's turn; one that has ended (cut, deleted) is not written to any more.
- What one log cannot do does not keep the others from their checkpoint.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from penstock.disk import Disk
from penstock.errors import PenstockError
from penstock.log.aborted import AbortedPart, write_aborted
from penstock.log.checkpoints import SavedOffset
from penstock.log.one_by_one import OneByOne
from penstock.log.partition_log import PartitionLog
from penstock.log.points import Points
from penstock.log.recovery import write_snapshot
from penstock.model import TopicPartition

logger = logging.getLogger(__name__)

# A log with so many batches since its last checkpoint does not wait for the next: read again they take some 60 ms.
BUSY_BATCHES = 4000


class Checkpointing:
    def __init__(self, disk: Disk, logs: Mapping[TopicPartition, PartitionLog], points: Points) -> None:
        self._disk = disk
        self._logs = logs
        self._points = points
        self._rounds = OneByOne()

    async def save_all(self) -> None:
        """Every log that is further than what was last saved of it."""
        await self._rounds.run(partial(self._save, self._is_unsaved))

    async def save_busy(self) -> None:
        """Those with much to lose only."""
        if any(map(_is_busy, self._logs.values())):
            await self._rounds.run(partial(self._save, _is_busy))

    async def _save(self, is_wanted: Callable[[PartitionLog], bool]) -> None:
        for at, log in list(self._logs.items()):
            if log.failure is not None or not log.segments or not is_wanted(log):
                continue
            try:
                await log.turns.run(partial(self.save_log, log))
            except PenstockError:
                continue  # said, and kept offline, by the log itself
            except OSError as error:
                if not log.is_ended:
                    logger.error("%s: indexes and producers could not be written: %s", at, error)
        await self._points.save()

    def _is_unsaved(self, log: PartitionLog) -> bool:
        return log.next_offset > self._points.recovery_point(log.at, log.topic_id) or log.aborted.is_unsaved

    async def save_log(self, log: PartitionLog) -> None:
        """In the log's turn: make it durable and take its recovery point, which the caller then saves."""
        failure = log.settle()
        if failure is not None:
            raise failure
        offset, active, batches = log.next_offset, log.segments[-1], log.unsaved_batches
        saving = log.aborted.prepare_saving([segment.base_offset for segment in log.segments])
        snapshot, indexes = log.producers.encode(saving.digests), active.encode_indexes()
        await asyncio.shield(log.sync.wait_for(offset))

        def write() -> None:
            if log.is_ended:
                return
            active.write_indexes(indexes)
            if log.segments[-1] is not active:
                # Rolled meanwhile: what we wrote may have come after the complete indexes, so they are written again.
                active.write_indexes(active.encode_indexes())
            write_aborted(self._disk, log.directory, _still_there(log, saving.parts))
            write_snapshot(self._disk, log.directory, offset, snapshot)

        await self._disk.run(write)
        log.aborted.saved(saving)
        log.snapshot_offset = offset
        log.unsaved_batches -= batches
        # A topic of the same name may have come meanwhile, or this log may be about to be cut.
        if not log.is_ended:
            self._points.recovery_points[log.at] = SavedOffset(log.durable_offset, log.topic_id)


def _is_busy(log: PartitionLog) -> bool:
    return log.unsaved_batches >= BUSY_BATCHES


def _still_there(log: PartitionLog, parts: list[AbortedPart]) -> list[AbortedPart]:
    bases = {segment.base_offset for segment in log.segments}
    return [part for part in parts if part.base_offset in bases]
