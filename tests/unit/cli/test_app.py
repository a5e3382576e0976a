"""The application as a whole: exit codes, failures without tracebacks, what is imported when."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import __version__
from penstock.admin.failures import CommandFailed
from penstock.cli import topics
from penstock.cli.app import app
from penstock.cli.main import main

run = CliRunner().invoke


def test_the_version_is_the_packages() -> None:
    result = run(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"penstock {__version__}\n"


@pytest.mark.parametrize(
    "command", ["topics", "groups", "transactions", "configs", "quotas", "log", "produce", "consume", "doctor"]
)
def test_every_command_explains_itself(command: str) -> None:
    result = run(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["topics", "list", "--nonsense"],
        ["topics", "create", "t", "--partitions", "0"],
        ["topics", "create", "t", "--config", "novalue"],
        ["topics", "alter", "t"],
        ["topics", "delete-records", "t", "--all", "--before-offset", "3", "--yes"],
        ["groups", "describe"],
        ["groups", "describe", "g", "--all"],
        ["groups", "reset-offsets", "g", "--topic", "t"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--to-earliest", "--to-latest"],
        ["configs", "describe"],
        ["configs", "describe", "table:x"],
        ["configs", "describe", "topic:a", "--topic", "b"],
        ["configs", "set", "topic:a"],
        ["configs", "set", "topic:a", "novalue"],
        ["transactions", "list", "--state", "Sleeping"],
        ["transactions", "list", "--duration-ms", "-5"],
        ["transactions", "describe"],
        ["transactions", "find-hanging", "--topic", "t:x"],
        ["transactions", "abort-hanging", "--topic", "t"],
        ["transactions", "abort-hanging", "-t", "t", "-p", "0", "--start-offset", "1", "--producer-id", "2"],
        ["quotas", "set", "producer_byte_rate=1"],
        ["quotas", "set", "--user", "u", "producer_byte_rate=much"],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "--key-separator", ""],
        ["consume", "t", "--from-beginning", "--offset", "1"],
        ["consume", "t", "--group", "g", "--offset", "1"],
        ["consume", "t", "--format", "{colour}"],
        ["consume", "t", "--from-timestamp", "soon"],
        ["topics", "list", "-X", "novalue"],
        ["topics", "list", "--bootstrap", ","],
        ["serve", "--nonsense"],
        ["serve", "-o", "no.such.setting=1"],
    ],
)
def test_what_is_asked_wrongly_ends_with_exit_code_2(arguments: list[str]) -> None:
    """All of it is noticed without a broker: none runs at the default address of this test."""
    result = run(app, arguments, env={"PENSTOCK_BOOTSTRAP": "127.0.0.1:1"})
    assert result.exit_code == 2, result.output
    assert "connection refused" not in result.stderr


def test_a_cluster_that_is_not_there_is_named_at_once_with_what_to_do() -> None:
    result = run(app, ["topics", "list", "--bootstrap", "127.0.0.1:1", "--timeout", "60"])
    assert result.exit_code == 1
    assert "127.0.0.1:1: connection refused" in result.stderr
    assert "penstock serve" in result.stderr
    assert result.stdout == ""


def test_a_failure_is_a_sentence_with_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise CommandFailed("it is broken", "Mend it.", 7)

    monkeypatch.setattr(topics.Cluster, "metadata", fail)
    result = run(app, ["topics", "list", "--json"])
    assert result.exit_code == 7
    assert result.stderr == "penstock: it is broken\n  Mend it.\n"


def test_interrupting_is_no_failure_with_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(topics.Cluster, "metadata", interrupt)
    assert run(app, ["topics", "list"]).exit_code == 130


def test_deleting_asks_first_and_takes_no_for_an_answer() -> None:
    for arguments in (["topics", "delete", "t"], ["groups", "delete", "g"]):
        result = run(app, [*arguments, "--bootstrap", "127.0.0.1:1"], input="n\n")
        assert result.exit_code == 1
        assert "?" in result.stderr
        assert "connection refused" not in result.stderr


def test_serve_is_listed_and_runs_from_the_list_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "serve" in run(app, ["--help"]).stdout
    result = run(app, ["serve", "-o", "node.id=minus"])
    assert result.exit_code == 2
    with pytest.raises(SystemExit) as ended:
        main(["serve", "-o", "node.id=minus"])
    assert ended.value.code == 2
    assert "node.id" in capsys.readouterr().err


# Imported on the way to the first answer, each would cost every start a hundredth of its time or more.
NOT_AT_START = {
    "typer",
    "rich",
    "confluent_kafka",
    "kio",  # layouts, one version at a time, with the first request of it
    "importlib.metadata",  # by the package crc32c
    "importlib.abc",
    "email",
    "tempfile",
    "shutil",  # by argparse, for the width of its help
    "pickle",  # by the worker that compacts
    "penstock.log.cleaner",
    "penstock.log.compaction",
    "penstock.cluster.etcd_store",
    "penstock.tracing",
    "penstock.cli.app",
    "penstock.cli.serve_many",
}


def test_a_server_does_not_import_what_it_does_not_need_to_answer(tmp_path: Path) -> None:
    places = ["--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command = [sys.executable, "-X", "importtime", "-m", "penstock", "serve", "--no-gateway", *places]
    with (
        (tmp_path / "imported").open("w+") as told,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True) as server,
    ):
        assert server.stdout is not None
        assert "is ready" in server.stdout.readline()
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)
        told.seek(0)
        imported = {line.rpartition("|")[2].strip() for line in told if line.startswith("import time:")}
    assert "penstock.broker" in imported
    assert not imported & NOT_AT_START


def test_commands_import_the_client_and_rich_only_when_they_run() -> None:
    code = (
        "import sys; import penstock.cli.app; "
        "print([name for name in ('confluent_kafka', 'rich', 'kio', 'penstock.broker') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
