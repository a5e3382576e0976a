"""The broker's threads ask the scheduler for short turns, and keep all else that an operator gave them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from penstock.cli.scheduler_slice import Scheduling, scheduling_of

KERNEL = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
with_slices = pytest.mark.skipif(KERNEL < (6, 12), reason="before 6.12 Linux has one slice for all")
BY_DEFAULT_NS = 100_000


@contextmanager
def serving(place: Path, *options: str, before: tuple[str, ...] = ()) -> Iterator[list[Scheduling]]:
    """How the threads of a broker are scheduled once it answers."""
    places = ["--data-dir", str(place), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--no-gateway"]
    command = [*before, sys.executable, "-m", "penstock", "serve", *places, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            said = "".join(server.stdout.readline() for _ in range(5))
            found = re.search(r"http://[\d.:]+", said)
            assert found, said
            # An answer comes from the loop, which has gone on then.
            with urlopen(f"{found[0]}/health/live", timeout=30) as answer:
                assert answer.status == 200
            yield [scheduling_of(int(thread)) for thread in os.listdir(f"/proc/{server.pid}/task")]
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=60)


@with_slices
def test_every_thread_has_a_short_slice(tmp_path: Path) -> None:
    with serving(tmp_path) as threads:
        assert len(threads) > 1
        assert {thread.slice_ns for thread in threads} == {BY_DEFAULT_NS}


@with_slices
def test_the_slice_can_be_chosen_or_left_to_the_system(tmp_path: Path) -> None:
    with serving(tmp_path / "chosen", "-o", "penstock.scheduler.slice.us=700") as threads:
        assert {thread.slice_ns for thread in threads} == {700_000}
    mine = scheduling_of(0).slice_ns
    assert mine != BY_DEFAULT_NS
    with serving(tmp_path / "left", "-o", "penstock.scheduler.slice.us=0") as threads:
        assert {thread.slice_ns for thread in threads} == {mine}


@with_slices
def test_niceness_and_policy_stay_as_the_operator_chose_them(tmp_path: Path) -> None:
    with serving(tmp_path, before=("nice", "-n", "7", "chrt", "--batch", "0")) as threads:
        assert {(thread.nice, thread.policy) for thread in threads} == {(7, os.SCHED_BATCH)}
        assert {thread.slice_ns for thread in threads} == {BY_DEFAULT_NS}


def test_where_the_system_does_not_allow_it_the_process_goes_on() -> None:
    code = (
        "import os; from penstock.cli import scheduler_slice;"
        "scheduler_slice._NUMBERS = {os.uname().machine: (100_000, 100_000)};"
        "scheduler_slice.shorten_slices(100); scheduler_slice._NUMBERS = {}; scheduler_slice.shorten_slices(100);"
        "scheduler_slice._THREADS = '/proc/none'; scheduler_slice.shorten_slices(100); print('went on')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "went on\n"
