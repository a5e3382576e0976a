"""Names, sizes and moments as people read them.

Called by whatever is shown to somebody: commands, findings of the doctor, the console.
"""

from datetime import UTC, datetime

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_CONTROL_CHARACTERS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


def safe_text(text: str) -> str:
    """Names come from whoever made them; what a terminal would obey is shown instead."""
    return text.translate(_CONTROL_CHARACTERS)


def render_size(size: int | None) -> str | None:
    """Bytes as people read them."""
    if size is None:
        return None
    value = float(size)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return None


def render_duration(seconds: float | None) -> str | None:
    """The two largest units, as 3.2 s, 4 min 10 s, 2 h 5 min, 3 d 4 h."""
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.1f} s"
    for unit, length, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= length:
            whole, rest = divmod(int(seconds), length)
            return f"{whole} {unit} {rest // part} {smaller}"
    raise AssertionError(seconds)


def render_moment(timestamp_ms: int | None) -> str | None:
    """As ISO has it, in UTC; None where there is no time."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)  # beyond the year 9999: whoever wrote it had another unit in mind
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
