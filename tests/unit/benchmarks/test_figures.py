"""Numbers of the comparison: percentiles, schedules without coordinated omission, ratios round by round."""

import itertools
import zlib

import pytest
from benchmarks.beside.drivers.job import payloads, percentiles, schedule
from benchmarks.beside.figures import Spread, order, ratios, spread, summary


def test_percentiles_are_values_that_were_measured_by_nearest_rank() -> None:
    found = percentiles([float(value) for value in range(1000, 0, -1)])
    assert found == {"p50_ms": 500.0, "p95_ms": 950.0, "p99_ms": 990.0, "p99_9_ms": 999.0}
    assert set(percentiles([7.0]).values()) == {7.0}
    assert percentiles([]) == {}


@pytest.mark.parametrize(("rate", "count"), [(1_000, 3_000), (10_000, 20_000), (50_000, 100_001), (300, 450), (1, 3)])
def test_a_schedule_never_falls_behind_or_runs_ahead_of_its_rate(rate: int, count: int) -> None:
    sent = 0
    for due_s, how_many in schedule(rate, count):
        sent += how_many
        # At a tick, what belongs to the time up to its end is due: never more, never a whole tick less.
        assert rate * due_s <= sent <= rate * (due_s + 0.001) + 1
    assert sent == count


def test_what_becomes_due_does_not_depend_on_when_the_messages_before_were_sent() -> None:
    # A sender that was stopped for a second finds all that became due meanwhile, with the times they were due.
    late = list(itertools.takewhile(lambda one: one[0] < 1.0, schedule(10_000, 20_000)))
    assert len(late) == 1_000
    assert [how_many for _, how_many in late] == [10] * 1_000
    assert [due for due, _ in late] == [tick / 1_000 for tick in range(1_000)]


def test_ratios_are_taken_within_a_round_so_a_slow_minute_cancels_out() -> None:
    ours = [{"rate": 200.0}, {"rate": 20.0}, {"rate": 210.0}]
    theirs = [{"rate": 100.0}, {"rate": 10.0}, {"rate": 100.0}]
    assert ratios(ours, theirs, "rate") == Spread(median=2.0, low=2.0, high=2.1)


def test_a_ratio_needs_a_round_that_both_have() -> None:
    assert ratios([{"rate": 1.0}], [], "rate") is None
    assert ratios([{"rate": 1.0}], [{"other": 1.0}], "rate") is None
    assert ratios([{"rate": 1.0}], [{"rate": 0.0}], "rate") is None
    # Who failed after its first round is compared by that round.
    assert ratios([{"rate": 4.0}, {"rate": 9.0}], [{"rate": 2.0}], "rate") == Spread(2.0, 2.0, 2.0)


def test_a_summary_has_the_spread_of_each_figure() -> None:
    assert summary([{"a": 1.0, "b": 5.0}, {"a": 3.0}, {"a": 2.0}]) == {
        "a": {"median": 2.0, "low": 1.0, "high": 3.0},
        "b": {"median": 5.0, "low": 5.0, "high": 5.0},
    }
    assert spread([4.0, 1.0]) == Spread(2.5, 1.0, 4.0)


def test_every_round_begins_with_another_peer_and_nobody_is_left_out() -> None:
    names = ["a", "b", "c"]
    rounds = [order(names, number) for number in range(4)]
    assert [one[0] for one in rounds] == ["a", "b", "c", "a"]
    assert all(sorted(one) == names for one in rounds)
    assert order([], 3) == []


def test_payloads_are_the_same_in_every_run_of_the_asked_size_and_compress_as_events_do() -> None:
    for size in (10, 100, 1_000, 10_000):
        made = payloads(size, 50)
        assert {len(one) for one in made} == {size}
        assert made == payloads(size, 50)
        assert len(set(made)) > 40
    whole = b"".join(payloads(1_000, 200))
    assert 0.2 < len(zlib.compress(whole)) / len(whole) < 0.7
