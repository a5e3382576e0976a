"""One task of one batch, written once: its rows and its marker in one transaction, or found written and skipped.

Called by the writers, in Spark's Python workers. docs/decisions/spark-exactly-once.md walks through every crash.
Laws:
- Rows are committed only with their marker, by the one producer that holds the task's transactional id.
- Nothing is written before it is known that no marker of this batch stands: by reading (after init has shut out and
  decided whatever came before), or because this very producer, still unfenced, wrote last in the same run.
- A standing marker is believed only if it counts the same rows.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from penstock.spark.errors import SparkFailure, Unreachable
from penstock.spark.sink.columns import RowShape, key_and_value, row_lists
from penstock.spark.sink.digest import RowDigest, warm_up
from penstock.spark.sink.failures import RolledBack, RowRefused
from penstock.spark.sink.marker import Marker, MarkerTopic, check_same
from penstock.spark.sink.marker_reading import read_markers
from penstock.spark.sink.transaction import TransactionalProducer, keep, open_producer, take_kept

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.options import WriteOptions


class Task(NamedTuple):
    """Which rows these are: the same in every attempt at them. `run` is the life of the query that attempts it."""

    query: str
    run: str
    batch: int
    task: int
    markers: MarkerTopic
    # When it was begun, where that is known: no marker of it is older.
    since_ms: int | None = None

    def marker(self, digest: RowDigest) -> Marker:
        return Marker(self.query, self.run, self.batch, self.task, digest.rows, digest.text)


class Written(NamedTuple):
    marker: Marker
    is_skipped: bool = False
    # Another life of the query has written parts of this batch: the driver compares when all tasks are through.
    is_replay: bool = False


def write_exactly_once(
    options: "WriteOptions", task: Task, shape: RowShape, batches: "Iterator[pa.RecordBatch]"
) -> Written:
    feed = iter(batches)
    opening = list(islice(feed, 1))
    if not opening:
        # No row, no transaction: many tasks of a small batch are empty. The driver sees to it that none was written.
        return Written(task.marker(RowDigest()))
    following = list(islice(feed, 1))
    # Whatever takes time at first use is used before the transaction's clock runs.
    warm_up()
    transactional_id = f"{options.transactional_id_prefix}-{task.query}-{task.task}"
    kept = take_kept(options, transactional_id)
    if kept is not None and kept.last is not None and kept.last.run == task.run:
        if kept.last.batch == task.batch:
            return _skip(options, kept, kept.last, task, shape, chain(opening, following, feed), kept.is_replay)
        try:
            return _write(options, kept, task, shape, opening, following, feed, is_replay=False)
        except _Lost:
            # Another worker had the task's last batch. Only `opening` was sent, and it is still here.
            pass
    elif kept is not None:
        kept.drop()
    producer = open_producer(options, transactional_id)
    try:
        markers = read_markers(options, task.markers, task.query, task.since_ms)
        standing = standing_marker(task, markers)
    except BaseException:
        producer.drop()
        raise
    is_replay = any(marker.batch == task.batch and marker.run != task.run for marker in markers)
    if standing is not None:
        return _skip(options, producer, standing, task, shape, chain(opening, following, feed), is_replay)
    return _write(options, producer, task, shape, opening, following, feed, is_replay)


def standing_marker(task: Task, markers: list[Marker]) -> Marker | None:
    """The task's marker of this very batch. A later batch of the query means that the checkpoint went back in time."""
    later = max((marker.batch for marker in markers), default=-1)
    if later > task.batch:
        raise RolledBack(
            f"batch {task.batch} of query {task.query} came again, but batch {later} is written already: the "
            "checkpoint was set back; start with a new checkpoint, knowing that rows since then are in the topic"
        )
    return next((marker for marker in markers if marker.task == task.task and marker.batch == task.batch), None)


class _Lost(Exception):
    """The kept producer is not the task's last any more, and nothing was taken that could not be sent again."""


def _skip(
    options: "WriteOptions",
    producer: TransactionalProducer,
    standing: Marker,
    task: Task,
    shape: RowShape,
    batches: "Iterator[pa.RecordBatch]",
    is_replay: bool,
) -> Written:
    digest = RowDigest()
    try:
        for batch in batches:
            digest.add(*key_and_value(batch, shape))
        check_same(f"task {task.task}", standing, digest.rows, digest.text, options.on_replay_differs)
    except BaseException:
        producer.drop()
        raise
    # What this run has seen to stand, it need not look for again.
    seen = replace(standing, run=task.run)
    keep(options, producer, seen, is_replay)
    return Written(seen, is_skipped=True, is_replay=is_replay)


def _write(
    options: "WriteOptions",
    producer: TransactionalProducer,
    task: Task,
    shape: RowShape,
    opening: "list[pa.RecordBatch]",
    following: "list[pa.RecordBatch]",
    feed: "Iterator[pa.RecordBatch]",
    is_replay: bool,
) -> Written:
    digest = RowDigest()

    def send(batch: "pa.RecordBatch") -> None:
        key, value = key_and_value(batch, shape)
        digest.add(key, value)
        producer.send(row_lists(batch, shape, options.topic, key, value))

    can_begin_again = producer.last is not None
    try:
        producer.begin()
        for batch in opening:
            send(batch)
        if following:
            if can_begin_again:
                # The first answer tells whether the id is still ours; rows taken from here on do not come back.
                producer.flush()
                can_begin_again = False
            for batch in chain(following, feed):
                send(batch)
        marker = task.marker(digest)
        producer.commit(task.markers, marker, task.since_ms)
    except SparkFailure as failed:
        if can_begin_again and not isinstance(failed, RowRefused | Unreachable):
            producer.drop()
            raise _Lost from failed
        why = producer.told_why(failed)
        producer.abandon()
        raise why from None
    except BaseException:
        producer.abandon()
        raise
    keep(options, producer, marker, is_replay)
    return Written(marker, is_replay=is_replay)
