"""One partition's log: segments in order, written at the end by a leader or after one.

Called by replication.partition (append, append_replicated, read) and log.directory (open, housekeeping, close).
Invariants:
- Only the last segment is written; all others are closed and their indexes are on disk.
- log_start <= next_offset; neither falls, but for a failed write of batches that nobody has heard of. To cut the end
  off, LogDirectory.truncate() opens another log in its place.
- After a failed write or fsync nothing is appended again until the log has been reopened and recovered (TRAPS L1).
- After end() nothing is written here or beside it, and no sync that is still under way says anything.
- Nothing here awaits: append picks the offset and writes in one turn of the loop; or, where it may gather, has it
  written by settle() before the turn ends and before anybody reads or is told of it. Methods that block say so.
- `segments` is replaced, never cut, so that a read on an I/O thread keeps the list it began with.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from penstock.config import TopicConfig
from penstock.disk import Disk
from penstock.errors import CorruptMessage, OffsetOutOfRange, PenstockError, StorageFailed
from penstock.log.aborted import AbortedTransaction
from penstock.log.gathering import BATCH_BYTES_MAX, GATHERED_BYTES_MAX, Gathering
from penstock.log.group_sync import GroupSync, SyncWork
from penstock.log.one_by_one import OneByOne
from penstock.log.producers import ProducerState
from penstock.log.reading import read_segments
from penstock.log.replicated import ReplicatedBatch, check_replicated, follow
from penstock.log.segment import NO_TIMESTAMP, RELATIVE_OFFSET_MAX, Segment
from penstock.log.state import LogState
from penstock.log.topic_id import sync_topic_id, write_topic_id
from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import BatchHeader, read_header, stamp
from penstock.records.checksum import crc32c
from penstock.records.markers import Marker, encode_marker

logger = logging.getLogger(__name__)

_NOTHING = Offset(-1)
BRIEF_SYNC_BYTES_MAX = 256 * 1024  # more may take a disk too long for the event loop to wait


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
        # Batches since the last checkpoint: what recovery, and a cut, would have to read again.
        self.unsaved_batches = 0
        self.epochs = state.epochs
        self.failure: PenstockError | None = None
        # Set by a failed fsync: what lies above is only in the page cache, if anywhere. And by end(): nothing is left.
        self._readable_end: Offset | None = None
        self._has_directory = state.has_directory
        # Segments with bytes that no fsync has covered yet, oldest first; and whether a file is new.
        self._unsynced: list[Segment] = []
        # A clean stop syncs what has bytes; nobody has made sure that the name of an empty segment is on the disk.
        self._directory_is_stale = bool(state.segments) and not state.segments[-1].size
        # What the last sync covered: that segment, up to that size. None while we do not know how much is dirty.
        self._synced: tuple[Segment, int] | None = None
        self.is_ended = False
        self.gathering = Gathering()
        self._gathers = False  # since the first batch of a turn of the loop, until that ends
        # Told once of damage in a file of this log, by whoever read it: also on an I/O thread.
        self.on_damage: Callable[[PenstockError], None] = _say_no_more
        self._damage_is_told = False
        # Whatever changes the files of this log other than by an append: checkpoints, swaps, cuts.
        self.turns = OneByOne()
        self.sync = GroupSync(disk, state.durable_offset, self._prepare_sync, self._sync_failed)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def written_end(self) -> Offset:
        """Below it everything is in the files; what was gathered since is not."""
        return self.segments[-1].next_offset if self.gathering.batches else self.next_offset

    @property
    def durable_offset(self) -> Offset:
        return self.sync.durable_offset

    # Writing

    def append(
        self, batch: memoryview, header: BatchHeader, epoch: LeaderEpoch, now_ms: int, *, may_gather: bool = False
    ) -> Appended:
        """Write one checked batch at the end of the log, into the page cache.

        With `may_gather` it may be written with others of this turn of the loop: settle() before anybody is told.
        """
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
        last_offset = base_offset + header.last_offset_delta
        try:
            segment = self._segment_for(header, last_offset, now_ms)
            # Not the first of a turn, which may be the only one; nor of a segment, which decides when that is full.
            if may_gather and (self._gathers or self._begin_turn()) and segment.size and len(batch) <= BATCH_BYTES_MAX:
                if len(self.gathering.content) + len(batch) > GATHERED_BYTES_MAX:
                    self._write_gathered()
                self.gathering.add(header, base_offset, batch)
            else:
                self._write_gathered()
                segment.append(header, base_offset, batch, self.config.index_interval_bytes)
                self._has_grown(segment)
        except OSError as error:
            raise self._write_failed(error) from error
        self.next_offset = Offset(last_offset + 1)
        self.unsaved_batches += 1
        if header.producer_id >= 0:
            self.producers.record(header, base_offset, now_ms)
        return Appended(base_offset, self.next_offset)

    def _begin_turn(self) -> bool:
        """Whether to gather already: no, as to gather one batch alone costs more than it saves."""
        self._gathers = True
        # Also what nobody waits for is written with the turn.
        asyncio.get_running_loop().call_soon(self._end_turn)
        return False

    def _end_turn(self) -> None:
        self._gathers = False
        self.settle()

    def settle(self) -> PenstockError | None:
        """Have all that was appended in the files; or why that cannot be. Only on the loop."""
        if self.gathering.batches and self.failure is None:
            try:
                self._write_gathered()
            except Exception as error:
                # Whatever it was: these batches have offsets, and nobody may be told that they are written.
                self._write_failed(error)
        return self.failure

    def _write_gathered(self) -> None:
        if self.gathering.batches:
            segment = self.segments[-1]
            self.gathering.write(segment, self.config.index_interval_bytes)
            self._has_grown(segment)

    def _has_grown(self, segment: Segment) -> None:
        if not self._unsynced or self._unsynced[-1] is not segment:
            self._unsynced.append(segment)

    def append_replicated(self, records: memoryview, now_ms: int) -> int:
        """Write batches as the leader sent them, with its offsets and epochs; how many bytes of them were taken.

        All of it is checked before any of it is written; a batch cut short at the end is for the next answer.
        Per run of batches that go to one segment: one write, out of `records` itself.
        """
        failure = self.settle()
        if failure is not None:
            raise failure
        # A leadership of our own in which nothing was written says nothing of what another leader has there.
        self.epochs.truncate_end(self.next_offset)
        is_first = not self.segments
        batches = check_replicated(records, self.next_offset, self.epochs.latest, is_first=is_first)
        if is_first and batches and batches[0].header.base_offset < self.next_offset:
            # Records were deleted up to the middle of this batch: the log holds all of it, and starts where it did.
            self.next_offset = Offset(batches[0].header.base_offset)
        slot = position = 0
        while slot < len(batches):
            header = batches[slot].header
            try:
                segment = self._segment_for(header, header.last_offset, now_ms)
                run, size = self._run_into(segment, batches, slot, now_ms)
                segment.file.write_at(segment.size, (records[position : position + size],))
            except OSError as error:
                raise self._write_failed(error) from error
            self._note_run(segment, run, now_ms)
            slot, position = slot + len(run), position + size
        return position

    def _run_into(
        self, segment: Segment, batches: list[ReplicatedBatch], first: int, now_ms: int
    ) -> tuple[list[ReplicatedBatch], int]:
        """The batches from `first` on that this segment has room for, one at least, and their bytes."""
        end, size, first_timestamp = first, segment.size, segment.first_timestamp
        while end < len(batches):
            header = batches[end].header
            if end > first and self._is_full(segment, size, first_timestamp, header, header.last_offset, now_ms):
                break
            size += header.size
            if first_timestamp == NO_TIMESTAMP:
                first_timestamp = header.max_timestamp
            end += 1
        return batches[first:end], size - segment.size

    def _note_run(self, segment: Segment, run: list[ReplicatedBatch], now_ms: int) -> None:
        interval, epoch = self.config.index_interval_bytes, self.epochs.latest
        for header, marker in run:
            base_offset = Offset(header.base_offset)
            if header.leader_epoch > epoch:
                epoch = LeaderEpoch(header.leader_epoch)
                self.epochs.assign(epoch, base_offset)
            segment.note(header, base_offset, segment.size, interval)
            if header.producer_id >= 0:
                follow(self.producers, self.aborted, header, marker, now_ms)
        self.next_offset = segment.next_offset
        self.unsaved_batches += len(run)
        self._has_grown(segment)

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """This broker leads from here on: what others wrote ends where the log ends now (TRAPS R1).

        On stable storage no later than the first batch of the epoch; without one it says nothing that matters.
        """
        self.epochs.assign(epoch, self.next_offset)

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
        self._write_gathered()
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

    def _segment_for(self, header: BatchHeader, last_offset: int, now_ms: int) -> Segment:
        if not self.segments:
            return self.roll(now_ms)
        active = self.segments[-1]
        size = active.size + len(self.gathering.content)
        if size and self._is_full(active, size, active.first_timestamp, header, last_offset, now_ms):
            return self.roll(now_ms)
        return active

    def _is_full(
        self, segment: Segment, size: int, first_timestamp: int, header: BatchHeader, last_offset: int, now_ms: int
    ) -> bool:
        """Whether a segment that has grown to `size` must not take this batch: by bytes, by offsets or by age."""
        config = self.config
        if size + header.size > config.segment_bytes or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        age_max_ms = config.segment_age_max_ms
        if config.segment_jitter_ms:
            # The same for a partition at every start, another for each partition.
            age_max_ms -= crc32c(str(self.at).encode()) % min(config.segment_jitter_ms, age_max_ms)
        # By record time where records have one, so that old data replayed today still rolls by its own calendar.
        if first_timestamp >= 0 and header.max_timestamp >= 0:
            return header.max_timestamp - first_timestamp > age_max_ms
        return now_ms - segment.created_ms > age_max_ms

    def _make_directory(self) -> None:
        self._disk.make_directory(self.directory)
        write_topic_id(self._disk, self.directory, self.topic_id)
        self._has_directory = True

    # Durability

    def _prepare_sync(self) -> SyncWork | None:
        if self.settle() is not None:
            return None
        segments, self._unsynced = self._unsynced, []
        stale, self._directory_is_stale = self._directory_is_stale, False
        epochs = self.epochs.pending()
        disk, directory = self._disk, self.directory

        def job() -> None:
            if self.is_ended:
                return  # another log may have the directory by now
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
        is_brief = epochs is None and not stale and self._is_little(segments)
        self._synced = (segments[-1], segments[-1].size) if segments else None
        return SyncWork(self.next_offset, job, is_brief)

    def _is_little(self, unsynced: list[Segment]) -> bool:
        """Whether all there is to sync is a small end of one file."""
        if len(unsynced) != 1 or self._synced is None:
            return False
        segment, size = self._synced
        return unsynced[0] is segment and segment.size - size <= BRIEF_SYNC_BYTES_MAX

    def _sync_failed(self, error: BaseException) -> BaseException:
        if self.is_ended and self.failure is not None:
            return self.failure
        # The kernel may have dropped the dirty pages, so what reads would return is not what a restart will find.
        self._readable_end = self.durable_offset
        return self._fail(f"fsync failed: {error}")

    def _write_failed(self, error: Exception) -> StorageFailed:
        failure = self._fail(f"write failed: {error}")
        # Of what was gathered nobody has heard.
        self.gathering.drop()
        self.next_offset = Offset(max(self.log_start, self.segments[-1].next_offset if self.segments else 0))
        self.sync.stop(failure)
        return failure

    def _fail(self, what: str) -> StorageFailed:
        failure = StorageFailed(f"{self.at}: {what}; the log takes no more records until the broker is restarted")
        logger.error("%s", failure)
        self.failure = failure
        return failure

    def end(self, why: PenstockError) -> None:
        """The topic is deleted, or another log takes this one's place: whoever waits is told, and nothing is written
        to its files or beside them again.
        """
        self.settle()
        self.is_ended = True
        self.failure = why
        self._readable_end = _NOTHING
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

        None when the disk would have to be asked and `cached_only`, as on the loop; with `cached_only=False` it blocks
        instead, and every whole batch is held against its checksum (CorruptMessage).
        The last batch may be cut short, as Kafka's is; the first never is, if `at_least_one`.
        """
        if cached_only and self.gathering.batches:
            self.settle()
        if self._readable_end is not None:
            end = min(end, self._readable_end)
            if offset > end and self.failure is not None:
                raise self.failure
        if not self.log_start <= offset <= self.next_offset:
            raise OffsetOutOfRange(offset, self.log_start, self.next_offset)
        if cached_only and self._damage_is_told:
            return None  # what was found damaged on the disk is in the page cache by now, where nobody checks it
        try:
            interval = self.config.index_interval_bytes
            return read_segments(self.segments, self._bases, offset, size_max, end, interval, at_least_one, cached_only)
        except (CorruptMessage, OSError) as error:
            if self.is_ended and self.failure is not None:
                raise self.failure from error  # its files are another log's by now
            if isinstance(error, CorruptMessage):
                self.tell_damage(error)
            raise

    def tell_damage(self, error: PenstockError) -> None:
        """Somebody has read what cannot be: said once, to the operator and to whoever can do something about it."""
        if not self._damage_is_told:
            self._damage_is_told = True
            logger.error("%s; `penstock log dump` shows what is left of it", error)
            self.on_damage(error)

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
        self.gathering.drop()  # what nobody waited to see written
        for segment in self.segments:
            segment.close()


def _say_no_more(_: PenstockError) -> None:
    pass
