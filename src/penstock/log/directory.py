"""All logs of one data directory: opened together, checkpointed together, closed together.

Called by broker and replication.replicas. Owns the files that speak of every log at once: the recovery
points, the log starts and the mark of a clean stop.
Laws:
- The clean-stop mark is removed before the first log is opened (KAFKA-10471), written after the last was synced.
- A recovery point is written only after everything below it was synced.
- A log start is on stable storage before the files below it go: else a crash might bring back some of them. So is
  a producers' snapshot that is newer than all that goes: else a crash might bring back a transaction without its end.
- Nothing is deleted because nobody claims it: a directory without a topic stays, and is spoken of (TRAPS L3).
- A deleted segment's file stays open for `file.delete.delay.ms`, since a read on an I/O thread may be using it.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from crc32c import crc32c

from penstock.clock import Clock, Rng
from penstock.config import TopicConfig
from penstock.disk import Disk
from penstock.errors import PenstockError, StorageFailed, UnknownTopicOrPartition
from penstock.log.aborted import AbortedPart, write_aborted
from penstock.log.checkpoints import (
    LOG_STARTS,
    RECOVERY_POINTS,
    SavedOffset,
    find_saved_offsets,
    read_saved_offsets,
    write_saved_offsets,
)
from penstock.log.partition_log import TOPIC_ID_FILE, PartitionLog, read_topic_id, sync_topic_id, write_topic_id
from penstock.log.recovery import CleanEnd, KnownPoints, open_log, write_snapshot
from penstock.log.retention import start_after_retention
from penstock.log.segment import Segment
from penstock.model import NO_TOPIC_ID, Offset, TopicId, TopicPartition

logger = logging.getLogger(__name__)

CLEAN_STOP = "clean-stop.json"
DELETED_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
# A topic's name may be almost as long as a file's: of the name of a directory set aside only so much is kept.
SET_ASIDE_NAME_MAX = 200


class LogRequest(NamedTuple):
    """A log the cluster says this broker holds."""

    at: TopicPartition
    topic_id: TopicId
    config: TopicConfig


class LogDirectory:
    def __init__(self, disk: Disk, root: Path, clock: Clock, rng: Rng) -> None:
        self._disk = disk
        self.root = root
        self._clock = clock
        self._rng = rng
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.offline: dict[TopicPartition, StorageFailed] = {}
        self.was_clean = False
        # Logs whose segments somebody is at work on; retention leaves them alone meanwhile.
        self.busy: set[TopicPartition] = set()
        self._recovery_points: dict[TopicPartition, SavedOffset] = {}
        self._log_starts: dict[TopicPartition, SavedOffset] = {}
        self._starts_are_known = False
        self._clean_ends: dict[TopicPartition, CleanEnd] = {}
        self._removals: set[asyncio.TimerHandle] = set()
        self.observe_sync_ms: Callable[[float], None] = lambda _: None
        self._checkpoints = _OneByOne()
        self._saves = _OneByOne()

    # Opening

    def prepare(self) -> None:
        """Read what the last run left. Blocks, once, at start; the caller holds the directory's lock."""
        self._disk.make_directory(self.root)
        with contextlib.suppress(PermissionError):  # a parent we may not read is one we did not make the root in
            self._disk.sync_directory(self.root.parent)
        self._recovery_points = read_saved_offsets(self._disk, self.root / RECOVERY_POINTS)
        starts = find_saved_offsets(self._disk, self.root / LOG_STARTS)
        self._starts_are_known = starts is not None
        self._log_starts = starts or {}
        mark = self.root / CLEAN_STOP
        if self._disk.exists(mark):
            ends = _decode_ends(self._disk.read_file(mark))
            self.was_clean = ends is not None
            self._clean_ends = ends or {}
            self._disk.remove(mark)
            self._disk.sync_directory(self.root)

    async def open_all(self, requests: Iterable[LogRequest]) -> None:
        """Open every log the cluster gives us; a damaged one is set offline, the others go on."""
        wanted = {request.at: request for request in requests}
        await self._disk.run(self._look_around, set(wanted))
        everything = list(wanted.values())
        # After a clean stop there is little to read and Python's own work is most of it, which threads would only
        # contend for; after a crash the tails have to be read, and several disks' worth of waiting can overlap.
        chunk = max(1, len(everything) if self.was_clean else len(everything) // 16)
        parts = [everything[i : i + chunk] for i in range(0, len(everything), chunk)]
        await asyncio.gather(*(self._disk.run(self._open_some, part) for part in parts))
        self._clean_ends.clear()

    def open_one(self, request: LogRequest) -> PartitionLog:
        """A log that is new to this run (a topic was created): nothing is on disk until the first append."""
        self._open_some([request])
        failure = self.offline.get(request.at)
        if failure is not None:
            raise failure
        return self.logs[request.at]

    def _open_some(self, requests: list[LogRequest]) -> None:
        for at, topic_id, config in requests:
            directory = self.root / str(at)
            known = KnownPoints(
                _offset_of(self._recovery_points, at, topic_id),
                _offset_of(self._log_starts, at, topic_id),
                self._clean_ends.get(at),
            )
            try:
                said = read_topic_id(self._disk, directory)
                if said is not None and said != topic_id:
                    self._set_aside(directory, said)
                state = open_log(self._disk, directory, known, config.index_interval_bytes, self._clock.now_ms())
                if state.has_directory and said is None:
                    write_topic_id(self._disk, directory, topic_id)
                    sync_topic_id(self._disk, directory)
                    self._disk.sync_directory(directory)
            except (PenstockError, OSError) as error:
                failure = error if isinstance(error, StorageFailed) else StorageFailed(f"{at}: {error}")
                logger.error("%s", failure)
                self.offline[at] = failure
                continue
            if state.segments and state.log_start > known.log_start and self._starts_are_known:
                # A log start is written down before files go: these went by themselves.
                logger.error(
                    "%s: records %d to %d are gone, with their files", at, known.log_start, state.log_start - 1
                )
            log = self.logs[at] = PartitionLog(self._disk, directory, at, topic_id, config, state)
            log.sync.observe_ms = self.observe_sync_ms

    def _set_aside(self, directory: Path, topic_id: TopicId) -> None:
        """A topic that was deleted, or its id that was damaged, has the directory of one of the same name."""
        name = f"{directory.name[:SET_ASIDE_NAME_MAX]}.{topic_id.hex}{STRAY_DIRECTORY_SUFFIX}"
        logger.warning("%s holds records of topic id %s, not of this topic: kept as %s", directory.name, topic_id, name)
        self._disk.rename(directory, directory.with_name(name))
        self._disk.sync_directory(self.root)

    def _look_around(self, wanted: set[TopicPartition]) -> None:
        """Finish deletions that the last run began; speak of what nobody claims, and of nothing that is not there."""
        names = set(self._disk.list_names(self.root))
        self._remove_graves([self.root / name for name in names if name.endswith(DELETED_DIRECTORY_SUFFIX)])
        for name in names:
            topic, _, partition = name.rpartition("-")
            if not (topic and partition.isdecimal()) or TopicPartition(topic, int(partition)) in wanted:
                continue
            if self._disk.exists(self.root / name / TOPIC_ID_FILE):
                logger.warning("%s: no topic claims this directory; delete it if you know that you may", name)
        for points in (self._recovery_points, self._log_starts):
            for at in [at for at in points if at not in wanted and str(at) not in names]:
                del points[at]

    # Running

    def delete(self, at: TopicPartition) -> None:
        """The topic is gone: so is its log, at once for readers, soon on disk.

        The rename is synced when the files go. If power fails before, the topic id tells the next start what it is.
        """
        self._recovery_points.pop(at, None)
        self._log_starts.pop(at, None)
        self.offline.pop(at, None)
        log = self.logs.pop(at, None)
        directory = self.root / str(at)
        if log is not None:
            log.end(UnknownTopicOrPartition(f"{at} was deleted"))
        if not self._disk.exists(directory):
            return
        name = f"{str(at)[:SET_ASIDE_NAME_MAX]}.{self._rng.uuid().hex}{DELETED_DIRECTORY_SUFFIX}"
        grave = self.root / name
        self._disk.rename(directory, grave)

        def remove() -> None:
            if log is not None:
                log.close()
            self._remove_graves([grave])

        self._later(log.config.file_delete_delay_ms if log is not None else 0, remove)

    def _remove_graves(self, graves: list[Path]) -> None:
        if graves:
            # Else power may fail between the two: the directory back under its old name, without its topic id.
            self._disk.sync_directory(self.root)
        for grave in graves:
            self._disk.remove_tree(grave)

    async def checkpoint(self) -> None:
        """Sync what is not yet durable and write down how far every log is safe."""
        await self._checkpoints.run(self._checkpoint)

    async def between_checkpoints(self) -> None:
        """Returns when no checkpoint is under way, and none will begin before the caller next waits for something."""
        await self._checkpoints.idle()

    async def save_points(self) -> None:
        """Put recovery points and log starts, as they are now, on stable storage."""
        await self._saves.run(self._save_points)

    async def _checkpoint(self) -> None:
        for at, log in list(self.logs.items()):
            point = _offset_of(self._recovery_points, at, log.topic_id)
            is_new = log.next_offset > point or log.aborted.is_unsaved
            if log.failure is not None or not log.segments or not is_new:
                continue
            try:
                await self._checkpoint_log(log)
            except PenstockError:
                continue  # said, and kept offline, by the log itself
            except OSError as error:
                if self.logs.get(at) is log:
                    logger.error("%s: indexes and producers could not be written: %s", at, error)
                continue
            # A topic of the same name may have come meanwhile: its log is another one.
            if self.logs.get(at) is log:
                self._recovery_points[at] = SavedOffset(log.durable_offset, log.topic_id)
        await self.save_points()

    async def _checkpoint_one(self, log: PartitionLog) -> None:
        await self._checkpoint_log(log)
        if self.logs.get(log.at) is log:
            self._recovery_points[log.at] = SavedOffset(log.durable_offset, log.topic_id)
            await self.save_points()

    async def _save_points(self) -> None:
        points, starts = dict(self._recovery_points), self._starts()
        await self._disk.run(write_saved_offsets, self._disk, self.root / RECOVERY_POINTS, points)
        await self._disk.run(write_saved_offsets, self._disk, self.root / LOG_STARTS, starts)

    async def _checkpoint_log(self, log: PartitionLog) -> None:
        offset, active = log.next_offset, log.segments[-1]
        saving = log.aborted.prepare_saving([segment.base_offset for segment in log.segments])
        snapshot, indexes = log.producers.encode(saving.digests), active.encode_indexes()
        await asyncio.shield(log.sync.wait_for(offset))

        def write() -> None:
            if self.logs.get(log.at) is not log:
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

    async def apply_retention(self, committed: dict[TopicPartition, Offset], producer_expiry_ms: int) -> int:
        """Let go of what retention no longer keeps; how many segments went."""
        now_ms = self._clock.now_ms()
        shorter: list[PartitionLog] = []
        for at, log in list(self.logs.items()):
            if not log.segments or log.failure is not None:
                continue
            try:
                await self._disk.run(_learn_timestamps, log.segments[:-1])
            except (PenstockError, OSError) as error:
                logger.error("%s: retention cannot tell how old its segments are: %s", at, error)
                continue
            if self.logs.get(at) is not log:
                continue
            log.producers.expire(now_ms - producer_expiry_ms)
            start = start_after_retention(log, committed.get(at, log.log_start), now_ms)
            if start > log.log_start:
                log.advance_start(start)
            if log.segments[0].size and log.segments[0].next_offset <= log.log_start:
                shorter.append(log)
        if not shorter:
            return 0
        await self.save_points()
        return sum([await self.drop_segments_before_start(log) for log in shorter])

    async def drop_segments_before_start(self, log: PartitionLog) -> int:
        """Remove the files of segments that lie below the log's start; the caller has made that start durable."""
        if log.at in self.busy or self.logs.get(log.at) is not log:
            return 0
        if log.segments and log.segments[-1].size and log.segments[-1].next_offset <= log.log_start:
            log.roll(self._clock.now_ms())  # also the active segment is all old: start a new one
        while log.snapshot_offset < log.end_of_segments_before_start():
            # What producers did in these segments, a marker that ended a transaction for one, is then known from there.
            try:
                await self._checkpoints.run(lambda: self._checkpoint_one(log))
            except PenstockError:
                return 0  # said, and kept offline, by the log itself
            if log.at in self.busy or self.logs.get(log.at) is not log:
                return 0
        dropped = log.take_segments_before_start()
        await self.remove_segments(log, dropped)
        return len(dropped)

    async def remove_segments(self, log: PartitionLog, segments: list[Segment]) -> None:
        if not segments:
            return
        await self._disk.run(lambda: [segment.mark_deleted() for segment in segments])
        self.close_later(log, segments)

    def close_later(self, log: PartitionLog, segments: list[Segment]) -> None:
        """Segments that were replaced: whoever reads them still may, for a while."""
        self._later(log.config.file_delete_delay_ms, lambda: [segment.remove_deleted() for segment in segments])

    async def close(self) -> None:
        """Sync everything and leave the mark that lets the next start skip recovery."""
        try:
            await self.checkpoint()
            ends = {at: _clean_end(log) for at, log in self.logs.items() if log.failure is None and log.segments}
            if all(log.failure is None and log.durable_offset == log.next_offset for log in self.logs.values()):
                await self._disk.run(self._disk.replace_file, self.root / CLEAN_STOP, _encode_ends(ends))
        except OSError as error:
            logger.error("no clean stop, the next start will check every log: %s", error)
        finally:
            for handle in list(self._removals):
                handle.cancel()
            self.release()

    def release(self) -> None:
        """Close the files without any promise: also the end of a simulated crash."""
        for log in self.logs.values():
            log.close()

    def _starts(self) -> dict[TopicPartition, SavedOffset]:
        starts = {at: SavedOffset(log.log_start, log.topic_id) for at, log in self.logs.items() if log.log_start > 0}
        return {**{at: start for at, start in self._log_starts.items() if at not in self.logs}, **starts}

    def _later(self, delay_ms: int, work: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()

        def run() -> None:
            self._removals.discard(handle)
            self._disk.run(work)

        handle = loop.call_later(delay_ms / 1000, run)
        self._removals.add(handle)


def _still_there(log: PartitionLog, parts: list[AbortedPart]) -> list[AbortedPart]:
    bases = {segment.base_offset for segment in log.segments}
    return [part for part in parts if part.base_offset in bases]


def _learn_timestamps(segments: list[Segment]) -> None:
    for segment in segments:
        segment.load_max_timestamp()


def _offset_of(points: dict[TopicPartition, SavedOffset], at: TopicPartition, topic_id: TopicId) -> Offset:
    """What was saved of this very topic, not of an earlier one of its name."""
    saved = points.get(at)
    return saved.offset if saved is not None and saved.topic_id in (topic_id, NO_TOPIC_ID) else Offset(0)


def _clean_end(log: PartitionLog) -> CleanEnd:
    active = log.segments[-1]
    return CleanEnd(active.base_offset, active.size, active.next_offset, active.first_timestamp, active.max_timestamp)


def _encode_ends(ends: dict[TopicPartition, CleanEnd]) -> bytes:
    rows = [
        [
            at.topic,
            at.partition,
            end.active_base,
            end.active_size,
            end.next_offset,
            end.first_timestamp,
            end.max_timestamp,
        ]
        for at, end in ends.items()
    ]
    return json.dumps({"version": 1, "crc": crc32c(json.dumps(rows).encode()), "logs": rows}).encode()


def _decode_ends(content: bytes) -> dict[TopicPartition, CleanEnd] | None:
    """None if the mark is damaged; then every log is checked."""
    try:
        mark = json.loads(content)
        if crc32c(json.dumps(mark["logs"]).encode()) != mark["crc"]:
            return None
        return {TopicPartition(row[0], row[1]): CleanEnd(*row[2:]) for row in mark["logs"]}
    except (ValueError, KeyError, TypeError, IndexError):
        return None


class _OneByOne:
    """Work that must not run twice at once. It goes on to its end even if whoever asked for it is cancelled."""

    def __init__(self) -> None:
        self._last: asyncio.Task[None] | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        before = self._last

        async def turn() -> None:
            if before is not None:
                await asyncio.wait((before,))
            await work()

        self._last = asyncio.ensure_future(turn())
        await asyncio.shield(self._last)

    async def idle(self) -> None:
        while self._last is not None and not self._last.done():
            await asyncio.wait((self._last,))
