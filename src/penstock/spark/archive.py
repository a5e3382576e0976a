"""Topics kept for ever: every record of a topic as a row of a Delta or Iceberg table, once, partitioned by day.

Called by cli.archive and by users. Rows are those of the source (key, value, topic, partition, offset, timestamp,
timestampType, headers) and `day`, the date of the timestamp in UTC.
Laws:
- Rows and the number of their batch are in one commit of the table (tables.model), so a record is there once.
- The name under which batches are counted lives and dies with the checkpoint (stream_name).
- A checkpoint that was lost costs nothing: the table itself knows which offsets it holds (starting_offsets).
"""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.spark.errors import BadOption
from penstock.spark.tables import compact_table, open_sink
from penstock.spark.tables.model import WrittenBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Format = Literal["delta", "iceberg"]

DEFAULT_BATCH_ROWS = 2_000_000
DEFAULT_EVERY = "10 seconds"
# While following: so many batches make small files enough to join.
COMPACT_BATCHES = 60
_NAME_FILE = "penstock-archive.json"
# Whole days since 1970 in UTC, whatever the session's time zone.
_DAY = "date_add(DATE'1970-01-01', CAST(floor(unix_micros(timestamp) / 86400000000) AS INT))"


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
        return f"{self.table.rstrip('/')}/_penstock/archive-{'-'.join(self.topics)}"


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
    name, is_new = stream_name(archive.checkpoint_folder)
    source = {
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": str(archive.batch_rows),
        **archive.source,
        "subscribe": ",".join(archive.topics),
        "includeHeaders": "true",
        "startingOffsets": starting_offsets(archive) if is_new else "earliest",
    }
    rows = spark.readStream.format("penstock").options(**source).load().selectExpr("*", f"{_DAY} AS day")
    sink = open_sink(archive.format, {**archive.sink_options, "partition_by": "day"}, name)

    def write(batch: "DataFrame", number: int) -> None:
        written = sink.write_batch(batch, number)
        if archive.is_compacted and not is_once and number % COMPACT_BATCHES == COMPACT_BATCHES - 1:
            compact_archive(archive)
        on_batch(ArchivedBatch(number, written))

    writer = rows.writeStream.queryName(f"archive-{'-'.join(archive.topics)}").foreachBatch(write)
    writer = writer.option("checkpointLocation", archive.checkpoint_folder)
    return (writer.trigger(availableNow=True) if is_once else writer.trigger(processingTime=every)).start()


def compact_archive(archive: Archive) -> Any:
    return compact_table(archive.format, archive.sink_options)


def stream_name(checkpoint: str) -> tuple[str, bool]:
    """What the stream of this checkpoint is called, and whether the checkpoint has yet to be begun.

    Kept inside the checkpoint: whoever deletes it gets a new name, whose batches count from 0 again.
    """
    from penstock.spark.tables.data_files import file_system

    system, folder = file_system(checkpoint)
    path = f"{folder}/{_NAME_FILE}"
    is_new = not _is_there(system, f"{folder}/offsets/0")
    if _is_there(system, path):
        with system.open_input_stream(path) as stream:
            return json.loads(stream.read())["name"], is_new
    name = f"archive-{uuid.uuid4().hex}"
    system.create_dir(folder, recursive=True)
    with system.open_output_stream(path) as stream:
        stream.write(json.dumps({"name": name}).encode())
    return name, is_new


def _is_there(system: Any, path: str) -> bool:
    import pyarrow.fs as pafs

    return system.get_file_info(path).type == pafs.FileType.File


def starting_offsets(archive: Archive) -> str:
    """Behind what the table holds; from the earliest where it holds nothing."""
    from penstock.spark.archive_status import held_offsets
    from penstock.spark.fetching import Cluster
    from penstock.spark.options import read_options

    held = {
        (one.topic, one.partition): one.last + 1
        for one in held_offsets(archive.format, archive.sink_options)
        if one.topic in archive.topics
    }
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
        topic: {str(number): held.get((topic, number), -2) for number in sorted(found.leaders)}
        for topic, found in facts.items()
        if found is not None
    }
    return json.dumps(starts, sort_keys=True)
