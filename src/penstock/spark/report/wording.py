"""Numbers as people read them on the page and in the terminal: sizes, counts, money, days.

Called by report.page and cli.report. Sizes are decimal (GB = 10^9 bytes), as prices are.
"""

from datetime import UTC, datetime

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_COUNTS = ("", "k", "M", "G", "T")
UNKNOWN = "–"


def size(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return _scaled(value, _BYTES, " ")


def count(value: float | None) -> str:
    """Short: 12.3k."""
    return UNKNOWN if value is None else _scaled(value, _COUNTS, "")


def whole(value: float | None) -> str:
    """In full, with spaces that do not break."""
    return UNKNOWN if value is None else f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def money(value: float | None, currency: str | None) -> str:
    if value is None:
        return UNKNOWN
    digits = 2 if abs(value) >= 0.01 or value == 0 else 4
    return f"{value:,.{digits}f} {currency or ''}".strip()


def signed_size(value: float | None) -> str:
    return UNKNOWN if value is None else f"{'+' if value >= 0 else '-'}{size(abs(value))}"


def share(part: float, of: float) -> str:
    return UNKNOWN if not of else f"{100 * part / of:.1f} %"


def day(moment_ms: int) -> str:
    return _moment(moment_ms, "%d %b")


def full_day(moment_ms: int) -> str:
    return _moment(moment_ms, "%Y-%m-%d")


def hour(moment_ms: int) -> str:
    return _moment(moment_ms, "%H:%M")


def minute(moment_ms: int) -> str:
    return _moment(moment_ms, "%Y-%m-%d %H:%M UTC")


def _moment(moment_ms: int, layout: str) -> str:
    try:
        return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime(layout)
    except (ValueError, OverflowError, OSError):
        return str(moment_ms)


def _scaled(value: float, units: tuple[str, ...], gap: str) -> str:
    scaled, unit = float(value), units[0]
    for unit in units:
        if abs(scaled) < 999.5 or unit == units[-1]:
            break
        scaled /= 1000
    digits = 0 if unit == units[0] or abs(scaled) >= 100 or round(scaled, 1) == round(scaled) else 1
    return f"{scaled:.{digits}f}{gap}{unit}"
