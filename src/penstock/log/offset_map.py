"""What compaction must know before it throws anything away: the newest offset of each key, and who was aborted.

Called by log.compaction.
"""

from bisect import bisect_left
from collections.abc import Iterable
from hashlib import blake2b

from penstock.log.aborted import AbortedTransaction
from penstock.records.batch import BatchHeader

# Longer keys are kept as a digest of this size; shorter ones as they are, so the two can't be confused.
DIGEST_BYTES = 32
# What an entry of a dict takes beyond the bytes of its key: the slot, its share of free slots, the two objects.
ENTRY_BYTES = 160


class OffsetMap:
    """Key -> newest offset, for a stretch of the log that ends at a limit or where the memory allowed ran out."""

    __slots__ = ("_bytes_left", "_limit", "_newest", "end")

    def __init__(self, memory_bytes: int, start: int, limit: int) -> None:
        self._newest: dict[bytes, int] = {}
        self._bytes_left = memory_bytes
        self._limit = limit
        # Everything below is in the map; records from here on are newer than anything it knows.
        self.end = min(start, limit)

    @property
    def is_complete(self) -> bool:
        return self.end == self._limit

    def put(self, key: bytes, offset: int) -> bool:
        """Take note of a record; False if it lies past the limit or there is no room for it: the map ends before it."""
        if offset >= self._limit:
            return False
        stored = key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()
        if stored not in self._newest:
            # One key always fits, or a log with a large key would never get any further.
            if self._newest and self._bytes_left < len(stored) + ENTRY_BYTES:
                return False
            self._bytes_left -= len(stored) + ENTRY_BYTES
        self._newest[stored] = offset
        self.end = offset + 1
        return True

    def advance(self, offset: int) -> None:
        """All records below `offset` have been seen, the last of them perhaps without a key."""
        self.end = min(max(self.end, offset), self._limit)

    def is_newest(self, key: bytes, offset: int) -> bool:
        """Whether no later record of this key is known."""
        stored = key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()
        return offset >= self._newest.get(stored, -1)


class Transactions:
    """Follows the transactions of a log while its batches are read in order. `aborted` is in the order of markers."""

    __slots__ = ("_aborted", "_with_data")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for transaction in aborted:
            self._aborted.setdefault(transaction.producer_id, []).append(transaction)
        # Producers whose transaction has batches that were read since their last marker.
        self._with_data: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Read a data batch: whether its transaction was aborted, so that nobody may see its records."""
        if not header.is_transactional:
            return False
        self._with_data.add(header.producer_id)
        mine = self._aborted.get(header.producer_id, ())
        # A producer has one transaction at a time: only the first to end after this batch can hold it.
        slot = bisect_left(mine, header.base_offset, key=lambda transaction: transaction.last_offset)
        return slot < len(mine) and mine[slot].first_offset <= header.last_offset

    def is_last_trace(self, header: BatchHeader) -> bool:
        """Read a marker: whether nothing else of its transaction is left in the log."""
        if header.producer_id in self._with_data:
            self._with_data.remove(header.producer_id)
            return False
        return True
