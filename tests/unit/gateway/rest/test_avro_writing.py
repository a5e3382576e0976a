"""Avro's JSON encoding, there and back, against fastavro's reading of the same bytes."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.gateway.rest.avro_reading import read_avro
from penstock.gateway.rest.avro_writing import write_avro
from penstock.gateway.rest.payloads import BadPayload
from penstock.schemas.avro import parse_avro

TREE = {
    "type": "record",
    "name": "Tree",
    "namespace": "n",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tag", "type": {"type": "fixed", "name": "Tag", "size": 2}},
        {"name": "raw", "type": "bytes"},
        {"name": "weight", "type": ["null", "double", "string"]},
        {"name": "notes", "type": {"type": "map", "values": "string"}},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "next", "type": ["null", "Tree"], "default": None},
    ],
}
_LATIN = st.binary(max_size=20).map(lambda raw: raw.decode("latin-1"))


def _trees(children: Any) -> Any:
    return st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "kind": st.sampled_from("AB"),
            "tag": st.sampled_from(["ab", "ÿ\0"]),
            "raw": _LATIN,
            "weight": st.none()
            | st.fixed_dictionaries({"double": st.floats(allow_nan=False, allow_infinity=False)})
            | st.fixed_dictionaries({"string": st.text()}),
            "notes": st.dictionaries(st.text(), st.text(), max_size=2),
            "children": st.just([]) if children is None else st.lists(children, max_size=2),
            "next": st.none() if children is None else st.none() | st.fixed_dictionaries({"n.Tree": children}),
        }
    )


@settings(max_examples=60, deadline=None)
@given(_trees(_trees(None)))
def test_a_value_comes_back_and_others_can_read_it(value: Any) -> None:
    schema = parse_avro(json.dumps(TREE), ())
    raw = write_avro(schema.root, value)
    assert schema.validate(memoryview(raw)) is None
    assert read_avro(schema.root, raw) == value
    read = fastavro.schemaless_reader(io.BytesIO(raw), fastavro.parse_schema(TREE), None)
    assert (read["id"], read["kind"], read["raw"]) == (value["id"], value["kind"], value["raw"].encode("latin-1"))
    assert read["notes"] == value["notes"]


def test_fields_that_are_left_out_take_their_defaults() -> None:
    fields = [
        {"name": "a", "type": ["string", "null"], "default": "x"},
        {"name": "b", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
        {"name": "c", "type": "bytes", "default": "ÿ"},
    ]
    schema = parse_avro(json.dumps({"type": "record", "name": "R", "fields": fields}), ())
    raw = write_avro(schema.root, {})
    assert read_avro(schema.root, raw) == {"a": {"string": "x"}, "b": [1, 2], "c": "ÿ"}


@pytest.mark.parametrize(
    ("schema", "value", "place"),
    [
        ('"int"', 2**31, "2147483648"),
        ('"int"', True, "True"),
        ('"int"', 1.0, "1.0"),
        ('"long"', 2**63, "number"),
        ('"float"', 1e300, "too large"),
        ('"double"', "1", "'1'"),
        ('"boolean"', 1, "true or false"),
        ('"null"', 0, "not null"),
        ('"bytes"', "Ā", "U+00FF"),
        ('"string"', None, "a string"),
        ('["null", "int"]', 1, "null, int"),
        ('["null", "int"]', {"long": 1}, "long"),
        ('["null", "int"]', {"int": "x"}, ".int: 'x'"),
        ('{"type": "array", "items": {"type": "map", "values": "int"}}', [{}, {"k": "x"}], "[1].k: 'x'"),
        ('{"type": "enum", "name": "E", "symbols": ["A"]}', "B", "'B'"),
        ('{"type": "fixed", "name": "F", "size": 2}', "abc", "3 are given"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}', {}, "'a'"),
        ('{"type": "record", "name": "R", "fields": []}', {"b": 1}, "'b'"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(schema: str, value: Any, place: str) -> None:
    with pytest.raises(BadPayload) as refused:
        write_avro(parse_avro(schema, ()).root, value)
    assert place in str(refused.value)


def test_depth_is_bounded() -> None:
    schema = parse_avro('{"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}', ())
    value: Any = {"n": None}
    for _ in range(200):
        value = {"n": {"L": value}}
    with pytest.raises(BadPayload, match="deeper"):
        write_avro(schema.root, value)
