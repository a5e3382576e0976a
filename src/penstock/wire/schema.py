"""What a message class of kio says about each field, in the shape that wire.writer and wire.skim compile from.

Called by wire.writer, wire.skim, wire.messages. Reads the classes only; kio itself is imported by wire.messages alone.
"""

from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import timedelta
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

EntityType = type[Any]  # a kio dataclass: a message or a structure inside one

_MILLISECOND = timedelta(milliseconds=1)

# The struct code of every type of fixed size. Durations and timestamps are milliseconds on the wire and for us.
FIXED: dict[str, str] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}

_ZEROS: dict[str, Any] = {"string": "", "bytes": b"", "records": b"", "uuid": None, "entity": {}, "bool": False}


@dataclass(frozen=True, slots=True)
class FieldSpec:
    name: str
    kind: str  # a key of FIXED, or string, bytes, records, uuid, entity
    entity: EntityType | None
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any  # as handlers would write it


def field_specs(entity: EntityType) -> list[FieldSpec]:
    specs: list[FieldSpec] = []
    for field in fields(entity):
        declared, nullable = _without_none(field.type)
        is_array = get_origin(declared) is tuple
        inner: EntityType = get_args(declared)[0] if is_array else declared
        nested = inner if is_dataclass(inner) else None
        kind = "entity" if nested is not None else field.metadata["kafka_type"]
        # kio reads the zero uuid and the timestamp -1 as None; on the wire neither type has a null.
        nullable = nullable and (is_array or kind not in ("uuid", "datetime_i64"))
        default = _default(field.default, kind, is_array, nullable)
        specs.append(FieldSpec(field.name, kind, nested, is_array, nullable, field.metadata.get("tag"), default))
    return specs


def is_flexible(entity: EntityType) -> bool:
    return entity.__flexible__


def _without_none(declared: Any) -> tuple[Any, bool]:
    if get_origin(declared) not in (UnionType, Union):
        return declared, False
    (inner,) = (part for part in get_args(declared) if part is not NoneType)
    return inner, True


def _default(declared: Any, kind: str, is_array: bool, nullable: bool) -> Any:
    """What a missing field becomes: kio's default, else null where that is allowed, else Kafka's zero of the type."""
    if isinstance(declared, timedelta):
        return declared // _MILLISECOND
    if is_dataclass(declared):
        return {}  # the defaults of its own fields
    if kind == "datetime_i64":
        return -1  # Kafka's "no timestamp", which kio shows as None
    if declared is not MISSING:
        return declared
    if nullable:
        return None
    if is_array:
        return ()
    return _ZEROS.get(kind, 0)
