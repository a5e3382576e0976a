"""JSON Schema and Spark's schema JSON, as Spark types."""

import json
from typing import Any

import pytest
from pyspark.sql import types as t

from penstock.spark.errors import BadOption
from penstock.spark.formats.json_schema import parse_json_type


def test_a_schema_with_references_unions_and_formats() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "definitions": {"money": {"type": "object", "properties": {"cents": {"type": "integer"}}}},
        "properties": {
            "id": {"type": "integer"},
            "small": {"type": "integer", "connect.type": "int16"},
            "price": {"$ref": "#/definitions/money"},
            "paid": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/money"}]},
            "note": {"type": ["null", "string"]},
            "kind": {"enum": ["a", "b"]},
            "day": {"type": "string", "format": "date"},
            "at": {"type": "string", "format": "date-time"},
            "raw": {"type": "string", "contentEncoding": "base64"},
            "ratio": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "boolean"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "joined": {"allOf": [{"$ref": "#/definitions/money"}, {"properties": {"tax": {"type": "number"}}}]},
            "far": {"$ref": "other.json#/definitions/x"},
        },
    }
    other = {"definitions": {"x": {"$ref": "#/definitions/y"}, "y": {"type": "boolean"}}}
    money = t.StructType().add("cents", t.LongType())
    assert parse_json_type(json.dumps(schema), {"other.json": json.dumps(other)}) == (
        t.StructType()
        .add("id", t.LongType())
        .add("small", t.ShortType())
        .add("price", money)
        .add("paid", money)
        .add("note", t.StringType())
        .add("kind", t.StringType())
        .add("day", t.DateType())
        .add("at", t.TimestampType())
        .add("raw", t.BinaryType())
        .add("ratio", t.DoubleType())
        .add("tags", t.ArrayType(t.BooleanType()))
        .add("labels", t.MapType(t.StringType(), t.StringType()))
        .add("joined", t.StructType().add("cents", t.LongType()).add("tax", t.DoubleType()))
        .add("far", t.BooleanType())
    )


def test_sparks_own_schema_json_is_read() -> None:
    kind = t.StructType().add("a", t.ArrayType(t.DateType()))
    assert parse_json_type(kind.json()) == kind


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "object", "properties": {"x": {"$ref": "#"}}}, "refers to itself"),
        ({"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}}, "which is not there"),
        ({"type": "object", "properties": {"x": {"$ref": "http://elsewhere/x.json"}}}, "does not list as a reference"),
        ({"type": "object", "properties": {"x": {}}}, "x has no type"),
        ({"type": "object", "properties": {"x": {"type": ["string", "integer"]}}}, "several types"),
        ({"type": "object", "properties": {"x": {"oneOf": [{"type": "string"}, {"type": "number"}]}}}, "several types"),
        ({"type": "object", "properties": {"x": True}}, "x has no type"),
        ({"type": "object"}, "has no type"),
        ({"type": "struct", "fields": [{"no": 1}]}, "not Spark's schema JSON"),
        ("{" * 3, "neither Spark DDL nor JSON"),
        ('{"a":' * 100_000, "neither Spark DDL nor JSON"),
    ],
)
def test_what_has_no_spark_type_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(BadOption) as caught:
        parse_json_type(schema if isinstance(schema, str) else json.dumps(schema))
    assert why in str(caught.value)
