"""Moments as v3 tells and takes them: ISO 8601 in UTC, with milliseconds; Kafka's own are milliseconds since 1970.

Called by v3_deliveries and rest.telling (told_time) and by v3_record_maker (read_time).
Law: read_time(told_time(x)) == x. All is counted in whole milliseconds: as fractions of a second some lose one.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from penstock.gateway.errors import HttpProblem
from penstock.gateway.rest.reading import integer

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999


# Records come in bursts, many to a millisecond, and a date takes as long to write as the rest of a report.
@lru_cache(maxsize=1024)
def told_time(timestamp_ms: int) -> str:
    moment = _BEGINNING + max(0, min(timestamp_ms, _TIME_MS_MAX)) * _MILLISECOND
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_time(given: Any) -> int:
    """Text, or milliseconds since 1970; 0 for none."""
    if given is None:
        return 0
    if isinstance(given, int):
        return integer(given, "timestamp", 0, _TIME_MS_MAX, status=400)
    try:
        moment = datetime.fromisoformat(given)
        at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return integer((at - _BEGINNING) // _MILLISECOND, "timestamp", 0, _TIME_MS_MAX, status=400)
    except (ValueError, OverflowError):
        raise HttpProblem(400, 400, f"{given[:60]!r} is no time: write it as 2026-01-31T12:00:00Z.") from None
