"""Two JSON Schemas compared by Confluent's rules: every change, with the name the rules give it.

Called by json_schema.py; objects and arrays are compared in json_content.py. Laws:
- A pair of schemas that is met again while it is compared (they are recursive) counts as unchanged there; a verdict
  that leans on such a guess is not remembered beyond it.
- After COMPARISONS_MAX pairs, or at COMPARISON_DEPTH_MAX, TooLarge ends the comparison.
"""

from collections.abc import Iterator

from penstock.schemas.json_arrays import array_changes
from penstock.schemas.json_changes import Change, is_compatible, joined
from penstock.schemas.json_documents import SchemaNode
from penstock.schemas.json_limits import description_changes, enum_changes, number_changes, string_changes
from penstock.schemas.json_matching import largest_matching
from penstock.schemas.json_objects import object_changes
from penstock.schemas.json_shapes import Shape, Shapes, spelling
from penstock.schemas.json_text import dump

COMPARISONS_MAX = 250_000
COMPARISON_DEPTH_MAX = 150


class TooLarge(Exception):
    """The comparison was given up."""


def all_changes(older: SchemaNode, newer: SchemaNode) -> list[Change]:
    """Every change from `older` to `newer`, compatible ones too; COMPARISON_TOO_LARGE alone where it takes too much."""
    try:
        return [Change(kind, f"#/{path}") for kind, path in Comparison().changes(older, newer)]
    except TooLarge:
        return [Change("COMPARISON_TOO_LARGE", "#/")]


class Comparison:
    def __init__(self) -> None:
        self._shapes = Shapes()
        self._known: dict[tuple[int, int], list[Change]] = {}
        self._under_way: dict[tuple[int, int], int] = {}
        # The outermost pair under way that a verdict has leaned on since this was last reset.
        self._leaned_on = COMPARISON_DEPTH_MAX + 1
        self._left = COMPARISONS_MAX

    def changes(
        self, older: "SchemaNode | Shape | None", newer: "SchemaNode | Shape | None", path: str = ""
    ) -> list[Change]:
        """The changes between two schemas that stand at `path`; None where one of them has none there."""
        if older is None or newer is None:
            if older is newer:
                return []
            return [Change("SCHEMA_ADDED" if older is None else "SCHEMA_REMOVED", path)]
        found = self._remembered(self._shapes.of(older), self._shapes.of(newer))
        return [Change(kind, joined(path, below)) for kind, below in found]

    def are_compatible(self, older: "SchemaNode | Shape", newer: "SchemaNode | Shape") -> bool:
        return is_compatible(self.changes(older, newer))

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooLarge

    def _remembered(self, older: Shape, newer: Shape) -> list[Change]:
        key = id(older), id(newer)
        known = self._known.get(key)
        if known is not None:
            return known
        if key in self._under_way:
            self._leaned_on = min(self._leaned_on, self._under_way[key])
            return []
        depth = len(self._under_way)
        if depth >= COMPARISON_DEPTH_MAX:
            raise TooLarge
        self.spend(1)
        leaned_on_before, self._leaned_on = self._leaned_on, COMPARISON_DEPTH_MAX + 1
        self._under_way[key] = depth
        found = list(self._compared(older, newer))
        del self._under_way[key]
        if self._leaned_on >= depth:
            self._known[key] = found
            self._leaned_on = COMPARISON_DEPTH_MAX + 1
        self._leaned_on = min(leaned_on_before, self._leaned_on)
        return found

    def _compared(self, older: Shape, newer: Shape) -> Iterator[Change]:
        found = self._one_combined(older, newer)
        if found is not None:
            yield from found
            return
        if older.kind != newer.kind:
            if older.kind != "nothing" and newer.kind != "anything":
                yield Change("TYPE_CHANGED", "")
            return
        yield from description_changes(older, newer)
        match older.kind:
            case "string":
                yield from string_changes(older, newer)
            case "number":
                yield from number_changes(older, newer)
            case "enum":
                yield from enum_changes(older, newer)
            case "combination":
                yield from self._combination_changes(older, newer)
            case "not":
                yield self._not_change(older, newer)
            case "condition":
                yield from self._condition_changes(older, newer)
            case "object":
                yield from object_changes(self, older.node, newer.node)
            case "array":
                yield from array_changes(self, older.node, newer.node)
            case _:
                return

    def _one_combined(self, older: Shape, newer: Shape) -> list[Change] | None:
        """Where only one side is a combination: the changes if a part of it, or all, stands for the whole."""
        if newer.kind == "combination" and older.kind != "combination":
            if len(newer.parts) > 1 and newer.criterion == "allOf":
                return None
            for part in newer.parts:
                changes = self.changes(older, part)
                if is_compatible(changes):
                    return changes if len(newer.parts) == 1 else [*changes, Change("SUM_TYPE_EXTENDED", "")]
        elif older.kind == "combination" and newer.kind != "combination":
            if len(older.parts) == 1 or older.criterion == "allOf":
                for part in older.parts:
                    changes = self.changes(part, newer)
                    if is_compatible(changes):
                        return changes if len(older.parts) == 1 else [*changes, Change("PRODUCT_TYPE_NARROWED", "")]
            elif all(self.are_compatible(part, newer) for part in older.parts):
                # Whichever was chosen, the one schema that is left takes it.
                return [Change("COMBINED_TYPE_EXTENDED", "")]
        return None

    def _combination_changes(self, older: Shape, newer: Shape) -> Iterator[Change]:
        criterion = _criterion_change(older, newer)
        if criterion is not None:
            yield Change(criterion, "")
            if criterion == "COMBINED_TYPE_CHANGED":
                return
        older_parts = list({spelling(part): part for part in older.parts}.values())
        newer_parts = list({spelling(part): part for part in newer.parts}.values())
        is_product = newer.criterion == "allOf"
        if len(older_parts) < len(newer_parts):
            yield Change("PRODUCT_TYPE_EXTENDED" if is_product else "SUM_TYPE_EXTENDED", "")
        elif len(older_parts) > len(newer_parts):
            yield Change("PRODUCT_TYPE_NARROWED" if is_product else "SUM_TYPE_NARROWED", "")
        places = dict(zip(map(id, older.parts), older.steps, strict=False))
        edges: dict[tuple[int, int], list[Change]] = {}
        for older_number, older_part in enumerate(older_parts):
            for newer_number, newer_part in enumerate(newer_parts):
                changes = self.changes(older_part, newer_part, places.get(id(older_part), ""))
                if is_compatible(changes):
                    edges[older_number, newer_number] = changes
        matching = largest_matching(edges.keys(), self.spend)
        for edge in matching:
            yield from edges[edge]
        if len(matching) < min(len(older_parts), len(newer_parts)):
            yield Change("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "")

    def _not_change(self, older: Shape, newer: Shape) -> Change:
        # What is excluded may only become less: the two sides change places.
        changes = self.changes(newer.node.child("not"), older.node.child("not"))
        return Change("NOT_TYPE_NARROWED" if is_compatible(changes) else "NOT_TYPE_EXTENDED", "not")

    def _condition_changes(self, older: Shape, newer: Shape) -> Iterator[Change]:
        """Branches can be compared where both sides branch alike; where they do not, no rule tells what still fits."""
        if dump(older.node.keywords["if"], is_sorted=True) != dump(newer.node.keywords["if"], is_sorted=True):
            yield Change("TYPE_CHANGED", "if")
            return
        for keyword in ("then", "else"):
            before, after = (
                shape.node.child(keyword) if keyword in shape.node.keywords else None for shape in (older, newer)
            )
            yield from self.changes(before, after, keyword)


def _criterion_change(older: Shape, newer: Shape) -> str | None:
    if older.criterion == newer.criterion:
        return None
    is_wider = newer.criterion == "anyOf" or (
        len(older.parts) == 1 and (newer.criterion == "oneOf" or len(newer.parts) == 1)
    )
    return "COMBINED_TYPE_EXTENDED" if is_wider else "COMBINED_TYPE_CHANGED"
