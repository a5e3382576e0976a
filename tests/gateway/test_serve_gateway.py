"""The gateway that `serve` and `cluster up` start: it comes by itself, comes back, and goes with its broker."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from confluent_kafka.admin import AdminClient

DEADLINE_S = 60
# `serve` with another usual place than 127.0.0.1:8080, which may be anybody's on a machine that runs tests.
USUAL_PLACE = (
    "import sys; from penstock.model import Endpoint; from penstock.cli import gateway_choice, serve;"
    "gateway_choice.DEFAULT_LISTEN = Endpoint('127.0.0.1', int(sys.argv[1])); sys.exit(serve.main(sys.argv[2:]))"
)


@contextmanager
def started(*command: str) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def served(data_dir: Path, *options: str) -> list[str]:
    return ["--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *options]


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


def gateways(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [one for one in psutil.Process(process.pid).children(recursive=True) if "gateway" in one.cmdline()]


def test_it_is_kept_running_and_ends_with_its_broker(tmp_path: Path) -> None:
    with started("-m", "penstock", "serve", *served(tmp_path, "--gateway", "127.0.0.1:0")) as serve:
        assert line_with(serve, r"^  console   (.*)  \(with REST").startswith("a free port")
        url = line_with(serve, r"gateway is ready: (\S+)")
        assert httpx.get(f"{url}/health/live", timeout=DEADLINE_S).status_code == 200
        (gateway,) = gateways(serve)
        os.kill(gateway.pid, signal.SIGKILL)
        assert line_with(serve, r"gateway is back: (\S+)") == url
        (gateway,) = gateways(serve)
        serve.send_signal(signal.SIGTERM)
        assert serve.wait(DEADLINE_S) == 0
        assert not gateway.is_running()


def test_it_comes_by_itself_and_does_not_outlive_a_killed_broker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with started("-c", USUAL_PLACE, str(port), *served(tmp_path)) as serve:
        url = f"http://127.0.0.1:{port}/"
        assert line_with(serve, r"^  console   (\S+)  ") == url
        assert line_with(serve, r"gateway is ready: (\S+)") == url.removesuffix("/")
        assert "text/html" in httpx.get(url, timeout=DEADLINE_S).headers["content-type"]
        (gateway,) = gateways(serve)
        serve.kill()
        gateway.wait(DEADLINE_S)


def test_a_broker_serves_without_one_that_was_not_asked_for_and_cannot_be(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started("-c", USUAL_PLACE, str(port), *served(tmp_path, "--log-level", "warning")) as serve:
            assert serve.stdout is not None
            lines = [serve.stdout.readline() for _ in range(6)]
            assert re.fullmatch(
                rf".* WARNING penstock\.cli\.serve: no gateway .*: 127\.0\.0\.1:{port} is in use by .*; --gateway .*\n",
                lines[0],
            )
            bootstrap = lines[2].split()[1]
            assert AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=DEADLINE_S).brokers
            assert "stop" in lines[5], "no line of the console stands between"
            serve.send_signal(signal.SIGINT)
            rest, _ = serve.communicate(timeout=DEADLINE_S)
            assert serve.returncode == 0
            assert "gateway" not in rest


def test_one_that_was_asked_for_starts_or_nothing_does(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for command in (
            ["serve", *served(tmp_path / "data", "--gateway", address)],
            ["serve", *served(tmp_path / "data", "--gateway", address, "--brokers", "2")],
            ["cluster", "up", "--data-dir", str(tmp_path / "data"), "--gateway", address],
        ):
            done = subprocess.run(
                [sys.executable, "-m", "penstock", *command], capture_output=True, text=True, timeout=DEADLINE_S
            )
            assert done.returncode == 2
            assert done.stdout == ""
            (line,) = done.stderr.splitlines()
            assert f"the gateway cannot start: {address} is in use by another process; --gateway" in line
    assert not (tmp_path / "data").exists()


def test_what_only_the_gateway_finds_out_ends_a_broker_that_was_to_have_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    # The broker itself takes the port that was free when the two were told.
    own = served(tmp_path, "--log-level", "error", "--gateway", address, "-o", f"penstock.http.listen={address}")
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "serve", *own], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"penstock serve: the gateway cannot start: {address} is in use by another process; "
        "--gateway HOST:PORT puts it elsewhere, --no-gateway does without"
    ]


@pytest.mark.parametrize("command", ["serve", "cluster up"])
def test_several_brokers_have_one(tmp_path: Path, command: str) -> None:
    own = (
        ["serve", "--brokers", "2", *served(tmp_path)]
        if command == "serve"
        else ["cluster", "up", "--nodes", "2", "--base-port", "0", "--data-dir", str(tmp_path)]
    )
    with started("-m", "penstock", *own, "--gateway", "127.0.0.1:0") as serve:
        url = line_with(serve, r"gateway is ready: (\S+)")
        (gateway,) = gateways(serve)
        brokers = gateway.cmdline()[gateway.cmdline().index("--bootstrap") + 1]
        assert brokers.count(",") == 1
        assert httpx.get(f"{url}/health/live", timeout=DEADLINE_S).status_code == 200
        serve.send_signal(signal.SIGTERM)
        assert serve.wait(DEADLINE_S) == 0
        assert not gateway.is_running()
