"""From what was measured to what follows: trend, forecast, cost, and what a reader should know about the numbers.

Called by cli.report. Plain functions: facts in, judgements out; no clock, no network.

The method, which report.page also tells its reader: a straight line through the complete days gives what will come in.
What goes out is what retention removes, which is what came in that long ago. Bounds of a sum are sums of bounds, as if
every day erred to the same side: too wide rather than too narrow.
"""

import math
from collections.abc import Sequence

from penstock.spark.report.facts import DAY_MS, GB, Bucket, Cost, DeepFacts, Forecast, Judged, Range, Topic, Trend
from penstock.spark.report.prices import Prices
from penstock.spark.report.trend import DAYS_MIN, fit, predict

MEAN_OF_DAYS = 7
DAYS_A_MONTH = 30
# What one partition should carry in its busiest hour; a careful figure for one consumer that does some work.
PARTITION_BYTES_PER_S = 5_000_000
# Where only whole days are known: busiest hour against the mean of a day, a common shape of human traffic.
PEAK_SHARE_ASSUMED = 3.0


def judge(
    topic: Topic,
    horizon_days: int,
    prices: Prices | None = None,
    deep: DeepFacts | None = None,
    partition_bytes_per_s: float = PARTITION_BYTES_PER_S,
) -> Judged:
    complete = [bucket for bucket in topic.days if bucket.is_complete]
    amounts = [float(bucket.bytes) for bucket in complete if bucket.bytes is not None]
    # After compaction the past holds less than came in then: a line through it would always point up.
    trend = None if topic.settings.is_compacted else fit(amounts)
    incoming = _mean(amounts[-MEAN_OF_DAYS:])
    return Judged(
        topic,
        trend,
        incoming,
        _mean([float(bucket.rows) for bucket in complete[-MEAN_OF_DAYS:]]),
        None if trend is None else forecast(topic, trend, horizon_days, partition_bytes_per_s),
        None if prices is None else cost(topic, incoming, prices),
        deep,
        tuple(_notes(topic, trend, len(amounts))),
    )


def forecast(topic: Topic, trend: Trend, horizon_days: int, partition_bytes_per_s: float) -> Forecast | None:
    if topic.stored_bytes is None or not topic.bytes:
        return None
    # The line's day 0 is the first complete day; today is not complete, so it comes right after the last.
    today = predict(trend, trend.days)
    incoming = tuple(predict(trend, trend.days + ahead) for ahead in range(1, horizon_days + 1))
    copies = topic.stored_bytes / topic.bytes
    disk: list[Range] = []
    # What is missing of today still comes in, and what is due today still goes.
    seen_today = float(topic.days[-1].bytes or 0) if topic.days else 0.0
    held = float(topic.bytes) - _due(topic)
    level = Range(*(held + max(0.0, bound - seen_today) for bound in (today.likely, today.low, today.high)))
    for ahead, arriving in enumerate(incoming, start=1):
        leaving = _leaving(topic, today, incoming, ahead)
        level = Range(
            _bounded(topic, level.likely + arriving.likely - leaving.likely),
            # What leaves on a poor course was let in on the same poor course: it errs to the same side.
            _bounded(topic, level.low + arriving.low - leaving.low),
            _bounded(topic, level.high + arriving.high - leaving.high),
        )
        disk.append(Range(level.likely * copies, level.low * copies, level.high * copies))
    last = incoming[-1] if incoming else Range(0, 0, 0)
    peak = peak_share(topic.hours)
    return Forecast(
        tuple(disk),
        incoming,
        topic.partitions,
        partitions_for(last.likely, peak, partition_bytes_per_s),
        partitions_for(last.high, peak, partition_bytes_per_s),
    )


def partitions_for(bytes_a_day: float, peak: float, partition_bytes_per_s: float) -> int:
    return max(1, math.ceil(bytes_a_day / 86_400 * peak / partition_bytes_per_s))


def peak_share(hours: Sequence[Bucket]) -> float:
    """The busiest complete hour as a multiple of the mean one."""
    amounts = [bucket.rows for bucket in hours if bucket.is_complete]
    mean = _mean([float(amount) for amount in amounts])
    return max(amounts) / mean if mean and len(amounts) >= 12 else PEAK_SHARE_ASSUMED


def cost(topic: Topic, incoming_bytes_a_day: float | None, prices: Prices) -> Cost:
    """Of a month. What is not known costs nothing here, and the notes say that it is not known."""
    a_month = (incoming_bytes_a_day or 0.0) * DAYS_A_MONTH / GB
    return Cost(
        storage=(topic.stored_bytes or 0) / GB * prices.storage_gb_month,
        incoming=a_month * prices.incoming_gb,
        outgoing=a_month * prices.fan_out * prices.outgoing_gb,
        partitions=topic.partitions * 24 * DAYS_A_MONTH * prices.partition_hour,
    )


def _leaving(topic: Topic, today: Range, incoming: Sequence[Range], ahead: int) -> Range:
    """What retention removes on a day to come: what came in `retention.ms` before it."""
    settings = topic.settings
    if not settings.deletes or settings.retention_ms is None:
        return Range(0, 0, 0)
    # Counted from today (0): days to come are predicted, days of the window were seen, older ones are spread evenly.
    day = ahead - _kept_days(settings.retention_ms)
    if day >= 0:
        return (today, *incoming)[day]
    seen = len(topic.days) - 1 + day
    amount = float(topic.days[seen].bytes or 0) if seen >= 0 else _older_a_day(topic)
    return Range(amount, amount, amount)


def _due(topic: Topic) -> float:
    """What retention has yet to remove by the end of today: all that is older than the days it keeps."""
    settings = topic.settings
    if not settings.deletes or settings.retention_ms is None or topic.bytes is None:
        return 0.0
    kept = _kept_days(settings.retention_ms)
    if kept > len(topic.days):
        return _older_a_day(topic)
    return max(0.0, topic.bytes - float(sum(bucket.bytes or 0 for bucket in topic.days[-kept:])))


def _kept_days(retention_ms: int) -> int:
    return max(1, round(retention_ms / DAY_MS))


def _older_a_day(topic: Topic) -> float:
    if not topic.days or topic.oldest_ms is None or topic.bytes is None:
        return 0.0
    older_ms = topic.days[0].start_ms - topic.oldest_ms
    if older_ms <= 0:
        return 0.0
    older_bytes = topic.bytes - sum(bucket.bytes or 0 for bucket in topic.days)
    return max(0.0, older_bytes / max(1.0, older_ms / DAY_MS))


def _bounded(topic: Topic, level: float) -> float:
    limit = topic.settings.retention_bytes
    if limit is not None and topic.settings.deletes:
        level = min(level, float(limit) * topic.partitions)
    return max(0.0, level)


def _notes(topic: Topic, trend: Trend | None, days: int) -> list[str]:
    notes: list[str] = []
    if topic.bytes is None:
        notes.append("No broker told the size of its logs: bytes, cost of storage and forecast are missing.")
    if topic.settings.is_compacted:
        notes.append("Compacted: past days hold only what compaction left, so there is no trend and no forecast.")
    elif trend is None and topic.bytes is not None:
        notes.append(f"{days} complete days are too few for a trend; it takes {DAYS_MIN}.")
    elif trend is not None and trend.level + trend.slope * (trend.days + 1) < 0:
        notes.append("The line falls below nothing: it is cut off there.")
    return notes


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
