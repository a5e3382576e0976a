"""What the page and a topic on it have in common: a card with a chart, buckets as bars, a forecast as points.

Called by report.page and report.page_topic.
"""

from collections.abc import Sequence
from html import escape

from penstock.spark.report import wording
from penstock.spark.report.charts import Bar, Point, bars_over_time
from penstock.spark.report.facts import DAY_MS, Bucket, Range


def card(title: str, chart: str) -> str:
    return f'<div class="card"><h3>{escape(title)}</h3>{chart}</div>' if chart else ""


def bucket_chart(buckets: Sequence[Bucket], has_bytes: bool, *, is_hourly: bool = False) -> str:
    label = wording.hour if is_hourly else wording.day
    bars: list[Bar] = []
    for bucket in buckets:
        when = wording.minute(bucket.start_ms) if is_hourly else wording.full_day(bucket.start_ms)
        size = f", {wording.size(bucket.bytes)}" if bucket.bytes is not None else ""
        hint = f"{when}: {wording.whole(bucket.rows)} rows{size}{'' if bucket.is_complete else ' (not complete)'}"
        value = float(bucket.bytes or 0) if has_bytes else float(bucket.rows)
        bars.append(Bar(label(bucket.start_ms), value, hint, bucket.is_complete))
    title = f"{'Bytes' if has_bytes else 'Rows'} by {'hour' if is_hourly else 'day'}"
    return bars_over_time(bars, title, wording.size if has_bytes else wording.count)


def disk_points(stored_bytes: int | None, disk: Sequence[Range], now_ms: int) -> list[Point]:
    """From what is there today, which is known, into the days to come."""
    now = float(stored_bytes or 0)
    ahead = (
        Point(wording.day(now_ms + number * DAY_MS), one.likely, one.low, one.high)
        for number, one in enumerate(disk, start=1)
    )
    return [Point("today", now, now, now), *ahead]
