"""Values: which message the indexes name, and whether the bytes are one."""

import re
from typing import Any

import pytest
from google.protobuf import message_factory
from hypothesis import given
from hypothesis import strategies as st

from penstock.schemas.protobuf import ProtobufSchema, parse_protobuf, payload

_SOURCE = """
syntax = "proto3"; package p;
message First { int32 n = 1; string s = 2; First inner = 3; repeated int32 many = 4; map<string, First> by = 5;
  bytes b = 6; double d = 7; float f = 8; repeated First list = 9; }
message Second {
  map<string, int32> counts = 1;
  message Deep { message Deeper { string text = 1; } }
  map<string, int32> more = 2;
  message Last { bool yes = 1; }
}
"""


def _schema(source: str) -> ProtobufSchema:
    schema = parse_protobuf(source, [])
    assert isinstance(schema, ProtobufSchema)
    return schema


SCHEMA = _schema(_SOURCE)


def _new(name: str, schema: ProtobufSchema = SCHEMA) -> Any:
    return message_factory.GetMessageClass(schema.compiled.pool.FindMessageTypeByName(name))()


def _indexes(*numbers: int) -> bytes:
    found = bytearray()
    for number in (len(numbers), *numbers):
        zigzag = (number << 1) ^ (number >> 63)
        while zigzag > 0x7F:
            found.append(zigzag & 0x7F | 0x80)
            zigzag >>= 7
        found.append(zigzag)
    return bytes(found)


def _why(value: bytes, schema: ProtobufSchema = SCHEMA) -> str | None:
    return schema.validate(memoryview(value))


def test_a_whole_message_is_fine() -> None:
    first = _new("p.First")
    first.n, first.s, first.b, first.d, first.f = -1, "é", b"\xff", 1.5, 0.5
    first.many.extend([1, 2, 3])
    first.inner.by["x"].n = 4
    first.list.add().list.add().n = 1
    value = first.SerializeToString()
    for start in (b"\0", _indexes(0)):
        assert _why(start + value) is None
    assert _why(b"\0") is None


@pytest.mark.parametrize(
    ("indexes", "name"),
    [
        ((0,), "p.First"),
        ((1,), "p.Second"),
        # protoc puts a map's entries among the nested messages, and most clients count them: Deep is the second.
        ((1, 1), "p.Second.Deep"),
        ((1, 1, 0), "p.Second.Deep.Deeper"),
        ((1, 3), "p.Second.Last"),
        # Others do not count them: where only that gives a message, it is taken.
        ((1, 0), "p.Second.Deep"),
        ((1, 0, 0), "p.Second.Deep.Deeper"),
    ],
)
def test_indexes_name_their_message(indexes: tuple[int, ...], name: str) -> None:
    message = _new(name)
    assert _why(_indexes(*indexes) + message.SerializeToString()) is None
    # A message that has the field of none of the others: its name is in the reason.
    assert f"its bytes are no {name}:" in str(_why(_indexes(*indexes) + b"\xff"))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "ends within its message indexes"),
        (b"\x02", "ends within its message indexes"),
        (b"\x80\x80\x80\x80\x80\x80", "no 32-bit number"),
        (_indexes(7), r"\[7\] point to no message"),
        (_indexes(0, 0), "point to no message"),
        (_indexes(1, 9), "point to no message"),
        (b"\x02\x01", "negative"),
        (b"\x01", "but messages nest"),
        (_indexes(*[0] * 33), "but messages nest"),
        (b"\0hello world", "its bytes are no p.First"),
        (b'\0{"n": 1}', "its bytes are no p.First"),
        (b"\0\x08", "its bytes are no p.First"),
        (b"\0\x12\x7fabc", "its bytes are no p.First"),
        (b"\0\x12\x01\xff", "its bytes are no p.First"),
        (b"\0\x08\x01\xff", "its bytes are no p.First"),
        (b"\0\x0a\x01x", "field p.First.n is encoded as another type"),
        (b"\0\x10\x05", "field p.First.s is encoded as another type"),
        (b"\0\x1a\x02\x10\x05", "field p.First.s is encoded as another type"),
        (b"\0\x4a\x02\x10\x05", "field p.First.s is encoded as another type"),
        (b"\0\x2a\x07\x0a\x01k\x12\x02\x10\x05", "field p.First.s is encoded as another type"),
    ],
)
def test_what_is_no_value_is_refused_with_a_reason(value: bytes, why: str) -> None:
    reason = _why(value)
    assert reason is not None
    assert re.search(why, reason)


def test_numbers_that_the_schema_does_not_know_are_left_alone() -> None:
    """As Protobuf wants it: a newer producer may speak through an older schema."""
    assert _why(b"\0\x08\x01" + b"\xa2\x06\x03abc") is None


def test_lists_may_be_packed_or_not() -> None:
    assert _why(b"\0\x20\x01\x20\x02\x22\x02\x03\x04") is None


def test_unknown_numbers_of_a_closed_enum_are_values_still() -> None:
    schema = _schema(
        'syntax = "proto2"; enum E { A = 1; } message M { optional E e = 1; repeated E es = 2 [packed = true]; }'
    )
    assert _why(b"\0\x08\x05\x12\x01\x07", schema) is None


def test_required_fields_must_be_there() -> None:
    schema = _schema('syntax = "proto2"; message M { required int32 a = 1; optional M m = 2; }')
    assert _why(b"\0\x08\x01", schema) is None
    assert _why(b"\0", schema) == "it lacks a, which M requires"
    assert _why(b"\0\x08\x01\x12\x00", schema) == "it lacks m.a, which M requires"


def test_an_edition_says_what_is_required() -> None:
    schema = _schema('edition = "2023"; message M { int32 a = 1 [features.field_presence = LEGACY_REQUIRED]; }')
    assert _why(b"\0", schema) == "it lacks a, which M requires"


def test_nesting_without_end_is_refused() -> None:
    value = b""
    for _ in range(2000):
        length = len(value)
        size = bytearray()
        while length > 0x7F:
            size.append(length & 0x7F | 0x80)
            length >>= 7
        value = b"\x1a" + bytes([*size, length]) + value
    assert "its bytes are no p.First" in str(_why(b"\0" + value))


def test_a_search_for_wrong_fields_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "LOOKED_INTO_MAX", 5)
    far = b"\x4a\x02\x10\x05"
    assert _why(b"\0" + b"\x4a\x00" * 3 + far) is not None
    assert _why(b"\0" + far + b"\x4a\x00" * 50) is None


@given(st.binary(max_size=200))
def test_no_bytes_raise(value: bytes) -> None:
    reason = _why(value)
    assert reason is None or reason


def test_a_schema_without_messages_has_no_values() -> None:
    assert "point to no message" in str(_why(b"\0", _schema('syntax = "proto3"; enum E { Z = 0; }')))
