"""Avro's bytes told as the Avro specification writes them in JSON, along a schema: rest.avro_writing's way back.

Called by rest.schemas.
Law: it is for bytes that AvroSchema.validate() has found to be a value, which bounds its work and its depth.
"""

import struct
from typing import Any

from penstock.schemas.avro_model import Array, Enum, Fixed, Map, Primitive, Record, Type, Union

FLOAT, DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def read_avro(type_: Type, data: bytes) -> Any:
    return _read(type_, data, 0)[0]


def branch_name(type_: Type) -> str:
    """What a value of this type stands under in a union."""
    match type_:
        case Primitive():
            return type_.name
        case Array():
            return "array"
        case Map():
            return "map"
        case Union():
            return "union"
        case _:
            return type_.full_name


def _read(type_: Type, data: bytes, at: int) -> tuple[Any, int]:
    match type_:
        case Primitive():
            return _read_primitive(type_.name, data, at)
        case Record():
            found: dict[str, Any] = {}
            for field in type_.fields:
                found[field.name], at = _read(field.type, data, at)
            return found, at
        case Union():
            place, at = _read_long(data, at)
            branch = type_.branches[place]
            value, at = _read(branch, data, at)
            return (None if value is None else {branch_name(branch): value}), at
        case Enum():
            place, at = _read_long(data, at)
            return type_.symbols[place], at
        case Fixed():
            return data[at : at + type_.size].decode("latin-1"), at + type_.size
        case Array():
            return _read_array(type_, data, at)
        case Map():
            return _read_map(type_, data, at)


def _read_array(type_: Array, data: bytes, at: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while True:
        count, at = _read_count(data, at)
        if not count:
            return items, at
        for _ in range(count):
            item, at = _read(type_.items, data, at)
            items.append(item)


def _read_map(type_: Map, data: bytes, at: int) -> tuple[dict[str, Any], int]:
    entries: dict[str, Any] = {}
    while True:
        count, at = _read_count(data, at)
        if not count:
            return entries, at
        for _ in range(count):
            size, at = _read_long(data, at)
            key = data[at : at + size].decode(errors="replace")
            entries[key], at = _read(type_.values, data, at + size)


def _read_primitive(name: str, data: bytes, at: int) -> tuple[Any, int]:
    match name:
        case "null":
            return None, at
        case "boolean":
            return data[at] == 1, at + 1
        case "int" | "long":
            return _read_long(data, at)
        case "float":
            return _told(FLOAT.unpack_from(data, at)[0]), at + 4
        case "double":
            return _told(DOUBLE.unpack_from(data, at)[0]), at + 8
        case _:
            size, at = _read_long(data, at)
            raw = data[at : at + size]
            return raw.decode("latin-1") if name == "bytes" else raw.decode(errors="replace"), at + size


def _told(number: float) -> float | str:
    """JSON has no word for what is no number."""
    if number != number:
        return "NaN"
    return number if abs(number) != float("inf") else "Infinity" if number > 0 else "-Infinity"


def _read_count(data: bytes, at: int) -> tuple[int, int]:
    """How many items follow; a negative count is followed by their size, which only who skips them needs."""
    count, at = _read_long(data, at)
    if count < 0:
        _, at = _read_long(data, at)
    return abs(count), at


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
