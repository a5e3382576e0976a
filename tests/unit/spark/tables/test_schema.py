"""Columns of a batch against those of a table, and rows brought into its shape."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from penstock.spark.tables.failures import SchemaMismatch
from penstock.spark.tables.schema import batch_schema, conform, fit, is_wider, plain

TABLE = pa.schema([("id", pa.int64()), ("name", pa.string())])


def fields(**kinds: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])


def test_spark_columns_become_plain_arrow() -> None:
    header = t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())])
    found = batch_schema(fields(at=t.TimestampType(), local=t.TimestampNTZType(), headers=t.ArrayType(header)))
    assert found.field("at").type == pa.timestamp("us", "UTC")
    assert found.field("local").type == pa.timestamp("us")
    element = pa.struct([("key", pa.string()), ("value", pa.binary())])
    assert found.field("headers").type == pa.list_(pa.field("element", element))


@pytest.mark.parametrize(
    "kind",
    [t.NullType(), t.DayTimeIntervalType(), t.ArrayType(t.NullType()), t.MapType(t.StringType(), t.VariantType())],
)
def test_a_type_that_no_table_holds_is_named(kind: t.DataType) -> None:
    with pytest.raises(SchemaMismatch, match="no table can hold odd "):
        batch_schema(fields(fine=t.LongType(), odd=kind))


def test_two_columns_of_one_name_are_refused() -> None:
    twice = t.StructType([t.StructField("id", t.LongType()), t.StructField("id", t.LongType())])
    with pytest.raises(SchemaMismatch, match="two columns are called id"):
        batch_schema(twice)


def test_new_columns_are_named_or_added_last() -> None:
    batch = pa.schema([("extra", pa.date32()), ("id", pa.int32())])
    with pytest.raises(SchemaMismatch, match="t has no column extra: set merge_schema=true"):
        fit("t", batch, TABLE, merge_schema=False)
    assert fit("t", batch, TABLE, merge_schema=True).names == ["id", "name", "extra"]
    assert fit("t", batch, TABLE, merge_schema=True).field("id").type == pa.int64()


def test_a_column_that_must_have_a_value_must_be_in_the_batch() -> None:
    stored = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    with pytest.raises(SchemaMismatch, match="needs a value in id"):
        fit("t", pa.schema([("name", pa.string())]), stored, merge_schema=True)


@pytest.mark.parametrize(
    ("table", "batch", "fits"),
    [
        (pa.int64(), pa.int8(), True),
        (pa.int32(), pa.int64(), False),
        (pa.float64(), pa.float32(), True),
        (pa.float32(), pa.float64(), False),
        (pa.float64(), pa.int64(), False),
        (pa.decimal128(12, 2), pa.decimal128(10, 2), True),
        (pa.decimal128(12, 2), pa.decimal128(12, 3), False),
        (pa.string(), pa.int64(), False),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), False),
    ],
)
def test_a_wider_type_takes_a_narrower_one_and_no_other(table: pa.DataType, batch: pa.DataType, fits: bool) -> None:
    assert is_wider(table, batch) is fits
    if not fits:
        with pytest.raises(SchemaMismatch, match=r"x is .* in the batch and .* in the table"):
            fit("t", pa.schema([("x", batch)]), pa.schema([("x", table)]), merge_schema=True)


@given(st.lists(st.integers(-(2**31), 2**31 - 1) | st.none()))
def test_rows_keep_their_values_in_a_wider_column(values: list[int | None]) -> None:
    batch = pa.RecordBatch.from_pydict({"more": pa.array([b"x"] * len(values)), "id": pa.array(values, pa.int32())})
    found = conform(batch, TABLE)
    assert found.schema == TABLE
    assert found.to_pydict() == {"id": values, "name": [None] * len(values)}


def test_a_missing_value_where_one_must_be_is_refused() -> None:
    target = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(SchemaMismatch, match="column id of the table needs a value"):
        conform(pa.RecordBatch.from_pydict({"id": pa.array([1, None])}), target)


def test_large_and_view_types_are_made_plain_at_every_depth() -> None:
    kind = pa.large_list(pa.struct([("a", pa.large_string()), ("b", pa.map_(pa.string(), pa.large_binary()))]))
    inner = pa.struct([("a", pa.string()), ("b", pa.map_(pa.string(), pa.binary()))])
    assert plain(kind) == pa.list_(pa.field("element", inner))
