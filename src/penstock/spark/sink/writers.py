"""What Spark calls: a writer made in the driver, its `write` in every task, its `commit` in the driver again.

Made by source.py. Spark makes a writer anew for each batch and for each commit, each in a process of its own, so a
writer holds settings only; what lives longer is kept by the modules that the tasks call. Each of those processes
imports this file, so the client and the compiler that tasks need are imported where they are used.

The number of tasks is not known in a task (Python's TaskContext does not have it). It is known in `commit`, which is
why the comparison of a replayed batch with what stands is made twice: in each task for its own rows, and in
the driver for tasks that there were and are no more.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.errors import SparkFailure, told_plainly
from penstock.spark.sink.columns import RowShape, row_shape
from penstock.spark.sink.failures import ReplayDiffers
from penstock.spark.sink.marker import QUERY_MARKERS, WRITE_MARKERS, Marker, check_same
from penstock.spark.sink.producer_config import producer_config

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.spark.options import WriteOptions
    from penstock.spark.sink.exactly_once import Written

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
# The job group of a streaming query is its run id.
RUN_ID = "spark.jobGroup.id"


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task tells the driver; without a marker it wrote at least once."""

    rows: int
    marker: Marker | None = None
    is_skipped: bool = False
    is_replay: bool = False


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: "WriteOptions", schema: "StructType") -> None:
        self._options = options
        self._shape: RowShape = _checked(options, schema)
        # Known to all attempts at this write and to nobody else: a retried task finds its marker by it.
        self._id = f"write-{uuid.uuid4()}"
        self._since_ms = int(time.time() * 1000)

    @told_plainly()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskWritten:
        if self._options.delivery == "at-least-once":
            return _write_at_least_once(self._options, self._shape, iterator)
        from penstock.spark.sink.exactly_once import Task, write_exactly_once

        task = Task(self._id, self._id, 0, _context().partitionId(), WRITE_MARKERS, self._since_ms)
        return _told(write_exactly_once(self._options, task, self._shape, iterator))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: "WriteOptions", schema: "StructType") -> None:
        self._options = options
        self._shape: RowShape = _checked(options, schema)

    @told_plainly()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskWritten:
        if self._options.delivery == "at-least-once":
            return _write_at_least_once(self._options, self._shape, iterator)
        from penstock.spark.sink.exactly_once import Task, write_exactly_once

        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise SparkFailure("Spark does not say which query and batch this is; delivery=at-least-once needs neither")
        run = context.getLocalProperty(RUN_ID) or query
        task = Task(query, run, int(batch), context.partitionId(), QUERY_MARKERS)
        return _told(write_exactly_once(self._options, task, self._shape, iterator))

    @told_plainly()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        told = [message for message in messages if isinstance(message, TaskWritten) and message.marker is not None]
        # A batch without rows has looked at no markers, so it could not know that it had some before.
        if told and (any(message.is_replay for message in told) or not any(message.rows for message in told)):
            from penstock.spark.sink.marker_reading import read_markers

            markers = [message.marker for message in told if message.marker is not None]
            compare_replay(markers, read_markers(self._options, QUERY_MARKERS, markers[0].query))


def compare_replay(written: Sequence[Marker], standing: Sequence[Marker]) -> None:
    """Every standing marker of the batch must be that of a task there was; else its rows are in the topic twice."""
    by_task = {marker.task: marker for marker in written}
    batch = written[0].batch
    for marker in sorted(standing, key=lambda marker: marker.task):
        if marker.batch != batch:
            continue
        if marker.task not in by_task:
            raise ReplayDiffers(
                f"batch {batch} of query {marker.query} was begun with more tasks than the {len(written)} that ended "
                f"it, so the {marker.rows} rows of task {marker.task} are in the topic twice, and others may be: start "
                "with a new checkpoint, and with as many tasks as before next time"
            )
        own = by_task[marker.task]
        check_same(f"task {marker.task}", marker, own.rows, own.digest)


def _checked(options: "WriteOptions", schema: "StructType") -> RowShape:
    producer_config(options, None)
    return row_shape(schema, options.topic)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "write is called in a task"
    return context


def _write_at_least_once(options: "WriteOptions", shape: RowShape, batches: "Iterator[pa.RecordBatch]") -> TaskWritten:
    from penstock.spark.sink.at_least_once import write_at_least_once

    return TaskWritten(write_at_least_once(options, shape, batches))


def _told(written: "Written") -> TaskWritten:
    return TaskWritten(written.marker.rows, written.marker, written.is_skipped, written.is_replay)
