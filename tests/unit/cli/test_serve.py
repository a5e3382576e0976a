"""Starting a server wrongly: one sentence, exit code 2. And one that cannot go on."""

import asyncio
import errno
import json
import logging
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import serve
from penstock.cli.log_format import JsonLines, PlainLines
from penstock.cluster.layout import Layout, decode, encode
from penstock.cluster.sqlite_store import open_sqlite_store
from penstock.cluster.store import Put
from penstock.config import BrokerConfig


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def refuse(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said to a server that does not start."""
    assert serve.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if line.startswith("penstock serve: ")]
    assert len(lines) == 1
    assert "Traceback" not in captured.err
    return lines[0]


def test_a_misspelt_setting_is_answered_with_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "log.retention.ms" in refuse(capsys, "-o", "log.retention.mss=1")


def test_a_configuration_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere.toml" in refuse(capsys, "--config", str(tmp_path / "nowhere.toml"))


def test_a_port_in_use_is_named_with_its_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refuse(capsys, "--data-dir", str(tmp_path / "a"), "--listen", address, "--http", "")
        assert f"--listen {address} is in use" in said
        said = refuse(capsys, "--data-dir", str(tmp_path / "b"), "--listen", "127.0.0.1:0", "--http", address)
        assert f"--http {address} is in use" in said


def test_a_directory_in_use_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from penstock.testing import EmbeddedBroker

    with EmbeddedBroker(tmp_path):
        said = refuse(capsys, "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http", "")
    assert str(tmp_path) in said
    assert "in use" in said


def test_a_file_where_the_directory_should_be_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    said = refuse(capsys, "--data-dir", str(tmp_path / "file"), "--listen", "127.0.0.1:0", "--http", "")
    assert str(tmp_path / "file") in said


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            OSError(errno.EADDRNOTAVAIL, "cannot assign ('192.0.2.1', 9092)"),
            "--listen 127.0.0.1:9092 is not an address",
        ),
        (PermissionError(errno.EACCES, "denied", "/data"), "no permission for /data"),
        (PermissionError(errno.EACCES, "permission denied"), "above 1023"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "/data/x: No space left on device"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
    ],
)
def test_the_systems_reasons_are_told_in_a_sentence(error: OSError, expected: str) -> None:
    assert expected in serve.explain_start_failure(error, BrokerConfig())


def test_without_assertions_no_server_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-O", "-m", "penstock.cli.main", "serve", "--data-dir", str(tmp_path / "d")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "-O" in done.stderr
    assert not (tmp_path / "d").exists()


def test_the_limit_of_open_files_is_raised_as_far_as_it_goes() -> None:
    code = (
        "import resource; from penstock.cli.serve import raise_file_limit;"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)); raise_file_limit();"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert int(done.stdout) == hard or int(done.stdout) >= 10240


def test_log_lines_are_plain_or_json() -> None:
    record = logging.LogRecord("penstock.log", logging.WARNING, "", 1, "cut at %d", (5,), None)
    record.created, record.msecs = 1_700_000_000.25, 250.0
    plain = PlainLines().format(record)
    assert plain.endswith("WARNING penstock.log: cut at 5")
    assert PlainLines(2).format(record).endswith("WARNING broker 2 penstock.log: cut at 5")
    assert json.loads(JsonLines(2).format(record))["node"] == 2
    assert plain[:4] == "2023"
    line = json.loads(JsonLines().format(record))
    assert line == {
        "time_ms": 1_700_000_000_250,
        "level": "warning",
        "logger": "penstock.log",
        "message": "cut at 5",
    }


def test_a_json_line_holds_its_exception_in_one_line() -> None:
    try:
        raise OSError("disk")
    except OSError:
        record = logging.LogRecord("penstock", logging.ERROR, "", 1, "failed", None, sys.exc_info())
    text = JsonLines().format(record)
    assert "\n" not in text
    assert "OSError: disk" in json.loads(text)["exception"]


def test_a_broker_whose_node_another_directory_has_become_ends_and_says_so(tmp_path: Path) -> None:
    metadata = tmp_path / "metadata.db"
    command = [sys.executable, "-m", "penstock", "serve", "--data-dir", str(tmp_path / "data"), "--http", ""]
    command += ["--no-gateway", "--listen", "127.0.0.1:0", "--metadata", f"sqlite:{metadata}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    async def be_another() -> None:
        store, layout = await open_sqlite_store(metadata), Layout()
        present = await store.get(layout.broker(1))
        assert present is not None
        other = {**decode(present.value), "directory": "another"}
        await store.txn([], [Put(layout.storage(1), encode(other)), Put(layout.broker(1), encode(other))])
        await store.close()

    try:
        assert process.stdout is not None
        assert "is ready" in process.stdout.readline()
        asyncio.run(be_another())
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == serve.GAVE_UP
    assert "broker 1 cannot go on: another data directory has become node 1" in errors
