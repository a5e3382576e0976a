"""Every row once, wherever an attempt ends: the sink's core against a real broker, workers dying at each step."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from sink_world import SHAPE, batches, end_worker, options_for, read, rows_of, task_of, write

from penstock.spark.options import WriteOptions
from penstock.spark.sink import transaction
from penstock.spark.sink.columns import key_and_value, row_lists
from penstock.spark.sink.digest import RowDigest
from penstock.spark.sink.exactly_once import Task, write_exactly_once
from penstock.spark.sink.failures import Fenced, ReplayDiffers, RolledBack
from penstock.spark.sink.marker import QUERY_MARKERS, Marker, partition_of
from penstock.spark.sink.marker_reading import read_markers
from penstock.spark.sink.transaction import TransactionalProducer, open_producer
from penstock.spark.sink.writers import compare_replay
from penstock.testing.embedded import EmbeddedBroker


def die_at(step: str, options: WriteOptions, task: Task) -> TransactionalProducer:
    """An attempt that gets as far as `step`, and what it holds, so that nothing of it ends before the test does."""
    producer = open_producer(options, f"{options.transactional_id_prefix}-{task.query}-{task.task}")
    if step == "after init":
        return producer
    read_markers(options, QUERY_MARKERS, task.query)
    producer.begin()
    digest = RowDigest()
    for batch in batches(rows_of(task.batch, task.task), 10):
        key, value = key_and_value(batch, SHAPE)
        digest.add(key, value)
        producer.send(row_lists(batch, SHAPE, "target", key, value))
    producer.flush()
    if step == "after the rows":
        return producer
    marker = task.marker(digest)
    producer.client.produce(QUERY_MARKERS.name, marker.value, marker.key, partition_of(marker.query))
    producer.flush()
    assert step == "before the commit"
    return producer


@pytest.mark.parametrize("step", ["after init", "after the rows", "before the commit"])
def test_an_attempt_that_died_before_its_commit_is_written_anew(broker: EmbeddedBroker, step: str) -> None:
    options = options_for(broker.bootstrap)
    dead = die_at(step, options, task_of(0))
    end_worker(options)
    again = write(options, task_of(0, run="run-2"))
    assert (again.is_skipped, again.is_replay) == (False, False)
    assert read(broker.bootstrap) == sorted(rows_of(0, 0))
    # The one that was thought dead wakes up: it can add nothing, and end nothing.
    if step == "after init":
        dead.begin()
    with pytest.raises(Fenced):
        dead.commit(QUERY_MARKERS, Marker("q", "run-1", 0, 0, 50, "ff"))
    assert read(broker.bootstrap) == sorted(rows_of(0, 0))


def test_an_attempt_that_died_after_its_commit_is_skipped_and_the_query_goes_on(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    write(options, task_of(0))
    end_worker(options)
    again = write(options, task_of(0, run="run-2"), reversed(rows_of(0, 0)), 7)
    assert (again.is_skipped, again.is_replay) == (True, True)
    assert not write(options, task_of(1, run="run-2")).is_skipped
    assert read(broker.bootstrap) == sorted(rows_of(0, 0) + rows_of(1, 0))


def test_dead_tasks_that_left_transactions_open_hold_up_no_other(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    # Two of three died with their markers written and open; the third committed behind them.
    dead = [die_at("before the commit", options, task_of(0, task)) for task in (1, 2)]
    write(options, task_of(0, 0))
    end_worker(options)
    # One core: task 0 must be through before 1 and 2 can end what their predecessors left.
    for task in range(3):
        assert write(options, task_of(0, task, run="run-2")).is_skipped == (task == 0)
    assert read(broker.bootstrap) == sorted(rows_of(0, 0) + rows_of(0, 1) + rows_of(0, 2))
    del dead


def test_the_same_batch_again_in_the_same_worker_is_skipped(broker: EmbeddedBroker) -> None:
    """A retried task, a speculative one, a query stopped and started in one session."""
    options = options_for(broker.bootstrap)
    write(options, task_of(0))
    assert write(options, task_of(0)).is_skipped
    assert write(options, task_of(0, run="run-2")).is_skipped
    with pytest.raises(ReplayDiffers):
        write(options, task_of(0, run="run-2"), rows_of(9, 9))
    assert not write(options, task_of(1, run="run-2")).is_skipped
    assert read(broker.bootstrap) == sorted(rows_of(0, 0) + rows_of(1, 0))


@pytest.mark.parametrize("rows_per_batch", [100, 10], ids=["found at the commit", "found at the first rows"])
def test_a_task_that_wanders_between_workers_is_written_once(broker: EmbeddedBroker, rows_per_batch: int) -> None:
    options = options_for(broker.bootstrap)
    write(options, task_of(0))
    here = dict(transaction._kept)
    transaction._kept.clear()
    write(options, task_of(1))
    there = dict(transaction._kept)
    # Back in the first worker, whose producer the second has shut out, with more rows than are held in hand.
    transaction._kept.clear()
    transaction._kept.update(here)
    assert not write(options, task_of(2), rows_per_batch=rows_per_batch).is_skipped
    assert read(broker.bootstrap) == sorted(rows_of(0, 0) + rows_of(1, 0) + rows_of(2, 0))
    del there


def test_of_two_attempts_at_once_the_later_one_writes(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    write(options, task_of(0))
    transaction._kept.clear()
    given = list(batches(rows_of(1, 0), 10))

    def rows_while_another_attempt_writes() -> Iterator[pa.RecordBatch]:
        yield from given[:3]
        # A speculative copy starts and ends, in a worker of its own, while this attempt is at its third batch.
        assert not write(options, task_of(1)).is_skipped
        transaction._kept.clear()
        yield from given[3:]

    with pytest.raises(Fenced, match="another attempt"):
        write_exactly_once(options, task_of(1), SHAPE, rows_while_another_attempt_writes())
    assert read(broker.bootstrap) == sorted(rows_of(0, 0) + rows_of(1, 0))


def test_rows_that_fail_to_come_leave_nothing(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(rows_of(0, 0), 10)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_exactly_once(options, task_of(0), SHAPE, broken())
    # Aborted, not left to its time-out: readers are not held up.
    assert read(broker.bootstrap) == []
    assert not write(options, task_of(0)).is_skipped
    assert read(broker.bootstrap) == sorted(rows_of(0, 0))


def test_a_queue_that_the_rows_fill_takes_their_marker_when_there_is_room(broker: EmbeddedBroker) -> None:
    # Rows wait for each other so long that all of them are in the queue when the marker comes.
    options = options_for(broker.bootstrap, kafka_queue_buffering_max_messages="50", kafka_linger_ms="300")
    assert write(options, task_of(0), rows_of(0, 0, 50)).marker.rows == 50
    assert read(broker.bootstrap) == sorted(rows_of(0, 0, 50))


def test_a_replay_with_other_rows_is_an_error_and_writes_nothing(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    write(options, task_of(3))
    end_worker(options)
    for other in (rows_of(3, 0)[1:], [*rows_of(3, 0)[1:], "other"]):
        with pytest.raises(ReplayDiffers, match=r"task 0 of batch 3 of query q came again"):
            write(options, task_of(3, run="run-2"), other)
    assert read(broker.bootstrap) == sorted(rows_of(3, 0))


def test_a_checkpoint_set_back_is_an_error_and_writes_nothing(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    write(options, task_of(4, task=1))
    end_worker(options)
    with pytest.raises(RolledBack, match="batch 3 of query q came again, but batch 4 is written"):
        write(options, task_of(3, run="run-2"))
    # Another query, with a checkpoint of its own, knows nothing of it.
    assert not write(options, task_of(3, query="other")).is_skipped
    assert read(broker.bootstrap) == sorted(rows_of(4, 1) + rows_of(3, 0))


def test_fewer_tasks_than_wrote_before_are_noticed_in_the_driver(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    for task in (0, 2):
        write(options, task_of(0, task))
    end_worker(options)
    told = [write(options, task_of(0, task, run="run-2")) for task in (0, 1)]
    assert [(each.is_skipped, each.is_replay) for each in told] == [(True, True), (False, True)]
    standing = read_markers(options, QUERY_MARKERS, "q")
    with pytest.raises(ReplayDiffers, match="more tasks than the 2 that ended it, so the 50 rows of task 2"):
        compare_replay([each.marker for each in told], standing)
    told.append(write(options, task_of(0, 2, run="run-2")))
    compare_replay([each.marker for each in told], standing)


@pytest.mark.parametrize("is_same_worker", [False, True], ids=["in another worker", "in the same worker"])
def test_a_retried_task_still_tells_that_another_life_wrote_of_its_batch(
    broker: EmbeddedBroker, is_same_worker: bool
) -> None:
    options = options_for(broker.bootstrap)
    write(options, task_of(0, task=2))
    end_worker(options)
    assert write(options, task_of(0, run="run-2")).is_replay
    # Spark never hears of that attempt. The one it hears of is all that makes the driver look for task 2.
    for _ in range(2):
        if not is_same_worker:
            end_worker(options)
        again = write(options, task_of(0, run="run-2"))
        assert (again.is_skipped, again.is_replay) == (True, True)
    assert not write(options, task_of(1, run="run-2")).is_replay


def test_a_task_that_had_rows_and_has_none_is_noticed_in_the_driver(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    write(options, task_of(0))
    end_worker(options)
    empty = write(options, task_of(0, run="run-2"), [])
    assert not empty.is_skipped
    with pytest.raises(ReplayDiffers, match="came again with 0 rows that are not the 50 written"):
        compare_replay([empty.marker], read_markers(options, QUERY_MARKERS, "q"))


def test_a_task_without_rows_costs_no_transaction(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    assert write(options, task_of(0), []).marker.rows == 0
    assert not transaction._kept
