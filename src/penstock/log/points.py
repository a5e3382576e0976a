"""How far each log of a data directory is safe, where it starts, and what of it is committed: three files for all logs.

Called by log.directory, on the loop; the files are written on an I/O thread.
Laws:
- What says that a log reached further than it does is lowered before the log is cut: a log that ends below its recovery
  point has lost records.
- What was saved of a topic is not taken for another of its name.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.disk import Disk
from penstock.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    SavedOffset,
    find_saved_offsets,
    read_saved_offsets,
    write_saved_offsets,
)
from penstock.log.one_by_one import OneByOne
from penstock.log.partition_log import PartitionLog
from penstock.model import NO_TOPIC_ID, Offset, TopicId, TopicPartition

Saved = dict[TopicPartition, SavedOffset]


class Points:
    def __init__(self, disk: Disk, root: Path, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        self._disk = disk
        self._root = root
        self._logs = logs
        self.recovery_points: Saved = {}
        # Of logs that are not running here; the others know their own.
        self.log_starts: Saved = {}
        self.high_watermarks: Saved = {}
        # False if the file of log starts was lost: then a log starts where its first segment does.
        self.starts_are_known = False
        self._saves = OneByOne()
        self._watermark_saves = OneByOne()

    def read(self) -> None:
        """Take what the last run saved. Blocks."""
        self.recovery_points = read_saved_offsets(self._disk, self._root / RECOVERY_POINTS)
        self.high_watermarks = read_saved_offsets(self._disk, self._root / HIGH_WATERMARKS)
        path = self._root / LOG_STARTS
        if not self._disk.exists(path) and not any(map(names_log, self._disk.list_names(self._root))):
            # A new directory: said now, so that a log that loses its first file before anything was saved is seen.
            write_saved_offsets(self._disk, path, {})
        starts = find_saved_offsets(self._disk, path)
        self.starts_are_known = starts is not None
        self.log_starts = starts or {}

    def keep_only(self, is_wanted: Callable[[TopicPartition], bool]) -> None:
        for points in (self.recovery_points, self.log_starts, self.high_watermarks):
            for at in [at for at in points if not is_wanted(at)]:
                del points[at]

    def forget(self, at: TopicPartition) -> None:
        for points in (self.recovery_points, self.log_starts, self.high_watermarks):
            points.pop(at, None)

    async def forget_for_good(self, at: TopicPartition) -> None:
        """The same, on stable storage."""
        self.forget(at)
        await self.save()
        await self._watermark_saves.run_shared(self._save_high_watermarks)

    def recovery_point(self, at: TopicPartition, topic_id: TopicId) -> Offset:
        return offset_of(self.recovery_points, at, topic_id)

    def log_start(self, at: TopicPartition, topic_id: TopicId) -> Offset:
        return offset_of(self.log_starts, at, topic_id)

    async def save(self) -> None:
        """Put recovery points and log starts, as they are when it begins, on stable storage."""
        await self._saves.run_shared(self._save)

    async def save_high_watermarks(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        if not offsets:
            return
        for at, offset in offsets.items():
            log = self._logs.get(at)
            # Of a log that is being cut the lower one counts, which is here already.
            if log is not None and not log.is_ended:
                self.high_watermarks[at] = SavedOffset(offset, log.topic_id)
        await self._watermark_saves.run_shared(self._save_high_watermarks)

    async def lower(self, log: PartitionLog, log_start: Offset, end: Offset) -> None:
        """The log, which has ended, is about to be cut to `end`: nothing says any more that it once reached further."""
        assert log.is_ended
        self.log_starts[log.at] = SavedOffset(log_start, log.topic_id)
        if self.recovery_point(log.at, log.topic_id) > end:
            self.recovery_points[log.at] = SavedOffset(end, log.topic_id)
        # Also if the point is low enough by now: a save with a higher one may still be under way.
        await self.save()
        if offset_of(self.high_watermarks, log.at, log.topic_id) > end:
            self.high_watermarks[log.at] = SavedOffset(end, log.topic_id)
            await self._watermark_saves.run_shared(self._save_high_watermarks)

    async def _save(self) -> None:
        starts, points = self._starts(), dict(self.recovery_points)
        await self._disk.run(write_saved_offsets, self._disk, self._root / LOG_STARTS, starts)
        await self._disk.run(write_saved_offsets, self._disk, self._root / RECOVERY_POINTS, points)

    async def _save_high_watermarks(self) -> None:
        offsets = dict(self.high_watermarks)
        await self._disk.run(write_saved_offsets, self._disk, self._root / HIGH_WATERMARKS, offsets)

    def _starts(self) -> Saved:
        running = {at: log for at, log in self._logs.items() if not log.is_ended}
        starts = {at: SavedOffset(log.log_start, log.topic_id) for at, log in running.items() if log.log_start > 0}
        return {**{at: start for at, start in self.log_starts.items() if at not in running}, **starts}


def names_log(name: str) -> bool:
    """Whether a directory of this name may be a log's."""
    topic, _, partition = name.rpartition("-")
    return bool(topic) and partition.isdecimal()


def offset_of(points: Saved, at: TopicPartition, topic_id: TopicId) -> Offset:
    """What was saved of this very topic, not of an earlier one of its name."""
    saved = points.get(at)
    return saved.offset if saved is not None and saved.topic_id in (topic_id, NO_TOPIC_ID) else Offset(0)
