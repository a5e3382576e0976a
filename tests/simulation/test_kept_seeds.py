"""Seeds that once broke a promise, kept with what they found."""

import pytest
from tests.simulation import seeds

KEPT = {
    490617: "a single broker that met a full disk at its start disowned logs that were whole, and led them no more",
    490791: "the same, after two starts that failed",
}


@pytest.mark.parametrize("seed", KEPT)
def test_what_a_seed_found_stays_mended(seed):
    (outcome,) = seeds.run(seed, 1)
    assert not outcome["problems"], KEPT[seed]
    assert outcome["kinds"]["fill_disk"] > 0, "the seed no longer does what it was kept for"
