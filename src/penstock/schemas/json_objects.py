"""Changes of objects between two JSON Schemas: properties, what must be there, what else may be.

Called by json_differences.py; json_content.py has the rules on open and closed content. Laws:
- A property that a pattern speaks of is governed by the pattern's schema, every other unnamed one by
  `additionalProperties`.
- Whether a property is required is compared where both schemas name it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from penstock.schemas.json_changes import Change
from penstock.schemas.json_content import Comparer, Rest, added_beside, added_to_open, removed, rest_changes, rest_under
from penstock.schemas.json_documents import SchemaNode
from penstock.schemas.json_limits import limit_changes
from penstock.schemas.json_patterns import Pattern


class _Model:
    """What an object's schema takes under the names it does not name."""

    def __init__(self, comparer: Comparer, node: SchemaNode) -> None:
        self._comparer = comparer
        self._patterns = [(Pattern(source), schema) for source, schema in node.children("patternProperties")]
        self._rest = rest_under(node, "additionalProperties", "unevaluatedProperties")

    def of(self, name: str) -> Rest:
        self._comparer.spend(len(self._patterns))
        for pattern, schema in self._patterns:
            if pattern.is_checked and pattern.may_match(name):
                return Rest(True, schema)
        return self._rest


def object_changes(comparer: Comparer, older: SchemaNode, newer: SchemaNode) -> Iterator[Change]:
    before, after = dict(older.children("properties")), dict(newer.children("properties"))
    comparer.spend(len(before) + len(after))
    required = _names(newer.keywords.get("required"))
    older_model, newer_model = _Model(comparer, older), _Model(comparer, newer)
    yield from _required_changes(_names(older.keywords.get("required")), required, before, after)
    for name in sorted({**before, **after}):
        path = f"properties/{name}"
        if name in before and name in after:
            yield from comparer.changes(before[name], after[name], path)
        elif name in before:
            yield from removed(comparer, before[name], newer_model.of(name), path, "PROPERTY")
        elif (rest := older_model.of(name)).is_open:
            yield added_to_open(after[name], path, "PROPERTY")
        else:
            yield from added_beside(comparer, rest, after[name], path, "PROPERTY")
            yield Change(_added_to_unopen(after[name], is_required=name in required), path)
    patterns = dict(newer.children("patternProperties"))
    for source, schema in older.children("patternProperties"):
        if source in patterns:
            yield from comparer.changes(schema, patterns[source], f"patternProperties/{source}")
    yield from _dependency_changes(comparer, older, newer)
    for keyword, name in (
        ("additionalProperties", "ADDITIONAL_PROPERTIES"),
        ("unevaluatedProperties", "UNEVALUATED_PROPERTIES"),
    ):
        yield from rest_changes(comparer, rest_under(older, keyword), rest_under(newer, keyword), keyword, name)
    yield from limit_changes(older.keywords, newer.keywords, "maxProperties", "MAX_PROPERTIES")
    yield from limit_changes(older.keywords, newer.keywords, "minProperties", "MIN_PROPERTIES")


def _required_changes(
    was: frozenset[str], now: frozenset[str], before: Mapping[str, SchemaNode], after: Mapping[str, SchemaNode]
) -> Iterator[Change]:
    for name in sorted(before.keys() & after.keys() & (was ^ now)):
        path = f"required/{name}"
        if name in was:
            yield Change("REQUIRED_ATTRIBUTE_REMOVED", path)
        elif _has_default(after[name]):
            yield Change("REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED", path)
        else:
            yield Change("REQUIRED_ATTRIBUTE_ADDED", path)


def _added_to_unopen(added: SchemaNode, *, is_required: bool) -> str:
    if not is_required:
        return "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
    if _has_default(added):
        return "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL"
    return "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"


def _has_default(node: SchemaNode) -> bool:
    return "default" in node.keywords or "default" in node.target().keywords


def _dependency_changes(comparer: Comparer, older: SchemaNode, newer: SchemaNode) -> Iterator[Change]:
    before, after = _needed_names(older), _needed_names(newer)
    for name in sorted({**before, **after}):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        if was is None or now is None:
            kind = "ADDED" if was is None else "REMOVED"
        else:
            kind = "EXTENDED" if was < now else "NARROWED" if now < was else "CHANGED"
        yield Change(f"DEPENDENCY_ARRAY_{kind}", f"dependencies/{name}")
    older_schemas, newer_schemas = _needed_schemas(older), _needed_schemas(newer)
    for name in sorted({**older_schemas, **newer_schemas}):
        path = f"dependencies/{name}"
        if name not in older_schemas:
            yield Change("DEPENDENCY_SCHEMA_ADDED", path)
        elif name not in newer_schemas:
            yield Change("DEPENDENCY_SCHEMA_REMOVED", path)
        else:
            yield from comparer.changes(older_schemas[name], newer_schemas[name], path)


def _needed_names(node: SchemaNode) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for keyword in ("dependencies", "dependentRequired"):
        needed = node.keywords.get(keyword)
        if isinstance(needed, dict):
            pairs = cast("dict[str, Any]", needed).items()
            found |= {name: _names(names) for name, names in pairs if isinstance(names, list)}
    return found


def _needed_schemas(node: SchemaNode) -> dict[str, SchemaNode]:
    return {**dict(node.children("dependencies")), **dict(node.children("dependentSchemas"))}


def _names(value: Any) -> frozenset[str]:
    return frozenset(cast("list[str]", value)) if isinstance(value, list) else frozenset()
