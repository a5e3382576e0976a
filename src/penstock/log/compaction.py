"""Compaction: of all records with the same key keep the newest, at the offset it always had.

Called by log.cleaner, in the worker process; log.swap puts the result in place. Works on the files of closed segments
and never on those themselves: what it writes has no effect until it is swapped in.
Laws (TRAPS L7):
- Nothing at or above `dirty_end` (the last stable offset, the active segment, min.compaction.lag.ms) is touched.
- Offsets are never renumbered. A batch keeps its first and last offset, so that sequence numbers still follow.
- A tombstone or a transaction's last trace first gets a time until which it stays (KIP-534), and goes after it.
- The last batch of every active producer, found by offset (KAFKA-8335), stays, if need be without its records.
- So does the last batch of every compacted segment: it says where the segment ends.
- A batch that cannot be read is never rewritten: the error ends the work, the log stays as it is.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.disk import Disk, File
from penstock.errors import CorruptMessage
from penstock.log.clean_job import CleanedSegment, CleanJob, CleanResult, SourceSegment
from penstock.log.index import OffsetIndex, TimeIndex
from penstock.log.offset_map import OffsetMap, Transactions
from penstock.log.segment import INDEX_SUFFIX, LOG_SUFFIX, RELATIVE_OFFSET_MAX, TIME_INDEX_SUFFIX, file_name
from penstock.log.swap import CLEANED_SUFFIX, remove_cleaned
from penstock.records.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_right, read_header
from penstock.records.compression import compress
from penstock.records.markers import ControlType, decode_marker
from penstock.records.record import (
    DELETE_HORIZON_MASK,
    NO_TIMESTAMP,
    Span,
    decode_records,
    encode_batch,
    encode_empty_batch,
    join_batch,
    scan_records,
    unfold,
)

READ_BYTES = 1 << 20
WRITE_BYTES = 1 << 20


def clean_segments(disk: Disk, job: CleanJob) -> CleanResult:
    """Write the compacted segments beside the old ones, durable but not yet in effect. Blocks, for long."""
    remove_cleaned(disk, job.directory)
    newest = _build_map(disk, job)
    rules = _Rules(job, newest)
    cleaned: list[CleanedSegment] = []
    bytes_read = bytes_kept = 0
    for group in group_segments([segment for segment in job.segments if segment.base_offset < newest.end], job):
        segment = _clean_group(disk, job, group, rules)
        bytes_read += sum(source.size for source in group)
        bytes_kept += group[0].size if segment is None else segment.size
        if segment is not None:
            cleaned.append(segment)
    disk.sync_directory(job.directory)
    return CleanResult(tuple(cleaned), newest.end, bytes_read, bytes_kept)


def group_segments(segments: Sequence[SourceSegment], job: CleanJob) -> list[list[SourceSegment]]:
    """Neighbours that fit one segment even if nothing in them can go: compaction must not leave ever smaller files."""
    groups: list[list[SourceSegment]] = []
    size = index_bytes = 0
    for segment in segments:
        fits = (
            bool(groups)
            and size + segment.size <= job.segment_bytes
            and index_bytes + segment.index_bytes <= job.segment_index_bytes
            and segment.next_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if not fits:
            groups.append([])
            size = index_bytes = 0
        groups[-1].append(segment)
        size += segment.size
        index_bytes += segment.index_bytes
    return groups


def _build_map(disk: Disk, job: CleanJob) -> OffsetMap:
    newest = OffsetMap(job.dedupe_buffer_bytes, job.dirty_start, job.dirty_end)
    transactions = Transactions(job.aborted)
    for segment in job.segments:
        if segment.next_offset <= job.dirty_start:
            continue
        for batch, header in _read_batches(disk, job.directory, segment):
            if newest.is_complete:
                return newest
            # An aborted record must not push out a committed one.
            if not header.is_control and not transactions.is_aborted(header):
                body = bytes(unfold(batch, header, job.unpacked_bytes_max))
                for span in scan_records(body, header):
                    offset = header.base_offset + span.offset_delta
                    is_known = offset < job.dirty_start or span.key_length < 0
                    if not is_known and not newest.put(_key(body, span), offset):
                        return newest
            newest.advance(header.next_offset)
        newest.advance(segment.next_offset)
    return newest


def _clean_group(disk: Disk, job: CleanJob, group: Sequence[SourceSegment], rules: "_Rules") -> CleanedSegment | None:
    """One compacted segment out of several; None if it would be the one it was made from."""
    output = _CleanedFile(disk, job.directory, group[0].base_offset, job.index_interval_bytes)
    try:
        is_changed = len(group) > 1
        dropped: tuple[memoryview, BatchHeader] | None = None
        for source in group:
            for batch, header in _read_batches(disk, job.directory, source):
                is_changed = is_changed or dropped is not None
                kept = rules.apply(batch, header)
                dropped = (batch, header) if kept is None else None
                if kept is not None:
                    is_changed = is_changed or kept is not batch
                    output.append(kept)
        if dropped is not None:
            batch, header = dropped
            is_changed = is_changed or header.record_count > 0
            output.append(encode_empty_batch(header) if header.record_count else batch)
        if not is_changed:
            return None
        output.finish()
        return CleanedSegment(
            output.base_offset,
            group[-1].next_offset,
            output.size,
            output.max_timestamp,
            output.max_timestamp_offset,
            tuple(source.base_offset for source in group),
            tuple(rules.take_aborts_gone()),
        )
    finally:
        output.close()


class _Rules:
    """What becomes of each batch, read in order."""

    def __init__(self, job: CleanJob, newest: OffsetMap) -> None:
        self._job = job
        self._newest = newest
        self._transactions = Transactions(job.aborted)
        self._aborts = {transaction.last_offset for transaction in job.aborted}
        self._aborts_gone: list[int] = []

    def take_aborts_gone(self) -> list[int]:
        """The abort markers that went since this was last asked."""
        gone, self._aborts_gone = self._aborts_gone, []
        return gone

    def apply(self, batch: memoryview, header: BatchHeader) -> memoryview | bytearray | None:
        """The batch itself, what is left of it, or None."""
        if header.base_offset >= self._newest.end:
            return batch
        kept = self._apply_control(batch, header) if header.is_control else self._apply_data(batch, header)
        if kept is None and self._is_last_of_producer(header):
            return batch if header.record_count == 0 else encode_empty_batch(header)
        return kept

    def _apply_control(self, batch: memoryview, header: BatchHeader) -> memoryview | bytearray | None:
        if header.record_count == 0:
            return None
        records = list(decode_records(batch, header, self._job.unpacked_bytes_max))
        if decode_marker(records[0]).control_type is ControlType.UNKNOWN:
            return batch
        if not self._transactions.is_last_trace(header) or header.base_offset >= self._job.markers_end:
            return batch
        horizon_ms = _delete_horizon(header)
        if horizon_ms is None:
            return self._rebuild(batch, header, {record.offset for record in records})
        if self._job.now_ms < horizon_ms:
            return batch
        if header.base_offset in self._aborts:
            self._aborts_gone.append(header.base_offset)
        return None

    def _apply_data(self, batch: memoryview, header: BatchHeader) -> memoryview | bytearray | None:
        if self._transactions.is_aborted(header) or header.record_count == 0:
            return None
        horizon_ms = _delete_horizon(header)
        tombstones_stay = horizon_ms is None or self._job.now_ms < horizon_ms
        body = bytes(unfold(batch, header, self._job.unpacked_bytes_max))
        kept: list[Span] = []
        has_tombstones = False
        for span in scan_records(body, header):
            offset = header.base_offset + span.offset_delta
            if offset < self._newest.end:
                if span.key_length < 0 or not self._newest.is_newest(_key(body, span), offset):
                    continue
                if span.value_length < 0:
                    if not tombstones_stay:
                        continue
                    has_tombstones = True
            kept.append(span)
        if not kept:
            return None
        if has_tombstones and horizon_ms is None:
            return self._rebuild(batch, header, {header.base_offset + span.offset_delta for span in kept})
        if len(kept) == header.record_count:
            return batch
        max_timestamp = header.max_timestamp
        if not header.is_log_append_time:
            max_timestamp = header.base_timestamp + max(span.timestamp_delta for span in kept)
        packed = b"".join(body[span.start : span.end] for span in kept)
        changed = header._replace(max_timestamp=max_timestamp, record_count=len(kept))
        return join_batch(changed, compress(header.compression, packed))

    def _rebuild(self, batch: memoryview, header: BatchHeader, offsets: set[int]) -> bytearray:
        """The batch with these records only, and a time from which its tombstones or its marker may go."""
        records = decode_records(batch, header, self._job.unpacked_bytes_max)
        return encode_batch(
            [record for record in records if record.offset in offsets],
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            compression=header.compression,
            is_log_append_time=header.is_log_append_time,
            delete_horizon_ms=self._job.now_ms + self._job.delete_retention_ms,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            leader_epoch=header.leader_epoch,
        )

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        tail = self._job.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if tail is None:
            return False
        if tail.last_offset is None:
            # Only markers are left of it: the newest has the epoch that fences its zombies.
            return header.is_control and header.producer_epoch == tail.epoch
        return header.last_offset == tail.last_offset


class _CleanedFile:
    """The `.cleaned` files of one segment, written from front to end."""

    def __init__(self, disk: Disk, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._index_interval_bytes = index_interval_bytes
        self.base_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._offset_index, self._time_index = OffsetIndex(), TimeIndex()
        self._unindexed_bytes = 0
        self._unwritten = bytearray()
        self._file: File | None = self._open(LOG_SUFFIX)

    def append(self, batch: memoryview | bytearray) -> None:
        header = read_header(batch)
        position = self.size
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        self._unindexed_bytes += header.size
        if self._unindexed_bytes > self._index_interval_bytes and position > 0:
            self._offset_index.append(header.last_offset - self.base_offset, position)
            self._index_time()
            self._unindexed_bytes = 0
        self._unwritten += batch
        self.size += header.size
        if len(self._unwritten) >= WRITE_BYTES:
            self._write()

    def finish(self) -> None:
        """Indexes too, and all of it on stable storage."""
        assert self._file is not None
        self._write()
        self._file.sync()
        self._index_time()
        contents = ((INDEX_SUFFIX, self._offset_index.encode()), (TIME_INDEX_SUFFIX, self._time_index.encode()))
        for suffix, content in contents:
            file = self._open(suffix)
            try:
                file.write_at(0, (content,))
                file.sync()
            finally:
                file.close()
        self._file.close()
        self._file = None

    def close(self) -> None:
        """Give up what finish() has not made whole."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._disk.remove(self._path(LOG_SUFFIX))

    def _index_time(self) -> None:
        if self.max_timestamp > NO_TIMESTAMP:
            self._time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def _write(self) -> None:
        assert self._file is not None
        if self._unwritten:
            self._file.write_at(self.size - len(self._unwritten), (self._unwritten,))
            self._unwritten = bytearray()

    def _open(self, suffix: str) -> File:
        return self._disk.open(self._path(suffix), create=True)

    def _path(self, suffix: str) -> Path:
        return self._directory / file_name(self.base_offset, suffix + CLEANED_SUFFIX)


def _read_batches(disk: Disk, directory: Path, segment: SourceSegment) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Every batch of a segment, checked against its CRC."""
    name = file_name(segment.base_offset, LOG_SUFFIX)
    file = disk.open(directory / name)
    try:
        position, chunk, at = 0, memoryview(b""), 0
        while position < segment.size:
            size = read_header(chunk, at).size if len(chunk) - at >= HEADER_BYTES else HEADER_BYTES
            if not HEADER_BYTES <= size <= segment.size - position:
                raise CorruptMessage(f"{directory.name}/{name}: no record batch at byte {position}")
            if size > len(chunk) - at or len(chunk) - at < HEADER_BYTES:
                chunk, at = file.read(position, min(max(size, READ_BYTES), segment.size - position)), 0
                if len(chunk) < size:
                    raise CorruptMessage(f"{directory.name}/{name}: ends at byte {position + len(chunk)}")
                continue
            batch = chunk[at : at + size]
            header = read_header(batch)
            if header.magic != MAGIC or header.last_offset_delta < 0 or not crc_is_right(batch, header):
                raise CorruptMessage(f"{directory.name}/{name}: no sound record batch at byte {position}")
            yield batch, header
            at += size
            position += size
    finally:
        file.close()


def _delete_horizon(header: BatchHeader) -> int | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON_MASK else None


def _key(body: bytes, span: Span) -> bytes:
    return body[span.key_at : span.key_at + span.key_length]
