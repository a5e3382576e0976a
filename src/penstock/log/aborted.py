"""Which transactions of a log were aborted: what committed readers skip, and the files that remember it.

Called by log.partition_log (append, overlapping), log.directory and log.recovery (files), log.compactor.
The files, one `….txnindex` beside each segment that holds an abort marker, have Kafka's layout and therefore no
checksum; how many entries of each count, and their checksum, stands in the producers' snapshot.
Laws (TRAPS P8, L4):
- Entries stand in the order of their markers, each in the file of the segment that holds the marker.
- A file is a cache: believed only as far as a snapshot vouches for it, otherwise made anew from the log.
- An entry goes with its marker, never later: a reader who is told of an abort waits for the marker that ends it.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from penstock.disk import Disk
from penstock.log.segment import TXN_INDEX_SUFFIX, file_name
from penstock.records.checksum import crc32c

_ENTRY = Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset
_VERSION = 0
ENTRY_BYTES = _ENTRY.size


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of its marker
    last_stable_offset: int = -1  # right after it: whatever is aborted later starts there or above


class AbortedDigest(NamedTuple):
    """What a snapshot says of one segment's file: this many entries, with this checksum."""

    base_offset: int
    entries: int
    checksum: int


class AbortedPart(NamedTuple):
    """Bytes to be written into the file of one segment."""

    base_offset: int
    position: int
    content: bytes


class AbortedSaving(NamedTuple):
    """What one checkpoint makes durable: first the parts, then the digests with the snapshot."""

    digests: list[AbortedDigest]
    parts: list[AbortedPart]
    generation: int


class AbortedTransactions:
    """All aborted transactions of one log."""

    __slots__ = (
        "_digests",
        "_first_offsets",
        "_generation",
        "_last_offsets",
        "_producer_ids",
        "_saved",
        "_stable",
        "is_unsaved",
    )

    def __init__(self) -> None:
        # Columns, since a log may have many: four numbers take 32 bytes here, and 200 as a tuple.
        self._producer_ids, self._first_offsets = array("q"), array("q")
        self._last_offsets, self._stable = array("q"), array("q")
        # By base offset of a segment: the checksum of its entries so far, and how many of them its file holds.
        self._digests: dict[int, AbortedDigest] = {}
        self._saved: dict[int, int] = {}
        self._generation = 0
        # Whether the newest snapshot speaks of files that are not there any more, though nothing was appended.
        self.is_unsaved = False

    def __len__(self) -> int:
        return len(self._last_offsets)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(self._entry, range(len(self)))

    def append(self, entry: AbortedTransaction) -> None:
        assert not self._last_offsets or entry.last_offset > self._last_offsets[-1]
        self._producer_ids.append(entry.producer_id)
        self._first_offsets.append(entry.first_offset)
        self._last_offsets.append(entry.last_offset)
        self._stable.append(entry.last_stable_offset)

    def reach(self, offset: int) -> bool:
        """Whether any of them ends at or after `offset`: if not, there is nothing to tell a reader."""
        return len(self._last_offsets) > 0 and self._last_offsets[-1] >= offset

    def overlapping(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with a record or the marker at or after `start` that began before `end`."""
        found: list[AbortedTransaction] = []
        for slot in range(bisect_left(self._last_offsets, start), len(self._last_offsets)):
            if self._first_offsets[slot] < end:
                found.append(self._entry(slot))
            if self._stable[slot] >= end:
                break
        return found

    def drop_before(self, offset: int) -> None:
        """Segments up to `offset` are gone, with the markers in them."""
        self._cut(0, bisect_left(self._last_offsets, offset))
        for base in [base for base in self._saved if base < offset]:
            del self._saved[base]
        for base in [base for base in self._digests if base < offset]:
            del self._digests[base]

    def forget(self, markers: Iterable[int]) -> None:
        """Compaction is about to take these markers out of the log, long after the records they speak of."""
        self.distrust_files()
        for marker in markers:
            slot = bisect_left(self._last_offsets, marker)
            if slot < len(self) and self._last_offsets[slot] == marker:
                self._cut(slot, slot + 1)

    def distrust_files(self) -> None:
        """The segments are others now: what was saved with the old ones is of no use."""
        self.is_unsaved = self.is_unsaved or bool(self._saved)
        self._saved.clear()
        self._digests.clear()
        self._generation += 1

    # Files

    def prepare_saving(self, bases: Sequence[int]) -> AbortedSaving:
        """What the files of the segments that start at `bases` lack. Taken on the loop, written on a thread."""
        digests: list[AbortedDigest] = []
        parts: list[AbortedPart] = []
        if len(self):
            starts = [bisect_left(self._last_offsets, base) for base in bases]
            for base, start, end in zip(bases, starts, [*starts[1:], len(self)], strict=True):
                if start == end:
                    continue
                digests.append(self._digest(base, start, end))
                saved = self._saved.get(base, 0)
                if saved < end - start:
                    parts.append(AbortedPart(base, saved * ENTRY_BYTES, self._encode(start + saved, end)))
        return AbortedSaving(digests, parts, self._generation)

    def saved(self, saving: AbortedSaving) -> None:
        if saving.generation == self._generation:
            self._saved = {digest.base_offset: digest.entries for digest in saving.digests}
            self.is_unsaved = False

    def load(self, disk: Disk, directory: Path, bases: Sequence[int], digests: Iterable[AbortedDigest]) -> bool:
        """Take the files of these segments, as far as the digests vouch for them; False if one is not as it was."""
        known = set(bases)
        for digest in digests:
            if digest.base_offset < bases[0]:
                continue  # deleted since
            path = directory / file_name(digest.base_offset, TXN_INDEX_SUFFIX)
            if digest.base_offset not in known or not disk.exists(path):
                return False
            content = disk.read_file(path)[: digest.entries * ENTRY_BYTES]
            if len(content) < digest.entries * ENTRY_BYTES or crc32c(content) != digest.checksum:
                return False
            for _, *entry in _ENTRY.iter_unpack(content):
                self.append(AbortedTransaction._make(entry))
            self._digests[digest.base_offset] = digest
            self._saved[digest.base_offset] = digest.entries
        return True

    def _digest(self, base: int, start: int, end: int) -> AbortedDigest:
        known = self._digests.get(base) or AbortedDigest(base, 0, 0)
        if known.entries < end - start:
            checksum = crc32c(self._encode(start + known.entries, end), known.checksum)
            known = self._digests[base] = AbortedDigest(base, end - start, checksum)
        return known

    def _encode(self, start: int, end: int) -> bytes:
        return b"".join(_ENTRY.pack(_VERSION, *self._entry(slot)) for slot in range(start, end))

    def _entry(self, slot: int) -> AbortedTransaction:
        return AbortedTransaction(
            self._producer_ids[slot], self._first_offsets[slot], self._last_offsets[slot], self._stable[slot]
        )

    def _cut(self, start: int, end: int) -> None:
        for column in (self._producer_ids, self._first_offsets, self._last_offsets, self._stable):
            del column[start:end]


def write_aborted(disk: Disk, directory: Path, parts: Iterable[AbortedPart]) -> None:
    """Write what the files lack. Their names are durable with the next sync of the directory. Blocks."""
    for base_offset, position, content in parts:
        file = disk.open(directory / file_name(base_offset, TXN_INDEX_SUFFIX), create=True)
        try:
            # Behind it may lie what an earlier run wrote and no snapshot came to vouch for.
            file.truncate(position)
            file.write_at(position, (content,))
            file.sync()
        finally:
            file.close()
