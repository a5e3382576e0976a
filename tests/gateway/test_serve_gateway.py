"""`penstock serve --gateway`: the gateway beside a broker comes, comes back, and goes with it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

DEADLINE_S = 60


@pytest.fixture
def served(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "penstock", "serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    command += ["--http", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    yield process
    process.kill()
    process.communicate()


def line_with(process: subprocess.Popen[str], pattern: str) -> str:
    """The first group of the next line that matches; pytest's own time-out ends a wait in vain."""
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line)
        found = re.search(pattern, line)
        if found is not None:
            return found[1]
    raise AssertionError(said)


def test_the_gateway_is_kept_running_and_ends_with_its_broker(served: subprocess.Popen[str]) -> None:
    url = line_with(served, r"gateway is ready: (\S+)")
    assert httpx.get(f"{url}/health/live", timeout=DEADLINE_S).status_code == 200
    (gateway,) = psutil.Process(served.pid).children()
    # It may be at any point of its life; whatever holds the broker goes on.
    os.kill(gateway.pid, signal.SIGKILL)
    assert line_with(served, r"gateway is back: (\S+)") == url
    (gateway,) = psutil.Process(served.pid).children()
    served.send_signal(signal.SIGTERM)
    assert served.wait(DEADLINE_S) == 0
    gateway.wait(DEADLINE_S)


def test_a_broker_goes_on_without_a_gateway_that_cannot_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    command += ["--http", "127.0.0.1:0", "--gateway", "192.0.2.1:80", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert line_with(process, r"(the gateway did not start \(exit code 2\)); the broker goes on without it")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
