"""How fast a replay goes, and how far it is.

Called by replay.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

LOOK_EVERY_S = 0.5
# Time that passed without a row may be made up for, up to this much.
SAVED_MAX_S = 0.1


class Steps(NamedTuple):
    """How far a replay is: tasks, since rows are counted when a task is done."""

    done: int
    total: int


def paced(rate: float) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """Rows handed on at no more than so many a second."""
    chunk = max(1, int(rate / 10))

    def pace(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        due = 0.0
        for batch in batches:
            for first in range(0, batch.num_rows, chunk):
                part = batch.slice(first, chunk)
                now = time.monotonic()
                # A row is due when the time for those before it and for itself has passed. The first one does not make
                # up for what it took to come: the source was read and sorted until then.
                due = (max(due, now - SAVED_MAX_S) if due else now) + part.num_rows / rate
                time.sleep(max(0.0, due - now))
                yield part

    return pace


@contextlib.contextmanager
def watched(spark: "SparkSession", on_step: Callable[[Steps], None]) -> Generator[None]:
    """Tell how many tasks of the jobs inside are done, twice a second."""
    context = spark.sparkContext
    # None takes a property away, which pyspark's own types do not know.
    nothing: Any = None
    group = f"penstock-replay-{uuid.uuid4().hex}"
    is_over = threading.Event()

    def look() -> None:
        tracker = context.statusTracker()
        while not is_over.wait(LOOK_EVERY_S):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
            known = [stage for stage in stages if stage is not None]
            if known:
                on_step(Steps(sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)))

    watcher = threading.Thread(target=look, name="replay-progress", daemon=True)
    context.setJobGroup(group, "penstock replay")
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", nothing)
        context.setLocalProperty("spark.job.description", nothing)
