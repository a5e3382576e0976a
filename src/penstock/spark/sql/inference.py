"""What the values of a topic look like, from a sample of them: JSON with a schema, text, or bytes. Plain functions.

Called by sql.views. The schema is Spark's DDL for `from_json`. Laws:
- Any sample gives a schema that Spark takes: names are quoted, those that differ in case only are one, depth and
  width are bounded.
- Where records disagree the wider type is taken; where nothing is wide enough, STRING, which holds the JSON text.
- Sampling decides about types only: a record that does not fit has nulls, never a failure.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["json", "string", "bytes"]

DEPTH_MAX = 20
FIELDS_MAX = 1000
_BIGINT_MAX = 2**63 - 1
_DECIMAL_DIGITS_MAX = 38
# A topic of JSON may hold a stray text; one of texts may hold a stray number.
_JSON_SHARE_MIN = 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """`schema` is set for json only."""

    kind: Kind
    schema: str | None
    sampled: int


@dataclass(slots=True)
class _Shape:
    """All that was seen at one place of the documents."""

    scalars: set[str] = field(default_factory=set[str])
    fields: "dict[str, tuple[str, _Shape]]" = field(default_factory=dict)
    element: "_Shape | None" = None
    is_object: bool = False


def look_at(values: Sequence[bytes | None]) -> Look:
    """Null values say nothing; without any value at all it is taken for text."""
    present = [value for value in values if value is not None]
    documents = [document for document in map(_object_or_none, present) if document is not None]
    if documents and len(documents) >= _JSON_SHARE_MIN * len(present):
        return Look("json", schema_of(documents), len(present))
    return Look("string" if all(map(_is_text, present)) else "bytes", None, len(present))


def schema_of(documents: Sequence[dict[str, Any]]) -> str:
    """The fields of a struct as DDL: `id` BIGINT, `lines` ARRAY<STRUCT<…>>."""
    shape = _Shape()
    budget = [FIELDS_MAX]
    for document in documents:
        _learn(shape, document, 0, budget)
    return ", ".join(f"{_quote(name)} {_type_of(inner)}" for name, inner in shape.fields.values())


def _learn(shape: _Shape, value: Any, depth: int, budget: list[int]) -> None:
    if value is None:
        return
    if isinstance(value, dict) and depth < DEPTH_MAX:
        shape.is_object = True
        for name, inner in value.items():
            known = shape.fields.get(name.lower())
            if known is None:
                if budget[0] <= 0:
                    continue
                budget[0] -= 1
                known = shape.fields[name.lower()] = (name, _Shape())
            _learn(known[1], inner, depth + 1, budget)
    elif isinstance(value, list) and depth < DEPTH_MAX:
        shape.element = shape.element or _Shape()
        for inner in value:
            _learn(shape.element, inner, depth + 1, budget)
    else:
        shape.scalars.add(_scalar_type(value))


def _scalar_type(value: Any) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        if -_BIGINT_MAX <= value <= _BIGINT_MAX:
            return "BIGINT"
        return "DECIMAL(38,0)" if len(str(abs(value))) <= _DECIMAL_DIGITS_MAX else "STRING"
    return "DOUBLE" if isinstance(value, float) else "STRING"


def _type_of(shape: _Shape) -> str:
    kinds = bool(shape.scalars) + shape.is_object + (shape.element is not None)
    if kinds > 1:
        return "STRING"
    if shape.element is not None:
        return f"ARRAY<{_type_of(shape.element)}>"
    if shape.is_object:
        # Without a field there is nothing a struct could hold.
        inner = ", ".join(f"{_quote(name)}: {_type_of(one)}" for name, one in shape.fields.values())
        return f"STRUCT<{inner}>" if inner else "STRING"
    if len(shape.scalars) == 1:
        return next(iter(shape.scalars))
    if shape.scalars == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return "DECIMAL(38,0)" if shape.scalars == {"BIGINT", "DECIMAL(38,0)"} else "STRING"


def _object_or_none(value: bytes) -> dict[str, Any] | None:
    try:
        # NaN and Infinity are Python's own idea of JSON; as floats they are harmless here.
        document = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _is_text(value: bytes) -> bool:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return "\0" not in text


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
