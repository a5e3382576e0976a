"""One segment: a file of record batches that starts at a base offset, and the indexes beside it.

Called by log.partition_log and log.recovery. Knows where bytes are; what they mean to a partition is decided above.
Invariants:
- `size` counts whole batches only; bytes past it (after a failed write) are not part of the log.
- The file is opened when first needed, so that a broker with many idle partitions starts at once.
- `next_offset` grows before `size`: an I/O thread that reads `size` first never sees a batch it knows no offset of.
- An index entry is believed only if it leads to the very batch it was made for; else the index is made anew.
"""

import logging
from pathlib import Path

from penstock.disk import Disk, File
from penstock.errors import CorruptMessage
from penstock.log.index import OffsetIndex, TimeIndex
from penstock.model import Offset
from penstock.records.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header

logger = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)

RELATIVE_OFFSET_MAX = 2**31 - 1
NO_TIMESTAMP = -1


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class Segment:
    __slots__ = (
        "_disk",
        "_file",
        "_offset_index",
        "_time_index",
        "_unindexed_bytes",
        "base_offset",
        "created_ms",
        "directory",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "size",
    )

    def __init__(self, disk: Disk, directory: Path, base_offset: Offset, created_ms: int) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset: Offset = base_offset
        self.next_offset: Offset = base_offset
        self.size = 0
        self.created_ms = created_ms
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset: int = base_offset
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._unindexed_bytes = 0

    def path(self, suffix: str = LOG_SUFFIX) -> Path:
        return self.directory / file_name(self.base_offset, suffix)

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._disk.open(self.path())
            if self._file is not None:  # the loop and an I/O thread opened it in the same moment
                file.close()
                return self._file
            self._file = file
        return file

    @property
    def is_loaded(self) -> bool:
        """Whether file and index are open, so that a read need not wait for the disk to find them."""
        return self._file is not None and self._offset_index is not None

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            index = OffsetIndex.decode(self._read_if_there(INDEX_SUFFIX))
            index.truncate(self.size)
            self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            index = TimeIndex.decode(self._read_if_there(TIME_INDEX_SUFFIX))
            index.truncate(self.next_offset - self.base_offset)
            self._time_index = index
        return index

    def create(self) -> None:
        """Make the file. It is not there after a power failure until its directory has been synced."""
        self._file = self._disk.open(self.path(), create=True)
        self._offset_index, self._time_index = OffsetIndex(), TimeIndex()

    def append(self, header: BatchHeader, base_offset: Offset, batch: memoryview, index_interval_bytes: int) -> None:
        """Write one stamped batch at the end. OSError leaves `size` where it was."""
        position = self.size
        self.file.write_at(position, (batch,))
        self.note(header, base_offset, position, index_interval_bytes)

    def note(self, header: BatchHeader, base_offset: Offset, position: int, index_interval_bytes: int) -> None:
        """Take account of a batch that stands at `position`: just written, or found there by recovery."""
        size = header.size
        last_offset = base_offset + header.last_offset_delta
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self.first_timestamp == NO_TIMESTAMP:
            self.first_timestamp = header.max_timestamp
        self._unindexed_bytes += size
        if self._unindexed_bytes > index_interval_bytes and position > 0:
            self.offset_index.append(last_offset - self.base_offset, position)
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self._unindexed_bytes = 0
        self.next_offset = Offset(last_offset + 1)
        self.size = position + size

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch that must start here. Blocks; for recovery, time look-ups and tools."""
        content = self.file.read(position, HEADER_BYTES)
        if len(content) < HEADER_BYTES:
            raise CorruptMessage(f"{self.path().name}: no whole batch header at byte {position}")
        header = read_header(content)
        if header.magic != MAGIC or header.size < HEADER_BYTES or position + header.size > self.size:
            raise CorruptMessage(f"{self.path().name}: no record batch at byte {position}")
        return header

    def start_near(self, offset: Offset) -> int:
        """Where to begin looking for `offset`: at the entry before it, or at 0 if that leads nowhere. May block."""
        index = self.offset_index
        position, _ = index.window(offset - self.base_offset)
        if position == 0:
            return 0
        try:
            found = self.header_at(position).last_offset - self.base_offset
        except CorruptMessage:
            found = -1
        if found != index.last_offset_at(position):
            self.distrust_index()
            return 0
        return position

    def distrust_index(self) -> None:
        """An entry did not lead to its batch, so none is believed: reads begin at 0 until rebuild_indexes()."""
        logger.warning("%s/%s: its index is not of this file", self.directory.name, self.path().name)
        self._offset_index = OffsetIndex()

    def position_of(self, offset: Offset) -> int:
        """Where the first batch that ends at or after `offset` starts; `size` if there is none. May block."""
        position = self.start_near(offset)
        while position < self.size:
            header = self.header_at(position)
            if header.last_offset >= offset:
                break
            position += header.size
        return position

    def rebuild_indexes(self, index_interval_bytes: int) -> None:
        """Make both indexes anew from the batches' headers. Blocks; on an I/O thread, also while others read."""
        copy = Segment(self._disk, self.directory, self.base_offset, self.created_ms)
        copy._offset_index, copy._time_index = OffsetIndex(), TimeIndex()
        end, position = self.size, 0
        while position < end:
            header = self.header_at(position)
            copy.note(header, Offset(header.base_offset), position, index_interval_bytes)
            position += header.size
        copy.encode_indexes()
        self._offset_index, self._time_index = copy._offset_index, copy._time_index

    def encode_indexes(self) -> tuple[bytes, bytes]:
        """What the index files should hold now; taken on the loop, written by write_indexes on a thread."""
        if self.max_timestamp > NO_TIMESTAMP:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        return self.offset_index.encode(), self.time_index.encode()

    def write_indexes(self, contents: tuple[bytes, bytes]) -> None:
        """Write both index files. Not synced: they are caches. Blocks."""
        for suffix, content in zip((INDEX_SUFFIX, TIME_INDEX_SUFFIX), contents, strict=True):
            file = self._disk.open(self.path(suffix), create=True)
            try:
                file.truncate(len(content))
                file.write_at(0, (content,))
            finally:
                file.close()

    def load_max_timestamp(self) -> None:
        """Learn the largest timestamp of a segment that an earlier run wrote. Blocks, for a few headers as a rule."""
        if self.max_timestamp != NO_TIMESTAMP or not self.size:
            return
        if self._file is not None:
            self.max_timestamp_offset, self.max_timestamp = self._find_max_timestamp()
            return
        # Of the many that are only asked for their age none should stay open.
        copy = Segment(self._disk, self.directory, self.base_offset, self.created_ms)
        copy.size, copy.next_offset = self.size, self.next_offset
        try:
            self.max_timestamp_offset, self.max_timestamp = copy._find_max_timestamp()
        finally:
            copy.close()

    def _find_max_timestamp(self) -> tuple[int, int]:
        newest, newest_offset, position = NO_TIMESTAMP, int(self.base_offset), 0
        if self.time_index.timestamps:
            indexed, offset = self.time_index.timestamps[-1], self.base_offset + self.time_index.offsets[-1]
            at = self.position_of(Offset(offset))
            header = self.header_at(at) if at < self.size else None
            if header is not None and (header.last_offset, header.max_timestamp) == (offset, indexed):
                newest, newest_offset, position = indexed, offset, at
        # The index is sparse, and after a power failure it may be older than its segment.
        while position < self.size:
            header = self.header_at(position)
            if header.max_timestamp > newest:
                newest, newest_offset = header.max_timestamp, header.last_offset
            position += header.size
        return newest_offset, newest

    def drop_index_cache(self) -> None:
        """Give memory back; only for closed segments, whose index files are whole."""
        self._offset_index = self._time_index = None

    def restart_at(self, position: int, next_offset: Offset) -> None:
        """Take the segment as ending at this batch boundary; what lies behind is written or noted anew. May block."""
        self.size, self.next_offset = position, next_offset
        self.offset_index.truncate(position)
        self.time_index.truncate(next_offset - self.base_offset)
        self.max_timestamp, self.first_timestamp = NO_TIMESTAMP, NO_TIMESTAMP
        self._unindexed_bytes = 0
        if position:
            self.first_timestamp = self.header_at(0).max_timestamp
            self.load_max_timestamp()

    def truncate(self, position: int, next_offset: Offset) -> None:
        """Cut at a batch boundary. Blocks (fsync): a cut that a crash undoes would bring the old bytes back."""
        assert position <= self.size
        self.file.truncate(position)
        self.file.sync()
        self.restart_at(position, next_offset)

    def mark_deleted(self) -> None:
        """Rename the files so that no restart takes them for part of the log; open reads go on."""
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if self._disk.exists(path):
                self._disk.rename(path, path.with_name(path.name + DELETED_SUFFIX))

    def remove_deleted(self) -> None:
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            self._disk.remove(self.path(suffix + DELETED_SUFFIX))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read_if_there(self, suffix: str) -> bytes:
        path = self.path(suffix)
        return self._disk.read_file(path) if self._disk.exists(path) else b""
