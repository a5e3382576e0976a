"""Confluent's framing of a record: a zero byte, the schema's id in four, and for protobuf the path to the message.

Called by the decoders of records that come from a schema registry's serializers.
"""

import struct

from penstock.spark.formats.columns import BadRecord

MAGIC = b"\x00"
HEADER_BYTES = 5
INDEXES_MAX = 64

_ID = struct.Struct(">xI")


def schema_id(raw: bytes) -> int:
    if len(raw) < HEADER_BYTES or raw[0] != 0:
        raise BadRecord("it does not begin with a schema registry's header (a zero byte and a schema id)")
    return _ID.unpack_from(raw)[0]


def message_indexes(raw: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The path to a protobuf message in its file, and where the message's bytes begin."""
    count, at = _zigzag(raw, at)
    if count == 0:
        # The usual case, the first message, is written as a single zero.
        return (0,), at
    if not 0 < count <= INDEXES_MAX:
        raise BadRecord("its protobuf message indexes are malformed")
    indexes: list[int] = []
    for _ in range(count):
        index, at = _zigzag(raw, at)
        if index < 0:
            raise BadRecord("its protobuf message indexes are malformed")
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(raw):
            raise BadRecord("it ends within its schema registry's header")
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise BadRecord("its protobuf message indexes are malformed")
