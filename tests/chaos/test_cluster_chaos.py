"""The chaos run of `make test`: at least 40 faults that took effect, at least 50,000 records meanwhile, nothing lost.

`make chaos` runs it alone. The seed is printed, and `CHAOS_SEED` repeats its order of faults; what the machine makes of
them differs from run to run. Without root, etcd, strace or libfaketime it runs with the faults that are left.
"""

import json
import os
import random
import sys
from pathlib import Path

import pytest
from cluster_run import Plan, run

from penstock.testing.etcd import etcd_binary

SEED = int(os.environ.get("CHAOS_SEED", random.randrange(1 << 30)))


@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_whatever_happens_to_brokers(tmp_path: Path) -> None:
    plan = Plan(
        seed=SEED,
        faults=40,
        records=50_000,
        seconds_max=420,
        rate=500,
        session_s=3,
        metadata="etcd" if etcd_binary() is not None else "sqlite",
    )
    report = run(plan, tmp_path / "cluster", say)
    found = report.as_json()
    say(json.dumps({name: found[name] for name in found if name != "struck"}, indent=2))
    assert report.violations == []
    assert report.shortfalls == []


def say(line: str) -> None:
    """Seen at once with -s, and with a failure otherwise."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
