"""One partition's log: segments in order, written at the end, cut at either end.

Called by replication.partition (append, read) and log.directory (open, housekeeping, close).
Invariants:
- Only the last segment is written; all others are closed and their indexes are on disk.
- log_start <= next_offset; next_offset falls only in truncate().
- After a failed write or fsync nothing is appended again until the log has been reopened and recovered (TRAPS L1).
- Nothing here awaits: append picks the offset and writes in one turn of the loop. Methods that block say so.
"""

import logging
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from penstock.config import TopicConfig
from penstock.disk import Disk
from penstock.errors import CorruptMessage, OffsetOutOfRange, StorageFailed
from penstock.log.checkpoints import LeaderEpochs
from penstock.log.group_sync import GroupSync, SyncWork
from penstock.log.producers import Producers
from penstock.log.segment import RELATIVE_OFFSET_MAX, SEGMENT_BYTES_MAX, Segment
from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import HEADER_BYTES, BatchHeader, stamp

logger = logging.getLogger(__name__)

# base_offset, batch_length, last_offset_delta: all that finding a batch takes.
_STEP = Struct(">qi11xi")


@dataclass(slots=True)
class LogState:
    """What opening or recovering a log found on disk."""

    segments: list[Segment]
    log_start: Offset
    durable_offset: Offset
    producers: Producers
    epochs: LeaderEpochs
    has_directory: bool


class Appended(NamedTuple):
    base_offset: Offset
    next_offset: Offset
    is_duplicate: bool = False


class PartitionLog:
    def __init__(
        self, disk: Disk, directory: Path, at: TopicPartition, topic_id: TopicId, config: TopicConfig, state: LogState
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.at = at
        self.topic_id = topic_id
        self.config = config
        self.segments = state.segments
        self._bases: list[int] = [segment.base_offset for segment in state.segments]
        self.log_start = state.log_start
        self.next_offset = Offset(max(state.log_start, state.segments[-1].next_offset if state.segments else 0))
        self.producers = state.producers
        self.epochs = state.epochs
        self.failure: StorageFailed | None = None
        # Set by a failed fsync: what lies above is only in the page cache, if anywhere.
        self._readable_end: Offset | None = None
        self._has_directory = state.has_directory
        # Segments with bytes that no fsync has covered yet, oldest first; and whether a file is new.
        self._unsynced: list[Segment] = []
        self._directory_is_stale = False
        self.sync = GroupSync(disk, state.durable_offset, self._prepare_sync, self._sync_failed)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def durable_offset(self) -> Offset:
        return self.sync.durable_offset

    # Writing

    def append(self, batch: memoryview, header: BatchHeader, epoch: LeaderEpoch, now_ms: int) -> Appended:
        """Write one checked batch at the end of the log, into the page cache."""
        if self.failure is not None:
            raise self.failure
        if header.producer_id >= 0:
            earlier = self.producers.check(header)
            if earlier is not None:
                base = Offset(earlier.base_offset)
                return Appended(base, Offset(base + header.last_offset_delta + 1), is_duplicate=True)
        base_offset = self.next_offset
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, base_offset)
        stamp(batch, base_offset, epoch)
        try:
            segment = self._segment_for(header, now_ms)
            segment.append(header, base_offset, batch, self.config.index_interval_bytes)
        except OSError as error:
            raise self._write_failed(error) from error
        self.next_offset = segment.next_offset
        if not self._unsynced or self._unsynced[-1] is not segment:
            self._unsynced.append(segment)
        if header.producer_id >= 0:
            self.producers.record(header, base_offset)
        return Appended(base_offset, self.next_offset)

    def roll(self, now_ms: int) -> Segment:
        """Start a new segment at the end; the one before it is complete from now on."""
        if not self._has_directory:
            self._make_directory()
        segment = Segment(self._disk, self.directory, self.next_offset, now_ms)
        segment.create()
        if self.segments:
            complete = self.segments[-1]
            complete.write_indexes(complete.encode_indexes())
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self._directory_is_stale = True
        return segment

    def _segment_for(self, header: BatchHeader, now_ms: int) -> Segment:
        if not self.segments:
            return self.roll(now_ms)
        active = self.segments[-1]
        if active.size == 0:
            return active
        config = self.config
        is_full = active.size + header.size > min(config.segment_bytes, SEGMENT_BYTES_MAX)
        is_wide = self.next_offset + header.last_offset_delta - active.base_offset > RELATIVE_OFFSET_MAX
        if is_full or is_wide or self._is_old(active, header.max_timestamp, now_ms):
            return self.roll(now_ms)
        return active

    def _is_old(self, active: Segment, timestamp: int, now_ms: int) -> bool:
        # By record time where records have one, so that old data replayed today still rolls by its own calendar.
        if active.first_timestamp >= 0 and timestamp >= 0:
            return timestamp - active.first_timestamp > self.config.segment_ms
        return now_ms - active.created_ms > self.config.segment_ms

    def _make_directory(self) -> None:
        self._disk.make_directory(self.directory)
        write_topic_id(self._disk, self.directory, self.topic_id)
        self._has_directory = True

    # Durability

    def _prepare_sync(self) -> SyncWork:
        segments, self._unsynced = self._unsynced, []
        stale, self._directory_is_stale = self._directory_is_stale, False
        epochs = self.epochs.pending()
        disk, directory = self._disk, self.directory

        def job() -> None:
            # Order matters if power fails between two lines: the epoch explains the batches, the name finds them.
            if epochs is not None:
                self.epochs.write(epochs)
            for segment in segments:
                segment.file.sync()
            if stale:
                sync_topic_id(disk, directory)
                disk.sync_directory(directory)
                disk.sync_directory(directory.parent)

        # A segment still being written is dirty again with its next append; the list above is only this round's.
        return SyncWork(self.next_offset, job)

    def _sync_failed(self, error: BaseException) -> BaseException:
        # The kernel may have dropped the dirty pages, so what reads would return is not what a restart will find.
        self._readable_end = self.durable_offset
        return self._fail(f"fsync failed: {error}")

    def _write_failed(self, error: OSError) -> StorageFailed:
        failure = self._fail(f"write failed: {error}")
        self.sync.fail_waiters(failure)
        return failure

    def _fail(self, what: str) -> StorageFailed:
        self.failure = StorageFailed(f"{self.at}: {what}; the log takes no more records until the broker is restarted")
        logger.error("%s", self.failure)
        return self.failure

    # Reading

    def read(
        self, offset: Offset, size_max: int, end: Offset, *, at_least_one: bool = True, cached_only: bool = True
    ) -> memoryview | None:
        """Batches from the one that holds `offset`, below `end`, as they lie in the file.

        None when the disk would have to be asked and `cached_only`; with `cached_only=False` it blocks instead.
        The last batch may be cut short, as Kafka's is; the first never is, if `at_least_one`.
        """
        if self._readable_end is not None:
            end = min(end, self._readable_end)
            if offset > end and self.failure is not None:
                raise self.failure
        if not self.log_start <= offset <= self.next_offset:
            raise OffsetOutOfRange(offset, self.log_start, self.next_offset)
        slot = max(bisect_right(self._bases, offset) - 1, 0)
        # Compaction may have emptied the rest of a segment: the next batch is then in a later one.
        while slot < len(self.segments) and offset < end:
            segment = self.segments[slot]
            if segment.next_offset > offset:
                found = self._read_segment(segment, offset, size_max, end, at_least_one, cached_only)
                if found is None or len(found) or segment.next_offset >= end:
                    return found
            slot += 1
        return memoryview(b"")

    def _read_segment(
        self, segment: Segment, offset: Offset, size_max: int, end: Offset, at_least_one: bool, cached_only: bool
    ) -> memoryview | None:
        file = segment.file
        read = file.read_cached if cached_only else file.read
        start, next_entry = segment.offset_index.window(offset - segment.base_offset)
        limit = segment.size if end >= segment.next_offset else self._position_below(segment, end, cached_only)
        if limit is None:
            return None
        skipped = (next_entry if next_entry is not None else segment.size) - start
        wanted = min(limit - start, size_max + min(skipped, self.config.index_interval_bytes + HEADER_BYTES))
        if wanted <= 0:
            return memoryview(b"")
        chunk = read(start, wanted)
        if chunk is None:
            return None
        at = 0
        while True:
            if at + HEADER_BYTES > len(chunk):
                if start + at + HEADER_BYTES > limit:
                    return memoryview(b"")
                # The batch we look for begins beyond what was read (or cached): go on from there.
                start, at = start + at, 0
                chunk = read(start, min(limit - start, max(size_max, HEADER_BYTES)))
                if chunk is None or (len(chunk) < HEADER_BYTES and cached_only):
                    return None
            base_offset, batch_length, last_delta = _STEP.unpack_from(chunk, at)
            size = batch_length + 12
            if size < HEADER_BYTES or start + at + size > segment.size or base_offset < segment.base_offset:
                raise CorruptMessage(f"{self.at}: no record batch at byte {start + at} of {segment.path().name}")
            if base_offset + last_delta >= offset:
                break
            at += size
        if start + at + size > limit:
            return memoryview(b"")
        if at + size <= len(chunk):
            return chunk[at : at + max(size_max, size)] if size <= size_max or at_least_one else chunk[:0]
        if size > size_max and not at_least_one:
            return chunk[:0]
        start += at
        chunk = read(start, min(limit - start, max(size_max, size)))
        if chunk is None or len(chunk) < size:
            return None if cached_only else memoryview(b"")
        return chunk

    def _position_below(self, segment: Segment, end: Offset, cached_only: bool) -> int | None:
        """Where the first batch that reaches `end` starts; None if finding it would ask the disk."""
        position, _ = segment.offset_index.window(end - segment.base_offset)
        read = segment.file.read_cached if cached_only else segment.file.read
        while position < segment.size:
            head = read(position, HEADER_BYTES)
            if head is None or len(head) < HEADER_BYTES:
                return None
            base_offset, batch_length, last_delta = _STEP.unpack_from(head)
            if base_offset + last_delta >= end:
                break
            position += batch_length + 12
        return position

    # Cutting

    def advance_start(self, offset: Offset) -> None:
        """Records below `offset` are gone for readers; whole segments below it are removed by delete_before."""
        assert self.log_start <= offset <= self.next_offset
        self.log_start = offset
        self.producers.forget_before(offset)
        self.epochs.truncate_start(offset)

    def take_segments_before_start(self) -> list[Segment]:
        """Closed segments that lie wholly below the start, taken out of the log; the caller deletes their files."""
        count = 0
        while count < len(self.segments) - 1 and self.segments[count].next_offset <= self.log_start:
            count += 1
        return self.take_segments(0, count)

    def take_segments(self, first: int, count: int) -> list[Segment]:
        taken = self.segments[first : first + count]
        del self.segments[first : first + count]
        del self._bases[first : first + count]
        self._unsynced = [segment for segment in self._unsynced if segment not in taken]
        return taken

    def replace_segments(self, first: int, count: int, cleaned: list[Segment]) -> list[Segment]:
        """Put compacted segments where `count` old ones were; gives back the old ones."""
        old = self.segments[first : first + count]
        self.segments[first : first + count] = cleaned
        self._bases[first : first + count] = [segment.base_offset for segment in cleaned]
        return old

    def close(self) -> None:
        for segment in self.segments:
            segment.close()


TOPIC_ID_FILE = "partition.metadata"


def write_topic_id(disk: Disk, directory: Path, topic_id: TopicId) -> None:
    """Say whose directory this is. Durable with the log's first sync, before anything in it is acknowledged."""
    file = disk.open(directory / TOPIC_ID_FILE, create=True)
    try:
        file.write_at(0, (f"version: 0\ntopic_id: {topic_id}\n".encode(),))
    finally:
        file.close()


def sync_topic_id(disk: Disk, directory: Path) -> None:
    file = disk.open(directory / TOPIC_ID_FILE)
    try:
        file.sync()
    finally:
        file.close()


def read_topic_id(disk: Disk, directory: Path) -> TopicId | None:
    """Whose directory this is; None if a crash left it unsaid, which only happens before the first sync."""
    path = directory / TOPIC_ID_FILE
    if not disk.exists(path):
        return None
    for line in disk.read_file(path).decode("ascii", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id":
            try:
                return UUID(value)
            except ValueError:
                return None
    return None
