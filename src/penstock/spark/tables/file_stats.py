"""What Delta's log says about a file: how many rows, and the bounds of its columns, so that readers can leave it out.

Called by data_files in tasks, on the footer of each file.
Law: bounds hold. A column whose bounds could be wrong or long (fractions, long text, nested values) has none.
"""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

TEXT_MAX = 64
_MILLISECOND = timedelta(milliseconds=1)


def delta_stats(footer: Any) -> str:
    """The `stats` of an add action, as JSON."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for slot, path in enumerate(_flat_columns(footer)):
        if path is None:
            continue
        parts = [footer.row_group(group).column(slot).statistics for group in range(footer.num_row_groups)]
        if any(part is None or part.null_count is None for part in parts):
            continue
        nulls[path] = sum(part.null_count for part in parts)
        bounded = [part for part in parts if part.has_min_max]
        # A group of nulls alone has no bounds and needs none.
        if not bounded or any(not part.has_min_max and part.num_values for part in parts):
            continue
        try:
            bounds = _bounds(min(part.min for part in bounded), max(part.max for part in bounded))
        except (OverflowError, ValueError):
            # Python's calendar ends with 9999, and a producer may stamp a record with any time.
            bounds = None
        if bounds is not None:
            lowest[path], highest[path] = bounds
    document = {"numRecords": footer.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(document, separators=(",", ":"))


def _flat_columns(footer: Any) -> list[str | None]:
    """Names of the leaf columns; None for the leaves of nested ones."""
    columns = [footer.schema.column(slot) for slot in range(footer.num_columns)]
    return [column.name if column.path == column.name else None for column in columns]


def _bounds(low: Any, high: Any) -> tuple[Any, Any] | None:
    if isinstance(low, bool):
        return None
    if isinstance(low, int):
        return low, high
    if isinstance(low, str):
        return (low, high) if len(low) <= TEXT_MAX and len(high) <= TEXT_MAX else None
    if isinstance(low, datetime):
        # Milliseconds, as Delta's own writers have it: rounded away from the values.
        return _moment(low), _moment(high + _MILLISECOND - timedelta(microseconds=1))
    if isinstance(low, date):
        return low.isoformat(), high.isoformat()
    return None


def _moment(value: datetime) -> str:
    text = value.astimezone(UTC) if value.tzinfo else value
    return text.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
