"""Seeds that once broke a promise, kept with what they found."""

import pytest
from tests.simulation import seeds

KEPT = {
    490791: (
        "fill_disk",
        "a single broker that met a full disk at its start disowned logs that were whole, and led them no more",
    ),
    8147: ("isolate", "a deposed leader told a producer that its sequence was wrong, and what it had was stored twice"),
    8051: ("lose_power_of_several", "with fsync-all, readers saw what the leader itself had not synced yet"),
}


@pytest.mark.parametrize("seed", KEPT)
def test_what_a_seed_found_stays_mended(seed):
    fault, found = KEPT[seed]
    (outcome,) = seeds.run(seed, 1)
    assert not outcome["problems"], found
    assert outcome["kinds"][fault] > 0, "the seed no longer does what it was kept for"
