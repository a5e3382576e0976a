"""JSON text in and out, as the schema parsers need it: strict, bounded, in one spelling.

Called by avro.py and json_schema.py. Laws:
- What load() gives nests at most JSON_DEPTH_MAX deep, holds finite numbers that fit a double, and only text that UTF-8
  can carry: so no later walk over it runs out of stack, and writing it never fails.
- dump(load(text)) keeps the order of keys, and every value.
"""

import json
from collections.abc import Iterator
from typing import Any, NoReturn, cast

from penstock.schemas.schema import SchemaError

JSON_DEPTH_MAX = 200
_INTEGER_DIGITS_MAX = 300


def load(text: str) -> Any:
    """The value in `text`; SchemaError where it is no JSON or goes past a limit."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_small_enough)
    except json.JSONDecodeError as error:
        raise SchemaError(f"the schema is no JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _too_deep() from None
    for depth, _ in enumerate(_levels(value)):
        if depth > JSON_DEPTH_MAX:
            raise _too_deep()
    # Half a character can stand in a Python string, either as such or by an escape, but in no answer we send.
    try:
        (dump(value) if "\\" in text else text).encode()
    except UnicodeEncodeError:
        raise SchemaError("the schema holds half of a surrogate pair, which is no character") from None
    return value


def dump(value: object, *, is_sorted: bool = False) -> str:
    """The shortest text of a value; `is_sorted`: with the keys of every object in order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=is_sorted)


def _levels(value: Any) -> Iterator[list[Any]]:
    """The containers of a value, level by level."""
    level: list[Any] = [value]
    while level:
        yield level
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += cast("dict[str, Any]", item).values()
            elif isinstance(item, list):
                below += cast("list[Any]", item)
        level = below


def _too_deep() -> SchemaError:
    return SchemaError(f"the schema nests deeper than {JSON_DEPTH_MAX} levels; give inner types a name of their own")


def _refuse_constant(name: str) -> NoReturn:
    raise SchemaError(f"the schema is no JSON: it holds {name}")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise SchemaError(f"the schema holds the number {digits[:40]}, which is too large")
    return number


def _small_enough(digits: str) -> int:
    if len(digits) > _INTEGER_DIGITS_MAX:
        raise SchemaError(f"the schema holds a whole number of more than {_INTEGER_DIGITS_MAX} digits")
    return int(digits)
