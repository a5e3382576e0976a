"""`penstock report`: what topics hold, how they grow, what they cost and where that leads, as a page and as JSON.

Called by cli.app. Without --deep no record is read and Spark is not started.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.admin.cluster import Cluster, admin_types
from penstock.admin.failures import ASKED_WRONGLY, CommandFailed
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.cli.spark_extra import cluster_options, needs_spark
from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.model import Endpoint

if TYPE_CHECKING:
    from penstock.spark.report.facts import DeepFacts, Report, Settings, Topic
    from penstock.spark.report.prices import Prices

DEFAULT_PAGE = Path("penstock-report.html")
_RETENTION = ("cleanup.policy", "retention.ms", "retention.bytes")


@with_cluster
@needs_spark
def report(
    cluster: Cluster,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", show_default=False, help="Default: all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-O", help=f"Where the page goes; default {DEFAULT_PAGE}.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=400, help="How many days to look back.")] = 30,
    hours: Annotated[int, typer.Option("--hours", min=1, max=400, help="How many hours, for the hourly view.")] = 48,
    horizon: Annotated[int, typer.Option("--horizon", min=1, max=1000, help="How many days to look ahead.")] = 90,
    prices: Annotated[Path | None, typer.Option("--prices", help="A YAML file of prices; see docs/reports.md.")] = None,
    partition_mb: Annotated[
        float, typer.Option("--partition-mb", min=0.001, help="MB/s one partition should carry at its busiest.")
    ] = 5.0,
    deep: Annotated[bool, typer.Option("--deep", help="Read every record with Spark: keys, sizes, nulls.")] = False,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master for --deep; default local[*].")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what Spark says.")] = False,
) -> None:
    """Write a page about topics: volume, growth, cost, forecast. With --json the numbers, and a page if --out says."""
    try:
        found = _make(cluster, topics or (), days, hours, horizon, prices, partition_mb, deep, master, verbose)
    except PenstockError as error:
        raise CommandFailed(str(error)) from None
    page = out or (None if cluster.as_json else DEFAULT_PAGE)
    if page is not None:
        _write_page(found, page)
    if cluster.as_json:
        from penstock.spark.report.facts import as_document

        print_json(as_document(found))
    else:
        _print_summary(found)
        typer.echo(f"The page is {page}")


def _make(
    cluster: Cluster,
    names: Sequence[str],
    days: int,
    hours: int,
    horizon: int,
    price_file: Path | None,
    partition_mb: float,
    is_deep: bool,
    master: str | None,
    verbose: bool,
) -> "Report":
    from penstock.spark.client_settings import connection_settings
    from penstock.spark.fetching import Cluster as Brokers
    from penstock.spark.report.facts import Report
    from penstock.spark.report.gathering import Extras, find_partitions, survey
    from penstock.spark.report.judging import judge
    from penstock.spark.report.sizes import ask_sizes

    prices = _prices(price_file)
    options = cluster_options(cluster)
    settings = connection_settings({name.removeprefix("kafka."): value for name, value in options.items()})
    metadata = cluster.metadata()
    now_ms = SystemClock().now_ms()
    brokers = Brokers(settings)
    try:
        partitions = find_partitions(brokers, names)
        sizes = ask_sizes(settings, [Endpoint(one.host, one.port) for one in metadata.brokers.values()])
        extras = Extras(sizes, _settings(cluster, partitions))
        surveyed = survey(brokers, partitions, extras, now_ms, days, hours)
    finally:
        brokers.close()
    deep = _read_deep(surveyed, options, master, verbose) if is_deep else {}
    judged = [judge(one, horizon, prices, deep.get(one.name), partition_mb * 1e6) for one in surveyed]
    notes = [f"{sizes.silent} brokers did not tell the size of their logs: copies are missing."] if sizes.silent else []
    currency = None if prices is None else prices.currency
    return Report(cluster.bootstrap, now_ms, horizon, currency, tuple(judged), tuple(notes))


def _prices(file: Path | None) -> "Prices | None":
    from penstock.spark.report.prices import read_prices

    try:
        return None if file is None else read_prices(file)
    except PenstockError as error:
        raise CommandFailed(str(error), exit_code=ASKED_WRONGLY) from None


def _settings(cluster: Cluster, topics: Iterable[str]) -> "dict[str, Settings]":
    """How long each topic keeps its records; empty where this user may not ask."""
    from penstock.spark.report.facts import Settings

    types = admin_types()
    asked = [types.ConfigResource(types.ResourceType.TOPIC, name) for name in topics]
    if not asked:
        return {}
    found: dict[str, Settings] = {}
    for resource, future in cluster.ask(cluster.admin.describe_configs, asked).items():
        entries, _ = cluster.outcome(future)
        if entries is not None:
            values = {name: entries[name].value for name in _RETENTION if name in entries}
            found[resource.name] = Settings(
                values.get("cleanup.policy"), _limit(values, "retention.ms"), _limit(values, "retention.bytes")
            )
    return found


def _limit(values: Mapping[str, Any], name: str) -> int | None:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        number = int(values[name])
        return number if number >= 0 else None
    return None


def _read_deep(
    topics: "Sequence[Topic]", options: Mapping[str, str], master: str | None, verbose: bool
) -> "dict[str, DeepFacts]":
    from penstock.spark.errors import SparkFailure, reason
    from penstock.spark.report.deep import read_deep
    from penstock.spark.sql.quiet import quiet_session

    say(f"Reading {sum(topic.rows for topic in topics)} records of {len(topics)} topics …")
    with quiet_session("penstock report", master, is_verbose=verbose) as spark:
        try:
            return read_deep(spark, topics, options)
        except PenstockError:
            raise
        except Exception as error:
            if not type(error).__module__.startswith(("pyspark", "py4j")):
                raise
            raise SparkFailure(reason(error)) from None


def _write_page(found: "Report", page: Path) -> None:
    from penstock.spark.report.page import render_page

    try:
        page.write_text(render_page(found), encoding="utf-8")
    except OSError as fault:
        raise CommandFailed(f"{page} cannot be written: {fault.strerror or fault}", exit_code=ASKED_WRONGLY) from None


def _print_summary(found: "Report") -> None:
    from penstock.spark.report import wording

    columns = ["TOPIC", "PARTITIONS", "ROWS", "ON DISK", "IN A DAY", f"DISK IN {found.horizon_days} D"]
    columns += ["A MONTH"] if found.currency is not None else []
    rows: list[list[Any]] = []
    for one in found.topics:
        disk = one.forecast.disk_bytes[-1].likely if one.forecast is not None else None
        row: list[Any] = [one.topic.name, one.topic.partitions, one.topic.rows]
        row += [wording.size(one.topic.stored_bytes), wording.size(one.incoming_bytes_a_day), wording.size(disk)]
        row += (
            [wording.money(one.cost.total if one.cost else None, found.currency)] if found.currency is not None else []
        )
        rows.append(row)
    if rows:
        print_table(columns, rows)
    else:
        say("There are no topics yet; the page says no more.")
    for note in found.notes:
        say(note)
