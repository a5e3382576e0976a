"""Topics kept for ever: every record of a topic as a row of a Delta or Iceberg table, once, partitioned by day.

Called by cli.archive and by users. Rows are those of the source (key, value, topic, partition, offset, timestamp,
timestampType, headers) and `day`, the date of the timestamp in UTC.
Laws:
- Rows and the number of their batch are in one commit of the table (tables.model), so a record is there once.
- A checkpoint that was lost, or that another run has left behind, costs nothing: the table itself knows which offsets
  it holds (archive_checkpoint, starting_offsets).
- One run at a time archives a topic into a table (archive_lock).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.model import TopicPartition
from penstock.spark.archive_checkpoint import choose_checkpoint
from penstock.spark.archive_lock import ArchiveLock
from penstock.spark.errors import BadOption
from penstock.spark.tables import compact_table, open_sink
from penstock.spark.tables.durability import local_folder
from penstock.spark.tables.markers import read_writers
from penstock.spark.tables.model import WrittenBatch, query_tag
from penstock.spark.tables.options import sink_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Format = Literal["delta", "iceberg"]

DEFAULT_BATCH_ROWS = 2_000_000
DEFAULT_EVERY = "10 seconds"
# While following: so many batches make small files enough to join.
COMPACT_BATCHES = 60
# A name of a folder has an end: more topics than fit into it go by their digest.
_FOLDER_NAME_MAX = 200
# Whole days since 1970 in UTC, whatever the session's time zone. A producer may write any timestamp: what no calendar
# has stands under the first or the last day of one, since the libraries that keep the tables stop at a year 10000.
DAY = (
    "date_add(DATE'1970-01-01', "
    "CAST(greatest(-719162, least(2932896, floor(unix_micros(timestamp) / 86400000000))) AS INT))"
)


@dataclass(frozen=True)
class Archive:
    """What to keep, and where. `source` holds options of the source: kafka.bootstrap.servers and so on."""

    topics: tuple[str, ...]
    table: str
    source: Mapping[str, str] = field(repr=False)
    format: Format = "delta"
    checkpoint: str = ""
    batch_rows: int = DEFAULT_BATCH_ROWS
    is_compacted: bool = False
    # More options of the table sink: catalog, storage_options, compression.
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def sink_options(self) -> dict[str, Any]:
        where = {} if self.options.get("catalog") and not self.table else {"path": self.table}
        return {**where, **self.options}

    @property
    def checkpoint_folder(self) -> str:
        """Beside the data by default, under a name that readers of tables pass over."""
        if self.checkpoint:
            return self.checkpoint
        if not self.table or ("://" in self.table and not self.table.startswith("file://")):
            raise BadOption("a table in an object store needs a checkpoint folder of its own: say which")
        # A comma, which no topic's name has: `a` and `b` are not `a-b`.
        name = ",".join(sorted(self.topics))
        name = name if len(name) <= _FOLDER_NAME_MAX else query_tag(name)
        return f"{self.table.rstrip('/')}/_penstock/archive-{name}"


class ArchivedBatch(NamedTuple):
    batch: int
    written: WrittenBatch


def start_archive(
    spark: "SparkSession",
    archive: Archive,
    *,
    is_once: bool,
    every: str = DEFAULT_EVERY,
    on_batch: Callable[[ArchivedBatch], None] = lambda _: None,
) -> "StreamingQuery":
    """The running query. `is_once`: it ends with what the topics hold now."""
    from penstock.spark import register

    if not archive.topics:
        raise BadOption("an archive needs at least one topic")
    register(spark)
    lock = ArchiveLock(lock_paths(archive))
    try:
        query = _start(spark, archive, is_once, every, on_batch)
    except BaseException:
        lock.release()
        raise
    lock.release_after(query)
    return query


def _start(
    spark: "SparkSession", archive: Archive, is_once: bool, every: str, on_batch: Callable[[ArchivedBatch], None]
) -> "StreamingQuery":
    options = sink_options(archive.format, archive.sink_options)
    chosen = choose_checkpoint(
        archive.checkpoint_folder, lambda name: read_writers(options, name), lambda: next_offsets(archive)
    )
    source = {
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": str(archive.batch_rows),
        **archive.source,
        "subscribe": ",".join(archive.topics),
        "includeHeaders": "true",
        "startingOffsets": starting_offsets(archive) if chosen.is_new else "earliest",
    }
    rows = spark.readStream.format("penstock").options(**source).load().selectExpr("*", f"{DAY} AS day")
    sink = open_sink(archive.format, {**archive.sink_options, "partition_by": "day"}, chosen.name)

    def write(batch: "DataFrame", number: int) -> None:
        written = sink.write_batch(batch, number)
        if archive.is_compacted and not is_once and number % COMPACT_BATCHES == COMPACT_BATCHES - 1:
            compact_archive(archive)
        on_batch(ArchivedBatch(number, written))

    writer = rows.writeStream.queryName(f"archive-{'-'.join(archive.topics)}").foreachBatch(write)
    writer = writer.option("checkpointLocation", chosen.folder)
    return (writer.trigger(availableNow=True) if is_once else writer.trigger(processingTime=every)).start()


def compact_archive(archive: Archive) -> Any:
    return compact_table(archive.format, archive.sink_options)


def next_offsets(archive: Archive) -> dict[TopicPartition, int]:
    """Behind the last record of each partition that the table holds."""
    from penstock.spark.archive_status import held_offsets

    return {
        TopicPartition(one.topic, one.partition): one.last + 1
        for one in held_offsets(archive.format, archive.sink_options)
        if one.topic in archive.topics
    }


def lock_paths(archive: Archive) -> list[Path]:
    """A lock for each topic in the table, one in the checkpoint; of both, those that are local folders."""
    table = local_folder(archive.table) if archive.table and not archive.options.get("catalog") else None
    checkpoint = local_folder(archive.checkpoint_folder)
    own = [] if table is None else [Path(table) / "_penstock" / f"archive-{topic}.lock" for topic in archive.topics]
    return own if checkpoint is None else [*own, Path(checkpoint) / ".run.lock"]


def starting_offsets(archive: Archive) -> str:
    """Behind what the table holds; from the earliest where it holds nothing."""
    from penstock.spark.fetching import Cluster
    from penstock.spark.options import read_options

    held = next_offsets(archive)
    if not held:
        return "earliest"
    # A start that names one partition must name all of them.
    settings = read_options({**archive.source, "subscribe": ",".join(archive.topics)}, is_streaming=True).connection
    cluster = Cluster(settings)
    try:
        facts = cluster.topics(archive.topics)
    finally:
        cluster.close()
    missing = [topic for topic in archive.topics if facts[topic] is None]
    if missing:
        raise BadOption(f"there is no topic {missing[0]}: create it first, or leave it out of the archive")
    starts = {
        topic: {str(number): held.get(TopicPartition(topic, number), -2) for number in sorted(found.leaders)}
        for topic, found in facts.items()
        if found is not None
    }
    return json.dumps(starts, sort_keys=True)
