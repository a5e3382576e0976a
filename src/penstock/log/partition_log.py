"""One partition's log: segments in order, written at the end, cut at either end.

Called by replication.partition (append, read) and log.directory (open, housekeeping, close).
Invariants:
- Only the last segment is written; all others are closed and their indexes are on disk.
- log_start <= next_offset; next_offset falls only in truncate().
- After a failed write or fsync nothing is appended again until the log has been reopened and recovered (TRAPS L1).
- Nothing here awaits: append picks the offset and writes in one turn of the loop. Methods that block say so.
- `segments` is replaced, never cut, so that a read on an I/O thread keeps the list it began with.
"""

import logging
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from penstock.config import TopicConfig
from penstock.disk import Disk
from penstock.errors import CorruptMessage, OffsetOutOfRange, PenstockError, StorageFailed
from penstock.log.aborted import AbortedTransaction, AbortedTransactions
from penstock.log.checkpoints import LeaderEpochs
from penstock.log.group_sync import GroupSync, SyncWork
from penstock.log.producers import Producers, ProducerState
from penstock.log.segment import RELATIVE_OFFSET_MAX, Segment
from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import HEADER_BYTES, BatchHeader, read_header, stamp
from penstock.records.markers import Marker, encode_marker

logger = logging.getLogger(__name__)

# base_offset, batch_length, last_offset_delta: all that finding a batch takes.
_STEP = Struct(">qi11xi")

# An index that leaves much more than this to be walked through is short, and made anew.
_WALK_BYTES_MAX = 1 << 20

# What a segment gives if none of its batches reaches the offset: the next one does.
_NOT_HERE = memoryview(b"")

_NOWHERE = Offset(0)


@dataclass(slots=True)
class LogState:
    """What opening or recovering a log found on disk."""

    segments: list[Segment]
    log_start: Offset
    durable_offset: Offset
    producers: Producers
    epochs: LeaderEpochs
    has_directory: bool
    aborted: AbortedTransactions = field(default_factory=AbortedTransactions)
    # The newest of the producers' snapshots that the next recovery would begin with; 0 for none.
    snapshot_offset: Offset = _NOWHERE


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
        self.aborted = state.aborted
        self.snapshot_offset = state.snapshot_offset
        self.epochs = state.epochs
        self.failure: PenstockError | None = None
        # Set by a failed fsync: what lies above is only in the page cache, if anywhere.
        self._readable_end: Offset | None = None
        self._has_directory = state.has_directory
        # Segments with bytes that no fsync has covered yet, oldest first; and whether a file is new.
        self._unsynced: list[Segment] = []
        self._directory_is_stale = False
        self._is_deleted = False
        self._damage_is_told = False
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
            self.producers.record(header, base_offset, now_ms)
        return Appended(base_offset, self.next_offset)

    def append_marker(
        self,
        marker: Marker,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        *,
        is_version_2: bool = False,
    ) -> Appended:
        """End the producer's transaction here. Where it has none open the marker is written all the same.

        With `is_version_2` (KIP-890) its epoch is the one after that of the batches, which is then fenced.
        """
        self.producers.check_marker(marker, producer_id, producer_epoch, is_version_2=is_version_2)
        batch = encode_marker(
            marker, offset=0, timestamp=now_ms, producer_id=producer_id, producer_epoch=producer_epoch
        )
        appended = self.append(memoryview(batch), read_header(batch), leader_epoch, now_ms)
        aborted = self.producers.end_transaction(marker, producer_id, appended.base_offset)
        if aborted is not None:
            self.aborted.append(aborted)
        return appended

    def roll(self, now_ms: int) -> Segment:
        """Start a new segment at the end; the one before it is complete from now on."""
        if not self._has_directory:
            self._make_directory()
        segment = Segment(self._disk, self.directory, self.next_offset, now_ms)
        segment.create()
        complete = self.segments[-1] if self.segments else None
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self._directory_is_stale = True
        if complete is not None:
            # Only now: a checkpoint that is writing the same files on a thread then sees that it was overtaken.
            complete.write_indexes(complete.encode_indexes())
        return segment

    def _segment_for(self, header: BatchHeader, now_ms: int) -> Segment:
        if not self.segments:
            return self.roll(now_ms)
        active = self.segments[-1]
        if active.size == 0:
            return active
        config = self.config
        is_full = active.size + header.size > config.segment_bytes
        is_wide = self.next_offset + header.last_offset_delta - active.base_offset > RELATIVE_OFFSET_MAX
        if is_full or is_wide or self._is_old(active, header.max_timestamp, now_ms):
            return self.roll(now_ms)
        return active

    def _is_old(self, active: Segment, timestamp: int, now_ms: int) -> bool:
        config = self.config
        age_max_ms = config.segment_age_max_ms
        if config.segment_jitter_ms:
            # The same for a partition at every start, another for each partition.
            age_max_ms -= crc32c(str(self.at).encode()) % min(config.segment_jitter_ms, age_max_ms)
        # By record time where records have one, so that old data replayed today still rolls by its own calendar.
        if active.first_timestamp >= 0 and timestamp >= 0:
            return timestamp - active.first_timestamp > age_max_ms
        return now_ms - active.created_ms > age_max_ms

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
            if self._is_deleted:
                return  # a new topic of this name may have the directory by now
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
        if self._is_deleted and self.failure is not None:
            return self.failure
        return self._fail(f"fsync failed: {error}")

    def _write_failed(self, error: OSError) -> StorageFailed:
        failure = self._fail(f"write failed: {error}")
        self.sync.stop(failure)
        return failure

    def _fail(self, what: str) -> StorageFailed:
        failure = StorageFailed(f"{self.at}: {what}; the log takes no more records until the broker is restarted")
        logger.error("%s", failure)
        self.failure = failure
        return failure

    def end(self, why: PenstockError) -> None:
        """The topic is deleted: whoever waits is told, and nothing is written to its files or beside them again."""
        self._is_deleted = True
        self.failure = why
        self.sync.stop(why)

    # Transactions

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Below it every transaction is decided, and its marker is below the high watermark (TRAPS P8)."""
        if self.producers.is_stable:
            return high_watermark
        first = self.producers.first_unstable(high_watermark)
        if first is None or first >= high_watermark:
            return high_watermark
        # The start may have passed the first record of a transaction that is still open.
        return Offset(max(first, self.log_start))

    def aborted_transactions(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """What a committed reader must know who is given the batches from `start` up to `end`."""
        return self.aborted.overlapping(start, end)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a batch of this producer would continue a transaction that is open here."""
        return self.producers.has_open_transaction(producer_id, producer_epoch)

    def producer_states(self) -> list[ProducerState]:
        return self.producers.states()

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
        segments = self.segments
        slot = max(min(bisect_right(self._bases, offset), len(segments)) - 1, 0)
        while slot and segments[slot].base_offset > offset:  # old segments went between the two lines above
            slot -= 1
        empty = memoryview(b"")
        while slot < len(segments) and offset < end:
            segment = segments[slot]
            # Asked first: only of a segment that was closed before we looked is the end known to stand still.
            is_closed = slot + 1 < len(segments)
            found = _NOT_HERE
            if segment.next_offset > offset:
                found = self._read_segment(segment, offset, size_max, end, at_least_one, cached_only)
                if found is _NOT_HERE and is_closed and segment.next_offset <= end:
                    # Compaction leaves holes in a segment, never at its end: these records are lost.
                    raise self._damaged(segment, segment.size)
            if found is _NOT_HERE:
                slot += 1
                continue
            beyond = _end_of_empty_batches(found) if found else None
            if beyond is None:
                return found
            # librdkafka takes an answer of nothing but emptied batches for one too small to hold a message.
            empty, offset = found, beyond
        return empty

    def _read_segment(
        self, segment: Segment, offset: Offset, size_max: int, end: Offset, at_least_one: bool, cached_only: bool
    ) -> memoryview | None:
        if cached_only and not segment.is_loaded:
            return None
        read = segment.file.read_cached if cached_only else segment.file.read
        limit = segment.size  # before next_offset, which an append moves first
        if end < segment.next_offset:
            below = self._position_below(segment, end, cached_only)
            if below is None:
                return None
            limit = min(limit, below)
        index, interval = segment.offset_index, self.config.index_interval_bytes
        start, next_entry = index.window(offset - segment.base_offset)
        promised = segment.base_offset + index.last_offset_at(start) if start else None
        skipped = (next_entry if next_entry is not None else segment.size) - start
        wanted = min(limit - start, size_max + min(skipped, interval + HEADER_BYTES))
        if wanted <= 0:
            return _NOT_HERE
        chunk = read(start, wanted)
        if chunk is None:
            return None
        at = 0
        walked_max = start + _WALK_BYTES_MAX + 4 * interval
        while True:
            if at + HEADER_BYTES > len(chunk):
                # The batch we look for begins beyond what was read (or cached): go on from there.
                start, at = start + at, 0
                if start >= limit:
                    return _NOT_HERE
                chunk = read(start, min(limit - start, max(size_max, HEADER_BYTES)))
                if chunk is None or (cached_only and len(chunk) < HEADER_BYTES):
                    return None
                if len(chunk) < HEADER_BYTES:
                    raise self._damaged(segment, start)
            base_offset, batch_length, last_delta = _STEP.unpack_from(chunk, at)
            size, last_offset = batch_length + 12, base_offset + last_delta
            if promised is not None and promised != last_offset:
                segment.distrust_index()
                return self._read_without_index(segment, offset, size_max, end, at_least_one, cached_only)
            if not (
                HEADER_BYTES <= size <= limit - start - at
                and segment.base_offset <= base_offset <= last_offset < segment.next_offset
            ):
                raise self._damaged(segment, start + at)
            if last_offset >= offset:
                break
            promised = None
            at += size
            if start + at > walked_max + size:
                return self._read_without_index(segment, offset, size_max, end, at_least_one, cached_only)
        if size > size_max and not at_least_one:
            return chunk[:0]
        if at + size <= len(chunk):
            return chunk[at : at + max(size_max, size)]
        start += at
        chunk = read(start, min(limit - start, max(size_max, size)))
        if chunk is None or (cached_only and len(chunk) < size):
            return None
        if len(chunk) < size:
            raise self._damaged(segment, start)
        return chunk

    def _read_without_index(
        self, segment: Segment, offset: Offset, size_max: int, end: Offset, at_least_one: bool, cached_only: bool
    ) -> memoryview | None:
        """The index is wrong or far too short: make it anew, where that may block, and read again."""
        if cached_only:
            return None
        segment.rebuild_indexes(self.config.index_interval_bytes)
        return self._read_segment(segment, offset, size_max, end, at_least_one, cached_only)

    def _position_below(self, segment: Segment, end: Offset, cached_only: bool) -> int | None:
        """Where the first batch that reaches `end` starts; None if finding it would ask the disk."""
        if not cached_only:
            return segment.position_of(end)
        index = segment.offset_index
        position, _ = index.window(end - segment.base_offset)
        promised = segment.base_offset + index.last_offset_at(position) if position else None
        while position < segment.size:
            head = segment.file.read_cached(position, HEADER_BYTES)
            if head is None or len(head) < HEADER_BYTES:
                return None
            base_offset, batch_length, last_delta = _STEP.unpack_from(head)
            if batch_length + 12 < HEADER_BYTES or (promised is not None and promised != base_offset + last_delta):
                return None  # the other road has the time to find out what is wrong
            if base_offset + last_delta >= end:
                break
            promised = None
            position += batch_length + 12
        return position

    def _damaged(self, segment: Segment, position: int) -> CorruptMessage:
        error = CorruptMessage(f"{self.at}: no record batch at byte {position} of {segment.path().name}")
        if not self._damage_is_told:
            self._damage_is_told = True
            logger.error("%s; `penstock log dump` shows what is left of it", error)
        return error

    # Cutting

    def advance_start(self, offset: Offset) -> None:
        """Records below `offset` are gone for readers; whole segments below it are removed by delete_before."""
        assert self.log_start <= offset <= self.next_offset
        self.log_start = offset
        # Producers stay known until they expire: a batch that is deleted may still be sent a second time.
        self.epochs.truncate_start(offset)

    def take_segments_before_start(self) -> list[Segment]:
        """Closed segments that lie wholly below the start, taken out of the log; the caller deletes their files."""
        taken = self.take_segments(0, self._count_before_start())
        if taken:
            self.aborted.drop_before(self.segments[0].base_offset)
        return taken

    def end_of_segments_before_start(self) -> Offset:
        """Where the last segment ends that take_segments_before_start() would take."""
        count = self._count_before_start()
        return self.segments[count - 1].next_offset if count else Offset(0)

    def _count_before_start(self) -> int:
        count = 0
        while count < len(self.segments) - 1 and self.segments[count].next_offset <= self.log_start:
            count += 1
        return count

    def take_segments(self, first: int, count: int) -> list[Segment]:
        taken = self.segments[first : first + count]
        self.segments = self.segments[:first] + self.segments[first + count :]
        self._bases = [segment.base_offset for segment in self.segments]
        self._unsynced = [segment for segment in self._unsynced if segment not in taken]
        return taken

    def replace_segments(self, first: int, count: int, cleaned: list[Segment]) -> list[Segment]:
        """Put compacted segments where `count` old ones were; gives back the old ones."""
        old = self.segments[first : first + count]
        self.segments = self.segments[:first] + cleaned + self.segments[first + count :]
        self._bases = [segment.base_offset for segment in self.segments]
        return old

    def close(self) -> None:
        for segment in self.segments:
            segment.close()


def _end_of_empty_batches(batches: memoryview) -> Offset | None:
    """The offset after them if compaction has left none of these batches a record; None if one has any."""
    at, end = 0, None
    while len(batches) - at >= HEADER_BYTES:
        base_offset, batch_length, last_delta = _STEP.unpack_from(batches, at)
        if batch_length + 12 != HEADER_BYTES:
            return None
        end = Offset(base_offset + last_delta + 1)
        at += HEADER_BYTES
    return end


TOPIC_ID_FILE = "partition.metadata"


def write_topic_id(disk: Disk, directory: Path, topic_id: TopicId) -> None:
    """Say whose directory this is. Durable with the log's first sync, before anything in it is acknowledged."""
    said = f"version: 0\ntopic_id: {topic_id}\n".encode()
    content = said + f"crc: {crc32c(said):08x}\n".encode()
    file = disk.open(directory / TOPIC_ID_FILE, create=True)
    try:
        file.truncate(len(content))
        file.write_at(0, (content,))
    finally:
        file.close()


def sync_topic_id(disk: Disk, directory: Path) -> None:
    file = disk.open(directory / TOPIC_ID_FILE)
    try:
        file.sync()
    finally:
        file.close()


def read_topic_id(disk: Disk, directory: Path) -> TopicId | None:
    """Whose directory this is; None if a crash left it unsaid (before the first sync only) or it is damaged."""
    path = directory / TOPIC_ID_FILE
    if not disk.exists(path):
        return None
    said, mark, checksum = disk.read_file(path).rpartition(b"crc: ")
    if not mark or checksum != f"{crc32c(said):08x}\n".encode():
        return None
    return UUID(said.decode().splitlines()[1].removeprefix("topic_id: "))
