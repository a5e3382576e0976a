"""Seeds 51 to 100 of the simulated cluster: nothing acknowledged is lost, whatever is done to three to five brokers."""

from typing import Any

import pytest
from tests.simulation import seeds

BATCHES = range(51, 101, seeds.SEEDS_A_BATCH)

outcomes: list[dict[str, Any]] = []


@pytest.mark.timeout(seeds.SECONDS_MAX)
@pytest.mark.parametrize("first", BATCHES)
def test_a_cluster_under_faults_keeps_every_promise(first):
    outcomes.extend(seeds.run_batch(first))


def test_enough_faults_took_effect_to_mean_something():
    if len(outcomes) < len(BATCHES) * seeds.SEEDS_A_BATCH:
        pytest.skip("not all seeds were run")
    seeds.check_effect(outcomes)
