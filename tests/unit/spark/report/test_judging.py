"""Trend, forecast and cost out of measured numbers."""

import math
from dataclasses import replace

import pytest

from penstock.spark.report.facts import DAY_MS, GB, HOUR_MS, Bucket, Settings, Topic
from penstock.spark.report.judging import PEAK_SHARE_ASSUMED, cost, judge, partitions_for, peak_share
from penstock.spark.report.prices import Prices
from penstock.spark.report.trend import DAYS_MIN, fit, predict, student_t

NOW_MS = 1_790_035_200_000 + 12 * HOUR_MS  # noon


def topic(amounts: list[int], today: int = 0, copies: int = 1, kept_days: float | None = None) -> Topic:
    """Days of these amounts, all complete but today; 100 bytes a row."""
    first_ms = NOW_MS - NOW_MS % DAY_MS - len(amounts) * DAY_MS
    days = [Bucket(first_ms + DAY_MS * slot, amount // 100, amount, True) for slot, amount in enumerate(amounts)]
    days.append(Bucket(first_ms + DAY_MS * len(amounts), today // 100, today, False))
    held = sum(amounts) + today
    settings = Settings("delete", None if kept_days is None else int(kept_days * DAY_MS))
    return Topic("t", 4, copies, held // 100, held, held * copies, first_ms - 1, tuple(days), (), settings)


def test_the_line_through_a_line_is_itself_and_certain() -> None:
    trend = fit([100.0 + 7 * day for day in range(10)])
    assert trend is not None
    assert trend.slope == pytest.approx(7)
    assert trend.level == pytest.approx(100)
    tenth = predict(trend, 20)
    assert tenth.likely == pytest.approx(240)
    assert tenth.high - tenth.low == pytest.approx(0, abs=1e-6)


def test_the_interval_is_the_textbooks() -> None:
    # Worked by hand: x = 0..4, y = 2 4 5 4 5: slope 0.6, level 2.8, s^2 = 2.4 / 3, and t(3) = 3.182.
    trend = fit([2, 4, 5, 4, 5])
    assert trend is not None
    assert (trend.slope, trend.level) == (pytest.approx(0.6), pytest.approx(2.8))
    assert trend.error == pytest.approx(math.sqrt(0.8))
    ahead = predict(trend, 5)
    assert ahead.likely == pytest.approx(5.8)
    assert ahead.high - ahead.likely == pytest.approx(3.182 * math.sqrt(0.8) * math.sqrt(1 + 1 / 5 + 9 / 10))


def test_the_further_ahead_the_wider_and_never_below_nothing() -> None:
    trend = fit([50, 48, 53, 40, 44, 39, 37])
    assert trend is not None
    widths = [predict(trend, day).high - predict(trend, day).likely for day in (8, 12, 15)]
    assert widths == sorted(widths)
    assert predict(trend, 1000).likely == predict(trend, 1000).low == 0


def test_too_few_days_have_no_trend_and_say_so() -> None:
    few = judge(topic([100] * (DAYS_MIN - 1)), 30)
    assert few.trend is None
    assert few.forecast is None
    assert any("too few" in note for note in few.notes)
    assert judge(topic([100] * DAYS_MIN), 30).trend is not None


def test_between_known_freedoms_the_wider_interval_counts() -> None:
    assert student_t(11) == student_t(10) > student_t(12)
    assert student_t(10_000) == 1.98


def test_without_retention_disk_grows_by_all_that_comes_in_on_every_copy() -> None:
    judged = judge(topic([GB] * 10, copies=3), 5)
    assert judged.forecast is not None
    # The rest of today, then five days.
    assert [round(one.likely / GB) for one in judged.forecast.disk_bytes] == [36, 39, 42, 45, 48]


def test_with_retention_disk_stays_at_what_came_in_during_it() -> None:
    steady = topic([GB] * 9, today=GB // 2, kept_days=10)
    judged = judge(steady, 60)
    assert judged.forecast is not None
    assert judged.forecast.disk_bytes[-1].likely == pytest.approx(10 * GB, rel=0.06)


def test_with_retention_a_growing_topic_settles_at_the_last_days_of_the_line() -> None:
    amounts = [GB + GB // 10 * day for day in range(20)]
    growing = topic(amounts, kept_days=5)
    kept = sum(amounts[-5:])
    judged = judge(replace(growing, bytes=kept, stored_bytes=kept), 30)
    assert judged.forecast is not None
    expected = sum(one.likely for one in judged.forecast.incoming_bytes[-5:])
    assert judged.forecast.disk_bytes[-1].likely == pytest.approx(expected, rel=0.02)


def test_a_limit_in_bytes_is_a_lid() -> None:
    limited = replace(topic([GB] * 10), settings=Settings("delete", None, 3 * GB))
    judged = judge(limited, 30)
    assert judged.forecast is not None
    assert judged.forecast.disk_bytes[-1].likely == 4 * 3 * GB


def test_a_compacted_topic_has_no_forecast_and_says_why() -> None:
    judged = judge(replace(topic([GB] * 10), settings=Settings("compact")), 30)
    assert judged.forecast is None
    assert any("Compacted" in note for note in judged.notes)


def test_unknown_sizes_make_no_numbers_up() -> None:
    known = topic([GB] * 10)
    days = tuple(replace(bucket, bytes=None) for bucket in known.days)
    judged = judge(replace(known, bytes=None, stored_bytes=None, days=days), 30)
    assert judged.forecast is None
    assert judged.incoming_bytes_a_day is None
    assert judged.incoming_rows_a_day == GB // 100


def test_cost_is_storage_traffic_and_partitions_of_a_month() -> None:
    prices = Prices("EUR", storage_gb_month=0.1, incoming_gb=0.02, outgoing_gb=0.05, fan_out=2, partition_hour=0.001)
    found = cost(topic([GB] * 10, copies=3), float(GB), prices)
    assert found.storage == pytest.approx(3.0)
    assert found.incoming == pytest.approx(0.6)
    assert found.outgoing == pytest.approx(3.0)
    assert found.partitions == pytest.approx(2.88)
    assert found.total == pytest.approx(9.48)


def test_partitions_follow_the_busiest_hour() -> None:
    assert partitions_for(86_400 * 10_000_000, peak=3, partition_bytes_per_s=5_000_000) == 6
    assert partitions_for(0, 3, 5_000_000) == 1
    hours = [Bucket(HOUR_MS * hour, 10 if hour else 130, None, True) for hour in range(24)]
    assert peak_share(hours) == pytest.approx(130 / 15)
    assert peak_share(hours[:5]) == PEAK_SHARE_ASSUMED
