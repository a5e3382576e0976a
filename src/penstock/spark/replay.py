"""Rows of a table, or a stretch of a topic, back into a topic: keys, values, headers and timestamps as they were.

Called by cli.replay and by users. A batch job on the `penstock` source and sink.
Laws:
- Rows of one source partition are written by one task, in the order of their offsets.
- They keep the number of their partition when the target has that many, else the key decides, as for any producer.
- `rate` is never exceeded by all tasks together; it may be undercut when few of them are left.
"""

import contextlib
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.model import TopicPartition
from penstock.spark.errors import BadOption
from penstock.spark.replay_pace import Steps, paced, watched
from penstock.spark.tables import read_table
from penstock.spark.tables.failures import SchemaMismatch
from penstock.spark.tables.files import Wanted, list_files
from penstock.spark.tables.options import sink_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.fetching import Cluster

TASKS_MAX = 64
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_KEPT = ("key", "value", "headers", "timestamp")
_FIRST_DAY, _LAST_DAY = "0001-01-01", "9999-12-31"
ARCHIVE_COLUMNS = {"key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "day"}


@dataclass(frozen=True)
class Replay:
    """From a table (`kind`, `table`) or from a topic (`topic`), to `target`; times in ms since 1970, end exclusive.

    Of a topic the stretch is what its time index gives, from the first record as young as `begin_ms` to the one
    before the first as young as `until_ms`; of that, as of a table, the rows whose own time lies between the two.
    """

    target: str
    cluster: Mapping[str, str] = field(repr=False)
    topic: str = ""
    kind: str = "delta"
    table: str = ""
    table_options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    # Only rows that came from this topic, of a table that holds several.
    only_topic: str = ""
    begin_ms: int | None = None
    until_ms: int | None = None
    rate: float | None = None
    # Where a topic without until_ms ends, as JSON: set once, or what comes in meanwhile would be replayed and not told.
    ending_offsets: str = ""


class Stretch(NamedTuple):
    """What is to be replayed of one source partition; nameless where the table does not say where a row came from."""

    topic: str | None
    partition: int | None
    rows: int
    oldest: datetime | None
    newest: datetime | None


def survey(spark: "SparkSession", replay: Replay) -> list[Stretch]:
    """What a replay would write: the dry run."""
    from pyspark.sql import functions as F

    rows = source_rows(spark, replay)
    where = [name for name in ("topic", "partition") if name in rows.columns]
    times = [F.min("timestamp").alias("low"), F.max("timestamp").alias("high")] if "timestamp" in rows.columns else []
    found = rows.groupBy(*where).agg(F.count("*").alias("rows"), *times).collect()
    stretches = [
        Stretch(one.get("topic"), one.get("partition"), one["rows"], _in_utc(one.get("low")), _in_utc(one.get("high")))
        for one in (row.asDict() for row in found)
        if one["rows"]
    ]
    return sorted(stretches, key=lambda one: (one.topic or "", one.partition or 0))


def run_replay(
    spark: "SparkSession", replay: Replay, on_step: Callable[[Steps], None] = lambda _: None
) -> list[Stretch]:
    """Write, and give what was written. A failure leaves whole tasks written and others not: rows may be there."""
    partitions = target_partitions(replay)
    if replay.topic and replay.until_ms is None:
        replay = replace(replay, ending_offsets=_ends_now(replay))
    stretches = survey(spark, replay)
    if not stretches:
        return []
    highest = max((one.partition for one in stretches if one.partition is not None), default=-1)
    rows = arranged(source_rows(spark, replay), len(stretches))
    columns = [name for name in _KEPT if name in rows.columns]
    if 0 <= highest < partitions:
        columns.append("partition")
    rows = rows.select(*columns)
    # A transaction must end within minutes, and a slow replay takes as long as it takes.
    delivery = "exactly-once" if replay.rate is None else "at-least-once"
    options = {"delivery": delivery, **replay.cluster, "topic": replay.target, "includeHeaders": "true"}
    before = spark.conf.get(_BATCH_ROWS, "10000")
    if replay.rate is not None:
        tasks = min(len(stretches), TASKS_MAX, spark.sparkContext.defaultParallelism)
        # Small batches, or the limit would hold on average and be broken at every instant.
        spark.conf.set(_BATCH_ROWS, str(max(1, min(10_000, int(replay.rate / tasks / 10)))))
        rows = rows.mapInArrow(paced(replay.rate / tasks), rows.schema)
    try:
        with watched(spark, on_step):
            rows.write.format("penstock").mode("append").options(**options).save()
    finally:
        spark.conf.set(_BATCH_ROWS, before or "10000")
    return stretches


def source_rows(spark: "SparkSession", replay: Replay) -> "DataFrame":
    """The rows to replay, in no order yet."""
    from pyspark.sql import functions as F

    from penstock.spark import register

    register(spark)
    if bool(replay.topic) == bool(replay.table or replay.table_options):
        raise BadOption("a replay needs a table or a topic to read, and not both")
    if replay.topic:
        rows = spark.read.format("penstock").options(**_topic_options(replay)).load()
    else:
        rows = read_table(spark, replay.kind, replay.table, replay.table_options, wanted=files_wanted(replay))
        if "value" not in rows.columns:
            raise SchemaMismatch("a table to replay needs a column value, and key, headers, timestamp if there are any")
    if replay.only_topic:
        rows = rows.where(F.col("topic") == replay.only_topic)
    if (replay.begin_ms is not None or replay.until_ms is not None) and "timestamp" not in rows.columns:
        raise SchemaMismatch("the rows have no column timestamp: leave the times out")
    if replay.begin_ms is not None:
        rows = rows.where(F.col("timestamp") >= F.timestamp_millis(F.lit(replay.begin_ms)))
    if replay.until_ms is not None:
        rows = rows.where(F.col("timestamp") < F.timestamp_millis(F.lit(replay.until_ms)))
    return rows


def arranged(rows: "DataFrame", source_partitions: int) -> "DataFrame":
    """Each source partition in one task, by offset; as they come where rows do not say where they are from."""
    where = [name for name in ("topic", "partition") if name in rows.columns]
    if "partition" not in where or "offset" not in rows.columns:
        return rows
    return rows.repartition(min(source_partitions, TASKS_MAX), *where).sortWithinPartitions(*where, "offset")


def target_partitions(replay: Replay) -> int:
    with _cluster(replay) as cluster:
        facts = cluster.topics([replay.target])[replay.target]
    if facts is None:
        raise BadOption(f"there is no topic {replay.target} to replay into: create it first")
    return len(facts.leaders)


def _ends_now(replay: Replay) -> str:
    with _cluster(replay) as cluster:
        facts = cluster.topics([replay.topic])[replay.topic]
        if facts is None:
            raise BadOption(f"there is no topic {replay.topic} to replay")
        places = [TopicPartition(replay.topic, number) for number in sorted(facts.leaders)]
        ends = cluster.list_offsets(dict.fromkeys(places, -1), "read_committed")
    return json.dumps({replay.topic: {str(place.partition): ends[place][0] for place in places}})


@contextlib.contextmanager
def _cluster(replay: Replay) -> "Generator[Cluster]":
    from penstock.spark.fetching import Cluster
    from penstock.spark.options import read_options

    cluster = Cluster(read_options({**replay.cluster, "subscribe": replay.target}, is_streaming=False).connection)
    try:
        yield cluster
    finally:
        cluster.close()


def _topic_options(replay: Replay) -> dict[str, str]:
    options = {**replay.cluster, "subscribe": replay.topic, "includeHeaders": "true"}
    if replay.begin_ms is not None:
        options |= {"startingTimestamp": str(replay.begin_ms), "startingOffsetsByTimestampStrategy": "latest"}
    if replay.until_ms is not None:
        options["endingTimestamp"] = str(replay.until_ms)
    elif replay.ending_offsets:
        options["endingOffsets"] = replay.ending_offsets
    return options


def files_wanted(replay: Replay) -> Wanted | None:
    """Files of other days are not even opened, where `day` is the archive's: of another table it may be anything."""
    if replay.begin_ms is None and replay.until_ms is None:
        return None
    where = {"path": replay.table} if replay.table else {}
    schema = list_files(sink_options(replay.kind, {**where, **replay.table_options})).schema
    return days_wanted(replay) if set(schema.names) == ARCHIVE_COLUMNS else None


def days_wanted(replay: Replay) -> Wanted:
    first = _FIRST_DAY if replay.begin_ms is None else _day(replay.begin_ms)
    last = _LAST_DAY if replay.until_ms is None else _day(replay.until_ms)

    def wanted(partition: Mapping[str, str | None]) -> bool:
        day = partition.get("day")
        return day is None or first <= day <= last

    return wanted


def _day(moment_ms: int) -> str:
    """As archive has it: what no calendar has stands under its first or last day."""
    days = min(max(moment_ms // 86_400_000, -719_162), 2_932_896)
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def _in_utc(moment: datetime | None) -> datetime | None:
    """Spark's moments come without a zone and in this process's own."""
    return None if moment is None else moment.astimezone(UTC)
