"""Changes of strings, numbers and enums between two JSON Schemas: limits that came, went, grew or shrank.

Called by json_differences.py and json_content.py. Law: a path is the keyword the change is about.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.schemas.json_changes import Change
from penstock.schemas.json_shapes import Shape
from penstock.schemas.json_values import Run, fraction, frozen, is_number


def limit_changes(older: Mapping[str, Any], newer: Mapping[str, Any], keyword: str, name: str) -> Iterator[Change]:
    before, after = _number(older, keyword), _number(newer, keyword)
    if before == after:
        return
    if before is None or after is None:
        yield Change(f"{name}_ADDED" if before is None else f"{name}_REMOVED", keyword)
    else:
        yield Change(f"{name}_INCREASED" if before < after else f"{name}_DECREASED", keyword)


def description_changes(older: Shape, newer: Shape) -> Iterator[Change]:
    """What people read and no reader minds."""
    before, after = older.node.keywords, newer.node.keywords
    for keyword, kind in (
        (older.node.draft.id_keyword, "ID_CHANGED"),
        ("title", "TITLE_CHANGED"),
        ("description", "DESCRIPTION_CHANGED"),
        ("default", "DEFAULT_CHANGED"),
    ):
        if before.get(keyword) != after.get(keyword):
            yield Change(kind, "")


def string_changes(older: Shape, newer: Shape) -> Iterator[Change]:
    before, after = older.node.keywords, newer.node.keywords
    yield from limit_changes(before, after, "maxLength", "MAX_LENGTH")
    yield from limit_changes(before, after, "minLength", "MIN_LENGTH")
    patterns = before.get("pattern"), after.get("pattern")
    if patterns[0] != patterns[1]:
        kind = "ADDED" if patterns[0] is None else "REMOVED" if patterns[1] is None else "CHANGED"
        yield Change(f"PATTERN_{kind}", "pattern")


def number_changes(older: Shape, newer: Shape) -> Iterator[Change]:
    before, after = _with_bounds(older.node.keywords), _with_bounds(newer.node.keywords)
    yield from limit_changes(before, after, "maximum", "MAXIMUM")
    yield from limit_changes(before, after, "minimum", "MINIMUM")
    yield from limit_changes(before, after, "exclusiveMaximum", "EXCLUSIVE_MAXIMUM")
    yield from limit_changes(before, after, "exclusiveMinimum", "EXCLUSIVE_MINIMUM")
    steps = _number(before, "multipleOf"), _number(after, "multipleOf")
    if steps[0] != steps[1]:
        yield Change(f"MULTIPLE_OF_{_step_change(*steps)}", "multipleOf")
    if older.is_integer != newer.is_integer:
        yield Change("TYPE_EXTENDED" if older.is_integer else "TYPE_NARROWED", "")


def enum_changes(older: Shape, newer: Shape) -> Iterator[Change]:
    run = Run()
    before = {frozen(value, run) for value in older.values}
    after = {frozen(value, run) for value in newer.values}
    if before != after:
        kind = "EXTENDED" if before < after else "NARROWED" if after < before else "CHANGED"
        yield Change(f"ENUM_ARRAY_{kind}", "enum" if "enum" in newer.node.keywords else "const")


def _number(keywords: Mapping[str, Any], keyword: str) -> Any:
    value = keywords.get(keyword)
    return value if is_number(value) else None


def _with_bounds(keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    """Draft 4's `true` beside a bound, spelled as the later drafts do."""
    made = dict(keywords)
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if made.get(exclusive) is True and bound in made:
            made[exclusive] = made.pop(bound)
    return made


def _step_change(before: Any, after: Any) -> str:
    if before is None or after is None:
        return "ADDED" if before is None else "REMOVED"
    if not fraction(after) % fraction(before):
        return "EXPANDED"
    return "CHANGED" if fraction(before) % fraction(after) else "REDUCED"
