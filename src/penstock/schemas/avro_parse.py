"""Avro's JSON to types: every rule of the specification on names, symbols, sizes, unions and attributes.

Called by avro.py. Laws:
- Every refusal names the place, in the words of the schema: `Order.lines.price: …`.
- What the specification lets a reader ignore (unknown attributes, logical types that do not fit) is kept, not refused.
- A schema that is not new passes with weaker names and unchecked defaults: registries once took them, and what was
  taken must stay readable.
"""

import re
from collections.abc import Mapping, Sequence
from math import log10
from typing import Any, cast

from penstock.schemas.avro_model import (
    PLAIN,
    PRIMITIVES,
    Array,
    Decimal,
    Enum,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    RecordField,
    Type,
    Union,
    kind_of,
    namespace_of,
)
from penstock.schemas.schema import SchemaError

FIXED_BYTES_MAX = (1 << 31) - 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OLD_NAME = re.compile(r"[^\W\d]\w*")
_ORDERS = ("ascending", "descending", "ignore")


class AvroParser:
    """Reads one schema; `known` are the named types that its references bring, by full name."""

    def __init__(self, known: Mapping[str, Named], *, is_new: bool) -> None:
        self.defined: dict[str, Named] = {}
        self._known = known
        self._name = _NAME if is_new else _OLD_NAME
        self._is_new = is_new

    def type(self, json: Any, namespace: str = "", place: str = "") -> Type:
        match json:
            case str():
                return self._by_name(json, namespace, place)
            case list():
                return self._union(cast("list[Any]", json), namespace, place)
            case dict():
                return self._by_object(cast("dict[str, Any]", json), namespace, place)
            case _:
                raise _refused(place, f"a type is a name, an object or a list, not {_brief(json)}")

    def _by_name(self, name: str, namespace: str, place: str) -> Type:
        if name in PRIMITIVES:
            return PLAIN[name]
        # A name without a namespace is looked for in the one around it, then in none.
        wanted = [name] if "." in name or not namespace else [f"{namespace}.{name}", name]
        for full_name in wanted:
            found = self.defined.get(full_name) or self._known.get(full_name)
            if found is not None:
                return found
        raise _refused(place, f"{name!r} is no type; define it before it is used, or give a reference that brings it")

    def _union(self, branches: list[Any], namespace: str, place: str) -> Union:
        types: list[Type] = []
        seen: set[str] = set()
        for branch in branches:
            type_ = self.type(branch, namespace, place)
            if isinstance(type_, Union):
                raise _refused(place, "a union may not hold another union directly; write one list")
            name = type_.full_name if isinstance(type_, Named) else kind_of(type_)
            if name in seen:
                raise _refused(place, f"a union holds {name!r} twice, so a reader could not tell them apart")
            seen.add(name)
            types.append(type_)
        return Union(tuple(types))

    def _by_object(self, json: dict[str, Any], namespace: str, place: str) -> Type:
        kind = json.get("type")
        if not isinstance(kind, str):
            raise _refused(place, 'an object that describes a type needs a "type" that is a name')
        if kind in PRIMITIVES:
            properties = _without(json, "type")
            if not properties:
                return PLAIN[kind]
            return Primitive(kind, properties, _decimal(properties, None) if kind == "bytes" else None)
        match kind:
            case "array":
                items = self.type(_required(json, "items", place), namespace, place)
                return Array(items, _without(json, "type", "items"))
            case "map":
                values = self.type(_required(json, "values", place), namespace, place)
                return Map(values, _without(json, "type", "values"))
            case "record" | "error":
                return self._record(json, kind, namespace, place)
            case "enum":
                return self._enum(json, namespace, place)
            case "fixed":
                return self._fixed(json, namespace, place)
            case _:
                return self._by_name(kind, namespace, place)

    def _record(self, json: dict[str, Any], kind: str, namespace: str, place: str) -> Record:
        full_name = self._full_name(json, namespace, place)
        properties = _without(json, "type", "name", "namespace", "aliases", "fields")
        record = Record(full_name, self._aliases(json, full_name, place), kind, properties)
        # Before its fields, which may use it.
        self._define(record, place)
        fields = json.get("fields")
        place = place or full_name
        if not isinstance(fields, list):
            raise _refused(place, 'a record needs a list of "fields"')
        by_name: dict[str, RecordField] = {}
        for number, item in enumerate(cast("list[Any]", fields)):
            if not isinstance(item, dict):
                raise _refused(place, f"field {number} is no object")
            made = self._field(cast("dict[str, Any]", item), namespace_of(full_name), place, number)
            if made.name in by_name:
                raise _refused(place, f"the field {made.name!r} stands there twice")
            by_name[made.name] = made
        record.fields, record.by_name = tuple(by_name.values()), by_name
        return record

    def _field(self, json: dict[str, Any], namespace: str, place: str, number: int) -> RecordField:
        name = json.get("name")
        if not isinstance(name, str) or not self._name.fullmatch(name):
            raise _refused(place, f"field {number} has the name {_brief(name)}, which is no Avro name")
        here = f"{place}.{name}"
        type_ = self.type(_required(json, "type", here), namespace, here)
        order = json.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise _refused(here, f'"order" is one of {", ".join(_ORDERS)}, not {_brief(order)}')
        aliases = _names(json.get("aliases", []), here)
        for alias in aliases if self._is_new else ():
            if not self._name.fullmatch(alias):
                raise _refused(here, f"the alias {_brief(alias)} is no Avro name")
        properties = _without(json, "name", "type", "default", "order", "aliases")
        return RecordField(name, type_, "default" in json, json.get("default"), order.lower(), aliases, properties)

    def _enum(self, json: dict[str, Any], namespace: str, place: str) -> Enum:
        full_name = self._full_name(json, namespace, place)
        symbols = json.get("symbols")
        if not isinstance(symbols, list):
            raise _refused(place or full_name, 'an enum needs a list of "symbols"')
        seen: dict[str, None] = {}
        for symbol in cast("list[Any]", symbols):
            if not isinstance(symbol, str) or not self._name.fullmatch(symbol):
                raise _refused(place or full_name, f"the symbol {_brief(symbol)} is no Avro name")
            if symbol in seen:
                raise _refused(place or full_name, f"the symbol {symbol!r} stands there twice")
            seen[symbol] = None
        default = json.get("default")
        if default is not None and default not in seen:
            raise _refused(place or full_name, f"the default {_brief(default)} is none of the enum's symbols")
        properties = _without(json, "type", "name", "namespace", "aliases", "symbols", "default")
        made = Enum(full_name, self._aliases(json, full_name, place), tuple(seen), default, properties)
        self._define(made, place)
        return made

    def _fixed(self, json: dict[str, Any], namespace: str, place: str) -> Fixed:
        full_name = self._full_name(json, namespace, place)
        size = _whole(json.get("size"))
        if size is None or not 0 <= size <= FIXED_BYTES_MAX:
            raise _refused(place or full_name, f'a fixed type needs a "size" in bytes, not {_brief(json.get("size"))}')
        properties = _without(json, "type", "name", "namespace", "aliases", "size")
        aliases = self._aliases(json, full_name, place)
        made = Fixed(full_name, aliases, size, properties, _decimal(properties, size))
        self._define(made, place)
        return made

    def _full_name(self, json: dict[str, Any], namespace: str, place: str) -> str:
        name = json.get("name")
        if not isinstance(name, str) or not name:
            raise _refused(place, f'a {json["type"]} needs a "name"')
        given = json.get("namespace")
        if given is not None and not isinstance(given, str):
            raise _refused(place or name, f"the namespace {_brief(given)} is no text")
        # A dot in the name says all; the namespace beside it, and the one around it, are ignored then.
        if "." in name:
            space, _, simple = name.rpartition(".")
        else:
            space, simple = namespace if given is None else given, name
        if not self._name.fullmatch(simple):
            raise _refused(place, f"{_brief(name)} is no Avro name; use letters, digits and _, and no digit first")
        if self._is_new and space and not all(self._name.fullmatch(part) for part in space.split(".")):
            raise _refused(place or name, f"{_brief(space)} is no Avro namespace; use names joined by dots")
        if not space and simple in PRIMITIVES:
            raise _refused(place, f"a type may not be named {simple!r} like one of Avro's own")
        return f"{space}.{simple}" if space else simple

    def _aliases(self, json: dict[str, Any], full_name: str, place: str) -> tuple[str, ...]:
        space = namespace_of(full_name)
        full: dict[str, None] = {}
        for alias in _names(json.get("aliases", []), place or full_name):
            if self._is_new and not all(self._name.fullmatch(part) for part in alias.split(".")):
                raise _refused(place or full_name, f"the alias {_brief(alias)} is no Avro name")
            full[alias if "." in alias or not space else f"{space}.{alias}"] = None
        return tuple(full)

    def _define(self, named: Named, place: str) -> None:
        if named.full_name in self.defined:
            raise _refused(place, f"{named.full_name!r} is defined twice; define it once and use its name")
        if named.full_name in self._known:
            raise _refused(place, f"{named.full_name!r} is defined here and in a reference; use its name here")
        self.defined[named.full_name] = named


def _decimal(properties: Mapping[str, Any], size: int | None) -> Decimal | None:
    """The decimal that the attributes describe; None where they describe none or one that cannot be."""
    if properties.get("logicalType") != "decimal":
        return None
    precision, scale = _whole(properties.get("precision")), _whole(properties.get("scale", 0))
    if precision is None or scale is None or precision <= 0 or not 0 <= scale <= precision:
        return None
    if size is not None and precision > _digits_that_fit(size):
        return None
    return Decimal(precision, scale)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _digits_that_fit(size: int) -> int:
    """How many decimal digits always fit into so many bytes of two's complement."""
    return int((8 * size - 1) * log10(2)) if size else 0


def _required(json: dict[str, Any], key: str, place: str) -> Any:
    if key not in json:
        raise _refused(place, f'"{key}" is missing')
    return json[key]


def _names(value: Any, place: str) -> tuple[str, ...]:
    names = cast("Sequence[Any]", value) if isinstance(value, list) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise _refused(place, f'"aliases" is a list of names, not {_brief(value)}')
    return tuple(names)


def _without(json: dict[str, Any], *taken: str) -> dict[str, Any]:
    return {key: value for key, value in json.items() if key not in taken}


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refused(place: str, why: str) -> SchemaError:
    return SchemaError(f"{place}: {why}" if place else why)
