"""Amounts as people write and read them: 1KB, 21.2 TB, 10Gbit, 1e9/day.

Called by cli.capacity and capacity.plan. Thousands, not 1024s, unless KiB and so on are written: disks and networks are
sold that way. What can't be read is a ValueError whose words are for whoever typed it.
"""

import math
import re

_UNITS = ("", "k", "M", "G", "T", "P")
_POWERS = {unit.lower(): power for power, unit in enumerate(_UNITS)}
_AMOUNT = re.compile(r"(\d{1,30}(?:\.\d{1,30})?(?:e[+]?\d{1,2})?)\s*([a-z]*)(/[a-z]+)?", re.IGNORECASE)
_PERIODS_S = {"/s": 1, "/sec": 1, "/m": 60, "/min": 60, "/h": 3600, "/hour": 3600, "/d": 86_400, "/day": 86_400}
# More than all of mankind's data; beyond it somebody mistyped.
AMOUNT_MAX = 1e24


def parse_bytes(text: str) -> float:
    """`100`, `1KB`, `1.5GB`, `16KiB`."""
    number, unit, period = _split(text)
    prefix = unit.removesuffix("b")
    bare = prefix.removesuffix("i")
    if period or bare not in _POWERS or prefix == "i":
        raise ValueError(f"{text!r} is no number of bytes; write it as 100, 1KB, 16KiB or 1.5TB")
    return _positive(text, number * (1000 if bare == prefix else 1024) ** _POWERS[bare])


def parse_bytes_per_s(text: str) -> float:
    """`10Gbit`, `125MB`, both a second whether or not that is said."""
    bare = text.strip().removesuffix("/s")
    number, unit, period = _split(bare)
    if unit.endswith("bit"):
        prefix = unit.removesuffix("bit")
        if period or prefix not in _POWERS:
            raise ValueError(f"{text!r} is no speed; write it as 1Gbit or 125MB")
        return _positive(text, number * 1000 ** _POWERS[prefix] / 8)
    return parse_bytes(bare)


def parse_rate(text: str) -> float:
    """Messages a second of `12000`, `20k/s`, `1e9/day`."""
    number, unit, period = _split(text)
    if unit not in _POWERS or (period and period not in _PERIODS_S):
        raise ValueError(f"{text!r} is no rate of messages; write it as 12000, 20k/s or 1e9/day")
    return _positive(text, number * 1000 ** _POWERS[unit] / _PERIODS_S.get(period, 1))


def render_amount(value: float, unit: str) -> str:
    """Bytes with three digits that matter and a prefix, as 21.2 TB or 1.50 GB/s; anything else in full."""
    if not unit.startswith("B"):
        number = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
        return f"{number} {unit}".rstrip()
    power = 0
    while value >= 999.5 and power < len(_UNITS) - 1:
        value /= 1000
        power += 1
    digits = 0 if value >= 99.5 or (power == 0 and value == int(value)) else 1 if value >= 9.95 else 2
    return f"{value:,.{digits}f} {_UNITS[power]}{unit}"


def _split(text: str) -> tuple[float, str, str]:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no amount; write a number, with a unit such as 1KB, 10Gbit or 1e9/day")
    number, unit, period = found.groups(default="")
    return float(number), unit.lower(), period.lower()


def _positive(text: str, value: float) -> float:
    if not 0 < value <= AMOUNT_MAX or not math.isfinite(value):
        raise ValueError(f"{text!r} has to be above zero and at most {AMOUNT_MAX:g}")
    return value
