"""Schemas from samples: the type that holds all that was seen, and nothing Spark would refuse."""

import json
from typing import Any

import pytest

from penstock.spark.sql.inference import DEPTH_MAX, FIELDS_MAX, look_at, schema_of


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([{"id": 1}, {"id": 2}], "`id` BIGINT"),
        ([{"id": 1}, {"id": 2.5}], "`id` DOUBLE"),
        ([{"id": 1}, {"id": "x"}], "`id` STRING"),
        ([{"is": True}, {"is": False}], "`is` BOOLEAN"),
        ([{"is": True}, {"is": 1}], "`is` STRING"),
        ([{"id": 2**63}, {"id": 1}], "`id` DECIMAL(38,0)"),
        ([{"id": 10**38}], "`id` STRING"),
        ([{"a": None}, {"a": 1}, {}], "`a` BIGINT"),
        ([{"a": None}], "`a` STRING"),
        ([{"a": {"b": 1}}, {"a": {"c": "x"}}], "`a` STRUCT<`b`: BIGINT, `c`: STRING>"),
        ([{"a": {}}], "`a` STRING"),
        ([{"a": {"b": 1}}, {"a": [1]}], "`a` STRING"),
        ([{"a": [1, 2.5]}, {"a": []}], "`a` ARRAY<DOUBLE>"),
        ([{"a": []}], "`a` ARRAY<STRING>"),
        ([{"a": [{"b": 1}, {"b": 2, "c": [True]}]}], "`a` ARRAY<STRUCT<`b`: BIGINT, `c`: ARRAY<BOOLEAN>>>"),
        ([{"we`ird, name": 1}], "`we``ird, name` BIGINT"),
        ([{"Id": 1}, {"ID": 2.0}], "`Id` DOUBLE"),
    ],
)
def test_the_type_holds_all_that_was_seen(documents: list[dict[str, Any]], expected: str) -> None:
    assert schema_of(documents) == expected


def test_deep_and_wide_documents_have_a_schema_of_bounded_size() -> None:
    deep: Any = 1
    for _ in range(DEPTH_MAX * 3):
        deep = {"a": deep}
    assert schema_of([deep]).count("STRUCT") < DEPTH_MAX
    wide = {f"field{number}": number for number in range(FIELDS_MAX * 2)}
    assert schema_of([wide]).count("BIGINT") == FIELDS_MAX


def test_values_are_json_when_most_of_them_are_objects() -> None:
    objects = [json.dumps({"amount": 3}).encode()] * 3
    assert look_at([*objects, b"oops", None]).kind == "json"
    assert look_at([*objects, b"oops", None]).schema == "`amount` BIGINT"
    assert look_at([b"[1]", b"2", b"text", *objects[:1]]).kind == "string"


def test_values_that_are_no_text_are_bytes() -> None:
    assert look_at([b"text", b"\xff\xfe"]).kind == "bytes"
    assert look_at([b"a\0b"]).kind == "bytes"
    assert look_at([]).kind == "string"


def test_json_nested_beyond_reason_is_text_and_no_crash() -> None:
    assert look_at([b'{"a":' * 100_000]).kind == "string"
