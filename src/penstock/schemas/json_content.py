"""What stands beside the named parts of an object or array: the content model that the compatibility rules turn on.

Called by json_objects.py and json_arrays.py. Open: anything may stand beside what is named. Closed: nothing may.
Partially open: what fits a schema may. A part may be dropped where the newer schema still takes it, and added where the
older one did not already allow something else in its place. Law: a schema that takes anything is none.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from penstock.schemas.json_changes import Change, is_compatible
from penstock.schemas.json_documents import SchemaNode


class Comparer(Protocol):
    def changes(self, older: SchemaNode | None, newer: SchemaNode | None, path: str = "") -> list[Change]: ...

    def spend(self, steps: int) -> None: ...


class Rest(NamedTuple):
    """What a schema takes beside what it names: nothing, anything (no schema), or what fits a schema."""

    is_taken: bool
    schema: SchemaNode | None

    @property
    def is_open(self) -> bool:
        return self.is_taken and self.schema is None


OPEN = Rest(True, None)


def schema_under(node: SchemaNode, keyword: str) -> SchemaNode | None:
    """The schema of a keyword; None where there is none or it takes anything."""
    found = node.child(keyword) if keyword in node.keywords else None
    return None if found is None or takes_anything(found) else found


def takes_anything(node: SchemaNode) -> bool:
    schema = node.target().schema
    return schema is True or schema == {}


def rest_under(node: SchemaNode, *keywords: str) -> Rest:
    """What the first of these keywords that is there takes; open where none is."""
    for keyword in keywords:
        if keyword in node.keywords:
            schema = schema_under(node, keyword)
            return Rest(False, None) if schema is not None and schema.schema is False else Rest(True, schema)
    return OPEN


def removed(comparer: Comparer, gone: SchemaNode, rest: Rest, path: str, what: str) -> Iterator[Change]:
    """A part that only the older schema names; `rest`: what the newer one takes in its place."""
    if rest.is_open:
        yield Change(f"{what}_REMOVED_FROM_OPEN_CONTENT_MODEL", path)
    elif rest.schema is not None:
        inside = comparer.changes(gone, rest.schema, path)
        yield from inside
        covered = "IS" if is_compatible(inside) else "NOT"
        yield Change(f"{what}_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
    elif gone.target().schema is False:
        yield Change(f"{what}_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
    else:
        yield Change(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)


def added_to_open(added: SchemaNode, path: str, what: str) -> Change:
    # Only a schema that takes anything takes all that writers could already write there.
    with_empty = "_WITH_EMPTY_SCHEMA" if takes_anything(added) else ""
    return Change(f"{what}{with_empty}_ADDED_TO_OPEN_CONTENT_MODEL", path)


def added_beside(comparer: Comparer, rest: Rest, added: SchemaNode, path: str, what: str) -> Iterator[Change]:
    """A part that only the newer schema names, where the older one took what fits a schema."""
    if rest.schema is not None:
        inside = comparer.changes(rest.schema, added, path)
        yield from inside
        covered = "IS" if is_compatible(inside) else "NOT"
        yield Change(f"{what}_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)


def rest_changes(comparer: Comparer, was: Rest, now: Rest, keyword: str, name: str) -> Iterator[Change]:
    if was.is_taken != now.is_taken:
        yield Change(f"{name}_ADDED" if now.is_taken else f"{name}_REMOVED", keyword)
    elif (was.schema is None) != (now.schema is None):
        yield Change(f"{name}_NARROWED" if was.schema is None else f"{name}_EXTENDED", keyword)
    else:
        yield from comparer.changes(was.schema, now.schema, keyword)
