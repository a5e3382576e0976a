"""All logs of one data directory: opened together, checkpointed together, closed together.

Called by broker and replication. Owns, with log.points, the files that speak of every log at once: the recovery
points, the log starts, the high watermarks and the mark of a clean stop. How a log is made durable, with what the next
start needs to know of it, is log.checkpointing's.
Laws:
- The clean-stop mark is removed before the first log is opened (KAFKA-10471), written after the last was synced.
- A log start is on stable storage before the files below it go: else a crash might bring back some of them. So is
  a producers' snapshot that is newer than all that goes: else a crash might bring back a transaction without its end.
- A log is cut by opening another in its place: the old one ends first, and what said that it once reached further is
  lowered on stable storage before its files change (TRAPS R1, L1). A cut that fails takes the log offline, never half.
- Nothing is deleted because nobody claims it: a directory without a topic stays, and is spoken of (TRAPS L3).
- A deleted segment's file stays open for `file.delete.delay.ms`, since a read on an I/O thread may be using it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from penstock.clock import Clock, Rng
from penstock.config import TopicConfig
from penstock.disk import Disk
from penstock.errors import (
    NotLeaderOrFollower,
    PenstockError,
    StorageFailed,
    UnknownTopicOrPartition,
)
from penstock.log.checkpointing import Checkpointing
from penstock.log.checkpoints import LeaderEpochs, SavedOffset
from penstock.log.clean_stop import CLEAN_STOP, clean_end, decode_ends, encode_ends
from penstock.log.cutting import cut_files, find_cut
from penstock.log.partition_log import PartitionLog
from penstock.log.points import Points, names_log
from penstock.log.producers import Producers
from penstock.log.recovery import CleanEnd, KnownPoints, failure_to_open, open_log
from penstock.log.retention import start_after_retention
from penstock.log.segment import Segment
from penstock.log.state import LogState
from penstock.log.topic_id import TOPIC_ID_FILE, read_topic_id, sync_topic_id, write_topic_id
from penstock.model import Offset, TopicId, TopicPartition

logger = logging.getLogger(__name__)

DELETED_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
DAMAGED_DIRECTORY_SUFFIX = "-damaged"
# A topic's name may be almost as long as a file's: of the name of a directory set aside only so much is kept.
SET_ASIDE_NAME_MAX = 200


class LogRequest(NamedTuple):
    """A log the cluster says this broker holds."""

    at: TopicPartition
    topic_id: TopicId
    config: TopicConfig
    has_peers: bool = False  # other brokers hold it too: if it has lost something it is rebuilt from them


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
        # Logs that were deleted or replaced, whose files somebody may still be reading.
        self._ended: set[PartitionLog] = set()
        self._taken_offline: dict[TopicPartition, PartitionLog] = {}
        self._points = Points(disk, root, self.logs)
        self._checkpoints = Checkpointing(disk, self.logs, self._points)
        self._clean_ends: dict[TopicPartition, CleanEnd] = {}
        self._removals: set[asyncio.TimerHandle] = set()
        self.observe_sync_ms: Callable[[float], None] = lambda _: None
        # What is committed of each log, asked when the directory is closed.
        self.read_high_watermarks: Callable[[], Mapping[TopicPartition, Offset]] = dict
        # Told of a log that now ends at or below an offset, whatever was known of it above.
        self.on_cut: Callable[[TopicPartition, Offset], None] = lambda at, end: None

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, SavedOffset]:
        """How far each log was committed, as last saved: a start for who leads or follows it, never above its end."""
        return self._points.high_watermarks

    # Opening

    def prepare(self) -> None:
        """Read what the last run left. Blocks, once, at start; the caller holds the directory's lock."""
        self._disk.make_directory(self.root)
        with contextlib.suppress(PermissionError):  # a parent we may not read is one we did not make the root in
            self._disk.sync_directory(self.root.parent)
        self._points.read()
        mark = self.root / CLEAN_STOP
        if self._disk.exists(mark):
            ends = decode_ends(self._disk.read_file(mark))
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
        for at, topic_id, config, has_peers in requests:
            directory = self.root / str(at)
            known = self._known(at, topic_id, has_peers, self._clean_ends.get(at))
            try:
                said = read_topic_id(self._disk, directory) if self._disk.exists(directory) else None
                if said is not None and said != topic_id:
                    self._set_aside(directory, said)
                state = open_log(self._disk, directory, known, config.index_interval_bytes, self._clock.now_ms())
                if state.has_directory and said is None:
                    write_topic_id(self._disk, directory, topic_id)
                    sync_topic_id(self._disk, directory)
                    self._disk.sync_directory(directory)
            except (PenstockError, OSError) as error:
                failure = failure_to_open(directory.name, error)
                logger.error("%s", failure)
                self.offline[at] = failure
                continue
            self._run(PartitionLog(self._disk, directory, at, topic_id, config, state))

    def _known(
        self, at: TopicPartition, topic_id: TopicId, has_peers: bool = False, clean_end: CleanEnd | None = None
    ) -> KnownPoints:
        points = self._points
        return KnownPoints(
            points.recovery_point(at, topic_id),
            points.log_start(at, topic_id),
            clean_end,
            has_peers,
            points.starts_are_known,
        )

    def _run(self, log: PartitionLog) -> PartitionLog:
        log.sync.observe_ms = self.observe_sync_ms
        log.sync.monotonic = self._clock.monotonic
        self.logs[log.at] = log
        return log

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
        claimed = {str(at) for at in wanted}
        for name in names:
            if not names_log(name) or name in claimed:
                continue
            if self._disk.exists(self.root / name / TOPIC_ID_FILE):
                logger.warning("%s: no topic claims this directory; delete it if you know that you may", name)
        self._points.keep_only(lambda at: at in wanted or str(at) in names)

    # Running

    def delete(self, at: TopicPartition) -> None:
        """The topic is gone: so is its log, at once for readers, soon on disk.

        The rename is synced when the files go. If power fails before, the topic id tells the next start what it is.
        """
        self._points.forget(at)
        self.offline.pop(at, None)
        self._taken_offline.pop(at, None)
        log = self.logs.pop(at, None)
        if log is not None:
            log.end(UnknownTopicOrPartition(f"{at} was deleted"))
        if self._disk.exists(self.root / str(at)):
            self._remove_later(log, self._bury(at))
        elif log is not None:
            self._remove_later(log)

    def _bury(self, at: TopicPartition) -> Path:
        """Take a log's directory out of the way, to be removed when nobody reads it any more."""
        grave = self.root / f"{str(at)[:SET_ASIDE_NAME_MAX]}.{self._rng.uuid().hex}{DELETED_DIRECTORY_SUFFIX}"
        self._disk.rename(self.root / str(at), grave)
        return grave

    def _remove_later(self, log: PartitionLog | None, *graves: Path) -> None:
        """Close what has ended and remove what was buried, once readers on I/O threads are through with it."""
        if log is not None:
            self._ended.add(log)

        def remove() -> None:
            if log is not None:
                log.close()
            self._remove_graves(list(graves))

        self._later(log.config.file_delete_delay_ms if log is not None else 0, remove, log)

    def _remove_graves(self, graves: list[Path]) -> None:
        if graves:
            # Else power may fail between the two: the directory back under its old name, without its topic id.
            self._disk.sync_directory(self.root)
        for grave in graves:
            self._disk.remove_tree(grave)

    async def checkpoint(self) -> None:
        """Sync what is not yet durable and write down how far every log is safe."""
        await self._checkpoints.save_all()

    async def checkpoint_busy(self) -> None:
        """The same for logs with much to lose: what a crash, or a cut after a move, has to read again stays bounded."""
        await self._checkpoints.save_busy()

    async def save_points(self) -> None:
        """Put recovery points and log starts, as they are now, on stable storage."""
        await self._points.save()

    async def save_high_watermarks(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Remember what is committed of these logs. Of the others what was saved stays."""
        await self._points.save_high_watermarks(offsets)

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
                if not log.is_ended:
                    logger.error("%s: retention cannot tell how old its segments are: %s", at, error)
                continue
            if log.is_ended:
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
        dropped: list[Segment] = []
        await log.turns.run(partial(self._drop_segments, log, dropped))
        return len(dropped)

    async def _drop_segments(self, log: PartitionLog, dropped: list[Segment]) -> None:
        if log.at in self.busy or log.failure is not None:
            return
        if log.segments and log.segments[-1].size and log.segments[-1].next_offset <= log.log_start:
            log.roll(self._clock.now_ms())  # also the active segment is all old: start a new one
        while log.snapshot_offset < log.end_of_segments_before_start():
            # What producers did in these segments, a marker that ended a transaction for one, is then known from there.
            try:
                await self._checkpoints.save_log(log)
            except PenstockError:
                return  # said, and kept offline, by the log itself
            await self.save_points()
            if log.at in self.busy or log.failure is not None:
                return
        dropped += log.take_segments_before_start()
        if dropped:
            await self._disk.run(lambda: [segment.mark_deleted() for segment in dropped])
            self.close_later(log, dropped)

    def close_later(self, log: PartitionLog, segments: list[Segment]) -> None:
        """Segments that were replaced: whoever reads them still may, for a while."""
        self._later(log.config.file_delete_delay_ms, lambda: [segment.remove_deleted() for segment in segments])

    # Cutting

    async def truncate(self, log: PartitionLog, offset: Offset, why: PenstockError | None = None) -> PartitionLog:
        """Cut the log back to the batch boundary at or below `offset`; gives the log to use from then on.

        The old one takes nothing more from this moment, and whoever waits for it is told `why`. StorageFailed if the
        cut failed: then the log is offline. Goes on to its end if the caller is cancelled.
        """
        if log.failure is not None:
            raise log.failure
        if offset >= log.next_offset:
            log.epochs.truncate_end(log.next_offset)  # one that was begun here and wrote nothing
            return log
        return await self._replace(log, why, partial(self._cut, log, offset))

    async def restart_at(self, log: PartitionLog, offset: Offset, why: PenstockError | None = None) -> PartitionLog:
        """Let go of everything: an empty log that starts at `offset` takes the place of this one, as in truncate().

        If power fails meanwhile it is the old log, or an empty one that starts at `offset` or where the old one did.
        """
        if log.failure is not None:
            raise log.failure
        return await self._replace(log, why, partial(self._restart, log, offset))

    async def _replace(
        self, log: PartitionLog, why: PenstockError | None, make: Callable[[], Awaitable[LogState]]
    ) -> PartitionLog:
        log.end(why or NotLeaderOrFollower(f"{log.at}: what was written here last is not what its leader has"))

        async def turn() -> None:
            try:
                await log.sync.idle()
                state = await make()
            except (PenstockError, OSError) as error:
                if self.logs.get(log.at) is log:
                    self.take_offline(log.at, StorageFailed(f"{log.at} could not be cut: {error}"))
                return
            if self.logs.get(log.at) is log:
                again = PartitionLog(self._disk, log.directory, log.at, log.topic_id, log.config, state)
                again.on_damage = log.on_damage
                self._run(again)
                self._remove_later(log)

        await log.turns.run(turn)
        found = self.logs.get(log.at)
        if found is None or found.topic_id != log.topic_id:
            raise self.offline.get(log.at) or UnknownTopicOrPartition(f"{log.at} was deleted")
        return found

    async def _cut(self, log: PartitionLog, offset: Offset) -> LogState:
        if offset < log.log_start:
            return await self._restart(log, offset)
        cut = await self._disk.run(find_cut, log.segments, offset)
        if cut.end < log.log_start:
            return await self._restart(log, log.log_start)
        await self._points.lower(log, log.log_start, cut.end)
        self.on_cut(log.at, cut.end)
        known = self._known(log.at, log.topic_id)

        def work() -> LogState:
            self._check_there(log)
            cut_files(self._disk, log.segments, cut)
            return open_log(self._disk, log.directory, known, log.config.index_interval_bytes, self._clock.now_ms())

        return await self._disk.run(work)

    async def _restart(self, log: PartitionLog, offset: Offset) -> LogState:
        # A start that rises is saved before the files go, or some might come back; one that falls after they went,
        # or the old log would be found without its beginning.
        await self._points.lower(log, Offset(max(offset, log.log_start)), offset)
        self.on_cut(log.at, offset)

        def work() -> list[Path]:
            self._check_there(log)
            graves = [self._bury(log.at)] if self._disk.exists(log.directory) else []
            self._disk.sync_directory(self.root)
            return graves

        self._remove_later(None, *await self._disk.run(work))
        if offset < log.log_start:
            await self._points.lower(log, offset, offset)
        return LogState([], offset, offset, Producers(), LeaderEpochs(self._disk, log.directory), has_directory=False)

    def _check_there(self, log: PartitionLog) -> None:
        if self.logs.get(log.at) is not log:
            raise UnknownTopicOrPartition(f"{log.at} was deleted")  # a new topic of this name may have the directory

    def take_offline(self, at: TopicPartition, failure: StorageFailed) -> None:
        """Serve this log no more: it is damaged, or half of something was done to it."""
        log = self.logs.pop(at)
        log.end(failure)
        logger.error("%s", failure)
        self.offline[at] = failure
        self._taken_offline[at] = log
        self._remove_later(log)

    async def set_damaged_aside(self, at: TopicPartition) -> None:
        """Keep what is left of an offline log for the operator, so that open_one() makes an empty one in its place."""
        failure = self.offline[at]
        log = self._taken_offline.pop(at, None)
        if log is not None:
            await log.turns.idle()
            with contextlib.suppress(OSError):  # a log that cannot be synced is as damaged as any
                await log.sync.idle()
        if self.offline.get(at) is not failure:
            return  # deleted meanwhile: the directory may be that of a new topic of this name
        await self._disk.run(self._keep_damaged, at)
        # Only now: with a lower recovery point the damage would be taken for a torn end.
        await self._points.forget_for_good(at)
        self.offline.pop(at, None)

    def _keep_damaged(self, at: TopicPartition) -> None:
        if self._disk.exists(self.root / str(at)):
            name = f"{str(at)[:SET_ASIDE_NAME_MAX]}.{self._rng.uuid().hex}{DAMAGED_DIRECTORY_SUFFIX}"
            logger.warning("%s is damaged and kept as %s; it is made anew from other replicas", at, name)
            self._disk.rename(self.root / str(at), self.root / name)
            self._disk.sync_directory(self.root)

    async def close(self) -> None:
        """Sync everything and leave the mark that lets the next start skip recovery."""
        try:
            for log in list(self.logs.values()):
                await log.turns.idle()
            await self.checkpoint()
            await self.save_high_watermarks(self.read_high_watermarks())
            ends = {at: clean_end(log) for at, log in self.logs.items() if log.failure is None and log.segments}
            if all(log.failure is None and log.durable_offset == log.next_offset for log in self.logs.values()):
                await self._disk.run(self._disk.replace_file, self.root / CLEAN_STOP, encode_ends(ends))
        except OSError as error:
            logger.error("no clean stop, the next start will check every log: %s", error)
        finally:
            for handle in list(self._removals):
                handle.cancel()
            self.release()

    def release(self) -> None:
        """Close the files without any promise: also the end of a simulated crash."""
        for log in (*self.logs.values(), *self._ended):
            log.close()

    def _later(self, delay_ms: int, work: Callable[[], object], ended: PartitionLog | None = None) -> None:
        loop = asyncio.get_running_loop()

        def run() -> None:
            self._removals.discard(handle)
            if ended is not None:
                self._ended.discard(ended)
            self._disk.run(work)

        handle = loop.call_later(delay_ms / 1000, run)
        self._removals.add(handle)


def _learn_timestamps(segments: list[Segment]) -> None:
    for segment in segments:
        segment.load_max_timestamp()
