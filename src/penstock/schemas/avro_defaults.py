"""Does a default value fit its type? A reader that lacks the field will hand it out as if it had been written.

Called by avro.py for schemas that are new. Laws:
- A default of a union fits the union's first branch: the rule of the specification up to 1.11, and the only one that
  every client in use follows.
- Bytes and fixed values are text whose characters, 0 to 255, stand for the bytes.
- Each field's own default is looked at by itself, so a record's default may leave out fields that have one.
"""

from collections.abc import Iterable
from typing import Any, cast

from penstock.schemas.avro_model import Array, Enum, Fixed, Map, Named, Primitive, Record, Type, Union, type_text
from penstock.schemas.schema import SchemaError

_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1


def check_defaults(defined: Iterable[Named]) -> None:
    """Raise SchemaError for the first field whose default does not fit."""
    for named in defined:
        for field in named.fields if isinstance(named, Record) else ():
            if field.has_default and not _fits(field.type, field.default):
                hint = ""
                if isinstance(field.type, Union) and any(
                    _fits(branch, field.default) for branch in field.type.branches
                ):
                    hint = "; put the branch of the default first in the union"
                raise SchemaError(
                    f"{named.full_name}.{field.name}: the default {_brief(field.default)} is no {type_text(field.type)}"
                    + hint
                )


def _fits(type_: Type, value: Any) -> bool:
    match type_:
        case Primitive():
            return _fits_primitive(type_.name, value)
        case Union():
            return bool(type_.branches) and _fits(type_.branches[0], value)
        case Array():
            return isinstance(value, list) and all(_fits(type_.items, item) for item in cast("list[Any]", value))
        case Map():
            return isinstance(value, dict) and all(
                _fits(type_.values, item) for item in cast("dict[str, Any]", value).values()
            )
        case Fixed():
            return _is_bytes(value) and len(value) == type_.size
        case Enum():
            return isinstance(value, str) and value in type_.symbol_set
        case Record():
            if not isinstance(value, dict):
                return False
            given = cast("dict[str, Any]", value)
            return all(
                _fits(field.type, given[field.name]) if field.name in given else field.has_default
                for field in type_.fields
            )


def _fits_primitive(name: str, value: Any) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return _is_whole(value) and -_INT_MAX - 1 <= value <= _INT_MAX
        case "long":
            return _is_whole(value) and -_LONG_MAX - 1 <= value <= _LONG_MAX
        case "float" | "double":
            return _is_whole(value) or isinstance(value, float)
        case "bytes":
            return _is_bytes(value)
        case _:
            return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_bytes(value: Any) -> bool:
    return isinstance(value, str) and all(character <= "\xff" for character in value)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
