"""Which properties and items no keyword has spoken of: what `unevaluatedProperties` and `unevaluatedItems` judge.

Called by json_checks.py. A property or item is evaluated by a schema that names it, and by every schema beside or below
that one which the value fits: through references, combinations and conditions. Law: it is looked for only where the
keyword stands, so schemas without it pay nothing.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

from penstock.schemas.json_containers import named_otherwise, tuple_and_rest
from penstock.schemas.json_documents import SchemaNode
from penstock.schemas.json_keywords import Check, Compiler, Keyword
from penstock.schemas.json_values import Fault, Run


def _unevaluated_properties(compiler: Compiler, node: SchemaNode, value: Any) -> Check | None:
    rest_node = node.child("unevaluatedProperties")
    if rest_node is None:
        return None
    rest = compiler.checker(rest_node)
    evaluated = _evaluation(compiler, node, _property_marks, "unevaluatedProperties")

    def check(value: Any, run: Run) -> Fault | None:
        if not isinstance(value, dict):
            return None
        pairs = cast("dict[str, Any]", value)
        known: set[Any] = set()
        evaluated(value, run, known)
        for name in pairs.keys() - known:
            if rest_node.schema is False:
                return Fault(f"the property {name[:100]!r} is not allowed")
            if (fault := rest(pairs[name], run)) is not None:
                return fault.at(name)
        return None

    return check


def _unevaluated_items(compiler: Compiler, node: SchemaNode, value: Any) -> Check | None:
    rest_node = node.child("unevaluatedItems")
    if rest_node is None:
        return None
    rest = compiler.checker(rest_node)
    evaluated = _evaluation(compiler, node, _item_marks, "unevaluatedItems")

    def check(value: Any, run: Run) -> Fault | None:
        if not isinstance(value, list):
            return None
        items = cast("list[Any]", value)
        known: set[Any] = set()
        evaluated(value, run, known)
        for number, item in enumerate(items):
            if number not in known and (fault := rest(item, run)) is not None:
                return fault.at(number)
        return None

    return check


Mark = Callable[[Any, Run, set[Any]], None]
"""Adds to a set the properties or items of a value that a schema evaluates."""

_Marks = Callable[[Compiler, SchemaNode], Iterator[Mark]]


def _evaluation(compiler: Compiler, node: SchemaNode, marks: _Marks, keyword: str) -> Mark:
    """What the schema with the keyword evaluates, without the keyword itself."""
    made: dict[tuple[int, bool], list[Mark]] = {}

    def of(part: SchemaNode, *, is_top: bool) -> Mark:
        """Made when first needed: schemas may hold themselves."""

        def mark(value: Any, run: Run, known: set[Any]) -> None:
            run.enter()
            found = made.get((part.key, is_top))
            if found is None:
                found = made[part.key, is_top] = list(all_marks(part, is_top=is_top))
            for each in found:
                each(value, run, known)
            run.leave()

        return mark

    def all_marks(part: SchemaNode, *, is_top: bool) -> Iterator[Mark]:
        if not is_top and keyword in part.keywords:
            yield _everything
        yield from marks(compiler, part)
        referred = part.referred()
        if referred is not None:
            yield of(referred, is_top=False)
        for combination in ("allOf", "anyOf", "oneOf"):
            for branch in part.listed(combination):
                yield _where_fitting(compiler.checker(branch), of(branch, is_top=False), None)
        condition = part.child("if") if "if" in part.keywords else None
        if condition is not None:
            then, otherwise = (
                of(branch, is_top=False) if name in part.keywords and (branch := part.child(name)) else None
                for name in ("then", "else")
            )
            yield _where_fitting(compiler.checker(condition), of(condition, is_top=False), otherwise)
            if then is not None:
                yield _where_fitting(compiler.checker(condition), then, None)
        for name, branch in part.children("dependentSchemas"):
            yield _where_present(name, of(branch, is_top=False))

    return of(node, is_top=True)


def _everything(value: Any, run: Run, known: set[Any]) -> None:
    known.update(range(len(cast("list[Any]", value))) if isinstance(value, list) else value)


def _where_fitting(test: Check, mark: Mark, otherwise: Mark | None) -> Mark:
    def marked(value: Any, run: Run, known: set[Any]) -> None:
        if test(value, run) is None:
            mark(value, run, known)
        elif otherwise is not None:
            otherwise(value, run, known)

    return marked


def _where_present(name: str, mark: Mark) -> Mark:
    def marked(value: Any, run: Run, known: set[Any]) -> None:
        if isinstance(value, dict) and name in value:
            mark(value, run, known)

    return marked


def _property_marks(compiler: Compiler, node: SchemaNode) -> Iterator[Mark]:
    if "additionalProperties" in node.keywords:
        yield _everything
        return
    names, patterns = named_otherwise(compiler, node)

    def marked(value: Any, run: Run, known: set[Any]) -> None:
        for name in cast("dict[str, Any]", value) if isinstance(value, dict) else ():
            run.spend(1 + len(patterns) * (1 + (len(name) >> 6)))
            if name in names or any(pattern.may_match(name) for pattern in patterns):
                known.add(name)

    yield marked


def _item_marks(compiler: Compiler, node: SchemaNode) -> Iterator[Mark]:
    first, rest = tuple_and_rest(node)
    contains_node = node.child("contains") if node.draft.number >= 2020 and "contains" in node.keywords else None
    contains = None if contains_node is None else compiler.checker(contains_node)

    def marked(value: Any, run: Run, known: set[Any]) -> None:
        if not isinstance(value, list):
            return
        items = cast("list[Any]", value)
        run.spend(len(items))
        known.update(range(len(items) if rest is not None else min(len(first), len(items))))
        if contains is not None:
            known.update(number for number, item in enumerate(items) if contains(item, run) is None)

    yield marked


UNEVALUATED_KEYWORDS: dict[str, Keyword] = {
    "unevaluatedItems": Keyword(_unevaluated_items, since=2019),
    "unevaluatedProperties": Keyword(_unevaluated_properties, since=2019),
}
