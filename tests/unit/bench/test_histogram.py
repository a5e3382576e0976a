"""Percentiles of a histogram against the sorted list of what was recorded."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.histogram import BUCKETS, VALUE_MAX_US, Histogram

TIMES = st.lists(st.one_of(st.integers(0, 2000), st.integers(0, VALUE_MAX_US)), min_size=1, max_size=200)


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(TIMES, st.sampled_from([0.001, 0.5, 0.95, 0.99, 0.999, 1.0]))
def test_a_percentile_is_never_below_the_exact_one_and_at_most_one_in_128_above(
    values: list[int], share: float
) -> None:
    exact = sorted(values)[math.ceil(share * len(values)) - 1]
    found = filled(values).percentile_us(share)
    assert found is not None
    assert exact <= found <= min(exact + exact // 128, max(values))


@given(TIMES)
def test_mean_maximum_and_count_are_exact(values: list[int]) -> None:
    histogram = filled(values)
    assert (histogram.count, histogram.max_us) == (len(values), max(values))
    assert histogram.mean_us == pytest.approx(sum(values) / len(values))


@given(TIMES, TIMES)
def test_what_came_since_a_copy_is_as_if_it_had_been_recorded_alone(before: list[int], after: list[int]) -> None:
    histogram = filled(before)
    earlier = histogram.copy()
    for value in after:
        histogram.record(value)
    window, alone = histogram.since(earlier), filled(after)
    assert (window.count, window.total_us) == (alone.count, alone.total_us)
    # Its maximum is of a bucket, so the highest percentile may be by as much above.
    assert alone.max_us <= window.max_us <= alone.max_us + alone.max_us // 128
    assert window.percentile_us(0.5) in (alone.percentile_us(0.5), window.max_us)
    assert earlier.count == len(before)


def test_nothing_measured_has_no_percentile_and_no_mean() -> None:
    empty = Histogram()
    assert (empty.percentile_us(0.5), empty.mean_us, empty.since(empty.copy()).count) == (None, None, 0)


def test_times_beyond_its_range_are_counted_at_its_end_and_negative_ones_as_none() -> None:
    histogram = filled([-5, VALUE_MAX_US * 4])
    assert histogram.percentile_us(0.5) == 0
    assert histogram.percentile_us(1.0) == histogram.max_us == VALUE_MAX_US * 4
    assert BUCKETS * 8 < 27_000  # bytes, however much is recorded
