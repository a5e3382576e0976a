"""Which rows a topic takes, and what the producer is given of them."""

import datetime

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from penstock.spark.errors import BadOption
from penstock.spark.sink.columns import RowLists, key_and_value, row_lists, row_shape
from penstock.spark.sink.failures import RowRefused

UTC = datetime.UTC
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES: dict[str, t.DataType] = {
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "double": t.DoubleType(),
    "timestamp": t.TimestampType(),
    "map": t.MapType(t.StringType(), t.BinaryType()),
    "headers": t.ArrayType(t.StructType().add("key", t.StringType()).add("value", t.BinaryType())),
    "texts": t.ArrayType(t.StructType().add("key", t.StringType()).add("value", t.StringType())),
}


def parsed(schema: str) -> t.StructType:
    """Spark's own parser of schemas lives in the JVM."""
    fields = [field.split() for field in schema.split(", ")]
    return t.StructType([t.StructField(name, TYPES[kind]) for name, kind in fields])


def lists(batch: pa.RecordBatch, schema: str, topic: str | None = "t") -> RowLists:
    shape = row_shape(parsed(schema), topic)
    return row_lists(batch, shape, topic, *key_and_value(batch, shape))


@pytest.mark.parametrize(
    ("schema", "topic", "why"),
    [
        ("key string", "t", "'value' not found"),
        ("value string", None, "topic option required when no 'topic' attribute is present"),
        ("value int", "t", "value attribute type must be string or binary, not int"),
        ("value string, key double", "t", "key attribute type must be string or binary, not double"),
        ("value string, topic binary", None, "topic attribute type must be string, not binary"),
        ("value string, partition long", "t", "partition attribute type must be int, not bigint"),
        ("value string, headers map", "t", "headers attribute type must be array<struct<"),
        ("value string, headers texts", "t", "headers attribute type"),
        ("value string, timestamp string", "t", "timestamp attribute type must be timestamp or bigint, not string"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_in_a_sentence(schema: str, topic: str | None, why: str) -> None:
    with pytest.raises(BadOption) as refused:
        row_shape(parsed(schema), topic)
    assert why in str(refused.value)


def test_the_rows_of_the_source_itself_fit() -> None:
    schema = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
        "headers headers"
    )
    shape = row_shape(parsed(schema), None)
    assert (shape.key, shape.value, shape.topic, shape.partition, shape.timestamp, shape.headers) == (0, 1, 2, 3, 5, 7)
    assert row_shape(parsed(schema), "elsewhere").topic is None, "the option wins over the column"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_texts_and_bytes_are_the_same_bytes(kind: pa.DataType) -> None:
    texts = ["", "å", None, "x" * 300]
    expected = [None if text is None else text.encode() for text in texts]
    column = pa.array(texts if "string" in str(kind) else expected, kind)
    batch = pa.record_batch([column, column], ["key", "value"])
    found = lists(batch.slice(1), "key string, value string")
    assert found.keys == found.values == expected[1:]
    assert (found.partitions, found.timestamps_ms, found.headers, found.topic) == (None, None, None, "t")


def test_topics_come_from_the_rows_unless_the_option_names_one() -> None:
    batch = pa.record_batch([pa.array(["v", "w"]), pa.array(["a", "b"])], ["value", "topic"])
    schema = "value string, topic string"
    assert lists(batch, schema, None)[:2] == (None, ["a", "b"])
    assert lists(batch.slice(1), schema, None)[:2] == ("b", None)
    assert lists(batch, schema, "t")[:2] == ("t", None)
    with pytest.raises(RowRefused, match="null topic present in the data"):
        lists(pa.record_batch([pa.array(["v", "w"]), pa.array(["a", None])], ["value", "topic"]), schema, None)


def test_headers_keep_their_order_their_doubles_and_their_nulls() -> None:
    given = [[("a", b"1"), ("a", None)], None, [], [("b", b"")]]
    entries = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in given]
    batch = pa.record_batch([pa.array(["v"] * 4), pa.array(entries, HEADERS)], ["value", "headers"])
    schema = "value string, headers headers"
    assert lists(batch, schema).headers == [[("a", b"1"), ("a", None)], None, None, [("b", b"")]]
    assert lists(batch.slice(3), schema).headers == [[("b", b"")]]
    nameless = pa.array([[{"key": None, "value": b""}]], HEADERS)
    with pytest.raises(RowRefused, match="null header key"):
        lists(pa.record_batch([pa.array(["v"]), nameless], ["value", "headers"]), schema)


def test_partitions_and_times_may_be_null_but_not_nonsense() -> None:
    schema = "value string, partition int, timestamp long"

    def batch(partitions: list[int | None], times: list[int | None]) -> pa.RecordBatch:
        columns = [pa.array(["v"] * len(times)), pa.array(partitions, pa.int32()), pa.array(times, pa.int64())]
        return pa.record_batch(columns, ["value", "partition", "timestamp"])

    found = lists(batch([2, None], [None, 1_700_000_000_123]), schema)
    assert found.partitions == [2, -1]
    assert found.timestamps_ms == [0, 1_700_000_000_123]
    with pytest.raises(RowRefused, match="partition -1"):
        lists(batch([-1], [None]), schema)
    # The client takes 0 for `now`: a record of 1970 would become one of today.
    for time in (0, -1):
        with pytest.raises(RowRefused, match="1970"):
            lists(batch([None, None], [time, None]), schema)


def test_spark_timestamps_become_milliseconds() -> None:
    times = [datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC), None]
    batch = pa.record_batch([pa.array(["v", "w"]), pa.array(times, pa.timestamp("us", "UTC"))], ["value", "timestamp"])
    expected = int(datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()) * 1000 + 678
    assert lists(batch, "value string, timestamp timestamp").timestamps_ms == [expected, 0]
