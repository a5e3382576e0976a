"""How a query is doing: Spark's progress reports, added up.

Called by pipeline.running. Pure: reports (dictionaries as Spark's JSON has them) in, a SinkProgress out. A report is
taken once, whatever the number of times it is seen; an idle query's repeated report of its last batch changes nothing.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from penstock.spark.errors import SparkFailure
from penstock.spark.offsets import Position


@dataclass
class SinkProgress:
    """`lag_rows` is what lay unread in topics when the last batch was planned; None where nobody can say."""

    sink: str
    state: str = "starting"
    batches: int = 0
    last_batch: int | None = None
    rows_in: int = 0
    rows_out: int | None = None
    rows_per_s: float = 0.0
    lag_rows: int | None = None
    batch_ms: int | None = None
    watermark: str | None = None
    restarts: int = 0
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def take(self, reports: Iterable[Mapping[str, Any]], written: Mapping[int, int], observed: str) -> bool:
        """Add what is new. Whether anything was."""
        is_new = False
        for report in reports:
            batch = int(report["batchId"])
            if self.last_batch is not None and batch <= self.last_batch:
                continue
            # An idle query reports the batch that it would do next, with nothing in it, again and again.
            if "addBatch" not in report.get("durationMs", {}) and not report.get("numInputRows"):
                continue
            is_new = True
            self.batches += 1
            self.last_batch = batch
            self.rows_in += int(report.get("numInputRows") or 0)
            out = _rows_out(report, written, observed)
            if out is not None:
                self.rows_out = (self.rows_out or 0) + out
            self.rows_per_s = round(float(report.get("processedRowsPerSecond") or 0.0), 1)
            self.batch_ms = int(report.get("durationMs", {}).get("triggerExecution") or 0)
            self.lag_rows = lag_of(report.get("sources") or [])
            self.watermark = (report.get("eventTime") or {}).get("watermark", self.watermark)
        return is_new


def lag_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Offsets between where the batch ends and where the topics ended; None when no source tells."""
    total: int | None = None
    for source in sources:
        end, latest = _position(source.get("endOffset")), _position(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        total = (total or 0) + sum(
            max(0, offset - end.offsets.get(at, offset)) for at, offset in latest.offsets.items()
        )
    return total


def _rows_out(report: Mapping[str, Any], written: Mapping[int, int], observed: str) -> int | None:
    batch = int(report["batchId"])
    if batch in written:
        return written[batch]
    metrics = (report.get("observedMetrics") or {}).get(observed)
    if metrics is not None:
        return int(metrics["rows"])
    rows = (report.get("sink") or {}).get("numOutputRows")
    return rows if isinstance(rows, int) and rows >= 0 else None


def _position(offset: Any) -> Position | None:
    """Offsets of a topic; those of files and other sources have another form."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, dict) or not offset:
        return None
    if not all(isinstance(each, dict) for each in cast(dict[str, Any], offset).values()):
        return None
    try:
        return Position.from_json(offset)
    except SparkFailure:
        return None
