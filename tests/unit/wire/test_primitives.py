"""Primitive types at the edges of what their lengths can say."""

import pytest

from penstock.errors import MalformedFrame
from penstock.wire.primitives import (
    read_count,
    read_length,
    read_nullable_string,
    read_uuid,
    read_uvarint,
    write_uvarint,
)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2**31 - 1, 2**32 - 1])
def test_a_varint_survives_the_round_trip(value: int) -> None:
    out = bytearray(b"x")
    write_uvarint(out, value)
    assert read_uvarint(memoryview(out), 1) == (value, len(out))


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00"])
def test_a_varint_above_32_bits_or_5_bytes_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        read_uvarint(memoryview(raw), 0)


def test_only_minus_one_is_null() -> None:
    assert read_length(memoryview(b"\xff\xff\xff\xff"), 0, False) == (-1, 4)
    assert read_nullable_string(memoryview(b"\xff\xff"), 0, False) == (None, 2)
    assert read_nullable_string(memoryview(b"\x00"), 0, True) == (None, 1)
    with pytest.raises(MalformedFrame):
        read_length(memoryview(b"\xff\xff\xff\xfe"), 0, False)
    with pytest.raises(MalformedFrame):
        read_nullable_string(memoryview(b"\xff\xfe"), 0, False)


def test_a_count_must_leave_room_for_its_elements() -> None:
    assert read_count(memoryview(b"\x04" + bytes(18)), 0, True, 6) == (3, 1)
    with pytest.raises(MalformedFrame):
        read_count(memoryview(b"\x04" + bytes(17)), 0, True, 6)


@pytest.mark.parametrize(("raw", "flexible"), [(b"\x00\x04abc", False), (b"\x05abc", True)])
def test_a_string_past_the_frame_is_malformed(raw: bytes, flexible: bool) -> None:
    with pytest.raises(MalformedFrame):
        read_nullable_string(memoryview(raw), 0, flexible)


def test_a_uuid_past_the_frame_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        read_uuid(memoryview(bytes(16)), 1)
