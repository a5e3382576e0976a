"""An Avro schema in memory: types that know one another, names resolved, attributes checked.

Made by avro_parse.py; read by avro_print.py, avro_resolution.py, avro_values.py and avro.py. Laws:
- A named type is one object wherever it is used, so a recursive schema is a graph with cycles; types are told apart by
  identity, never by value.
- A walk along `nested` alone ends after JSON_DEPTH_MAX steps; a walk through named types may not end at all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class Decimal(NamedTuple):
    precision: int
    scale: int


@dataclass(slots=True, eq=False)
class Primitive:
    """One of PRIMITIVES; `properties` are the attributes Avro itself gives no meaning to, logical types among them."""

    name: str
    properties: Mapping[str, Any]
    decimal: Decimal | None = None


PLAIN = {name: Primitive(name, {}) for name in PRIMITIVES}
"""One object per primitive without attributes: they are most of any schema, and a comparison meets each pair once."""


@dataclass(slots=True, eq=False)
class Array:
    items: "Type"
    properties: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Map:
    values: "Type"
    properties: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Union:
    branches: tuple["Type", ...]


@dataclass(slots=True, eq=False)
class Fixed:
    full_name: str
    aliases: tuple[str, ...]
    size: int
    properties: Mapping[str, Any]
    decimal: Decimal | None = None


@dataclass(slots=True, eq=False)
class Enum:
    full_name: str
    aliases: tuple[str, ...]
    symbols: tuple[str, ...]
    default: str | None
    properties: Mapping[str, Any]
    symbol_set: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.symbol_set = frozenset(self.symbols)


@dataclass(slots=True, eq=False)
class RecordField:
    name: str
    type: "Type"
    has_default: bool
    default: Any
    order: str
    aliases: tuple[str, ...]
    properties: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Record:
    full_name: str
    aliases: tuple[str, ...]
    kind: str
    properties: Mapping[str, Any]
    # Known only once they are read, and they may use the record itself.
    fields: tuple[RecordField, ...] = ()
    by_name: Mapping[str, RecordField] = field(default_factory=dict[str, RecordField])


Named = Fixed | Enum | Record
Type = Primitive | Array | Map | Union | Named


def kind_of(type_: Type) -> str:
    """What Avro calls it: the name of a primitive, or array, map, union, fixed, enum, record."""
    match type_:
        case Primitive():
            return type_.name
        case Record():
            return "record"
        case _:
            return type(type_).__name__.lower()


def simple_name(full_name: str) -> str:
    return full_name.rpartition(".")[2]


def namespace_of(full_name: str) -> str:
    return full_name.rpartition(".")[0]


def nested(type_: Type) -> Iterable[Type]:
    """The types written inside this one; a named type's own parts are no part of a walk."""
    match type_:
        case Array():
            return (type_.items,)
        case Map():
            return (type_.values,)
        case Union():
            return type_.branches
        case _:
            return ()


def type_text(type_: Type) -> str:
    """The type as a person reads it: `array<string>`, `null | long (timestamp-millis)`, a name."""
    match type_:
        case Primitive():
            logical = type_.properties.get("logicalType")
            if type_.decimal is not None:
                return f"{type_.name} (decimal {type_.decimal.precision},{type_.decimal.scale})"
            return f"{type_.name} ({logical})" if isinstance(logical, str) else type_.name
        case Array():
            return f"array<{type_text(type_.items)}>"
        case Map():
            return f"map<{type_text(type_.values)}>"
        case Union():
            return " | ".join(type_text(branch) for branch in type_.branches)
        case Fixed():
            return f"fixed {type_.full_name} ({type_.size} bytes)"
        case Enum():
            return f"enum {type_.full_name}"
        case Record():
            return f"{type_.kind} {type_.full_name}"
