"""One streaming query per sink.

Called by pipeline.running. A topic is written by the `penstock` sink, a table by penstock.spark.tables from
foreachBatch, the console by handing rows to whoever watches. Each query has the checkpoint <checkpoint>/<sink>.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.pipeline.durations import interval
from penstock.spark.pipeline.loading import LoadedPipeline
from penstock.spark.pipeline.model import Trigger
from penstock.spark.pipeline.model_sinks import TABLE_KINDS, Console, Sink
from penstock.spark.pipeline.sink_options import table_options, written_topic_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.tables import TableSink

_START_DEADLINE_S = 60.0
_ROWS_KEPT = 1000
OBSERVED = "penstock_rows_out"


class ConsoleRows(NamedTuple):
    """What a console sink shows of a batch."""

    sink: str
    batch: int
    columns: list[str]
    rows: list[list[Any]]
    has_more: bool


@dataclass
class Started:
    """A running query; `written` are the rows that table sinks counted, by batch."""

    query: "StreamingQuery"
    written: dict[int, int] = field(default_factory=dict[int, int])


def query_name(loaded: LoadedPipeline, sink: str) -> str:
    return f"{loaded.pipeline.name}-{sink}"


def checkpoint_of(loaded: LoadedPipeline, sink: str) -> str:
    return f"{loaded.checkpoint}/{sink}"


def start_query(
    loaded: LoadedPipeline, name: str, df: "DataFrame", trigger: Trigger, on_rows: Callable[[ConsoleRows], None]
) -> Started:
    sink = loaded.pipeline.sinks[name]
    written: dict[int, int] = {}
    query_id: list[str] = []
    table: list[TableSink] = []
    is_started = threading.Event()
    # The sink counts nothing itself, so Spark is asked to count on the way to it.
    frame = _for_topic(df, sink) if sink.topic is not None else df
    writer = frame.writeStream.queryName(query_name(loaded, name)).outputMode(sink.mode)
    writer = writer.option("checkpointLocation", checkpoint_of(loaded, name))
    if trigger.is_once:
        writer = writer.trigger(availableNow=True)
    elif trigger.every_ms is not None:
        writer = writer.trigger(processingTime=interval(trigger.every_ms))
    if sink.topic is not None:
        writer = writer.format("penstock").options(**written_topic_options(loaded, sink, query_name(loaded, name)))
    elif sink.console is not None:
        writer = writer.foreachBatch(_console_batch(name, sink.console, on_rows))
    else:

        def write(batch: "DataFrame", batch_id: int) -> None:
            # The query's id is the checkpoint's: a new checkpoint counts its batches from 0 again, and must not find
            # those of an old one.
            assert is_started.wait(_START_DEADLINE_S), "Spark did not say the query's id"
            if not table:
                # Kept for all batches: a new one looks through the whole table for what a dead run has left.
                table.append(_open_table(loaded, name, sink, query_id[0]))
            written[batch_id] = table[0].write_batch(batch, batch_id).rows
            if len(written) > _ROWS_KEPT:
                del written[min(written)]

        writer = writer.foreachBatch(write)
    query = writer.start()
    query_id.append(str(query.id))
    is_started.set()
    return Started(query, written)


def _for_topic(df: "DataFrame", sink: Sink) -> "DataFrame":
    from pyspark.sql import functions

    if sink.format == "json":
        columns = [functions.to_json(functions.struct("*")).alias("value")]
        if sink.key is not None:
            columns.insert(0, functions.expr(sink.key).cast("string").alias("key"))
        df = df.select(*columns)
    elif sink.key is not None:
        df = df.withColumn("key", functions.expr(sink.key))
    return df.observe(OBSERVED, functions.count(functions.lit(1)).alias("rows"))


def _open_table(loaded: LoadedPipeline, name: str, sink: Sink, query_id: str) -> "TableSink":
    from penstock.spark.tables import open_sink

    assert sink.kind in TABLE_KINDS
    return open_sink(sink.kind, table_options(loaded, sink), query=f"{query_name(loaded, name)}/{query_id}")


def _console_batch(
    name: str, console: Console, on_rows: Callable[[ConsoleRows], None]
) -> "Callable[[DataFrame, int], None]":
    def show(batch: "DataFrame", batch_id: int) -> None:
        from penstock.spark.sql.views import readable

        table = readable(batch.limit(console.rows + 1))
        rows = table.collect()
        shown = [list(row) for row in rows[: console.rows]]
        if rows:
            on_rows(ConsoleRows(name, batch_id, list(table.columns), shown, has_more=len(rows) > console.rows))

    return show
