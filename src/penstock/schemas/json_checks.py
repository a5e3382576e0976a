"""Does a value fit a JSON Schema? The schema compiled to checks, run with a count of its steps.

Called by json_schema.py, for values and, with the metaschemas, for schemas themselves. The `jsonschema` library judges
the same in the tests; it is not used here because its time cannot be bounded (Python's backtracking expressions, pairs
of items compared one by one, errors that print the whole value, and 15 seconds for a schema of a mebibyte). Laws:
- Compiling follows every reference that can be reached, so a schema that compiles has none that leads nowhere.
- A check ends after WORK_MAX steps: what a schema and a value cost together is counted, keyword by keyword.
- `format` is an annotation and never makes a value invalid.
"""

from collections.abc import Mapping
from typing import Any

from penstock.schemas.json_containers import CONTAINER_KEYWORDS
from penstock.schemas.json_documents import SchemaNode
from penstock.schemas.json_keywords import KEYWORDS, Check, Keyword
from penstock.schemas.json_patterns import Pattern
from penstock.schemas.json_unevaluated import UNEVALUATED_KEYWORDS
from penstock.schemas.json_values import Fault, Run
from penstock.schemas.schema import SchemaError

PATTERNS_MAX = 500


class Checker:
    """One schema's keywords in order; filled in after it is made, since they may lead back to it."""

    __slots__ = ("keywords", "node")

    def __init__(self, node: SchemaNode) -> None:
        self.node = node
        self.keywords: tuple[Check, ...] = ()

    def __call__(self, value: Any, run: Run) -> Fault | None:
        run.enter()
        for keyword in self.keywords:
            fault = keyword(value, run)
            if fault is not None:
                run.leave()
                return fault
        run.leave()
        return None


class Checks:
    """The checks of a document and of all it refers to."""

    def __init__(self, root: SchemaNode) -> None:
        self.patterns: dict[str, Pattern] = {}
        self._checkers: dict[int, Checker] = {}
        self._to_fill: list[Checker] = []
        self._root = self.checker(root)
        # One by one instead of one within the other: a chain of references may be longer than the stack.
        while self._to_fill:
            self._fill(self._to_fill.pop())

    def fault(self, value: Any, run: Run) -> Fault | None:
        return self._root(value, run)

    def checker(self, node: SchemaNode) -> Checker:
        made = self._checkers.get(node.key)
        if made is None:
            made = self._checkers[node.key] = Checker(node)
            self._to_fill.append(made)
        return made

    def pattern(self, source: str) -> Pattern:
        made = self.patterns.get(source)
        if made is None:
            if len(self.patterns) >= PATTERNS_MAX:
                raise SchemaError(f"the schema has more than {PATTERNS_MAX} patterns")
            made = self.patterns[source] = Pattern(source)
        return made

    def _fill(self, checker: Checker) -> None:
        node = checker.node
        if node.schema is False:
            checker.keywords = (_refuse_all,)
            return
        made: list[Check] = []
        referred = node.referred()
        if referred is not None:
            # Raises where nothing but references follow one another in a circle.
            node.target()
            made.append(self.checker(referred))
        if referred is None or node.draft.has_ref_siblings:
            # As in the table, not as in the schema: cheap keywords first, and those that look at others last.
            for name, keyword in _TABLE.items():
                if name in node.keywords and keyword.since <= node.draft.number <= keyword.until:
                    check = keyword.make(self, node, node.keywords[name])
                    if check is not None:
                        made.append(check)
        checker.keywords = tuple(made)


def _refuse_all(value: Any, run: Run) -> Fault:
    return Fault("the schema allows no value here")


_TABLE: Mapping[str, Keyword] = {**KEYWORDS, **CONTAINER_KEYWORDS, **UNEVALUATED_KEYWORDS}
