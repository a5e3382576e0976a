"""The process dies at every write, sync, rename, … of a scripted life; after each, nothing acknowledged is missing."""

import pytest
from tests.chaos.sweep import Outcome, Point, count_effects, sweep

# Every point on the simulated disk; on the real one, whose syncs take their time, every one in so many.
REAL_STRIDE = 16


def troubles(outcomes: list[Outcome]) -> str:
    return "\n".join(f"{o.point} at {o.died_at}:\n{o.trouble}" for o in outcomes if o.trouble is not None)


@pytest.fixture(scope="module")
def effects() -> int:
    count = count_effects()
    assert count >= 200, "the script must do enough to be worth dying in"
    return count


@pytest.mark.timeout(300)
def test_a_kill_at_any_effect_loses_nothing_acknowledged_and_doubles_nothing(effects: int) -> None:
    outcomes = sweep([Point(number) for number in range(1, effects + 1)])
    assert troubles(outcomes) == ""
    assert all(outcome.died_at for outcome in outcomes), "every point must take effect"
    assert len(outcomes) == effects


@pytest.mark.timeout(300)
def test_a_kill_on_a_real_disk_loses_nothing_acknowledged_either(effects: int) -> None:
    outcomes = sweep([Point(number, is_real=True) for number in range(1, effects, REAL_STRIDE)])
    assert troubles(outcomes) == ""
    # Threads may finish in another order than the simulation's, so the last few may come to the end alive.
    assert sum(outcome.died_at is not None for outcome in outcomes) >= len(outcomes) - 2
