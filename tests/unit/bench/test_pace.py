"""When messages of a fixed rate are due."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.pace import TICKS_PER_S, Pace

RATES = st.integers(1, 10_000_000)


@given(RATES, st.integers(0, 100_000_000))
def test_a_message_is_due_at_the_last_tick_before_its_exact_moment(rate: int, number: int) -> None:
    exact = number / rate
    due = Pace(rate, 0.0).due_s(number)
    assert exact - 1 / TICKS_PER_S - 1e-6 < due <= exact + 1e-6


@given(RATES, st.integers(0, 3_600_000))
def test_as_many_are_due_as_have_their_moment_behind_them(rate: int, ticks: int) -> None:
    pace = Pace(rate, 0.0)
    now = (ticks + 0.5) / TICKS_PER_S
    count = pace.due_count(now)
    assert count == 0 or pace.due_s(count - 1) <= now
    assert pace.due_s(count) > now


def test_after_a_pause_everything_that_fell_due_is_owed() -> None:
    pace = Pace(250, 100.0)
    assert pace.due_count(100.0) == 1
    assert pace.due_count(102.0005) == 501  # nobody sent for two seconds: none is left out
    assert pace.due_s(500) == 102.0
