"""Avro's JSON encoding to Avro's bytes and back, along a schema.

Called by rest.schemas. JSON as the Avro specification writes it: a value of a union stands in an object under its
type's name unless it is null; bytes and fixed are strings of the characters U+0000 to U+00FF.
Laws:
- decode(encode(x)) == x, where x names every field; fields left out take the schema's default.
- Depth is bounded; decode() is for bytes that AvroSchema.validate() has found to be a value, which bounds its work.
"""

import struct
from collections.abc import Callable
from typing import Any, cast

from penstock.gateway.rest.payloads import BadPayload
from penstock.schemas.avro_model import Array, Enum, Fixed, Map, Primitive, Record, Type, Union

DEPTH_MAX = 100
_INT = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def encode(type_: Type, data: Any) -> bytes:
    out = bytearray()
    try:
        _write(type_, data, out, 0)
    except (struct.error, OverflowError):
        raise BadPayload("a number is too large for its type") from None
    return bytes(out)


def decode(type_: Type, data: bytes) -> Any:
    return _read(type_, data, 0)[0]


# Writing


def _write(type_: Type, data: Any, out: bytearray, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise BadPayload(f"the value is nested deeper than {DEPTH_MAX}")
    match type_:
        case Primitive():
            _WRITERS[type_.name](data, out)
        case Record():
            _write_record(type_, data, out, depth)
        case Union():
            _write_union(type_, data, out, depth)
        case Enum():
            if not isinstance(data, str) or data not in type_.symbol_set:
                raise BadPayload(f"{_short(data)} is no symbol of {type_.full_name}")
            _write_long(type_.symbols.index(data), out)
        case Fixed():
            raw = _latin(data)
            if len(raw) != type_.size:
                raise BadPayload(f"{type_.full_name} has {type_.size} bytes, and {len(raw)} are given")
            out += raw
        case Array():
            items = _expect(data, list, "an array")
            if items:
                _write_long(len(items), out)
            for place, item in enumerate(items):
                _within(f"[{place}]", type_.items, item, out, depth)
            out.append(0)
        case Map():
            entries = _expect(data, dict, "an object")
            if entries:
                _write_long(len(entries), out)
            for key, item in entries.items():
                _write_string(key, out)
                _within(f".{key[:60]}", type_.values, item, out, depth)
            out.append(0)


def _write_record(type_: Record, data: Any, out: bytearray, depth: int) -> None:
    given = _expect(data, dict, f"an object ({type_.full_name})")
    for name in given:
        if name not in type_.by_name:
            raise BadPayload(f"{type_.full_name} has no field {name[:60]!r}")
    for field in type_.fields:
        if field.name in given:
            _within(f".{field.name}", field.type, given[field.name], out, depth)
        elif field.has_default:
            # A default is of the union's first branch, and written without its name.
            kind = field.type.branches[0] if isinstance(field.type, Union) else field.type
            if isinstance(field.type, Union):
                _write_long(0, out)
            _write(kind, field.default, out, depth + 1)
        else:
            raise BadPayload(f"the field {field.name!r} of {type_.full_name} is missing and has no default")


def _write_union(type_: Union, data: Any, out: bytearray, depth: int) -> None:
    if data is None:
        name, inner = "null", None
    elif isinstance(data, dict) and len(entries := cast("dict[str, Any]", data)) == 1:
        name, inner = next(iter(entries.items()))
    else:
        told = ", ".join(_branch_name(branch) for branch in type_.branches)
        raise BadPayload(f"a value of a union is null or an object with one of these names: {told}")
    for place, branch in enumerate(type_.branches):
        if _branch_name(branch) == name:
            _write_long(place, out)
            _within(f".{name}", branch, inner, out, depth)
            return
    raise BadPayload(f"the union has no type {name[:60]!r}")


def _within(step: str, type_: Type, data: Any, out: bytearray, depth: int) -> None:
    """The path of what is wrong is put together on the way out."""
    try:
        _write(type_, data, out, depth + 1)
    except BadPayload as fault:
        text = str(fault)
        raise BadPayload(f"{step}{text}" if text[:1] in ".[" else f"{step}: {text}") from None


def _write_null(data: Any, out: bytearray) -> None:
    if data is not None:
        raise BadPayload(f"{_short(data)} is not null")


def _write_boolean(data: Any, out: bytearray) -> None:
    out.append(_expect(data, bool, "true or false"))


def _write_int(data: Any, out: bytearray) -> None:
    _write_long(_whole(data, _INT), out)


def _write_whole_long(data: Any, out: bytearray) -> None:
    _write_long(_whole(data, _LONG), out)


def _write_float(data: Any, out: bytearray) -> None:
    out += _FLOAT.pack(_real(data))


def _write_double(data: Any, out: bytearray) -> None:
    out += _DOUBLE.pack(_real(data))


def _write_bytes(data: Any, out: bytearray) -> None:
    raw = _latin(data)
    _write_long(len(raw), out)
    out += raw


def _write_string(data: Any, out: bytearray) -> None:
    raw = _expect(data, str, "a string").encode()
    _write_long(len(raw), out)
    out += raw


_WRITERS: dict[str, Callable[[Any, bytearray], None]] = {
    "null": _write_null,
    "boolean": _write_boolean,
    "int": _write_int,
    "long": _write_whole_long,
    "float": _write_float,
    "double": _write_double,
    "bytes": _write_bytes,
    "string": _write_string,
}


def _write_long(number: int, out: bytearray) -> None:
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _whole(data: Any, bounds: tuple[int, int]) -> int:
    if not isinstance(data, int) or isinstance(data, bool) or not bounds[0] <= data <= bounds[1]:
        raise BadPayload(f"{_short(data)} is no number from {bounds[0]} to {bounds[1]}")
    return data


def _real(data: Any) -> float:
    if isinstance(data, str) and data in _SPECIAL:
        return _SPECIAL[data]
    if not isinstance(data, int | float) or isinstance(data, bool):
        raise BadPayload(f"{_short(data)} is no number")
    try:
        return float(data)
    except OverflowError:
        raise BadPayload(f"{_short(data)} is too large a number") from None


def _latin(data: Any) -> bytes:
    try:
        return _expect(data, str, "a string").encode("latin-1")
    except UnicodeEncodeError:
        raise BadPayload("bytes are written as characters from U+0000 to U+00FF") from None


def _expect(data: Any, kind: type, what: str) -> Any:
    if not isinstance(data, kind):
        raise BadPayload(f"{_short(data)} is not {what}")
    return data


def _short(data: Any) -> str:
    text = repr(data) if isinstance(data, str | int | float | bool) or data is None else type(data).__name__
    return text[:60]


def _branch_name(type_: Type) -> str:
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


# Reading


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
            return (None if value is None else {_branch_name(branch): value}), at
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
            return _told(_FLOAT.unpack_from(data, at)[0]), at + 4
        case "double":
            return _told(_DOUBLE.unpack_from(data, at)[0]), at + 8
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
