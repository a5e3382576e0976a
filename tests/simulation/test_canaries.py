"""The simulation catches bugs it is shown: each canary is a guard taken away, and must not live for many seeds."""

import subprocess
import sys

import pytest
from tests.simulation import seeds
from tests.simulation.canaries import CANARIES

# Most are caught by the first few. A late EndTxn must meet just the next transaction, which takes many.
SEEDS_MAX = 90


@pytest.mark.timeout(seeds.SECONDS_MAX)
@pytest.mark.parametrize("name", sorted(CANARIES))
def test_the_simulation_catches(name):
    command = [sys.executable, "-m", "tests.simulation.simulate", "--canary", name, "--seeds", str(SEEDS_MAX)]
    done = subprocess.run(command, cwd=seeds.ROOT, capture_output=True, text=True, timeout=seeds.SECONDS_MAX)
    assert done.returncode == 1, f"{CANARIES[name].trap}: not caught in {SEEDS_MAX} seeds\n{done.stdout[-1000:]}"
    assert " FAILED: " in done.stdout, done.stderr
