"""The properties of a JSON Schema as a person reads them: flat, with dotted names.

Called by json_schema.py for the console. Laws: a schema inside itself is not entered again; no more than FIELDS_MAX
lines.
"""

from collections.abc import Iterator
from typing import Any, cast

from penstock.schemas.json_documents import SchemaNode
from penstock.schemas.json_text import dump
from penstock.schemas.schema import Field

FIELDS_MAX = 2000
_DEPTH_MAX = 30
_VISITS_MAX = 10_000
_TEXT_MAX = 200


def fields_of(root: SchemaNode) -> list[Field]:
    found: list[Field] = []
    for field in _below(root, "", (), set()):
        if len(found) == FIELDS_MAX:
            break
        found.append(field)
    return found or [_field("", root)]


def _below(node: SchemaNode, prefix: str, path: tuple[int, ...], seen: set[tuple[int, str]]) -> Iterator[Field]:
    node = node.target()
    # What several branches share is shown once per place; else shared branches of shared branches would never end.
    if node.key in path or len(path) >= _DEPTH_MAX or (node.key, prefix) in seen or len(seen) >= _VISITS_MAX:
        return
    seen.add((node.key, prefix))
    path = (*path, node.key)
    for name, child in node.children("properties"):
        full = f"{prefix}.{name}" if prefix else name
        yield _field(full, child)
        yield from _below(child, full, path, seen)
    for combination in ("allOf", "anyOf", "oneOf"):
        for branch in node.listed(combination):
            yield from _below(branch, prefix, path, seen)
    items = node.child("items") if "items" in node.keywords else None
    if items is not None:
        yield from _below(items, f"{prefix}[]", path, seen)


def _field(name: str, node: SchemaNode) -> Field:
    target = node.target()
    doc = node.keywords.get("description", target.keywords.get("description"))
    default: Any = node.keywords.get("default", target.keywords.get("default"))
    has_default = "default" in node.keywords or "default" in target.keywords
    return Field(
        name,
        _type_text(target, ())[:_TEXT_MAX],
        doc if isinstance(doc, str) else "",
        dump(default) if has_default else None,
    )


def _type_text(node: SchemaNode, path: tuple[int, ...]) -> str:
    node = node.target()
    if isinstance(node.schema, bool):
        return "anything" if node.schema else "nothing"
    if node.key in path or len(path) > 2:
        return "…"
    path = (*path, node.key)
    types = node.keywords.get("type")
    names = cast("list[str]", types) if isinstance(types, list) else [types] if isinstance(types, str) else []
    if "enum" in node.keywords or "const" in node.keywords:
        return "enum"
    if "array" in names and "items" in node.keywords and (items := node.child("items")) is not None:
        names = [f"array<{_type_text(items, path)}>" if name == "array" else name for name in names]
    if not names:
        for combination, joiner in (("oneOf", " | "), ("anyOf", " | "), ("allOf", " & ")):
            branches = node.listed(combination)[:5]
            if branches:
                return joiner.join(_type_text(branch, path) for branch in branches)
    text = " | ".join(names) or ("object" if "properties" in node.keywords else "anything")
    form = node.keywords.get("format")
    return f"{text} ({form})" if isinstance(form, str) else text
