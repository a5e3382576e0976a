"""`penstock pipeline`: run, validate and look after pipelines that are described in a file.

Called by cli.app. Spark is imported by the commands that need it, when they run. Exit codes: 0 done or stopped as
asked, 1 a query failed, 2 the file (or the command) has a mistake in it.
"""

import logging
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.admin.failures import ASKED_WRONGLY, FAILED, CommandFailed
from penstock.admin.text import render_moment, safe_text
from penstock.cli.arguments import parse_pairs
from penstock.cli.output import print_json, print_table, say
from penstock.cli.pipeline_view import open_view

if TYPE_CHECKING:
    from penstock.spark.pipeline.loading import LoadedPipeline
    from penstock.spark.pipeline.running import PipelineRun
    from penstock.spark.pipeline.status import SinkStatus

app = typer.Typer(no_args_is_help=True, help="Run data pipelines on Spark, described in a file.")

File = Annotated[Path, typer.Argument(metavar="FILE.yaml", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of tables; progress as one object a line.")]
Master = Annotated[str | None, typer.Option("--master", help="Spark's master; default: the file's, $MASTER, local[*].")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="A value in the file, as sinks.table.mode=append; repeatable."),
]

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also Spark's own log, on stderr.")]

# Spark's Python side logs every mistake in SQL a second time, as JSON with its stack trace.
_LOUD_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

# What `pip install penstock` alone does not bring.
_EXTRA = {"pyspark", "pydantic", "yaml", "pyarrow", "pandas", "numba", "deltalake", "pyiceberg", "fastavro"}


@app.command("run")
def run(
    file: File,
    master: Master = None,
    once: Annotated[bool, typer.Option("--once", help="Until the end of what there is now, then stop.")] = False,
    as_json: Json = False,
    settings: Set = None,
    verbose: Verbose = False,
) -> None:
    """Run it until it is stopped (Ctrl-C ends it after the current batch), or with --once until all is done."""
    with _failures_as_sentences():
        from penstock.spark.pipeline.running import PipelineRun, refuse_endless

        loaded = _load(file, settings)
        for warning in loaded.graph.warnings:
            say(f"warning: {warning}")
        if once or loaded.pipeline.trigger.is_once:
            # Said before Spark takes its seconds to start.
            refuse_endless(loaded)
        spark = _session(loaded, master, verbose=verbose)
        view = open_view(as_json=as_json)
        try:
            running = PipelineRun(loaded, spark, is_once=once, on_rows=view.rows)
            # Before its queries start, which takes a while: a signal must not cut them off half started.
            with view, _stopped_by(running), running:
                running.wait(view.show)
        finally:
            spark.stop()


@app.command("validate")
def validate(
    file: File,
    schema: Annotated[bool, typer.Option("--schema", help="Also the columns of each step; starts Spark.")] = False,
    master: Master = None,
    as_json: Json = False,
    settings: Set = None,
    verbose: Verbose = False,
) -> None:
    """Check the file: every mistake with its line. Without --schema neither Spark nor a broker is needed."""
    from penstock.spark.errors import BadPipeline

    with _failures_as_sentences():
        try:
            loaded = _load(file, settings)
            columns = _schemas(loaded, master, verbose=verbose) if schema else None
        except BadPipeline as fault:
            if not as_json:
                raise
            print_json({"valid": False, "problems": str(fault).splitlines(), "warnings": []})
            raise typer.Exit(ASKED_WRONGLY) from None
    if as_json:
        document: dict[str, Any] = {"valid": True, "problems": [], "warnings": loaded.graph.warnings}
        if columns is not None:
            document["schemas"] = {name: [dict(one) for one in each] for name, each in columns.items()}
        print_json(document)
        return
    for warning in loaded.graph.warnings:
        say(f"warning: {warning}")
    for name, each in (columns or {}).items():
        print_table(["COLUMN", "TYPE"], [[one["name"], one["type"]] for one in each], title=name)
        typer.echo()
    counts = [
        f"{len(room)} {word if len(room) != 1 else word.removesuffix('s')}"
        for word, room in (
            ("sources", loaded.pipeline.sources),
            ("steps", loaded.pipeline.steps),
            ("sinks", loaded.pipeline.sinks),
        )
    ]
    typer.echo(f"{safe_text(str(file))}: valid, with {', '.join(counts)}")


@app.command("status")
def status(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE.yaml]", show_default=False)] = None,
    checkpoints: Annotated[
        Path | None, typer.Option("--checkpoints", metavar="DIR", help="A checkpoint folder, instead of the file.")
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", "-b", help="With --checkpoints: whom to ask for the lag.")
    ] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="Also the offsets of each partition.")] = False,
    as_json: Json = False,
    settings: Set = None,
) -> None:
    """What is done, and how far behind it is. Reads the checkpoints and asks the brokers; Spark is not needed."""
    if (file is None) == (checkpoints is None):
        raise typer.BadParameter("give either FILE.yaml or --checkpoints DIR")
    with _failures_as_sentences():
        from penstock.spark.pipeline.status import status_of

        if file is not None:
            loaded = _load(file, settings)
            options = {key: str(value) for key, value in loaded.pipeline.kafka.options.items()}
            found = status_of(loaded.checkpoint, {"bootstrap.servers": loaded.pipeline.kafka.bootstrap, **options})
        else:
            found = status_of(str(checkpoints), {"bootstrap.servers": bootstrap} if bootstrap is not None else None)
    if as_json:
        print_json(found.as_json())
        return
    print_table(
        ["SINK", "STATE", "BATCH", "DONE AT", "LAG ROWS", "ROWS IN", "ROWS OUT", "ERROR"],
        [_status_row(sink, is_running=found.is_running) for sink in found.sinks],
    )
    if found.lag_problem is not None:
        say(f"the lag is not known: {found.lag_problem}")
    if partitions:
        rows = [
            [sink.checkpoint.sink, one["topic"], one["partition"], one["offset"], one["end"], one["lag_rows"]]
            for sink in found.sinks
            for one in sink.as_json()["partitions"]
        ]
        typer.echo()
        print_table(["SINK", "TOPIC", "PARTITION", "OFFSET", "END", "LAG ROWS"], rows)


def _status_row(sink: "SinkStatus", *, is_running: bool) -> list[str | int | None]:
    said = sink.run or {}
    state = str(said.get("state", "unknown"))
    if not is_running and state in {"running", "starting", "waiting"}:
        # Its last words: whoever wrote them was killed before it could write others.
        state = "ended"
    done = sink.checkpoint
    moment = render_moment(done.done_at_ms)
    return [done.sink, state, done.done_batch, moment, sink.lag_rows, *_numbers(said), said.get("error")]


def _numbers(said: Any) -> list[int | None]:
    return [said.get("rows_in"), said.get("rows_out")]


def _load(file: Path, settings: list[str] | None) -> "LoadedPipeline":
    from penstock.spark.pipeline.loading import load_pipeline

    return load_pipeline(file, parse_pairs(settings or ()))


def _session(loaded: "LoadedPipeline", master: str | None, *, verbose: bool) -> Any:
    from penstock.spark.session import build_session

    asked = loaded.pipeline.spark
    if (master or asked.master or "").startswith("sc://"):
        raise CommandFailed(
            "a pipeline cannot be run through Spark Connect: its queries need the driver to be here",
            "Give --master spark://HOST:PORT, local[*], or start it with spark-submit.",
            exit_code=ASKED_WRONGLY,
        )
    conf = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in asked.conf.items()}
    spark = build_session(f"penstock-{loaded.pipeline.name}", master or asked.master, conf)
    if not verbose:
        # What matters of a failure is told in a sentence; the stack traces of two languages stand in nobody's way.
        spark.sparkContext.setLogLevel("OFF")
        for name in _LOUD_LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return spark


def _schemas(loaded: "LoadedPipeline", master: str | None, *, verbose: bool) -> dict[str, list[dict[str, str]]]:
    from penstock.spark.pipeline.schemas import schemas_of

    spark = _session(loaded, master, verbose=verbose)
    try:
        return {name: [one._asdict() for one in each] for name, each in schemas_of(spark, loaded).items()}
    finally:
        spark.stop()


@contextmanager
def _stopped_by(running: "PipelineRun") -> Generator[None]:
    """Ctrl-C and SIGTERM let the current batch end; the second one does not wait for it."""
    times = 0

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal times
        times += 1
        if times > 1:
            raise KeyboardInterrupt
        running.ask_to_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _failures_as_sentences() -> Generator[None]:
    try:
        from penstock.spark.errors import BadOption, BadPipeline, SparkFailure

        try:
            yield
        except (BadPipeline, BadOption) as fault:
            raise CommandFailed(str(fault), exit_code=ASKED_WRONGLY) from None
        except SparkFailure as fault:
            raise CommandFailed(str(fault), exit_code=FAILED) from None
    except ModuleNotFoundError as fault:
        if (fault.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise CommandFailed(
            f"pipelines need {fault.name}, which is not installed", 'pip install "penstock[spark]" brings it.'
        ) from None
