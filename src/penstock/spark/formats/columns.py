"""Arrow columns out of decoded values: what all formats share.

Called by the decoder of each format. Laws:
- A decoded column is as long as the raw one and has exactly the Arrow type that Spark expects (`arrow_type`).
- A bad record is null in the column and has its reason in `bad`; it never changes a neighbour.
"""

import base64
import binascii
import uuid
from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

REASON_CHARS_MAX = 300

_FIRST_DAY = (date.min - date(1970, 1, 1)).days
_LAST_DAY = (date.max - date(1970, 1, 1)).days
_DAY_US = 86_400_000_000


class BadRecord(ValueError):
    """Why one record cannot be decoded."""


class Decoded(NamedTuple):
    column: pa.Array
    bad: dict[int, str]


class PartDecoder(Protocol):
    """Decodes keys or values of one format."""

    @property
    def spark_type(self) -> DataType: ...

    def decode(self, values: pa.Array) -> Decoded: ...


def arrow_type(spark_type: DataType) -> pa.DataType:
    return to_arrow_type(spark_type, timezone="UTC")


def reason_of(error: BaseException) -> str:
    """One line, bounded: it becomes a header of a dead letter."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= REASON_CHARS_MAX else text[: REASON_CHARS_MAX - 1] + "…"


def build(objects: list[Any], make: Callable[[list[Any]], pa.Array], bad: dict[int, str]) -> pa.Array:
    """`make` over all objects; where that fails, over each by itself to find the ones to leave out (null)."""
    try:
        return make(objects)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        pass
    kept = list(objects)
    for row, one in enumerate(objects):
        try:
            make([one])
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            bad[row] = reason_of(error)
            kept[row] = None
    return make(kept)


def nullable(spark_type: DataType) -> DataType:
    """Every field may be null, as in Spark's from_json and from_avro: what a record lacks has no other value."""
    match spark_type:
        case StructType():
            return StructType([StructField(field.name, nullable(field.dataType), True) for field in spark_type.fields])
        case ArrayType():
            return ArrayType(nullable(spark_type.elementType), True)
        case MapType():
            return MapType(nullable(spark_type.keyType), nullable(spark_type.valueType), True)
        case _:
            return spark_type


def convert(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """From what a library reads fastest to what Spark expects; the nesting of both is the same.

    Text becomes dates and (from base64) bytes, 16 bytes become the text of a UUID; the rest is Arrow's own cast, which
    refuses what does not fit.
    """
    have = column.type
    if have == wanted:
        return column
    if pa.types.is_struct(wanted):
        children = [convert(column.field(index), wanted.field(index).type) for index in range(wanted.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=column.is_null())
    if pa.types.is_map(wanted):
        keys, items = convert(column.keys, wanted.key_type), convert(column.items, wanted.item_type)
        return pa.MapArray.from_arrays(column.offsets, keys, items, type=wanted, mask=column.is_null())
    if pa.types.is_list(wanted):
        values = convert(column.values, wanted.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, type=wanted, mask=column.is_null())
    if pa.types.is_string(have) and pa.types.is_binary(wanted):
        return pa.array([None if text is None else unbase64(text) for text in column.to_pylist()], type=wanted)
    if pa.types.is_fixed_size_binary(have) and pa.types.is_string(wanted):
        texts = [None if raw is None else str(uuid.UUID(bytes=raw)) for raw in column.to_pylist()]
        return pa.array(texts, type=wanted)
    return pc.cast(column, wanted)


def check_times(column: pa.Array) -> pa.Array:
    """The column itself; BadRecord for a date or time outside of Spark's years 1 to 9999.

    Formats that write times as numbers can hold any; the first Python function behind the source would die of them.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        for child in column.flatten():
            check_times(child)
    elif pa.types.is_map(kind):
        check_times(column.items)
    elif pa.types.is_list(kind):
        check_times(column.flatten())
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        unit, number = (1, pa.int32()) if pa.types.is_date(kind) else (_DAY_US, pa.int64())
        found = pc.call_function("min_max", [column.cast(number)]).as_py()
        if found["min"] is not None and (found["min"] < _FIRST_DAY * unit or found["max"] >= (_LAST_DAY + 1) * unit):
            raise BadRecord("a date or time lies outside of the years 1 to 9999")
    return column


def unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRecord(f"bytes in JSON must be base64: {error}") from error
