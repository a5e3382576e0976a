"""Tables as sinks of streams: Delta, Iceberg, Parquet folders and PostgreSQL, each batch in them exactly once.

Used by pipelines, by archive and replay, and by anyone in foreachBatch:

    sink = open_sink("delta", {"path": "orders", "partition_by": "day"}, query="orders")
    df.writeStream.foreachBatch(sink.write_batch).option("checkpointLocation", ...).start()

Nothing heavy is imported before it is needed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.spark.tables.model import Kind, TableSink, WrittenBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.tables.files import Wanted
    from penstock.spark.tables.options import SinkOptions
    from penstock.spark.tables.upkeep import Compacted

__all__ = ["Kind", "TableSink", "WrittenBatch", "compact_table", "open_sink", "read_table", "vacuum_table"]


def open_sink(kind: str, options: Mapping[str, Any], query: str) -> TableSink:
    """`query` names the stream for as long as its checkpoint lives: a new checkpoint needs a new name."""
    from penstock.spark.tables.options import sink_options
    from penstock.spark.tables.replays import WorkedThrough

    return WorkedThrough(_sink(sink_options(kind, options), query))


def _sink(chosen: "SinkOptions", query: str) -> TableSink:
    match chosen.kind:
        case "delta":
            from penstock.spark.tables.delta import DeltaSink

            return DeltaSink(chosen, query)
        case "iceberg":
            from penstock.spark.tables.iceberg import IcebergSink

            return IcebergSink(chosen, query)
        case "parquet":
            from penstock.spark.tables.parquet import ParquetSink

            return ParquetSink(chosen, query)
        case "postgres":
            from penstock.spark.tables.postgres import PostgresSink

            return PostgresSink(chosen, query)


def read_table(
    spark: "SparkSession",
    kind: str,
    path: str = "",
    options: Mapping[str, Any] | None = None,
    *,
    wanted: "Wanted | None" = None,
) -> "DataFrame":
    """The table as it is now, as a DataFrame; see reading."""
    from penstock.spark.tables import reading

    return reading.read_table(spark, kind, path, options, wanted=wanted)


def compact_table(kind: str, options: Mapping[str, Any], *, target_bytes: int | None = None) -> "Compacted":
    """Small files into large ones, in one commit; see upkeep."""
    from penstock.spark.tables import upkeep

    return upkeep.compact_table(kind, options, target_bytes=target_bytes)


def vacuum_table(
    kind: str, options: Mapping[str, Any], *, older_than_hours: float = 168.0, dry_run: bool = False
) -> list[str]:
    """Take away files that no commit names, nor could any more; see upkeep."""
    from penstock.spark.tables import upkeep

    return upkeep.vacuum_table(kind, options, older_than_hours=older_than_hours, dry_run=dry_run)
