"""`penstock serve` in a process of its own: what it prints, where it logs, how signals end it."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import DEADLINE_S, started
from confluent_kafka import Producer


def serve(tmp_path: Path, *arguments: str) -> "Any":
    own = ("--no-gateway", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    return started("serve", *own, *arguments)


def read_bootstrap(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(5)]
    assert lines[0] == "penstock: broker 1 is ready\n", process.stderr
    facts = {line.split()[0]: line.split()[1] for line in lines[1:]}
    assert facts["http"].startswith("http://127.0.0.1:")
    assert facts["stop"] == "Ctrl-C,"
    return facts["clients"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_says_where_it_is_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serve(tmp_path) as process:
        bootstrap = read_bootstrap(process)
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("orders", b"one")
        assert producer.flush(DEADLINE_S) == 0
        process.send_signal(number)
        out, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert "stopping" in out
    assert "Traceback" not in errors
    assert (tmp_path / "data" / "clean-stop.json").exists()


def test_a_second_signal_ends_a_server_at_once(tmp_path: Path) -> None:
    with serve(tmp_path) as process:
        read_bootstrap(process)
        # While it is stopped both signals come to lie in one pile, and the second is seen before the stop is over.
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGCONT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert not (tmp_path / "data" / "clean-stop.json").exists()


def test_a_servers_log_goes_to_stderr_as_json_if_wanted(tmp_path: Path) -> None:
    with serve(tmp_path, "--log-format", "json", "--log-level", "debug") as process:
        read_bootstrap(process)
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE_S)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert any("listens on" in line["message"] for line in lines)
    assert {"time_ms", "level", "logger", "message"} <= lines[0].keys()


def test_a_server_without_http_has_none(tmp_path: Path) -> None:
    own = ("--no-gateway", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http", "")
    with started("serve", *own) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert not any(line.startswith("  http") for line in lines)
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
