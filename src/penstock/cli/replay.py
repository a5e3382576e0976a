"""`penstock replay`: rows of a table, or a stretch of a topic, back into a topic.

Called by cli.app. Spark is imported when it runs.
"""

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.text import safe_text
from penstock.cli.archive import failures_as_sentences
from penstock.cli.arguments import parse_moment_ms, parse_pairs
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.cli.spark_extra import cluster_options, needs_spark

if TYPE_CHECKING:
    from penstock.spark.replay import Steps, Stretch


@with_cluster
@needs_spark
def replay(
    cluster: Cluster,
    target: Annotated[str, typer.Argument(metavar="TARGET", show_default=False, help="The topic to write to.")],
    table: Annotated[str, typer.Option("--table", metavar="DIR", help="Read this table, as archive has made it.")] = "",
    table_format: Annotated[
        Literal["delta", "iceberg", "parquet"], typer.Option("--format", help="Of the table.")
    ] = "delta",
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="Read this topic; with --table, only rows that came from it.")
    ] = "",
    begin: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Records as young as this.")] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Up to here, exclusive.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0.1, help="At most so many records a second.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written, and write nothing.")] = False,
    table_option: Annotated[
        list[str] | None,
        typer.Option("--table-option", metavar="NAME=VALUE", help="Of the table, as catalog.uri=…; repeatable."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="Of source and sink, as kafka.…; repeatable."),
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master; default local[*].")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what Spark says.")] = False,
) -> None:
    """Write records again: key, value, headers and time as they were, in the order of each source partition."""
    from penstock.spark.replay import Replay, run_replay, survey
    from penstock.spark.sql.quiet import quiet_session

    if not table and not topic:
        raise typer.BadParameter("give --table or --topic: what is to be replayed?")
    asked = Replay(
        target,
        cluster_options(cluster, option or ()),
        topic="" if table else topic,
        kind=table_format,
        table=table,
        table_options=parse_pairs(table_option or ()),
        only_topic=topic if table else "",
        begin_ms=None if begin is None else parse_moment_ms(begin),
        until_ms=None if until is None else parse_moment_ms(until),
        rate=rate,
    )
    cluster.find_listener()
    with failures_as_sentences(), quiet_session("penstock replay", master, is_verbose=verbose) as spark:
        if dry_run:
            _print(survey(spark, asked), target, is_written=False, as_json=cluster.as_json)
            return
        written = run_replay(spark, asked, _Steps(as_json=cluster.as_json))
        _print(written, target, is_written=True, as_json=cluster.as_json)


class _Steps:
    """A line when more tasks are done; JSON for scripts. Both to stderr, beside the result."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._last = (-1, -1)

    def __call__(self, steps: "Steps") -> None:
        if steps != self._last:
            self._last = tuple(steps)
            done, total = steps
            say(json.dumps({"tasks_done": done, "tasks": total}) if self._as_json else f"{done} of {total} tasks done")


def _print(stretches: "list[Stretch]", target: str, *, is_written: bool, as_json: bool) -> None:
    rows = sum(one.rows for one in stretches)
    if as_json:
        parts = [
            {
                "topic": one.topic,
                "partition": one.partition,
                "rows": one.rows,
                "oldest": None if one.oldest is None else one.oldest.isoformat(),
                "newest": None if one.newest is None else one.newest.isoformat(),
            }
            for one in stretches
        ]
        print_json({"target": target, "written": is_written, "rows": rows, "partitions": parts})
        return
    if stretches:
        columns = ["TOPIC", "PARTITION", "ROWS", "OLDEST", "NEWEST"]
        print_table(columns, [[*one[:3], _moment(one.oldest), _moment(one.newest)] for one in stretches])
    say(f"{rows} records {'written to' if is_written else 'would go to'} {safe_text(target)}")


def _moment(value: object) -> str | None:
    return None if value is None else str(value).replace("+00:00", "Z")
