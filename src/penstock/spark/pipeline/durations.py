"""Lengths of time as pipeline files write them: 10s, 1h30m, 500ms, or in Spark's words, `10 minutes`.

Called by pipeline.model.
"""

import re
from typing import Annotated

from pydantic import BeforeValidator

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WORDS = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d", "sec": "s", "min": "m"}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)[\s,]*")


def parse_duration_ms(text: object) -> int:
    """Raises ValueError with a sentence."""
    wrong = ValueError("this is no length of time; write it as 10s, 1h30m, 500ms or 10 minutes")
    if not isinstance(text, str):
        raise wrong
    total, position = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != position:
            raise wrong
        unit = part.group(2).lower()
        unit = _WORDS.get(unit.removesuffix("s") if len(unit) > 2 else unit, unit)
        if unit not in _UNITS_MS:
            raise wrong
        total += float(part.group(1)) * _UNITS_MS[unit]
        position = part.end()
    if position != len(text) or not text:
        raise wrong
    return round(total)


def interval(duration_ms: int) -> str:
    """As Spark takes it."""
    return f"{duration_ms} milliseconds"


DurationMs = Annotated[int, BeforeValidator(parse_duration_ms)]
