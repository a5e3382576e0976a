"""Batch writes: a retried task finds its marker, and nobody reads what other writes have left in a week."""

import time
from types import SimpleNamespace

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from sink_world import batches, end_worker, options_for, read, rows_of, write

from penstock.spark.sink import marker_reading, writers
from penstock.spark.sink.exactly_once import Task
from penstock.spark.sink.marker import WRITE_MARKERS
from penstock.spark.sink.marker_reading import read_markers
from penstock.spark.sink.writers import BatchWriter
from penstock.testing.embedded import EmbeddedBroker

HOUR_MS = 60 * 60 * 1000
ROW = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


def write_of(name: str, since_ms: int) -> Task:
    return Task(name, name, 0, 0, WRITE_MARKERS, since_ms)


def test_markers_older_than_a_write_are_not_read(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    now_ms = int(time.time() * 1000)
    write(options, write_of("write-1", now_ms - 3 * HOUR_MS))
    found: dict[int, int] = {}
    for since_ms in (now_ms - 3 * HOUR_MS, now_ms, now_ms + 9 * HOUR_MS):
        end_worker(options)
        found[since_ms - now_ms] = len(read_markers(options, WRITE_MARKERS, "write-1", since_ms))
    assert found == {-3 * HOUR_MS: 1, 0: 0, 9 * HOUR_MS: 0}


@pytest.mark.parametrize("minutes", [-300, 0, 30])
def test_a_retried_task_is_found_whatever_the_drivers_clock_says(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    monkeypatch.setattr(marker_reading, "CLOCKS_APART_MS", 0)
    options = options_for(broker.bootstrap)
    task = write_of("write-1", int(time.time() * 1000) + minutes * 60_000)
    assert not write(options, task).is_skipped
    end_worker(options)
    assert write(options, task).is_skipped
    assert read(broker.bootstrap) == sorted(rows_of(0, 0))


def test_a_writer_knows_its_own_tasks_again_and_no_other_writers(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_context", lambda: SimpleNamespace(partitionId=lambda: 0))
    options = options_for(broker.bootstrap)
    first, second = BatchWriter(options, ROW), BatchWriter(options, ROW)
    told: list[bool] = []
    for writer in (first, first, second):
        told.append(writer.write(batches(rows_of(0, 0))).is_skipped)
        end_worker(options)
    assert told == [False, True, False]
    assert read(broker.bootstrap) == sorted(rows_of(0, 0) * 2)
