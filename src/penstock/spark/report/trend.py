"""A straight line through daily amounts, and how far off it may be. Plain functions of numbers.

Called by report.judging. Ordinary least squares with the prediction interval of one further day (Student's t, 95 %).
It knows no weekends, no campaigns and no limits: it says where things go if they go on as they did.
"""

import math
from collections.abc import Sequence

from penstock.spark.report.facts import Range, Trend

# Fewer points leave an interval so wide that a forecast would only look like one.
DAYS_MIN = 5

# Student's t, two-sided 95 %, by degrees of freedom; in between the smaller freedom (the wider interval) counts.
_T_95 = (
    (1, 12.706),
    (2, 4.303),
    (3, 3.182),
    (4, 2.776),
    (5, 2.571),
    (6, 2.447),
    (7, 2.365),
    (8, 2.306),
    (9, 2.262),
    (10, 2.228),
    (12, 2.179),
    (15, 2.131),
    (20, 2.086),
    (30, 2.042),
    (60, 2.0),
    (120, 1.98),
)


def fit(amounts: Sequence[float]) -> Trend | None:
    """The line through one amount per day; None if there are too few days."""
    count = len(amounts)
    if count < DAYS_MIN:
        return None
    mean_day = (count - 1) / 2
    mean = sum(amounts) / count
    spread = sum((day - mean_day) ** 2 for day in range(count))
    slope = sum((day - mean_day) * (amount - mean) for day, amount in enumerate(amounts)) / spread
    level = mean - slope * mean_day
    residual = sum((amount - level - slope * day) ** 2 for day, amount in enumerate(amounts))
    return Trend(count, slope, level, math.sqrt(residual / (count - 2)), mean_day, spread)


def predict(trend: Trend, day: float) -> Range:
    """The amount of a day, counted from the first one of the line. Never below nothing."""
    likely = trend.level + trend.slope * day
    distance = (day - trend.mean_day) ** 2 / trend.spread
    width = student_t(trend.days - 2) * trend.error * math.sqrt(1 + 1 / trend.days + distance)
    return Range(max(0.0, likely), max(0.0, likely - width), max(0.0, likely + width))


def student_t(freedom: int) -> float:
    assert freedom >= 1
    return min(value for known, value in _T_95 if known <= freedom)
