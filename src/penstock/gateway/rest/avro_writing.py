"""JSON as the Avro specification writes it made Avro's bytes, along a schema.

Called by rest.schemas. A value of a union stands in an object under its type's name unless it is null; bytes and fixed
are strings of the characters U+0000 to U+00FF. Back from bytes goes rest.avro_reading.
Laws:
- read_avro(write_avro(x)) == x, where x names every field; fields left out take the schema's default.
- Depth is bounded, and a refusal says at which place of the value it is.
"""

import struct
from collections.abc import Callable
from typing import Any, cast

from penstock.gateway.rest.avro_reading import DOUBLE, FLOAT, branch_name
from penstock.gateway.rest.payloads import BadPayload
from penstock.records.record import append_varint
from penstock.schemas.avro_model import Array, Enum, Fixed, Map, Primitive, Record, Type, Union

DEPTH_MAX = 100
_INT = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def write_avro(type_: Type, data: Any) -> bytes:
    out = bytearray()
    try:
        _write(type_, data, out, 0)
    except (struct.error, OverflowError):
        raise BadPayload("a number is too large for its type") from None
    return bytes(out)


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
            append_varint(out, type_.symbols.index(data))
        case Fixed():
            raw = _latin(data)
            if len(raw) != type_.size:
                raise BadPayload(f"{type_.full_name} has {type_.size} bytes, and {len(raw)} are given")
            out += raw
        case Array():
            items = _expect(data, list, "an array")
            if items:
                append_varint(out, len(items))
            for place, item in enumerate(items):
                _within(f"[{place}]", type_.items, item, out, depth)
            out.append(0)
        case Map():
            entries = _expect(data, dict, "an object")
            if entries:
                append_varint(out, len(entries))
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
                append_varint(out, 0)
            _write(kind, field.default, out, depth + 1)
        else:
            raise BadPayload(f"the field {field.name!r} of {type_.full_name} is missing and has no default")


def _write_union(type_: Union, data: Any, out: bytearray, depth: int) -> None:
    if data is None:
        name, inner = "null", None
    elif isinstance(data, dict) and len(entries := cast("dict[str, Any]", data)) == 1:
        name, inner = next(iter(entries.items()))
    else:
        told = ", ".join(branch_name(branch) for branch in type_.branches)
        raise BadPayload(f"a value of a union is null or an object with one of these names: {told}")
    for place, branch in enumerate(type_.branches):
        if branch_name(branch) == name:
            append_varint(out, place)
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
    append_varint(out, _whole(data, _INT))


def _write_whole_long(data: Any, out: bytearray) -> None:
    append_varint(out, _whole(data, _LONG))


def _write_float(data: Any, out: bytearray) -> None:
    out += FLOAT.pack(_real(data))


def _write_double(data: Any, out: bytearray) -> None:
    out += DOUBLE.pack(_real(data))


def _write_bytes(data: Any, out: bytearray) -> None:
    raw = _latin(data)
    append_varint(out, len(raw))
    out += raw


def _write_string(data: Any, out: bytearray) -> None:
    raw = _expect(data, str, "a string").encode()
    append_varint(out, len(raw))
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
