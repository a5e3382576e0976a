"""A visitor's events into sessions: one ends when nothing came for as long as the gap, by the time of the events.

The step `sessions` of pipeline.yaml. State per visitor is one row; a timer of event time closes a session that no
further event closes.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

STATE = "started LONG, ended LONG, pages INT, first_page STRING, last_page STRING"

Session = tuple[int, int, int, str, str]


class SessionProcessor(StatefulProcessor):
    def __init__(self, gap_minutes: int = 30) -> None:
        self._gap_ms = gap_minutes * 60_000

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getValueState("open", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        session: Session | None = self._open.get()
        before = session
        # Within a batch events come in any order; between batches, as late as the watermark allows.
        for row in sorted(rows, key=lambda row: row.at_ms):
            if session is not None and row.at_ms > session[1] + self._gap_ms:
                yield _closed(key, session)
                session = None
            session = _extended(session, row)
        if session is None:
            return
        if before is not None and before[1] != session[1]:
            self._handle.deleteTimer(before[1] + self._gap_ms)
        self._open.update(session)
        self._handle.registerTimer(session[1] + self._gap_ms)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        session = self._open.get()
        if session is not None:
            yield _closed(key, session)
            self._open.clear()

    def close(self) -> None:
        pass


def _extended(session: Session | None, row: Row) -> Session:
    if session is None:
        return row.at_ms, row.at_ms, 1, row.page, row.page
    started, ended, pages, first, last = session
    first = row.page if row.at_ms < started else first
    last = row.page if row.at_ms >= ended else last
    return min(started, row.at_ms), max(ended, row.at_ms), pages + 1, first, last


def _closed(key: Any, session: Session) -> Row:
    started, ended, pages, first, last = session
    return Row(
        user=key[0],
        started=datetime.fromtimestamp(started / 1000, UTC),
        ended=datetime.fromtimestamp(ended / 1000, UTC),
        pages=pages,
        first_page=first,
        last_page=last,
    )
