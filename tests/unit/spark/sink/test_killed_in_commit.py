"""A worker killed at some moment of its commit: only the cluster knows whether it was one, and the replay asks."""

import signal
import subprocess
import sys
from pathlib import Path

from sink_world import end_worker, options_for, read, rows_of, task_of, write

from penstock.testing.embedded import EmbeddedBroker

WORKER = Path(__file__).with_name("dying_worker.py")
# From before the request is on its way until long after it was answered.
MOMENTS_US = (0, 1_500, 4_000, 50_000)


def test_a_worker_killed_while_it_commits_has_written_all_or_nothing(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    expected: list[str] = []
    for batch, moment in enumerate(MOMENTS_US):
        ended = subprocess.run([sys.executable, str(WORKER), broker.bootstrap, str(batch), str(moment)], timeout=60)
        assert ended.returncode == -signal.SIGKILL
        end_worker(options)
        replayed = write(options, task_of(batch, run="the next life"))
        expected += rows_of(batch, 0)
        assert read(broker.bootstrap) == sorted(expected), f"killed {moment} µs into the commit: {replayed}"
    assert replayed.is_skipped, "the last one had all the time it needed"
