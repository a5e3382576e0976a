"""Where in a segment an offset or a time begins: two sparse indexes, in memory as arrays, on disk in Kafka's layout.

Called by log.segment and log.partition_log. An index is a cache: it may be missing, short, stale or damaged, and
whoever uses an entry checks that the batch it finds there is the one it was made for (`last_offset_at`).
Invariants: offsets, positions and timestamps only grow along an index; relative offsets fit 32 bits.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12

_TIME_ENTRY = Struct(">qI")


class OffsetIndex:
    """Relative offset of some batches' last record -> position of the batch in the file."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def window(self, relative_offset: int) -> tuple[int, int | None]:
        """Where to start looking for the offset, and where the next entry starts (None: no later entry)."""
        slot = bisect_right(self.offsets, relative_offset)
        start = self.positions[slot - 1] if slot else 0
        return start, self.positions[slot] if slot < len(self.positions) else None

    def last_offset_at(self, position: int) -> int:
        """The relative offset that an entry promises for the batch at its position."""
        return self.offsets[bisect_left(self.positions, position)]

    def truncate(self, size: int) -> None:
        """Forget batches that start at or after `size` bytes."""
        slot = bisect_left(self.positions, size)
        del self.offsets[slot:]
        del self.positions[slot:]

    def encode(self) -> bytes:
        pairs = array("I", bytes(OFFSET_ENTRY_BYTES * len(self.offsets)))
        pairs[0::2] = self.offsets
        pairs[1::2] = self.positions
        if sys.byteorder == "little":
            pairs.byteswap()
        return pairs.tobytes()

    @classmethod
    def decode(cls, content: bytes) -> "OffsetIndex":
        """The longest prefix that is an index; whatever follows it (zeroes, a torn entry) is dropped."""
        index = cls()
        pairs = array("I")
        pairs.frombytes(content[: len(content) // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES])
        if sys.byteorder == "little":
            pairs.byteswap()
        offsets, positions = pairs[0::2], pairs[1::2]
        count = len(offsets)
        for slot in range(1, count):
            if offsets[slot] <= offsets[slot - 1] or positions[slot] <= positions[slot - 1]:
                count = slot
                break
        index.offsets, index.positions = offsets[:count], positions[:count]
        return index


class TimeIndex:
    """Largest timestamp so far -> relative offset of a record that reached it."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("I")

    def append(self, timestamp: int, relative_offset: int) -> None:
        if self.timestamps and timestamp <= self.timestamps[-1]:
            return
        self.timestamps.append(timestamp)
        self.offsets.append(relative_offset)

    def offset_before(self, timestamp: int) -> int:
        """A relative offset at or before the first record of at least `timestamp`."""
        slot = bisect_left(self.timestamps, timestamp)
        return self.offsets[slot - 1] if slot else 0

    def truncate(self, relative_offset: int) -> None:
        """Forget records at or after the relative offset."""
        slot = bisect_left(self.offsets, relative_offset)
        del self.offsets[slot:]
        del self.timestamps[slot:]

    def encode(self) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps, self.offsets))

    @classmethod
    def decode(cls, content: bytes) -> "TimeIndex":
        index = cls()
        for timestamp, offset in _TIME_ENTRY.iter_unpack(
            content[: len(content) // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES]
        ):
            if index.offsets and (timestamp <= index.timestamps[-1] or offset < index.offsets[-1]):
                break
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
        return index
