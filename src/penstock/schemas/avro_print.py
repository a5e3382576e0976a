"""Avro types back to JSON text, as Avro's own library for Java writes it.

Called by avro.py. Confluent's registry keeps and compares schemas in that spelling, so a schema that was registered
there is found here under the same text, whatever the order of attributes in which a client sends it. Laws:
- Parsing what is printed gives the same types, and printing those gives the same text.
- Attributes that Avro gives no meaning to are kept.
"""

from collections.abc import Mapping
from typing import Any, cast

from penstock.schemas.avro_model import (
    Array,
    Enum,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    RecordField,
    Type,
    Union,
    namespace_of,
    simple_name,
)
from penstock.schemas.json_text import dump


def print_avro(root: Type, defined: Mapping[str, Named], *, is_normalized: bool) -> str:
    """The text of `root`; named types outside `defined` come from references and are printed as names.

    `is_normalized`: attributes and aliases whose order means nothing in order, empty descriptions left out.
    """
    return dump(_Printer(defined, is_normalized=is_normalized).type(root, ""))


class _Printer:
    def __init__(self, defined: Mapping[str, Named], *, is_normalized: bool) -> None:
        self._to_define = set(defined)
        self._is_normalized = is_normalized

    def type(self, type_: Type, namespace: str) -> Any:
        match type_:
            case Primitive():
                properties = self._properties(type_.properties)
                return {"type": type_.name, **properties} if properties else type_.name
            case Array():
                items = self.type(type_.items, namespace)
                return {"type": "array", "items": items, **self._properties(type_.properties)}
            case Map():
                values = self.type(type_.values, namespace)
                return {"type": "map", "values": values, **self._properties(type_.properties)}
            case Union():
                return [self.type(branch, namespace) for branch in type_.branches]
            case Fixed() | Enum() | Record():
                return self._named(type_, namespace)

    def _named(self, named: Named, namespace: str) -> Any:
        if named.full_name not in self._to_define:
            return _relative(named.full_name, namespace)
        self._to_define.remove(named.full_name)
        space = namespace_of(named.full_name)
        kind = named.kind if isinstance(named, Record) else type(named).__name__.lower()
        printed: dict[str, Any] = {"type": kind, "name": simple_name(named.full_name)}
        if space != namespace:
            printed["namespace"] = space
        properties = self._properties(named.properties)
        doc = properties.pop("doc", None)
        if doc is not None and not (self._is_normalized and doc == ""):
            printed["doc"] = doc
        match named:
            case Record():
                printed["fields"] = [self._field(field, space) for field in named.fields]
            case Enum():
                printed["symbols"] = list(named.symbols)
                if named.default is not None:
                    printed["default"] = named.default
            case Fixed():
                printed["size"] = named.size
        printed |= properties
        if named.aliases:
            printed["aliases"] = self._aliases(tuple(_relative(alias, space) for alias in named.aliases))
        return printed

    def _field(self, field: RecordField, namespace: str) -> dict[str, Any]:
        printed: dict[str, Any] = {"name": field.name, "type": self.type(field.type, namespace)}
        properties = self._properties(field.properties)
        if "doc" in properties:
            printed["doc"] = properties.pop("doc")
        if field.has_default:
            printed["default"] = self._value(field.default)
        if field.order != "ascending":
            printed["order"] = field.order
        if field.aliases:
            printed["aliases"] = self._aliases(field.aliases)
        return printed | properties

    def _aliases(self, aliases: tuple[str, ...]) -> list[str]:
        return sorted(aliases) if self._is_normalized else list(aliases)

    def _properties(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        if not self._is_normalized:
            return dict(properties)
        return {key: self._value(properties[key]) for key in sorted(properties)}

    def _value(self, value: Any) -> Any:
        return _sorted(value) if self._is_normalized else value


def _sorted(value: Any) -> Any:
    match value:
        case dict():
            items = cast("dict[str, Any]", value)
            return {key: _sorted(items[key]) for key in sorted(items)}
        case list():
            return [_sorted(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _relative(full_name: str, namespace: str) -> str:
    """The shortest name that means the type inside this namespace."""
    return simple_name(full_name) if namespace_of(full_name) == namespace else full_name
