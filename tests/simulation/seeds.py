"""Seeds in a process of their own, as `make simulate` runs them, and what they came to.

Called by test_seeds_first and test_seeds_second: two files, because the tests of one file run one after the other.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 600


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
