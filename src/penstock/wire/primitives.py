"""The protocol's primitive types read from and written to buffers: varints, strings, tagged fields, uuids.

Called by wire.frame, wire.produce, wire.fetch, wire.writer, wire.skim.
Readers take a buffer and a position and give a value and the next position. They raise MalformedFrame, or
IndexError and struct.error at the end of the buffer, which `MALFORMED` names for the caller's one except clause.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from uuid import UUID

from penstock.errors import MalformedFrame

I16 = Struct(">h")
I32 = Struct(">i")
I64 = Struct(">q")

STRING_BYTES_MAX = 2**15 - 1  # Kafka's limit for compact strings too, though their length could say more

MALFORMED = (struct.error, IndexError, UnicodeDecodeError)


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """The same few topic ids arrive in every request, and UUID() alone costs more than parsing the rest."""
    return UUID(bytes=raw)


def read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    byte = view[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = view[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                raise MalformedFrame("varint above 32 bits")
            return value, position + 1
    raise MalformedFrame("varint longer than 5 bytes")


def read_length(view: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    """The length of an array or of bytes; -1 is null."""
    if flexible:
        length, position = read_uvarint(view, position)
        return length - 1, position
    length = I32.unpack_from(view, position)[0]
    if length < -1:
        raise MalformedFrame(f"length {length}")
    return length, position + 4


def read_count(view: memoryview, position: int, flexible: bool, element_bytes_min: int) -> tuple[int, int]:
    """The length of an array that may not be null and whose elements must fit in what is left of the frame."""
    count, position = read_length(view, position, flexible)
    if count < 0:
        raise MalformedFrame("null where an array must be")
    if count * element_bytes_min > len(view) - position:
        raise MalformedFrame(f"{count} elements claimed, {len(view) - position} bytes left")
    return count, position


def read_nullable_string(view: memoryview, position: int, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        length, position = read_uvarint(view, position)
        length -= 1
        if length > STRING_BYTES_MAX:
            raise MalformedFrame(f"string of {length} bytes")
    else:
        length = I16.unpack_from(view, position)[0]
        position += 2
    if length < 0:
        if length < -1:
            raise MalformedFrame(f"string of {length} bytes")
        return None, position
    end = position + length
    if end > len(view):
        raise MalformedFrame("string runs past the frame")
    return str(view[position:end], "utf-8"), end


def read_string(view: memoryview, position: int, flexible: bool) -> tuple[str, int]:
    value, position = read_nullable_string(view, position, flexible)
    if value is None:
        raise MalformedFrame("null where a string must be")
    return value, position


def read_uuid(view: memoryview, position: int) -> tuple[UUID, int]:
    end = position + 16
    if end > len(view):
        raise MalformedFrame("uuid runs past the frame")
    return uuid_of(bytes(view[position:end])), end


def read_tags(view: memoryview, position: int) -> Iterator[tuple[int, int, int]]:
    """Each tagged field as (tag, start, end); last comes (-1, end, end), where the section ends."""
    count, position = read_uvarint(view, position)
    # No check of the count: a tag takes two bytes at least, so a count that lies runs into the end of the frame.
    for _ in range(count):
        tag, position = read_uvarint(view, position)
        size, position = read_uvarint(view, position)
        end = position + size
        if end > len(view):
            raise MalformedFrame("tagged field runs past the frame")
        yield tag, position, end
        position = end
    yield -1, position, position


def skip_tags(view: memoryview, position: int) -> int:
    if view[position] == 0:
        return position + 1
    for _tag, _start, end in read_tags(view, position):
        position = end
    return position


def write_uvarint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_nullable_string(out: bytearray, value: str | None, flexible: bool) -> None:
    if value is None:
        out += b"\x00" if flexible else b"\xff\xff"
        return
    raw = value.encode()
    if flexible:
        write_uvarint(out, len(raw) + 1)
    else:
        out += I16.pack(len(raw))
    out += raw


def write_length(out: bytearray, length: int, flexible: bool) -> None:
    """The length of an array or of bytes; -1 is null."""
    if flexible:
        write_uvarint(out, length + 1)
    else:
        out += I32.pack(length)
