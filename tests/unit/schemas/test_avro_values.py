"""Bytes held against an Avro schema: what fastavro writes passes, and what an attacker writes costs nothing."""

import io
import json
from typing import Any

import fastavro
import pytest

from penstock.schemas import ParsedSchema, parse
from penstock.schemas.avro_skips import EMPTY_ITEMS_MAX, VALUE_DEPTH_MAX


def avro(value: Any) -> ParsedSchema:
    return parse("AVRO", json.dumps(value))


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    made = bytearray()
    while number >> 7:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


EVERYTHING = {
    "type": "record", "name": "R", "fields": [
        {"name": "n", "type": "null"}, {"name": "b", "type": "boolean"}, {"name": "i", "type": "int"},
        {"name": "l", "type": "long"}, {"name": "f", "type": "float"}, {"name": "d", "type": "double"},
        {"name": "y", "type": "bytes"}, {"name": "s", "type": "string"},
        {"name": "x", "type": {"type": "fixed", "name": "X", "size": 3}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "a", "type": {"type": "array", "items": ["null", "R"]}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
    ],
}  # fmt: skip
VALUE = {
    "n": None, "b": True, "i": -(2**31), "l": 2**63 - 1, "f": 1.5, "d": -2.5, "y": b"\xff", "s": "größe", "x": b"abc",
    "e": "B", "a": [None], "m": {"k": 7, "": -1},
}  # fmt: skip


def written(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def test_a_value_with_everything_passes_and_no_part_of_it_does() -> None:
    schema = avro(EVERYTHING)
    data = written(EVERYTHING, {**VALUE, "a": [None, VALUE, {**VALUE, "a": []}]})
    assert schema.validate(memoryview(data)) is None
    for size in range(len(data)):
        assert schema.validate(memoryview(data)[:size]) is not None
    assert schema.validate(memoryview(data + b"\x00")) == "1 bytes are left over after the value"


BAD: list[tuple[Any, bytes, str]] = [
    ("boolean", b"\x02", "2 is no boolean"),
    ("boolean", b"", "end before a boolean"),
    ("int", varint(2**31), "2147483648 is no int"),
    ("int", b"\x80", "end within a number"),
    ("long", b"\xff" * 9 + b"\x7f", "longer than 64 bits"),
    ("long", b"\x80" * 50, "longer than 64 bits"),
    ("string", varint(1) + b"\xff", "no UTF-8"),
    ("string", varint(-1), "-1 bytes of text are announced"),
    ("bytes", varint(2**62), "are announced and 0 are there"),
    ({"type": "fixed", "name": "F", "size": 2**31 - 1}, b"abc", "2147483647 bytes are announced and 3 are there"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(1), "no symbol number 1"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(-1), "no symbol number -1"),
    (["null", "int"], varint(2), "no branch number 2"),
    ([], varint(0), "no branch number 0"),
    ({"type": "array", "items": "int"}, varint(2**40) + b"\x00", "1099511627776 items are announced"),
    ({"type": "array", "items": "null"}, varint(2**40) + b"\x00", f"more than {EMPTY_ITEMS_MAX} items"),
    # Many small blocks are no way around the limit, and neither is an announced size.
    ({"type": "array", "items": "null"}, varint(EMPTY_ITEMS_MAX // 4) * 5 + b"\x00", f"more than {EMPTY_ITEMS_MAX}"),
    ({"type": "array", "items": "null"}, varint(-(2**40)) + b"\x00\x00", f"more than {EMPTY_ITEMS_MAX}"),
    ({"type": "array", "items": "null"}, varint(-(2**63)) + b"\x00\x00", f"more than {EMPTY_ITEMS_MAX}"),
    ({"type": "array", "items": "int"}, varint(-1) + varint(5) + b"\x02\x00", "not as long as it says"),
    ({"type": "map", "values": "null"}, varint(2**40) + b"\x00", "items are announced"),
    (EVERYTHING, b"\x01\x00\x00" + b"\x00" * 4, "d: 8 bytes are announced and 0 are there"),
    (
        {"type": "array", "items": {"type": "record", "name": "Empty", "fields": [{"name": "x", "type": "null"}]}},
        varint(2**50),
        f"more than {EMPTY_ITEMS_MAX} items",
    ),
]


@pytest.mark.parametrize(("schema", "data", "reason"), BAD, ids=[case[2][:40] for case in BAD])
def test_bad_bytes_are_refused_with_their_reason(schema: Any, data: bytes, reason: str) -> None:
    found = avro(schema).validate(memoryview(data))
    assert found is not None
    assert reason in found


def test_items_without_bytes_pass_up_to_their_limit() -> None:
    nulls = avro({"type": "array", "items": "null"})
    assert nulls.validate(memoryview(varint(EMPTY_ITEMS_MAX) + b"\x00")) is None


def test_blocks_with_a_size_pass() -> None:
    data = varint(-2) + varint(2) + b"\x02\x04" + varint(1) + b"\x06" + b"\x00"
    assert avro({"type": "array", "items": "int"}).validate(memoryview(data)) is None


def test_a_value_deeper_than_the_stack_is_refused() -> None:
    node = avro({"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]})
    fine = VALUE_DEPTH_MAX // 2 - 1
    assert node.validate(memoryview(b"\x02" * fine + b"\x00")) is None
    found = node.validate(memoryview(b"\x02" * 1_000_000))
    six = ".".join(["next"] * 6)
    assert found == f"{six}.….{six}: the value nests deeper than {VALUE_DEPTH_MAX} levels"
    endless = avro({"type": "record", "name": "N", "fields": [{"name": "next", "type": "N"}]})
    assert "nests deeper" in str(endless.validate(memoryview(b"")))


def test_fields_without_bytes_cost_nothing_however_many_there_are() -> None:
    """20,000 null fields in each of 50,000 items: a billion steps, if anybody took them."""
    nulls = [{"name": f"n{number}", "type": "null"} for number in range(20_000)]
    item = {"type": "record", "name": "R", "fields": [*nulls, {"name": "i", "type": "int"}]}
    schema = avro({"type": "array", "items": item})
    assert schema.validate(memoryview(varint(50_000) + b"\x02" * 50_000 + b"\x00")) is None
