"""Seeds 51 to 100 of the simulated cluster: nothing acknowledged is lost, whatever is done to three to five brokers."""

from typing import Any

import pytest
from tests.simulation import seeds

BATCHES = range(51, 101, 10)
SEEDS_A_BATCH = 10
EFFECTIVE_MIN = 400

outcomes: list[dict[str, Any]] = []


@pytest.mark.timeout(seeds.SECONDS_MAX)
@pytest.mark.parametrize("first", BATCHES)
def test_a_cluster_under_faults_keeps_every_promise(first):
    found = seeds.run(first, SEEDS_A_BATCH)
    outcomes.extend(found)
    failed = {outcome["seed"]: outcome["problems"][:5] for outcome in found if outcome["problems"]}
    assert not failed, f"make simulate SEED={min(failed)}"


def test_enough_faults_took_effect_to_mean_something():
    if len(outcomes) < len(BATCHES) * SEEDS_A_BATCH:
        pytest.skip("not all seeds were run")
    assert sum(outcome["effective"] for outcome in outcomes) >= EFFECTIVE_MIN
    assert all(outcome["acknowledged"] > 100 for outcome in outcomes)
    assert sum(outcome["elections"] for outcome in outcomes) > 500
    bitten = {kind for outcome in outcomes for kind, count in outcome["kinds"].items() if count}
    dealt = {kind for outcome in outcomes for kind in outcome["kinds"]}
    assert bitten == dealt, f"never took effect: {dealt - bitten}"
