"""Fetched chunks of one partition in, Arrow batches of rows out, without a Python object per record.

Called by the readers of the data source, once per task: feed every chunk in order, then finish.
Laws:
- Rows come in order of offset, each once, all with start <= offset < end.
- Whatever the bytes are, they become rows or one MalformedBatch that names topic, partition and offset.
- Uncompressed records are copied once, from the chunk into a column; compressed ones are unfolded in between, to no
  more than UNFOLDED_BYTES_MAX.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.records.batch import COMPRESSION_MASK, HEADER_BYTES, TIMESTAMP_TYPE_MASK
from penstock.records.compression import decompress
from penstock.spark.arrow import kernels as k
from penstock.spark.arrow.batch_list import BatchList, as_array
from penstock.spark.arrow.columns import BATCH_BYTES_MAX, Columns
from penstock.spark.fetching.chunk import FetchedChunk

if TYPE_CHECKING:
    from penstock.spark.arrow.kernels import Bytes, Int64s

UNFOLDED_BYTES_MAX = 512 * 1024 * 1024
ROWS_PER_BATCH_MAX = 1_000_000  # so that 249 bytes of topic name a row stay far below Arrow's 2 GiB

_READ_COMMITTED = "read_committed"


class ArrowDecoder:
    def __init__(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        isolation: str,
        *,
        has_headers: bool,
        rows_per_batch: int = 10_000,
        check_crcs: bool = True,
        bytes_per_batch: int = BATCH_BYTES_MAX,
    ) -> None:
        assert 0 < rows_per_batch <= ROWS_PER_BATCH_MAX
        assert 0 < bytes_per_batch <= BATCH_BYTES_MAX
        self._start, self._end = start, end
        self._batches = BatchList(
            topic, partition, start, end, is_committed=isolation == _READ_COMMITTED, checks_crcs=check_crcs
        )
        self._columns = Columns(topic, partition, rows_per_batch, has_headers=has_headers, bytes_max=bytes_per_batch)

    def feed(self, chunk: FetchedChunk) -> Iterator[pa.RecordBatch]:
        """The batches that became full; the last rows wait for the next chunk or for `finish`."""
        data = as_array(chunk.records)
        for table in self._batches.rows(chunk):
            if (table[:, k.ATTRIBUTES] & COMPRESSION_MASK).any():
                yield from self._fill_unfolded(chunk.records, table)
            else:
                yield from self._fill(data, table, table[:, k.AT] + HEADER_BYTES, table[:, k.AT] + table[:, k.SIZE])
            if len(table):
                # A broker that sends a batch again, or one that reaches back, must not double its rows.
                self._start = max(self._start, int(table[-1, k.BASE_OFFSET] + table[-1, k.LAST_DELTA]) + 1)

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self._columns.rows:
            yield self._columns.take()

    def _fill_unfolded(self, records: memoryview, table: "Int64s") -> Iterator[pa.RecordBatch]:
        for index in range(len(table)):
            row = table[index : index + 1]
            at, size, offset = (int(row[0, column]) for column in (k.AT, k.SIZE, k.BASE_OFFSET))
            codec = int(row[0, k.ATTRIBUTES]) & COMPRESSION_MASK
            try:
                unfolded = as_array(decompress(codec, records[at + HEADER_BYTES : at + size], UNFOLDED_BYTES_MAX))
            except PenstockError as failure:
                raise self._batches.malformed(offset, str(failure)) from failure
            yield from self._fill(unfolded, row, np.zeros(1, np.int64), np.full(1, len(unfolded), np.int64))

    def _fill(self, data: "Bytes", table: "Int64s", starts: "Int64s", ends: "Int64s") -> Iterator[pa.RecordBatch]:
        columns = self._columns
        spans = _spans(table, starts, ends)
        columns.enter()
        while True:
            result = columns.fill(data, spans, self._start, self._end)
            if result in (k.DONE, k.END_REACHED):
                return
            if result < 0:
                offset = int(table[columns.state[k.SPAN], k.BASE_OFFSET])
                raise self._batches.malformed(offset, k.REASONS[result])
            yield columns.take()


def _spans(table: "Int64s", starts: "Int64s", ends: "Int64s") -> "Int64s":
    spans = np.empty((len(table), k.SPAN_COLUMNS), np.int64)
    spans[:, k.S_AT], spans[:, k.S_END] = starts, ends
    spans[:, k.S_BASE_OFFSET] = table[:, k.BASE_OFFSET]
    spans[:, k.S_BASE_TIME] = table[:, k.BASE_TIME]
    spans[:, k.S_APPEND_TIME] = table[:, k.MAX_TIME]
    spans[:, k.S_HAS_APPEND_TIME] = table[:, k.ATTRIBUTES] & TIMESTAMP_TYPE_MASK
    spans[:, k.S_LAST_DELTA] = table[:, k.LAST_DELTA]
    spans[:, k.S_COUNT] = table[:, k.COUNT]
    return spans


def warm_up() -> None:
    """Compile what decodes, or load it from numba's cache, before the first rows wait for it."""
    from penstock.records.record import Record, encode_batch

    batch = encode_batch([Record(0, 0, b"k", b"v", (("name", b"value"),))])
    chunk = FetchedChunk(memoryview(batch), [], 0, 1, 1)
    for has_headers in (False, True):
        decoder = ArrowDecoder("warm-up", 0, 0, 1, _READ_COMMITTED, has_headers=has_headers)
        assert sum(rows.num_rows for rows in (*decoder.feed(chunk), *decoder.finish())) == 1
