"""Rows as text: an object a line, lines of CSV, cells of a table. Plain functions.

Called by cli.sql. Laws:
- Bytes are shown as text where they are UTF-8, else in base64; times are ISO in UTC.
- Two columns of one name (SELECT a.key, b.key) both stay: the second is called key_2.
- Whatever JSON cannot hold (NaN, Infinity, a decimal's digits) is text.
"""

import base64
import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast


def column_names(names: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    chosen: list[str] = []
    for name in names:
        unique, number = name, 2
        # Regardless of case, as SQL has it.
        while unique.lower() in taken:
            unique, number = f"{name}_{number}", number + 1
        taken.add(unique.lower())
        chosen.append(unique)
    return chosen


def json_lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    for row in rows:
        document = {name: plain(value) for name, value in zip(names, row, strict=True)}
        yield json.dumps(document, ensure_ascii=False)


def csv_lines(names: Sequence[str], rows: Iterable[Sequence[Any]], *, has_header: bool = True) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    lines = [list(names)] if has_header else []
    for line in _chained(lines, rows):
        writer.writerow(line)
        yield buffer.getvalue()[:-1]
        buffer.seek(0)
        buffer.truncate()


def _chained(lines: list[list[str]], rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    yield from lines
    for row in rows:
        yield [cell(value) for value in row]


def cell(value: Any) -> str | int | float | None:
    """One value in a table or a CSV field: numbers stay numbers, what has parts is JSON."""
    simple = plain(value)
    if isinstance(simple, bool):
        return "true" if simple else "false"
    if simple is None or isinstance(simple, str | int | float):
        return simple
    return json.dumps(simple, ensure_ascii=False)


def plain(value: Any) -> Any:
    """What json.dumps takes."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        return _text_or_base64(bytes(value))
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, date | Decimal | timedelta):
        return str(value)
    # A Row is a tuple that knows its names; a plain tuple does not.
    fields = getattr(value, "__fields__", None)
    if fields is not None:
        return {
            name: plain(one) for name, one in zip(column_names(fields), cast("tuple[Any, ...]", value), strict=True)
        }
    if isinstance(value, dict):
        return {str(plain(name)): plain(one) for name, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in cast("Sequence[Any]", value)]
    return str(value)


def _text_or_base64(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _moment(value: datetime) -> str:
    # Within structs only (see views.readable): Spark hands it over in this machine's zone, without saying so.
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
