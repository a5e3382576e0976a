"""JSON Schema's keywords, each as a function that makes a check out of its value.

Called by json_checks.py. A check gives a Fault or None. Laws:
- A check pays for what it does (Run.spend) where that depends on the size of the value or of the schema.
- Reasons never quote the value: it may be large, and it is not for every log.
- A keyword looks only at values of its type: `minLength` says nothing about numbers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from penstock.schemas.json_documents import SchemaNode
from penstock.schemas.json_patterns import Pattern
from penstock.schemas.json_values import Fault, Run, fraction, frozen, is_number, is_of_type

_FOREVER = 9999
_NAMES_SHOWN_MAX = 5

Check = Callable[[Any, Run], Fault | None]


class Compiler(Protocol):
    """What a keyword needs to know while it is made."""

    def checker(self, node: SchemaNode) -> Check: ...

    def pattern(self, source: str) -> Pattern: ...


Make = Callable[[Compiler, SchemaNode, Any], Check | None]
_Compare = Callable[[Any, Any], bool]


class Keyword(NamedTuple):
    """How a keyword becomes a check, and in which drafts there is one."""

    make: Make
    since: int = 0
    until: int = _FOREVER


def _type(compiler: Compiler, node: SchemaNode, value: Any) -> Check:
    names = [value] if isinstance(value, str) else cast("list[str]", value)
    draft, wanted = node.draft.number, " or ".join(names)

    def check(value: Any, run: Run) -> Fault | None:
        run.spend(len(names))
        return None if any(is_of_type(name, value, draft) for name in names) else Fault(f"is no {wanted}")

    return check


def _enum(compiler: Compiler, node: SchemaNode, value: Any) -> Check:
    allowed = {frozen(item, Run()) for item in value}

    def check(value: Any, run: Run) -> Fault | None:
        return None if frozen(value, run) in allowed else Fault("is none of the values that the schema lists")

    return check


def _const(compiler: Compiler, node: SchemaNode, value: Any) -> Check:
    return _enum(compiler, node, [value])


def _limit(is_fine: _Compare, words: str) -> Make:
    def make(compiler: Compiler, node: SchemaNode, limit: Any) -> Check | None:
        if not is_number(limit):
            return None

        def check(value: Any, run: Run) -> Fault | None:
            return Fault(f"{words} {limit}") if is_number(value) and not is_fine(value, limit) else None

        return check

    return make


def _bound(keyword: str, is_fine: _Compare, is_fine_exclusive: _Compare, words: str) -> Make:
    """`minimum` and `maximum`, which in draft 4 a neighbour that is `true` makes exclusive."""

    def make(compiler: Compiler, node: SchemaNode, limit: Any) -> Check | None:
        is_exclusive = node.keywords.get(keyword) is True
        return _limit(is_fine_exclusive if is_exclusive else is_fine, words)(compiler, node, limit)

    return make


def _multiple_of(compiler: Compiler, node: SchemaNode, value: Any) -> Check:
    step = fraction(value)

    def check(value: Any, run: Run) -> Fault | None:
        if not is_number(value):
            return None
        return Fault(f"is no multiple of {step}") if fraction(value) % step else None

    return check


def _size(kind: type, words: str, *, is_most: bool) -> Callable[[Compiler, SchemaNode, Any], Check]:
    def make(compiler: Compiler, node: SchemaNode, limit: Any) -> Check:
        def check(value: Any, run: Run) -> Fault | None:
            if not isinstance(value, kind):
                return None
            size = len(value)
            if size > limit if is_most else size < limit:
                return Fault(f"has {size} {words}, {'more' if is_most else 'fewer'} than {limit}")
            return None

        return check

    return make


def _pattern(compiler: Compiler, node: SchemaNode, value: Any) -> Check:
    pattern = compiler.pattern(value)

    def check(value: Any, run: Run) -> Fault | None:
        if not isinstance(value, str):
            return None
        run.spend(len(value) >> 6)
        return None if pattern.may_match(value) else Fault(f"does not match {pattern.source!r}")

    return check


def _unique_items(compiler: Compiler, node: SchemaNode, value: Any) -> Check | None:
    if value is not True:
        return None

    def check(value: Any, run: Run) -> Fault | None:
        if not isinstance(value, list):
            return None
        items = cast("list[Any]", value)
        run.spend(len(items))
        seen = {frozen(item, run) for item in items}
        return None if len(seen) == len(items) else Fault("holds the same item twice")

    return check


def _required(compiler: Compiler, node: SchemaNode, value: Any) -> Check:
    names = cast("list[str]", value)

    def check(value: Any, run: Run) -> Fault | None:
        if not isinstance(value, dict):
            return None
        run.spend(len(names))
        missing = [name for name in names if name not in value]
        shown = ", ".join(repr(name) for name in missing[:_NAMES_SHOWN_MAX])
        return Fault(f"lacks the required {shown}") if missing else None

    return check


def _combination(keyword: str) -> Callable[[Compiler, SchemaNode, Any], Check]:
    def make(compiler: Compiler, node: SchemaNode, value: Any) -> Check:
        checks = [compiler.checker(branch) for branch in node.listed(keyword)]

        def all_of(value: Any, run: Run) -> Fault | None:
            for check in checks:
                fault = check(value, run)
                if fault is not None:
                    return fault
            return None

        def any_of(value: Any, run: Run) -> Fault | None:
            faults: list[Fault] = []
            for check in checks:
                fault = check(value, run)
                if fault is None:
                    return None
                faults.append(fault)
            # With one branch its own fault says more than that no branch fits.
            return faults[0] if len(faults) == 1 else Fault(f"fits none of the {len(checks)} schemas of anyOf")

        def one_of(value: Any, run: Run) -> Fault | None:
            fitting = 0
            for check in checks:
                fitting += check(value, run) is None
                if fitting > 1:
                    return Fault("fits more than one of the schemas of oneOf")
            return None if fitting else Fault(f"fits none of the {len(checks)} schemas of oneOf")

        return {"allOf": all_of, "anyOf": any_of, "oneOf": one_of}[keyword]

    return make


def _not(compiler: Compiler, node: SchemaNode, value: Any) -> Check | None:
    inner = node.child("not")
    if inner is None:
        return None
    check_inner = compiler.checker(inner)

    def check(value: Any, run: Run) -> Fault | None:
        return Fault("fits a schema that it must not fit") if check_inner(value, run) is None else None

    return check


def _if(compiler: Compiler, node: SchemaNode, value: Any) -> Check | None:
    condition = node.child("if")
    if condition is None:
        return None
    test = compiler.checker(condition)
    then, otherwise = (
        compiler.checker(branch) if keyword in node.keywords and (branch := node.child(keyword)) is not None else None
        for keyword in ("then", "else")
    )

    def check(value: Any, run: Run) -> Fault | None:
        branch = then if test(value, run) is None else otherwise
        return None if branch is None else branch(value, run)

    return check


KEYWORDS: dict[str, Keyword] = {
    "type": Keyword(_type),
    "enum": Keyword(_enum),
    "const": Keyword(_const, since=6),
    "minimum": Keyword(_bound("exclusiveMinimum", lambda v, m: v >= m, lambda v, m: v > m, "is less than")),
    "maximum": Keyword(_bound("exclusiveMaximum", lambda v, m: v <= m, lambda v, m: v < m, "is more than")),
    "exclusiveMinimum": Keyword(_limit(lambda v, m: v > m, "is not more than")),
    "exclusiveMaximum": Keyword(_limit(lambda v, m: v < m, "is not less than")),
    "multipleOf": Keyword(_multiple_of),
    "minLength": Keyword(_size(str, "characters", is_most=False)),
    "maxLength": Keyword(_size(str, "characters", is_most=True)),
    "minItems": Keyword(_size(list, "items", is_most=False)),
    "maxItems": Keyword(_size(list, "items", is_most=True)),
    "minProperties": Keyword(_size(dict, "properties", is_most=False)),
    "maxProperties": Keyword(_size(dict, "properties", is_most=True)),
    "required": Keyword(_required),
    "pattern": Keyword(_pattern),
    "uniqueItems": Keyword(_unique_items),
    "allOf": Keyword(_combination("allOf")),
    "anyOf": Keyword(_combination("anyOf")),
    "oneOf": Keyword(_combination("oneOf")),
    "not": Keyword(_not),
    "if": Keyword(_if, since=7),
}
