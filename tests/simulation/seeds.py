"""Seeds in a process of their own, as `make simulate` runs them, and what they came to.

Called by test_seeds_first and test_seeds_second: two files, because the tests of one file run one after the other, and
what both of them ask of their seeds.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 600
SEEDS_A_BATCH = 10
EFFECTIVE_MIN = 400  # of fifty seeds


def run(first: int, count: int) -> list[dict[str, Any]]:
    """The outcomes of `count` seeds from `first` on; what a failed one printed goes to this process's output."""
    command = [sys.executable, "-m", "tests.simulation.simulate", "--json", "--seed", str(first), "--seeds", str(count)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=SECONDS_MAX)
    outcomes = [
        json.loads(line.removeprefix("OUTCOME ")) for line in done.stdout.splitlines() if line.startswith("OUTCOME ")
    ]
    if done.returncode != 0:
        sys.stdout.write(done.stdout + done.stderr)
    assert len(outcomes) == count, done.stderr
    return outcomes


def run_batch(first: int) -> list[dict[str, Any]]:
    """Ten seeds, none of which may break a promise."""
    found = run(first, SEEDS_A_BATCH)
    failed = {outcome["seed"]: outcome["problems"][:5] for outcome in found if outcome["problems"]}
    assert not failed, f"make simulate SEED={min(failed)}"
    return found


def check_effect(outcomes: list[dict[str, Any]]) -> None:
    """That fifty seeds did enough to mean something: every kind of fault has bitten somewhere."""
    assert sum(outcome["effective"] for outcome in outcomes) >= EFFECTIVE_MIN
    assert all(outcome["acknowledged"] > 100 for outcome in outcomes)
    assert sum(outcome["elections"] for outcome in outcomes) > 500
    bitten = {kind for outcome in outcomes for kind, count in outcome["kinds"].items() if count}
    dealt = {kind for outcome in outcomes for kind in outcome["kinds"]}
    assert bitten == dealt, f"never took effect: {dealt - bitten}"
