"""All logs of one data directory: opened together, checkpointed together, closed together.

Called by broker and replication.replicas. Owns the files that speak of every log at once: the recovery
points, the log starts and the mark of a clean stop.
Laws:
- The clean-stop mark is removed before the first log is opened (KAFKA-10471), written after the last was synced.
- A recovery point is written only after everything below it was synced.
- A deleted segment's file stays open for `file.delete.delay.ms`, since a read on an I/O thread may be using it.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from penstock.clock import Clock, Rng
from penstock.config import TopicConfig
from penstock.disk import Disk
from penstock.errors import StorageFailed, UnknownTopicOrPartition
from penstock.log.checkpoints import LOG_STARTS, RECOVERY_POINTS, read_offsets, write_offsets
from penstock.log.partition_log import PartitionLog, read_topic_id
from penstock.log.recovery import CleanEnd, KnownPoints, open_log, write_snapshot
from penstock.log.retention import start_after_retention
from penstock.log.segment import Segment
from penstock.model import Offset, TopicId, TopicPartition

logger = logging.getLogger(__name__)

CLEAN_STOP = "clean-stop.json"
DELETED_DIRECTORY_SUFFIX = "-delete"


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
        self._recovery_points: dict[TopicPartition, Offset] = {}
        self._log_starts: dict[TopicPartition, Offset] = {}
        self._clean_ends: dict[TopicPartition, CleanEnd] = {}
        self._removals: set[asyncio.TimerHandle] = set()

    # Opening

    def prepare(self) -> None:
        """Read what the last run left. Blocks, once, at start; the caller holds the directory's lock."""
        self._disk.make_directory(self.root)
        self._recovery_points = read_offsets(self._disk, self.root / RECOVERY_POINTS)
        self._log_starts = read_offsets(self._disk, self.root / LOG_STARTS)
        mark = self.root / CLEAN_STOP
        if self._disk.exists(mark):
            self._clean_ends = _decode_ends(self._disk.read_file(mark))
            self.was_clean = True
            self._disk.remove(mark)
            self._disk.sync_directory(self.root)

    async def open_all(self, requests: Iterable[LogRequest]) -> None:
        """Open every log the cluster gives us; a damaged one is set offline, the others go on."""
        wanted = {request.at: request for request in requests}
        await self._disk.run(self._set_strays_aside, {at: request.topic_id for at, request in wanted.items()})
        chunk = max(1, len(wanted) // 16)
        everything = list(wanted.values())
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
            known = KnownPoints(
                self._recovery_points.get(at, Offset(0)),
                self._log_starts.get(at, Offset(0)),
                self._clean_ends.get(at) if self.was_clean else None,
            )
            directory = self.root / str(at)
            try:
                state = open_log(self._disk, directory, known, config.index_interval_bytes, self._clock.now_ms())
            except (StorageFailed, OSError) as error:
                failure = error if isinstance(error, StorageFailed) else StorageFailed(f"{at}: {error}")
                logger.error("%s", failure)
                self.offline[at] = failure
                continue
            self.logs[at] = PartitionLog(self._disk, directory, at, topic_id, config, state)

    def _set_strays_aside(self, wanted: dict[TopicPartition, TopicId]) -> None:
        """Directories of topics that are gone, or were made again under the same name, leave the namespace."""
        for name in self._disk.list_names(self.root):
            path = self.root / name
            if name.endswith(DELETED_DIRECTORY_SUFFIX):
                self._disk.remove_tree(path)
                continue
            topic, dash, partition = name.rpartition("-")
            if not (topic and dash and partition.isdigit() and path.is_dir()):
                continue
            at = TopicPartition(topic, int(partition))
            found = read_topic_id(self._disk, path)
            if found is None or wanted.get(at) == found:
                continue
            logger.warning("%s belongs to topic id %s, which is gone: its directory is deleted", name, found)
            self._recovery_points.pop(at, None)
            self._log_starts.pop(at, None)
            self._clean_ends.pop(at, None)
            self._disk.remove_tree(path)

    # Running

    def delete(self, at: TopicPartition) -> None:
        """The topic is gone: so is its log, at once for readers, soon on disk.

        The rename is not synced. If power fails before it is durable, the topic id tells the next start what it is.
        """
        self._recovery_points.pop(at, None)
        self._log_starts.pop(at, None)
        self.offline.pop(at, None)
        log = self.logs.pop(at, None)
        directory = self.root / str(at)
        if log is not None:
            log.sync.fail_waiters(UnknownTopicOrPartition(f"{at} was deleted"))
        if not self._disk.exists(directory):
            return
        grave = self.root / f"{at}.{self._rng.uuid().hex}{DELETED_DIRECTORY_SUFFIX}"
        self._disk.rename(directory, grave)

        def remove() -> None:
            if log is not None:
                log.close()
            self._disk.remove_tree(grave)

        self._later(log.config.file_delete_delay_ms if log is not None else 0, remove)

    async def checkpoint(self) -> None:
        """Sync what is not yet durable and write down how far every log is safe."""
        for at, log in list(self.logs.items()):
            if log.failure is None and log.next_offset > self._recovery_points.get(at, Offset(0)):
                try:
                    await self._checkpoint_log(log)
                except StorageFailed:
                    continue  # said, and kept offline, by the log itself
                if at in self.logs:
                    self._recovery_points[at] = log.durable_offset
        await self.save_points()

    async def save_points(self) -> None:
        points, starts = dict(self._recovery_points), self._starts()
        await self._disk.run(write_offsets, self._disk, self.root / RECOVERY_POINTS, points)
        await self._disk.run(write_offsets, self._disk, self.root / LOG_STARTS, starts)

    async def _checkpoint_log(self, log: PartitionLog) -> None:
        offset, active = log.next_offset, log.segments[-1]
        snapshot, indexes = log.producers.encode(), active.encode_indexes()
        await log.sync.wait_for(offset)

        def write() -> None:
            active.write_indexes(indexes)
            write_snapshot(self._disk, log.directory, offset, snapshot)

        await self._disk.run(write)

    async def apply_retention(self, committed: dict[TopicPartition, Offset], producer_expiry_ms: int) -> int:
        """Let go of what retention no longer keeps; how many segments went."""
        now_ms = self._clock.now_ms()
        gone = 0
        for at, log in list(self.logs.items()):
            if not log.segments or log.failure is not None:
                continue
            await self._disk.run(_learn_timestamps, list(log.segments[:-1]))
            log.producers.expire(now_ms - producer_expiry_ms)
            start = start_after_retention(log, committed.get(at, log.log_start), now_ms)
            if start > log.log_start:
                log.advance_start(start)
            gone += await self.drop_segments_before_start(log)
        return gone

    async def drop_segments_before_start(self, log: PartitionLog) -> int:
        if log.segments and log.segments[-1].size and log.segments[-1].next_offset <= log.log_start:
            log.roll(self._clock.now_ms())  # also the active segment is all old: start a new one
        dropped = log.take_segments_before_start()
        await self.remove_segments(log, dropped)
        return len(dropped)

    async def remove_segments(self, log: PartitionLog, segments: list[Segment]) -> None:
        if not segments:
            return
        await self._disk.run(lambda: [segment.mark_deleted() for segment in segments])
        self._later(log.config.file_delete_delay_ms, lambda: [segment.remove_deleted() for segment in segments])

    async def close(self) -> None:
        """Sync everything and leave the mark that lets the next start skip recovery."""
        await self.checkpoint()
        for handle in list(self._removals):
            handle.cancel()
        ends = {at: _clean_end(log) for at, log in self.logs.items() if log.failure is None and log.segments}
        is_clean = all(log.failure is None and log.durable_offset == log.next_offset for log in self.logs.values())
        if is_clean:
            await self._disk.run(self._disk.replace_file, self.root / CLEAN_STOP, _encode_ends(ends))
        self.release()

    def release(self) -> None:
        """Close the files without any promise: also the end of a simulated crash."""
        for log in self.logs.values():
            log.close()

    def _starts(self) -> dict[TopicPartition, Offset]:
        starts = {at: log.log_start for at, log in self.logs.items() if log.log_start > 0}
        return {**{at: start for at, start in self._log_starts.items() if at in self.offline}, **starts}

    def _later(self, delay_ms: int, work: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()

        def run() -> None:
            self._removals.discard(handle)
            self._disk.run(work)

        handle = loop.call_later(delay_ms / 1000, run)
        self._removals.add(handle)


def _learn_timestamps(segments: list[Segment]) -> None:
    for segment in segments:
        segment.load_max_timestamp()


def _clean_end(log: PartitionLog) -> CleanEnd:
    active = log.segments[-1]
    return CleanEnd(active.base_offset, active.size, active.next_offset, active.max_timestamp)


def _encode_ends(ends: dict[TopicPartition, CleanEnd]) -> bytes:
    rows = [
        [at.topic, at.partition, end.active_base, end.active_size, end.next_offset, end.max_timestamp]
        for at, end in ends.items()
    ]
    return json.dumps({"version": 1, "logs": rows}).encode()


def _decode_ends(content: bytes) -> dict[TopicPartition, CleanEnd]:
    try:
        rows = json.loads(content)["logs"]
        return {TopicPartition(row[0], row[1]): CleanEnd(*row[2:]) for row in rows}
    except (ValueError, KeyError, TypeError, IndexError):
        return {}  # a damaged mark only means that every log is checked
