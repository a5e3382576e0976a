"""JSON values as JSON Schema sees them: types, equality, and the work that looking at them may take.

Called by json_checks.py and json_unevaluated.py. Laws:
- 1 and 1.0 are equal, 1 and true are not; two values are equal exactly if frozen() gives the same.
- A Run ends with TooMuchWork after WORK_MAX steps or at DEPTH_MAX levels, whatever schema and value are.
"""

from collections.abc import Hashable, Mapping
from fractions import Fraction
from typing import Any, cast

WORK_MAX = 500_000
DEPTH_MAX = 200


class TooMuchWork(Exception):
    """The check was given up; the text says which limit it ran into."""


class Fault:
    """Why a value does not fit; `steps` lead to the place, innermost first."""

    __slots__ = ("reason", "steps")

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.steps: list[str] = []

    def at(self, step: str | int) -> "Fault":
        self.steps.append(str(step))
        return self

    def __str__(self) -> str:
        place = "/".join(reversed(self.steps))
        return f"/{place}: {self.reason}" if place else self.reason


class Run:
    """One check of one value: counts its steps."""

    __slots__ = ("depth", "left")

    def __init__(self, work_max: int | None = None) -> None:
        self.left = WORK_MAX if work_max is None else work_max
        self.depth = 0

    def enter(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise TooMuchWork(f"the value or the schema nests deeper than {DEPTH_MAX} levels")
        self.spend(1)

    def leave(self) -> None:
        self.depth -= 1

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork("checking the value takes too many steps; make the value or the schema smaller")


def frozen(value: Any, run: Run) -> Hashable:
    """Something that is equal for equal values only."""
    match value:
        case bool():
            return "boolean", value
        case str():
            run.spend(len(value) >> 6)
            return value
        case list():
            items = cast("list[Any]", value)
            run.spend(len(items))
            run.enter()
            made = "array", tuple(frozen(item, run) for item in items)
            run.leave()
            return made
        case dict():
            pairs = cast("dict[str, Any]", value)
            run.spend(len(pairs))
            run.enter()
            made = "object", frozenset((key, frozen(item, run)) for key, item in pairs.items())
            run.leave()
            return made
        case _:
            return value


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def fraction(number: float) -> Fraction:
    """The number as it is written: 0.1 is a tenth, not the double next to it."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def is_of_type(name: str, value: Any, draft_number: int) -> bool:
    match name:
        case "integer":
            # Draft 4 looks at how a number is written, the later ones at what it is.
            return is_number(value) and (isinstance(value, int) or (draft_number > 4 and value.is_integer()))
        case "number":
            return is_number(value)
        case _:
            wanted = _PYTHON_TYPES.get(name)
            return wanted is not None and isinstance(value, wanted)


_PYTHON_TYPES: Mapping[str, type] = {
    "string": str,
    "object": dict,
    "array": list,
    "boolean": bool,
    "null": type(None),
}
