"""Changes of arrays between two JSON Schemas: all items, the first ones by place, what may follow them.

Called by json_differences.py; json_content.py has the rules on open and closed content. The drafts differ in spelling:
up to 2019-09 a list under `items` and `additionalItems`, since 2020-12 `prefixItems` and `items`.
"""

from collections.abc import Iterator

from penstock.schemas.json_changes import Change
from penstock.schemas.json_content import (
    OPEN,
    Comparer,
    Rest,
    added_beside,
    added_to_open,
    removed,
    rest_changes,
    rest_under,
    schema_under,
)
from penstock.schemas.json_documents import SchemaNode
from penstock.schemas.json_limits import limit_changes

_LIMITS = (
    ("maxItems", "MAX_ITEMS"),
    ("minItems", "MIN_ITEMS"),
    ("maxContains", "MAX_CONTAINS"),
    ("minContains", "MIN_CONTAINS"),
)


def array_changes(comparer: Comparer, older: SchemaNode, newer: SchemaNode) -> Iterator[Change]:
    before, after = _placed_items(older), _placed_items(newer)
    comparer.spend(len(before) + len(after))
    yield from comparer.changes(_all_items(older), _all_items(newer), "items")
    older_model, newer_model = _model(older), _model(newer)
    keyword = "prefixItems" if "prefixItems" in newer.keywords or "prefixItems" in older.keywords else "items"
    for number in range(max(len(before), len(after))):
        path = f"{keyword}/{number}"
        if number >= len(after):
            yield from removed(comparer, before[number], newer_model, path, "ITEM")
        elif number < len(before):
            yield from comparer.changes(before[number], after[number], path)
        elif older_model.is_open:
            yield added_to_open(after[number], path, "ITEM")
        elif older_model.schema is not None:
            yield from added_beside(comparer, older_model, after[number], path, "ITEM")
        else:
            yield Change("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", path)
    following = "items" if keyword == "prefixItems" else "additionalItems"
    yield from rest_changes(comparer, _following(older), _following(newer), following, "ADDITIONAL_ITEMS")
    unevaluated = rest_under(older, "unevaluatedItems"), rest_under(newer, "unevaluatedItems")
    yield from rest_changes(comparer, *unevaluated, "unevaluatedItems", "UNEVALUATED_ITEMS")
    for limit, name in _LIMITS:
        yield from limit_changes(older.keywords, newer.keywords, limit, name)
    was_unique, is_unique = (node.keywords.get("uniqueItems") is True for node in (older, newer))
    if was_unique != is_unique:
        yield Change("UNIQUE_ITEMS_REMOVED" if was_unique else "UNIQUE_ITEMS_ADDED", "uniqueItems")


def _placed_items(node: SchemaNode) -> list[SchemaNode]:
    return node.listed("prefixItems" if node.draft.number >= 2020 else "items")


def _all_items(node: SchemaNode) -> SchemaNode | None:
    if node.draft.number >= 2020 and "prefixItems" in node.keywords:
        return None
    return schema_under(node, "items")


def _following(node: SchemaNode) -> Rest:
    """What may follow the placed items."""
    if node.draft.number < 2020:
        return rest_under(node, "additionalItems")
    return rest_under(node, "items") if "prefixItems" in node.keywords else OPEN


def _model(node: SchemaNode) -> Rest:
    """What stands where no item is placed."""
    if _all_items(node) is not None:
        return rest_under(node, "items")
    following = _following(node)
    return rest_under(node, "unevaluatedItems") if following.is_open else following
