"""A batch that is in the table already is still worked through, for the state behind it.

Made by tables.open_sink around every sink. Whoever wrote the batch may have died before Spark had the state of its
windows and joins in the checkpoint; a batch that nobody works through leaves that state behind, and fails the query.
"""

from typing import TYPE_CHECKING

from penstock.spark.tables.model import TableSink, WrittenBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WorkedThrough:
    def __init__(self, sink: TableSink) -> None:
        self._sink = sink

    def write_batch(self, df: "DataFrame", batch_id: int) -> WrittenBatch:
        done = self._sink.write_batch(df, batch_id)
        if done.skipped:
            df.write.format("noop").mode("overwrite").save()
        return done
