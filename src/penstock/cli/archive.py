"""`penstock archive`: topics into a Delta or Iceberg table and how much of them is there.

Called by cli.app. Spark is imported by `run` alone, when it runs. Exit codes: 0 done or stopped as asked, 1 it failed,
2 it was asked wrongly.
"""

import json
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import ASKED_WRONGLY, CommandFailed
from penstock.admin.text import safe_text
from penstock.cli.arguments import parse_pairs
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.cli.spark_extra import cluster_options, needs_spark

if TYPE_CHECKING:
    from penstock.spark.archive import Archive, ArchivedBatch

LOOK_EVERY_S = 1
# No batch takes longer to be committed.
VACUUM_HOURS_MIN = 1

app = typer.Typer(no_args_is_help=True, help="Keep topics in a table, every record once; look after the table.")

Format = Annotated[Literal["delta", "iceberg"], typer.Option("--format", help="Of the table.")]
Table = Annotated[str, typer.Option("--table", metavar="DIR", show_default=False, help="Folder of the table.")]
TableOptions = Annotated[
    list[str] | None,
    typer.Option("--table-option", metavar="NAME=VALUE", help="Of the table, as catalog.uri=…; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of tables.")]


@app.command("run")
@with_cluster
@needs_spark
def run(
    cluster: Cluster,
    topic: Annotated[list[str], typer.Option("--topic", "-t", show_default=False, help="To keep; repeatable.")],
    table: Table,
    table_format: Format = "delta",
    once: Annotated[
        bool, typer.Option("--once/--follow", help="Stop at the end of what there is now, or go on until Ctrl-C.")
    ] = True,
    compact: Annotated[bool, typer.Option("--compact", help="Join small files, at the end and now and then.")] = False,
    every: Annotated[str, typer.Option("--every", help="With --follow: a batch as often, as '30 seconds'.")] = "",
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", min=1, help="At most so many records a batch.")
    ] = 2_000_000,
    checkpoint: Annotated[str, typer.Option("--checkpoint", metavar="DIR", help="Default: inside the table.")] = "",
    table_option: TableOptions = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="Of the source; repeatable.")
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master; default local[*].")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what Spark says.")] = False,
) -> None:
    """Copy topics into the table; a run goes on where the last one ended."""
    from penstock.spark.archive import DEFAULT_EVERY, Archive, compact_archive, start_archive
    from penstock.spark.sql.quiet import quiet_session

    source = cluster_options(cluster, option or ())
    options = parse_pairs(table_option or ())
    archive = Archive(tuple(topic), table, source, table_format, checkpoint, batch_rows, compact, options)
    cluster.find_listener()
    with failures_as_sentences(), quiet_session("penstock archive", master, is_verbose=verbose) as spark:
        progress = _Progress(as_json=cluster.as_json)
        query = start_archive(spark, archive, is_once=once, every=every or DEFAULT_EVERY, on_batch=progress.batch)
        with _stop_asked() as is_asked:
            while not query.awaitTermination(LOOK_EVERY_S):
                if is_asked():
                    # A batch under way is given up, and made again by the next run.
                    query.stop()
        if compact:
            progress.compacted(compact_archive(archive))
        progress.end(archive)


@app.command("status")
@needs_spark
def status(
    table: Table, table_format: Format = "delta", table_option: TableOptions = None, as_json: Json = False
) -> None:
    """Rows and offsets of each partition that the table holds."""
    from penstock.spark.archive_status import archive_status

    with failures_as_sentences():
        found = archive_status(table_format, {"path": table, **parse_pairs(table_option or ())})
    if as_json:
        partitions = [
            {**one._asdict(), "oldest": _moment(one.oldest), "newest": _moment(one.newest)} for one in found.held
        ]
        print_json({"table": table, "rows": found.rows, "files": found.files, "partitions": partitions})
        return
    columns = ["TOPIC", "PARTITION", "ROWS", "FIRST OFFSET", "LAST OFFSET", "OLDEST", "NEWEST"]
    rows = [[*one[:5], _moment(one.oldest), _moment(one.newest)] for one in found.held]
    print_table(columns, rows)
    say(f"{safe_text(table)}: {found.rows} rows in {found.files} files")


@app.command("compact")
@needs_spark
def compact(
    table: Table,
    table_format: Format = "delta",
    vacuum_hours: Annotated[
        float | None,
        typer.Option("--vacuum-hours", min=0, help="Take away files unused for so long; 168: a week."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Vacuum below an hour too: nothing may be writing to the table then.")
    ] = False,
    table_option: TableOptions = None,
    as_json: Json = False,
) -> None:
    """Join the table's small files into large ones; others may read and write it meanwhile."""
    from penstock.spark.tables import compact_table, vacuum_table

    # A running archive has written files that its next commit will name.
    if vacuum_hours is not None and vacuum_hours < VACUUM_HOURS_MIN and not force:
        raise typer.BadParameter(
            f"below {VACUUM_HOURS_MIN} hour a vacuum may take the files of a batch that is being written: say more, or "
            "stop all writers and add --force",
            param_hint="--vacuum-hours",
        )
    options = {"path": table, **parse_pairs(table_option or ())}
    with failures_as_sentences():
        done = compact_table(table_format, options)
        taken = [] if vacuum_hours is None else vacuum_table(table_format, options, older_than_hours=vacuum_hours)
    if as_json:
        print_json({"files_before": done.files_before, "files_after": done.files_after, "vacuumed": len(taken)})
    else:
        typer.echo(
            f"{done.files_before} small files became {done.files_after}; {len(taken)} unused ones were taken away"
        )


class _Progress:
    """A line for each batch: for people to stderr, as JSON to stdout."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._rows = 0

    def batch(self, done: "ArchivedBatch") -> None:
        self._rows += done.written.rows
        if self._as_json:
            self._tell({"batch": done.batch, **done.written._asdict(), "rows_total": self._rows})
        elif done.written.skipped:
            say(f"batch {done.batch}: was there already")
        else:
            say(f"batch {done.batch}: {done.written.rows} rows in {done.written.files} files")

    def compacted(self, done: Any) -> None:
        if self._as_json:
            self._tell({"compacted": done._asdict()})
        else:
            say(f"{done.files_before} small files became {done.files_after}")

    def end(self, archive: "Archive") -> None:
        if self._as_json:
            self._tell({"done": True, "rows_total": self._rows})
        else:
            say(f"{', '.join(map(safe_text, archive.topics))}: {self._rows} rows into {safe_text(archive.table)}")

    def _tell(self, document: dict[str, Any]) -> None:
        typer.echo(json.dumps(document, ensure_ascii=False))
        sys.stdout.flush()


@contextmanager
def _stop_asked() -> Generator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came. The handler only notes it: the line to the JVM is busy with another call."""
    asked: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        asked.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def failures_as_sentences() -> Generator[None]:
    """What Spark and its libraries raise, as one sentence."""
    from penstock.errors import PenstockError
    from penstock.spark.errors import BadOption, reason

    try:
        yield
    except BadOption as fault:
        raise CommandFailed(str(fault), exit_code=ASKED_WRONGLY) from None
    except PenstockError as fault:
        raise CommandFailed(str(fault)) from None
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        raise CommandFailed(reason(error)) from None


def _moment(value: Any) -> str | None:
    return None if value is None else value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
