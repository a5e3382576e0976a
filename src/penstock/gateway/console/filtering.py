"""Which records a reader wants to see: by text, by regular expression, or by a path into JSON.

Called by scanning, for every record it reads, in the reader's thread.
Laws: a pattern costs time in proportion to what it reads (RE2, no backtracking); a condition never raises on any value.
"""

import importlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, cast

from penstock.gateway.console.asking import refuse

FILTER_MAX = 1000
STEPS_MAX = 50
VALUES_MAX = 10_000
KINDS = ("text", "regex", "json")
WHERE = ("any", "key", "value", "headers")

Condition = Callable[[str], bool]

_PATH = re.compile(r"""\.([A-Za-z_$][\w$-]*)|\[(\d{1,9})\]|\[\*\]|\[("(?:[^"\\]|\\.)*")\]""")
_OPERATOR = re.compile(r"\s*(==|!=|>=|<=|=|>|<|contains\b|exists\b)?\s*(.*?)\s*$", re.DOTALL)
_ALL = object()
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {">": gt, "<": lt, ">=": ge, "<=": le}


@dataclass(frozen=True, slots=True)
class Filter:
    where: str
    matches: Condition

    def wants(self, key: str, value: str, headers: Iterable[tuple[str, str]]) -> bool:
        if self.where in ("any", "key") and self.matches(key):
            return True
        if self.where in ("any", "value") and self.matches(value):
            return True
        if self.where in ("any", "headers"):
            return any(self.matches(f"{name}: {text}") or self.matches(text) for name, text in headers)
        return False


def make_filter(kind: str, where: str, wanted: str) -> Filter:
    """Raises HttpProblem where it makes no sense."""
    match kind:
        case "text":
            sought = wanted.casefold()
            return Filter(where, lambda text: sought in text.casefold())
        case "regex":
            return Filter(where, _regex(wanted))
        case _:
            return Filter(where, parse_condition(wanted))


def _regex(pattern: str) -> Condition:
    re2: Any = importlib.import_module("re2")  # it comes without types
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise refuse(f"the regular expression is wrong: {error}") from None
    return lambda text: compiled.search(text) is not None


def parse_condition(condition: str) -> Condition:
    """`$.user.id == 7`, `$.items[0].name contains "x"`, `$.items[*].price > 10`, `$.error exists`."""
    rest = condition.strip()
    if not rest.startswith("$"):
        raise refuse("a JSON path begins with $, as in: $.customer.id == 7")
    rest, steps = rest[1:], list[Any]()
    while (found := _PATH.match(rest)) is not None:
        name, index, quoted = found.groups()
        if quoted is not None:
            steps.append(json.loads(quoted))
        else:
            steps.append(name if name is not None else int(index) if index is not None else _ALL)
        rest = rest[found.end() :]
        if len(steps) > STEPS_MAX:
            raise refuse(f"a JSON path has at most {STEPS_MAX} steps")
    told = _OPERATOR.match(rest)
    operator, operand = told.groups() if told is not None else (None, rest)
    if operator is None and operand:
        raise refuse(f"the JSON path is not understood from here on: {operand[:40]}")
    if operator in (None, "exists"):
        return lambda text: bool(_select(text, steps))
    if not operand:
        raise refuse(f"say what to compare with after {operator}")
    compare = _comparison(operator, _literal(operand))
    return lambda text: any(compare(value) for value in _select(text, steps))


def _literal(operand: str) -> Any:
    try:
        return json.loads(operand)
    except ValueError:
        return operand.strip("'")  # $.state == open is plain enough


def _comparison(operator: str, operand: Any) -> Callable[[Any], bool]:
    match operator:
        case "=" | "==":
            return lambda value: _same(value, operand)
        case "!=":
            return lambda value: not _same(value, operand)
        case "contains":
            sought = str(operand).casefold()
            return lambda value: sought in (value if isinstance(value, str) else json.dumps(value)).casefold()
        case _:
            return lambda value: _ordered(operator, value, operand)


def _same(value: Any, operand: Any) -> bool:
    # To Python True == 1; to JSON not.
    return isinstance(value, bool) == isinstance(operand, bool) and value == operand


def _ordered(operator: str, value: Any, operand: Any) -> bool:
    is_number = isinstance(value, int | float) and isinstance(operand, int | float)
    if not is_number and not (isinstance(value, str) and isinstance(operand, str)):
        return False
    return _ORDERS[operator](value, operand)


def _select(text: str, steps: Sequence[Any]) -> list[Any]:
    """Every value that the path leads to; none where the text is no JSON."""
    try:
        found: list[Any] = [json.loads(text)]
    except (ValueError, RecursionError):
        return []
    for step in steps:
        further: list[Any] = []
        for value in found:
            if step is _ALL:
                inside: Iterable[Any] = (
                    cast("dict[str, Any]", value).values()
                    if isinstance(value, dict)
                    else cast("list[Any]", value)
                    if isinstance(value, list)
                    else ()
                )
                further.extend(inside)
            elif isinstance(value, dict) and isinstance(step, str) and step in value:
                further.append(cast("dict[str, Any]", value)[step])
            elif isinstance(value, list) and isinstance(step, int) and step < len(cast("list[Any]", value)):
                further.append(cast("list[Any]", value)[step])
            if len(further) > VALUES_MAX:
                break
        found = further[:VALUES_MAX]
    return found
