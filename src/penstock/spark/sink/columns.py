"""Which columns a row must and may have, as Spark's kafka sink has it, and Arrow columns into lists for the producer.

Called by the writers in the driver (row_shape) and by the tasks (RowLists). `timestamp` is ours: a replay keeps it.
Columns of other names are left out, as Spark does.
"""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.spark.errors import BadOption
from penstock.spark.sink.failures import RowRefused

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

Headers = list[tuple[str, bytes | None]]


class RowShape(NamedTuple):
    """Where in a batch each column is; None where there is none."""

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None
    timestamp: int | None = None
    timestamp_unit: Literal["ms", "us"] = "us"


class RowLists(NamedTuple):
    """A batch as the producer takes it. A null partition is -1 and a null time 0: the client's words for `choose`."""

    topic: str | None  # the same for all rows, or None where `topics` has one for each
    topics: list[str] | None
    keys: list[bytes | None] | None
    values: list[bytes | None]
    partitions: list[int] | None
    timestamps_ms: list[int] | None
    headers: list[Headers | None] | None


def row_shape(schema: "StructType", topic: str | None) -> RowShape:
    """The shape of rows of a schema; with the option `topic` a column of that name does not count."""
    from pyspark.sql import types as t

    at = {field.name: index for index, field in enumerate(schema.fields)}
    kinds: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if "value" not in at:
        raise BadOption("Required attribute 'value' not found: select the column that is to be written `as value`")
    if topic is None and "topic" not in at:
        raise BadOption(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    texts = (t.StringType, t.VarcharType, t.CharType)
    header = t.ArrayType(t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]))
    allowed: dict[str, tuple[type[DataType], ...]] = {
        "key": (*texts, t.BinaryType),
        "value": (*texts, t.BinaryType),
        "partition": (t.IntegerType,),
        "timestamp": (t.TimestampType, t.LongType),
    }
    if topic is None:
        allowed["topic"] = texts
    for name, kinds_allowed in allowed.items():
        if name in kinds and not isinstance(kinds[name], kinds_allowed):
            wanted = " or ".join(
                kind().simpleString() for kind in kinds_allowed if kind not in (t.VarcharType, t.CharType)
            )
            raise BadOption(f"{name} attribute type must be {wanted}, not {kinds[name].simpleString()}")
    if "headers" in kinds and kinds["headers"].simpleString() != header.simpleString():
        raise BadOption(
            f"headers attribute type must be {header.simpleString()}, not {kinds['headers'].simpleString()}"
        )
    return RowShape(
        value=at["value"],
        key=at.get("key"),
        topic=at.get("topic") if topic is None else None,
        partition=at.get("partition"),
        headers=at.get("headers"),
        timestamp=at.get("timestamp"),
        timestamp_unit="ms" if isinstance(kinds.get("timestamp"), t.LongType) else "us",
    )


def key_and_value(batch: "pa.RecordBatch", shape: RowShape) -> "tuple[pa.Array[Any] | None, pa.Array[Any]]":
    return None if shape.key is None else _binary(batch.column(shape.key)), _binary(batch.column(shape.value))


def row_lists(
    batch: "pa.RecordBatch",
    shape: RowShape,
    topic: str | None,
    key: "pa.Array[Any] | None",
    value: "pa.Array[Any]",
) -> RowLists:
    topics = None
    if topic is None:
        assert shape.topic is not None
        topic, topics = _topics(batch.column(shape.topic))
    return RowLists(
        topic=topic,
        topics=topics,
        keys=None if key is None else key.to_pylist(),
        values=value.to_pylist(),
        partitions=None if shape.partition is None else _partitions(batch.column(shape.partition)),
        timestamps_ms=None
        if shape.timestamp is None
        else _timestamps(batch.column(shape.timestamp), shape.timestamp_unit),
        headers=None if shape.headers is None else _headers(batch.column(shape.headers)),
    )


def _binary(column: "pa.Array[Any]") -> "pa.Array[Any]":
    """Text as the bytes it is; no bytes are copied."""
    import pyarrow as pa

    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.view(pa.large_binary())
    return column


def _topics(column: "pa.Array[Any]") -> tuple[str | None, list[str] | None]:
    if column.null_count:
        raise RowRefused("null topic present in the data. Use the topic option for setting a default topic.")
    different = column.unique()
    return (different[0].as_py(), None) if len(different) == 1 else (None, column.to_pylist())


def _partitions(column: "pa.Array[Any]") -> list[int]:
    least = min(column.drop_null().to_pylist(), default=0)
    if least < 0:
        raise RowRefused(f"partition {least} in the data: a partition is 0 or above, or null for one chosen by the key")
    return column.fill_null(-1).to_pylist()


def _timestamps(column: "pa.Array[Any]", unit: Literal["ms", "us"]) -> list[int]:
    import numpy as np
    import pyarrow as pa

    whole = column if unit == "ms" else column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    # Null is `now`, which the client spells 0: 1970 itself cannot be said, and must not become today unsaid.
    times = whole.fill_null(0).to_numpy(zero_copy_only=False)
    times = times if unit == "ms" else np.floor_divide(times, 1000)
    if int(np.count_nonzero(times < 1)) > column.null_count:
        raise RowRefused(
            "timestamp in the data at or before 1970-01-01: give one after it, or null for the time of writing"
        )
    return times.tolist()


def _headers(column: "pa.Array[Any]") -> list[Headers | None]:
    """Lists of pairs; the entries of all rows are unpacked at once."""
    entries = column.flatten()
    names, values = entries.field("key").to_pylist(), entries.field("value").to_pylist()
    if None in names:
        raise RowRefused("null header key present in the data: a header needs a name")
    pairs = list(zip(names, values, strict=True))
    found: list[Headers | None] = []
    at = 0
    for length in column.value_lengths().to_pylist():
        found.append(pairs[at : at + length] if length else None)
        at += length or 0
    return found
