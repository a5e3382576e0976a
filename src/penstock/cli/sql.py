"""`penstock sql`: Spark SQL over topics, once or with --follow.

Called by cli.app. Rows go to stdout, all else to stderr. Ctrl-C ends a followed query as an end of its own would: exit
code 0; it interrupts one that was to end by itself: exit code 130. Spark is imported when a query is to be run.
"""

import contextlib
import re
import signal
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import ASKED_WRONGLY, CommandFailed
from penstock.admin.text import safe_text
from penstock.cli.arguments import parse_duration_ms, parse_moment_ms
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.cli.spark_extra import cluster_options, needs_spark
from penstock.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.sql.ranges import Edge
    from penstock.spark.sql.views import Reading, View

TABLE_ROWS = 1000
# Whole numbers below are offsets, those above are ms since 1970: no log is that long, no record that old.
_OFFSETS_BELOW = 100_000_000_000

Format = Literal["table", "json", "csv"]


@with_cluster
@needs_spark
def sql(
    cluster: Cluster,
    query: Annotated[str | None, typer.Argument(show_default=False, help="SELECT … FROM topic …")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the query from a file; - is stdin.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Go on with what comes in, until Ctrl-C.")] = False,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="WHERE", help="earliest, latest, a time, 90m (ago), an offset, -N (the last N)."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="WHERE", help="The same; up to there, exclusive.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How rows are written.")] = "table",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=0, help=f"At most so many rows; 0: all. Tables: {TABLE_ROWS}.")
    ] = None,
    value_format: Annotated[
        str, typer.Option("--value-format", help="auto, json, string, bytes, avro or protobuf.")
    ] = "auto",
    schema: Annotated[
        str | None,
        typer.Option("--schema", help="Of values: 'id BIGINT, amount DOUBLE' for JSON, Avro's own for Avro."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="Of the source; repeatable.")
    ] = None,
    describe: Annotated[bool, typer.Option("--describe", help="Show the columns instead of rows.")] = False,
    watermark: Annotated[
        str | None, typer.Option("--watermark", help="How late rows may be while following, as '10 minutes'.")
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", help="While following: look as often, as '5 seconds'.")
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master; default local[*].")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what Spark says.")] = False,
) -> None:
    """Run SQL over topics; each topic is a table with key, value, topic, partition, offset, timestamp, headers."""
    text = _query_text(query, file)
    if follow and until is not None:
        raise typer.BadParameter("--to ends a query, --follow does not: give one of them")
    if not follow and (watermark is not None or every is not None):
        raise typer.BadParameter("--watermark and --every go with --follow only")
    reading = _reading(cluster, begin, until, follow, value_format, schema, option or (), watermark)
    shape: Format = "json" if cluster.as_json else output
    cluster.find_listener()
    with _explained(text, follow), _session(master, verbose) as spark:
        views = _make_views(spark, cluster, text, reading)
        table = spark.sql(text)
        if describe:
            _describe(views, table, cluster.as_json)
        elif follow:
            _follow(table, shape, limit or None, every)
        else:
            _run_once(table, shape, limit)


def parse_edge(text: str) -> "Edge":
    """What --from and --to take."""
    from penstock.spark.sql.ranges import Edge

    if text in ("earliest", "latest"):
        return Edge(text)
    if matched := re.fullmatch(r"(?:offset:)?(\d+)", text):
        number = int(matched[1])
        return Edge("offset", number) if text.startswith("offset:") or number < _OFFSETS_BELOW else Edge("time", number)
    if matched := re.fullmatch(r"-(\d+)", text):
        return Edge("back", int(matched[1]))
    if re.fullmatch(r"(\d+(ms|[smhdw]))+", text):
        return Edge("time", SystemClock().now_ms() - parse_duration_ms(text))
    return Edge("time", parse_moment_ms(text))


def _query_text(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise typer.BadParameter("give the query, or a file that holds it with --file")
    if file is not None:
        try:
            query = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            raise CommandFailed(f"{file} cannot be read: {fault}", exit_code=ASKED_WRONGLY) from None
    text = (query or "").strip().rstrip(";").strip()
    if not text:
        raise typer.BadParameter("the query is empty")
    return text


def _reading(
    cluster: Cluster,
    begin: str | None,
    until: str | None,
    follow: bool,
    value_format: str,
    schema: str | None,
    options: Sequence[str],
    watermark: str | None,
) -> "Reading":
    from penstock.spark.sql.ranges import BEGINNING, END
    from penstock.spark.sql.views import Reading

    source = cluster_options(cluster, options)
    level = source.pop("isolation.level", None) or source.pop("kafka.isolation.level", "read_committed")
    return Reading(
        source,
        parse_edge(begin) if begin is not None else END if follow else BEGINNING,
        parse_edge(until) if until is not None else END,
        "read_uncommitted" if level == "read_uncommitted" else "read_committed",
        follow,
        value_format.lower(),
        schema,
        watermark,
    )


def _make_views(spark: "SparkSession", cluster: Cluster, text: str, reading: "Reading") -> "list[View]":
    from penstock.spark.client_settings import connection_settings
    from penstock.spark.fetching import Cluster as Brokers
    from penstock.spark.sql.naming import topics_of
    from penstock.spark.sql.views import create_view, find_views

    topics = topics_of(spark, text)
    kafka = {name.removeprefix("kafka."): value for name, value in reading.options.items() if name.startswith("kafka.")}
    brokers = Brokers(connection_settings(kafka))
    try:
        views = find_views(brokers, topics, reading)
    finally:
        brokers.close()
    for view in views:
        create_view(spark, view, reading)
    return views


def _run_once(table: "DataFrame", shape: Format, limit: int | None) -> None:
    from penstock.spark.sql.rendering import cell
    from penstock.spark.sql.views import readable

    table = readable(table)
    names = table.columns
    most = limit if limit is not None else TABLE_ROWS if shape == "table" else 0
    # One more tells whether there are more.
    rows: Iterator[Any] = (table.limit(most + 1) if most else table).toLocalIterator(prefetchPartitions=True)
    if shape != "table":
        _write_lines(names, islice(rows, most) if most else rows, shape)
        return
    found = list(rows)
    shown = found[:most] if most else found
    print_table(names, [[cell(value) for value in row] for row in shown])
    if len(found) > len(shown):
        say(f"… there are more than {most} rows; --limit 0 shows all, --format json or csv writes them as they come.")


def _follow(table: "DataFrame", shape: Format, limit: int | None, every: str | None) -> None:
    from penstock.spark.sql.following import follow, output_mode
    from penstock.spark.sql.rendering import cell
    from penstock.spark.sql.views import readable

    table = readable(table)
    names = table.columns
    mode = output_mode(table)
    left = limit
    has_header = True
    with _ended_by_signals(), follow(table, mode, every) as pieces:
        for piece in pieces:
            rows = piece.rows if left is None else piece.rows[:left]
            if shape == "table":
                print_table(names, [[cell(value) for value in row] for row in rows])
            else:
                _write_lines(names, rows, shape, has_header=has_header)
            has_header = False
            sys.stdout.flush()
            left = None if left is None else left - len(rows)
            if left == 0:
                return


def _write_lines(names: Sequence[str], rows: Iterable[Any], shape: Format, *, has_header: bool = True) -> None:
    from penstock.spark.sql.rendering import csv_lines, json_lines

    for line in json_lines(names, rows) if shape == "json" else csv_lines(names, rows, has_header=has_header):
        typer.echo(line)


def _describe(views: "Iterable[View]", table: "DataFrame", as_json: bool) -> None:
    columns = [{"column": field.name, "type": field.dataType.simpleString()} for field in table.schema.fields]
    topics = [
        {
            "topic": view.topic,
            "partitions": len(view.spans),
            "rows": view.rows,
            "key": "string" if view.key_is_text else "binary",
            "value": view.value.kind,
            "schema": view.value.schema,
            "sampled": view.value.sampled,
        }
        for view in views
    ]
    if as_json:
        print_json({"topics": topics, "columns": columns})
        return
    for one in topics:
        told = f"{one['rows']} rows in {one['partitions']} partitions, value {one['value']} (sampled {one['sampled']})"
        typer.echo(f"{safe_text(str(one['topic']))}: {told}")
        if one["schema"]:
            typer.echo(f"  --schema {safe_text(repr(one['schema']))}")
    print_table(["COLUMN", "TYPE"], [[one["column"], one["type"]] for one in columns])


@contextlib.contextmanager
def _session(master: str | None, verbose: bool) -> Generator["SparkSession"]:
    from penstock.spark.sql.quiet import quiet_session

    if master is not None and master.startswith("sc://"):
        raise CommandFailed(
            "penstock sql reads the query with Spark's own parser, which Spark Connect does not lend",
            "Give another --master.",
            ASKED_WRONGLY,
        )
    with quiet_session("penstock sql", master, is_verbose=verbose) as spark:
        yield spark


@contextlib.contextmanager
def _explained(text: str, is_following: bool) -> Generator[None]:
    """Failures of Spark and of ours as people read them."""
    from penstock.errors import PenstockError

    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError, CommandFailed, typer.Exit, typer.BadParameter):
        raise
    except PenstockError as error:
        raise CommandFailed(str(error)) from None
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        from penstock.spark.sql.faults import explain_query

        raise CommandFailed(str(explain_query(error, text, is_following=is_following))) from None


@contextlib.contextmanager
def _ended_by_signals() -> Generator[None]:
    """Ctrl-C and SIGTERM leave the block, quietly."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
