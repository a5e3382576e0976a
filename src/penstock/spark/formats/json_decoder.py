"""JSON values as columns: Arrow's reader over a whole batch, and record by record where it stumbles.

Called by row_decoder. Arrow reads a stream of objects, so a record that holds half an object or two of them could shift
its neighbours. Two ways of joining values prove that each row is its own value's:
- strict: each value stands in `{"v":…}` on a line of its own, and no other field is allowed. No value can swallow its
  neighbour (a line end may not stand in a JSON text, nothing but an end may follow a closed object) nor vanish, so as
  many rows as values is the proof. Fast, but refuses fields that the schema does not name.
- marked: before each value comes a row with its number under a name nobody can guess. Each number in its place is the
  proof; unnamed fields are ignored.
"""

import re
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from pyspark.sql import types as t

from penstock.spark.formats.columns import (
    BadRecord,
    Decoded,
    arrow_type,
    build,
    check_times,
    convert,
    nullable,
    reason_of,
)
from penstock.spark.formats.framing import HEADER_BYTES, MAGIC
from penstock.spark.formats.json_values import parse, reader_of

# One bad record among thousands costs its own small group the slow way, not the batch. A call of Arrow's reader costs
# as much as some thirty records the slow way, so groups shrink fast and stop early.
_SPLIT = 8
_GROUP_ROWS = 160
# Arrow's reader counts a block's bytes in 32 bits.
_BLOCK_BYTES_MAX = 1 << 30
_BARE_NULL = re.compile(rb"}\s*null")


class JsonDecoder:
    def __init__(self, spark_type: t.DataType, *, is_framed: bool) -> None:
        self.spark_type = nullable(spark_type)
        self._is_framed = is_framed
        self._read_one = reader_of(self.spark_type)
        self._wanted = arrow_type(self.spark_type)
        raw = _raw_type(self._wanted)
        self._has_decimals = _has(self._wanted, pa.types.is_decimal)
        # Arrow has no reader for an object as a map, nor for rows without a column.
        self._is_fast = not _has(self._wanted, _is_unreadable)
        self._can_mark = self._is_fast and pa.types.is_struct(raw)
        # Learned from the first batch that has them: trying the strict way first would then be in vain.
        self._has_unnamed_fields = False
        self._mark = f"mark {secrets.token_hex(8)}"
        if self._is_fast:
            self._strict_schema = pa.schema([pa.field("v", raw)])
        if self._can_mark:
            self._marked_schema = pa.schema([*raw, pa.field(self._mark, pa.int64())])

    def decode(self, values: pa.Array) -> Decoded:
        raw: list[bytes | None] = values.to_pylist()
        if self._is_framed:
            # No JSON begins with the magic byte, so records from before the registry are read as well.
            raw = [one[HEADER_BYTES:] if one is not None and one[:1] == MAGIC else one for one in raw]
        if (column := self._whole(raw)) is not None:
            return Decoded(column, {})
        bad: dict[int, str] = {}
        pieces: list[pa.Array] = []
        self._in_groups(raw, 0, pieces, bad)
        return Decoded(pa.concat_arrays(pieces), bad)

    def _in_groups(self, raw: list[bytes | None], first: int, pieces: list[pa.Array], bad: dict[int, str]) -> None:
        """What failed as a whole, in smaller groups; those that are small enough, record by record."""
        if len(raw) <= _GROUP_ROWS or not self._is_fast:
            column, failed = self._slow(raw)
            pieces.append(column)
            bad |= {first + row: why for row, why in failed.items()}
            return
        size = -(-len(raw) // _SPLIT)
        for start in range(0, len(raw), size):
            group = raw[start : start + size]
            if (column := self._whole(group)) is not None:
                pieces.append(column)
            else:
                self._in_groups(group, first + start, pieces, bad)

    def _whole(self, raw: list[bytes | None]) -> pa.Array | None:
        if not raw:
            return pa.array([], type=self._wanted)
        column = None if self._has_unnamed_fields else self._fast(raw, self._strict)
        if column is None and self._can_mark:
            column = self._fast(raw, self._marked)
            self._has_unnamed_fields |= column is not None
        return column

    def _fast(self, raw: list[bytes | None], way: Callable[[list[bytes | None]], pa.Array | None]) -> pa.Array | None:
        """All of them, or None: something in here needs the slow way."""
        if not self._is_fast or sum(len(one) for one in raw if one is not None) > _BLOCK_BYTES_MAX - 64 * len(raw):
            return None
        try:
            column = way(raw)
            if column is None:
                return None
            # Arrow knows a year 0, and zones lead past the year 9999; the slow way refuses both.
            column = check_times(convert(column, self._wanted))
            if self._has_decimals:
                # Arrow's reader takes 155.5 for a decimal(4,2).
                column.validate(full=True)
        except (pa.ArrowException, ValueError):
            return None
        return column

    def _strict(self, raw: list[bytes | None]) -> pa.Array | None:
        text = b'{"v":' + b'}\n{"v":'.join([b"null" if one is None else one for one in raw]) + b"}"
        table = _read(text, self._strict_schema, "error")
        return table.column(0).combine_chunks() if table.num_rows == len(raw) else None

    def _marked(self, raw: list[bytes | None]) -> pa.Array | None:
        count = len(raw)
        nulls = [one is None or (one[:1] != b"{" and one.strip() == b"null") for one in raw]
        lines = [b"{}" if is_null or one is None else one for one, is_null in zip(raw, nulls, strict=True)]
        mark = f'\n{{"{self._mark}":%d}}\n'.encode()
        text = b"".join([piece for row, one in enumerate(lines) for piece in (mark % row, one)])
        table = _read(text, self._marked_schema, "ignore")
        marks = table.column(table.num_columns - 1).combine_chunks()
        if table.num_rows != 2 * count or marks.null_count != count:
            return None
        evens = np.arange(0, 2 * count, 2)
        if not np.array_equal(marks.take(pa.array(evens)).fill_null(-1).to_numpy(), evens // 2):
            return None
        children = [column.combine_chunks().take(pa.array(evens + 1)) for column in table.columns[:-1]]
        fields = list(self._marked_schema)[:-1]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(nulls) if True in nulls else None)

    def _slow(self, raw: list[bytes | None]) -> tuple[pa.Array, dict[int, str]]:
        bad: dict[int, str] = {}
        objects: list[Any] = [None] * len(raw)
        for row, one in enumerate(raw):
            if one is None:
                continue
            try:
                objects[row] = self._read_one(parse(one))
            except (BadRecord, RecursionError, OverflowError) as error:
                bad[row] = reason_of(error)
        return build(objects, self._column, bad), bad

    def _column(self, objects: list[Any]) -> pa.Array:
        return pa.array(objects, type=self._wanted)


def _read(text: bytes, schema: pa.Schema, unexpected: str) -> pa.Table:
    # Arrow's reader reads memory that is not its own at a `null` outside of any object, and may crash. Such a one comes
    # after an object's end, since the text begins with an object and Arrow refuses whatever else could stand before it.
    # Valid JSON has that nowhere but inside text.
    if _BARE_NULL.search(text) is not None:
        raise BadRecord("a null stands outside of any object")
    # Arrow does not look whether text is UTF-8; Spark would choke on it far from here.
    str(text, "utf-8")
    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )


def _has(kind: pa.DataType, is_it: Callable[[pa.DataType], bool]) -> bool:
    return is_it(kind) or any(_has(kind.field(index).type, is_it) for index in range(kind.num_fields))


def _is_unreadable(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or (pa.types.is_struct(kind) and kind.num_fields == 0)


def _raw_type(wanted: pa.DataType) -> pa.DataType:
    """What Arrow's reader shall read: dates and bytes stand in JSON as text."""
    if pa.types.is_struct(wanted):
        return pa.struct([field.with_type(_raw_type(field.type)) for field in wanted])
    if pa.types.is_list(wanted):
        return pa.list_(wanted.value_field.with_type(_raw_type(wanted.value_type)))
    # Arrow's reader would drop the zone of a time that is to have none; its cast of text refuses it.
    is_local = pa.types.is_timestamp(wanted) and wanted.tz is None
    return pa.string() if is_local or pa.types.is_date(wanted) or pa.types.is_binary(wanted) else wanted
