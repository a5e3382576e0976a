"""A JSON Schema as the compatibility rules see it: one shape with one kind, instead of a bag of keywords.

Called by json_differences.py. The rules compare strings with strings and objects with objects; keywords of several
kinds in one schema are a combination that must all be met. Laws:
- A shape's kind is one of KINDS; what a `$ref` leads to stands in its place.
- `const` is an enum of one value; several types are a choice between them.
- Without a `type`, the keywords tell what is meant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from penstock.schemas.json_documents import SchemaNode
from penstock.schemas.json_text import dump

Kind = Literal[
    "anything",
    "nothing",
    "string",
    "number",
    "boolean",
    "null",
    "object",
    "array",
    "enum",
    "not",
    "condition",
    "combination",
]
Criterion = Literal["allOf", "anyOf", "oneOf"]

_TELLING: Mapping[Kind, frozenset[str]] = {
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "object": frozenset(
        {
            "properties", "required", "minProperties", "maxProperties", "dependencies", "patternProperties",
            "additionalProperties", "propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties",
        }
    ),
    "array": frozenset(
        {
            "items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "prefixItems",
            "unevaluatedItems", "minContains", "maxContains",
        }
    ),
}  # fmt: skip


@dataclass(slots=True, eq=False)
class Shape:
    kind: Kind
    node: SchemaNode
    is_integer: bool = False
    values: tuple[Any, ...] = ()
    criterion: Criterion = "allOf"
    parts: tuple["Shape | SchemaNode", ...] = ()
    steps: tuple[str, ...] = ()
    """Where each part stands, seen from the combination; empty where the parts are keywords of one schema."""


class Shapes:
    """Makes each schema's shape once."""

    def __init__(self) -> None:
        self._made: dict[int, Shape] = {}

    def of(self, part: "Shape | SchemaNode") -> Shape:
        if isinstance(part, Shape):
            return part
        node = part.target()
        made = self._made.get(node.key)
        if made is None:
            made = self._made[node.key] = _shape(node)
        return made


def spelling(part: "Shape | SchemaNode") -> str:
    """Equal for parts that say the same: a combination counts them once."""
    if isinstance(part, Shape):
        return f"{part.kind} {part.criterion} {part.is_integer} {dump(list(part.values))}" + str(
            [spelling(each) for each in part.parts]
        )
    return dump(part.schema)


def _shape(node: SchemaNode) -> Shape:
    if isinstance(node.schema, bool):
        return Shape("anything" if node.schema else "nothing", node)
    parts = [*_asserted(node), *_typed(node)]
    if not parts:
        return Shape("anything", node)
    return parts[0] if len(parts) == 1 else Shape("combination", node, parts=tuple(parts))


def _asserted(node: SchemaNode) -> list[Shape]:
    keywords = node.keywords
    parts: list[Shape] = []
    if node.draft.has_ref_siblings and (referred := node.referred()) is not None:
        parts.append(Shape("combination", node, parts=(referred,), steps=("$ref",)))
    if isinstance(keywords.get("enum"), list):
        parts.append(Shape("enum", node, values=tuple(keywords["enum"])))
    if "const" in keywords:
        parts.append(Shape("enum", node, values=(keywords["const"],)))
    for criterion in cast("tuple[Criterion, ...]", ("allOf", "anyOf", "oneOf")):
        branches = node.listed(criterion)
        if branches:
            steps = tuple(f"{criterion}/{number}" for number in range(len(branches)))
            parts.append(Shape("combination", node, criterion=criterion, parts=tuple(branches), steps=steps))
    if "not" in keywords and node.child("not") is not None:
        parts.append(Shape("not", node))
    if "if" in keywords and ("then" in keywords or "else" in keywords):
        parts.append(Shape("condition", node))
    return parts


def _typed(node: SchemaNode) -> list[Shape]:
    types = node.keywords.get("type")
    if isinstance(types, str):
        return [_of_type(types, node)]
    if isinstance(types, list):
        choice = tuple(_of_type(name, node) for name in cast("list[str]", types))
        return [Shape("combination", node, criterion="anyOf", parts=choice)]
    return [Shape(kind, node) for kind, telling in _TELLING.items() if not telling.isdisjoint(node.keywords)]


def _of_type(name: str, node: SchemaNode) -> Shape:
    if name == "integer":
        return Shape("number", node, is_integer=True)
    return Shape(cast("Kind", name), node)
