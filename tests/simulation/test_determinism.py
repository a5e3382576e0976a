"""A seed is a run: the same seed does the same, to the last byte on the simulated wire, in any process."""

import pytest
from tests.simulation import seeds

pytestmark = pytest.mark.timeout(seeds.SECONDS_MAX)


def test_two_runs_of_a_seed_have_the_same_trace():
    first, second = (seeds.run(7, 2) for _ in range(2))
    assert [outcome["trace"] for outcome in first] == [outcome["trace"] for outcome in second]


def test_what_a_seed_does_is_not_changed_by_the_seeds_before_it():
    _, behind_another = seeds.run(7, 2)
    (alone,) = seeds.run(8, 1)
    assert alone["trace"] == behind_another["trace"]


def test_different_seeds_do_different_things():
    first, second = seeds.run(7, 2)
    assert first["trace"] != second["trace"]
