"""`penstock gateway` as a process: its options, its signals, the supervisor it must not outlive."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

COMMAND = [sys.executable, "-c", "import sys; from penstock.cli.gateway import main; sys.exit(main(sys.argv[1:]))"]


@contextmanager
def _started(*arguments: str, **how: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if "http://" in line:
            return line.split()[1].rstrip("/")
    raise AssertionError(process.stderr.read() if process.stderr else "")


def test_it_says_where_it_listens_and_ends_cleanly_on_a_signal() -> None:
    with _started("--bootstrap", "127.0.0.1:1", "--listen", "127.0.0.1:0") as process:
        address = _address(process)
        with urllib.request.urlopen(f"{address}/health/live", timeout=30) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        printed, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "stopping" in printed


def test_it_ends_when_its_supervisor_is_gone() -> None:
    ours, theirs = socket.socketpair()
    with theirs, _started(
        "--bootstrap", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--supervised-by", str(theirs.fileno()),
        pass_fds=[theirs.fileno()],
    ) as process:  # fmt: skip
        theirs.close()
        told = json.loads(ours.makefile().readline())
        with urllib.request.urlopen(f"{told['url']}/health/live", timeout=30) as answer:
            assert answer.status == 200
        assert told["url"] == f"http://{told['endpoint']}"
        ours.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "nowhere"], "host:port"),
        (["--listen", "192.0.2.1:0"], "cannot be used"),
        (["-X", "colour"], "NAME=VALUE"),
        (["-X", "no.such.setting=1", "--listen", "127.0.0.1:0"], "no.such.setting"),
        (["--bootstrap", ","], "broker"),
        (["--allow-origin", "friend.example"], "https://"),
    ],
)
def test_what_it_cannot_do_is_said_in_a_sentence(arguments: list[str], said: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("penstock gateway: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run([*COMMAND, "--listen", listen], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"{listen} is in use" in done.stderr
