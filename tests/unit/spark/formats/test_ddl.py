"""Spark's DDL, read without Spark."""

import pytest
from pyspark.sql import types as t

from penstock.spark.errors import BadOption
from penstock.spark.formats.ddl import parse_ddl


def test_columns_of_every_type() -> None:
    text = (
        "a INT NOT NULL COMMENT 'it', `b c` string, d: decimal(10, 2), e DECIMAL, f array<map<string,bigint>>,"
        ' g STRUCT<x: DOUBLE, `y``z`: TIMESTAMP_NTZ COMMENT "no">, h VARCHAR(20), date DATE, timestamp TIMESTAMP,'
        " s struct<>"
    )
    assert parse_ddl(text) == (
        t.StructType()
        .add("a", t.IntegerType(), False)
        .add("b c", t.StringType())
        .add("d", t.DecimalType(10, 2))
        .add("e", t.DecimalType(10, 0))
        .add("f", t.ArrayType(t.MapType(t.StringType(), t.LongType())))
        .add("g", t.StructType().add("x", t.DoubleType()).add("y`z", t.TimestampNTZType()))
        .add("h", t.StringType())
        .add("date", t.DateType())
        .add("timestamp", t.TimestampType())
        .add("s", t.StructType())
    )


def test_what_spark_prints_of_a_type_is_read_back() -> None:
    kind = t.StructType().add("a", t.ArrayType(t.DecimalType(5, 1))).add("m", t.MapType(t.StringType(), t.ByteType()))
    assert parse_ddl(kind.simpleString()) == kind
    assert parse_ddl("array<int>") == t.ArrayType(t.IntegerType())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing in it"),
        ("a", "it ends too early"),
        ("a INTT", "unknown type 'INTT'"),
        ("a INT b INT", "unexpected 'b'"),
        ("a INT,", "it ends too early"),
        ("a ARRAY<INT", "'>' is missing before 'the end'"),
        ("a INT, a INT", "named twice"),
        ("a DECIMAL(50, 2)", "not possible"),
        ("a INT; drop", "unexpected '; drop'"),
        ("a " + "ARRAY<" * 5000 + "INT" + ">" * 5000, "nested deeper"),
    ],
)
def test_a_mistake_is_named(text: str, why: str) -> None:
    with pytest.raises(BadOption, match="no Spark DDL") as caught:
        parse_ddl(text)
    assert why in str(caught.value)
