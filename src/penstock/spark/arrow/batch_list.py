"""The batches of a chunk that hold rows: found, checked, and without what a reader must not see.

Called by arrow.decoder.
Laws:
- Control batches are never rows; under read_committed neither are batches of aborted transactions.
- Aborted transactions are told anew with every chunk: a broker lists all that reach into what it sends.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import PenstockError
from penstock.records.batch import CONTROL_MASK, CRC_COVERS_FROM, TRANSACTIONAL_MASK, Buffer, read_header
from penstock.records.checksum import crc32c
from penstock.records.markers import ControlType, decode_marker
from penstock.records.record import decode_records
from penstock.spark.arrow.errors import MalformedBatch
from penstock.spark.arrow.kernels import (
    AT,
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_COLUMNS,
    LAST_DELTA,
    PRODUCER,
    REASONS,
    SIZE,
    find_batches,
)
from penstock.spark.fetching.chunk import FetchedChunk

if TYPE_CHECKING:
    from penstock.spark.arrow.kernels import Bytes, Int64s

_CRC_AT = 17
_BATCHES_AT_ONCE = 4096
_MARKER_BYTES_MAX = 64 * 1024


def as_array(data: Buffer) -> "Bytes":
    """Always one that cannot be written to: numba would compile everything once more for one that can."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


class BatchList:
    """For one partition; `rows` gives tables of batches, whose columns arrow.kernels names."""

    def __init__(
        self, topic: str, partition: int, start: int, end: int, *, is_committed: bool, checks_crcs: bool
    ) -> None:
        self._topic, self._partition = topic, partition
        self._start, self._end = start, end
        self._is_committed = is_committed
        self._checks_crcs = checks_crcs

    def rows(self, chunk: FetchedChunk) -> Iterator["Int64s"]:
        """Those that may hold rows of [start, end), in order, some thousands at a time."""
        data = as_array(chunk.records)
        aborted = _Aborted(chunk.aborted) if self._is_committed and chunk.aborted else None
        at = 0
        while True:
            table = np.empty((_BATCHES_AT_ONCE, BATCH_COLUMNS), np.int64)
            found, at, wrong = find_batches(data, at, table)
            if found:
                yield self._readable(table[:found], chunk.records, aborted)
            if wrong:
                offset = int.from_bytes(chunk.records[at : at + 8], "big", signed=True)
                raise self.malformed(offset, REASONS[wrong])
            if found < _BATCHES_AT_ONCE:
                return

    def malformed(self, offset: int, why: str) -> MalformedBatch:
        return MalformedBatch(self._topic, self._partition, offset, why)

    def _readable(self, table: "Int64s", records: memoryview, aborted: "_Aborted | None") -> "Int64s":
        attributes = table[:, ATTRIBUTES]
        # The first batch may begin before the offset that was asked for, and the last ones lie behind the end.
        keeps = (table[:, BASE_OFFSET] + table[:, LAST_DELTA] >= self._start) & (table[:, BASE_OFFSET] < self._end)
        keeps &= (attributes & CONTROL_MASK) == 0
        if aborted is not None and (attributes & TRANSACTIONAL_MASK).any():
            for index, row in enumerate(table.tolist()):
                if self._is_aborted(row, records, aborted):
                    keeps[index] = False
        table = table if keeps.all() else table[keeps]
        if self._checks_crcs:
            self._check(table, records)
        return table

    def _check(self, table: "Int64s", records: memoryview) -> None:
        for at, size, offset in table[:, [AT, SIZE, BASE_OFFSET]].tolist():
            stored = int.from_bytes(records[at + _CRC_AT : at + CRC_COVERS_FROM], "big")
            if crc32c(records[at + CRC_COVERS_FROM : at + size]) != stored:
                raise self.malformed(offset, "its checksum (CRC-32C) does not match its bytes")

    def _is_aborted(self, row: list[int], records: memoryview, aborted: "_Aborted") -> bool:
        """Also passes over the markers, which end what was aborted."""
        aborted.reach(row[BASE_OFFSET] + row[LAST_DELTA])
        producer = row[PRODUCER]
        if producer not in aborted.producers:
            return False
        if row[ATTRIBUTES] & CONTROL_MASK:
            if self._is_abort_marker(records[row[AT] : row[AT] + row[SIZE]], row[BASE_OFFSET]):
                aborted.producers.discard(producer)
            return True
        return bool(row[ATTRIBUTES] & TRANSACTIONAL_MASK)

    def _is_abort_marker(self, batch: memoryview, offset: int) -> bool:
        try:
            records = list(decode_records(batch, read_header(batch), _MARKER_BYTES_MAX))
            # Compaction leaves a marker's batch without its record once nobody needs it.
            return bool(records) and decode_marker(records[0]).control_type is ControlType.ABORT
        except PenstockError as failure:
            raise self.malformed(offset, f"a transaction marker: {failure}") from failure


class _Aborted:
    """Which producers' transactional records are of no account at the batch that is looked at."""

    def __init__(self, transactions: list[tuple[int, int]]) -> None:
        self._ahead = sorted(transactions, key=lambda transaction: transaction[1], reverse=True)
        self.producers: set[int] = set()

    def reach(self, last_offset: int) -> None:
        while self._ahead and self._ahead[-1][1] <= last_offset:
            self.producers.add(self._ahead.pop()[0])
