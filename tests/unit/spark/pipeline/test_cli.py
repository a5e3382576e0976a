"""`penstock pipeline` as a command: what it prints, its exit codes, and that it leaves Spark alone until needed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from pyspark.sql import Row
from typer.testing import CliRunner

from penstock.cli import pipeline, pipeline_view
from penstock.cli.app import CommandGroup
from penstock.spark.pipeline import running
from penstock.spark.pipeline.progress import SinkProgress
from penstock.spark.pipeline.writing import ConsoleRows

app = typer.Typer(cls=CommandGroup)
app.add_typer(pipeline.app, name="pipeline")

EXAMPLES = Path(__file__).parents[4] / "examples"
TEXT = """\
name: p
checkpoint: c
sources:
  rows: {topic: t}
  spare: {topic: s}
sinks:
  out: {input: rows, console: }
"""


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["pipeline", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(TEXT)
    return tmp_path / "p.yaml"


@pytest.mark.parametrize("name", ["orders", "sessions"])
def test_the_examples_are_valid(name: str) -> None:
    code, out, err = run("validate", str(EXAMPLES / name / "pipeline.yaml"))
    assert (code, err) == (0, "")
    assert "valid, with" in out


def test_a_valid_file_is_told_with_its_warnings(file: Path) -> None:
    code, out, err = run("validate", str(file))
    assert code == 0
    assert out == f"{file}: valid, with 2 sources, 0 steps, 1 sink\n"
    assert err == f"warning: {file}:5:3: source `spare` leads to no sink\n"
    code, out, _ = run("validate", str(file), "--json")
    assert code == 0
    assert json.loads(out)["warnings"] == [f"{file}:5:3: source `spare` leads to no sink"]


def test_a_mistake_ends_with_its_line_and_exit_code_2(file: Path) -> None:
    file.write_text(TEXT.replace("input: rows", "input: row"))
    expected = f"{file}:7:16: sink `out` reads `row`, which is no source or step; did you mean `rows`?"
    for command in ("validate", "run", "status"):
        code, _, err = run(command, str(file))
        assert (code, err) == (2, f"penstock: {expected}\n")
    code, out, _ = run("validate", str(file), "--json")
    assert code == 2
    assert json.loads(out) == {"valid": False, "problems": [expected], "warnings": []}


def test_what_is_asked_wrongly_is_refused(file: Path) -> None:
    assert run("status")[0] == 2
    assert run("status", str(file), "--checkpoints", "x")[0] == 2
    assert run("validate", str(file), "--set", "novalue")[0] == 2
    code, _, err = run("validate", str(file), "--set", "sinks.out.mode=sometimes")
    assert code == 2
    assert "--set sinks.out.mode: `sinks.out.mode` must be one of append, update, complete" in err


def test_what_never_ran_has_a_status_that_says_so(file: Path) -> None:
    code, _, err = run("status", str(file))
    assert code == 1
    assert "has the pipeline been run?" in err


def test_a_status_shows_the_checkpoint_and_the_last_words_of_a_killed_run(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "4").write_text('v1\n{}\n{"t":{"0":12}}')
    (tmp_path / "status.json").write_text('{"sinks": [{"sink": "out", "state": "running", "rows_in": 12}]}')
    code, out, _ = run("status", "--checkpoints", str(tmp_path), "--partitions")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[1][:3] == ["out", "ended", "4"]
    assert lines[-1] == ["out", "t", "0", "12", "-", "-"]


def test_neither_help_nor_validate_import_spark(file: Path) -> None:
    # Sinks of every kind: their options are checked too.
    kinds = ("topic: t", "delta: {path: d}", "iceberg: {path: i}", "postgres: {url: 'postgresql://h/d', table: t}")
    file.write_text(TEXT + "".join(f"  s{at}: {{input: rows, {kind}}}\n" for at, kind in enumerate(kinds)))
    code = (
        "import sys; from typer.testing import CliRunner; from penstock.cli import pipeline\n"
        "assert 'pydantic' not in sys.modules and 'yaml' not in sys.modules\n"
        f"result = CliRunner().invoke(pipeline.app, ['validate', {str(file)!r}])\n"
        "assert result.exit_code == 0, result.output\n"
        "assert not {'pyspark', 'pyarrow', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_queries_start_ends_the_run_when_they_have(
    file: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    steps: list[str] = []

    class Run:
        """Stands for a PipelineRun on Spark, which takes seconds to start its queries."""

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def __enter__(self) -> "Run":
            os.kill(os.getpid(), number)
            steps.append("started")
            return self

        def __exit__(self, *_: object) -> None:
            steps.append("closed")

        def ask_to_stop(self) -> None:
            steps.append("asked")

        def wait(self, _: object) -> None:
            steps.append("waited")

    class Session:
        def stop(self) -> None:
            steps.append("ended")

    monkeypatch.setattr(running, "PipelineRun", Run)
    monkeypatch.setattr(pipeline, "_session", lambda *_, **__: Session())
    before = signal.getsignal(number)
    assert run("run", str(file), "--json") == (0, "", f"warning: {file}:5:3: source `spare` leads to no sink\n")
    assert steps == ["asked", "started", "waited", "closed", "ended"]
    assert signal.getsignal(number) is before


def test_progress_is_a_line_per_batch_and_json_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    progress = SinkProgress("out", "running", 1, 0, rows_in=5, rows_out=3, rows_per_s=10.0, lag_rows=7, batch_ms=42)
    lines, documents = pipeline_view.open_view(as_json=False), pipeline_view.open_view(as_json=True)
    for view in (lines, documents):
        view.show([progress])
        view.show([progress])
    first, second = capsys.readouterr().out.splitlines()
    assert first == "out: running, batch 0 in 42 ms, 5 rows in, 3 out, 10 rows/s, lag 7 rows"
    assert json.loads(second) == {"event": "progress", **progress.as_json()}
    progress.state, progress.error = "waiting", "the broker\x1b[2J is gone"
    lines.show([progress])
    assert capsys.readouterr().out.endswith("lag 7 rows: the broker\\x1b[2J is gone\n")
    documents.rows(ConsoleRows("out", 0, ["a", "b"], [[1, None]], has_more=False))
    assert json.loads(capsys.readouterr().out)["row"] == {"a": 1, "b": None}
    lines.rows(ConsoleRows("out", 0, ["a", "b"], [[1, None]], has_more=True))
    assert capsys.readouterr().out.splitlines()[0] == "out, batch 0 (first rows)"


def test_a_console_sinks_values_are_shown_as_sql_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    row = [bytearray(b"hi"), Row(sku="a", n=1), float("nan"), None]
    shown = ConsoleRows("out", 0, ["key", "line", "rate", "none"], [row], has_more=True)
    pipeline_view.JsonView().rows(shown)
    document = capsys.readouterr().out
    assert json.loads(document)["row"] == {"key": "hi", "line": {"sku": "a", "n": 1}, "rate": "nan", "none": None}
    pipeline_view.LineView().rows(shown)
    assert capsys.readouterr().out.splitlines()[-1] == 'hi   {"sku": "a", "n": 1}  nan   -'
    with pipeline_view.TableView() as live:
        live.rows(shown)
    title, names, _, cells = (line for line in capsys.readouterr().out.splitlines() if line.strip())
    assert "out, batch 0 (first rows)" in title
    assert names.split() == ["key", "line", "rate", "none"]
    assert cells.split() == ["hi", '{"sku":', '"a",', '"n":', "1}", "nan", "-"]


def test_the_live_table_holds_every_sink_and_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    view = pipeline_view.TableView()
    failing = SinkProgress("bad", "waiting", restarts=2, error="no broker")
    with view:
        view.show([SinkProgress("good", "running", rows_in=1234567), failing])
        view.rows(ConsoleRows("good", 0, ["a"], [["x"]], has_more=False))
    shown = capsys.readouterr().out
    assert "1,234,567" in shown
    assert "no broker" in shown
