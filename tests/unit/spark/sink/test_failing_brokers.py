"""Brokers that restart, stay away, refuse or forbid: nothing lost, nothing doubled, and a sentence that helps."""

import socket
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from sink_world import SHAPE, batches, end_worker, make_topic, options_for, read, rows_of, task_of, write

from penstock.spark.errors import BadOption, SparkFailure, Unreachable
from penstock.spark.sink.at_least_once import write_at_least_once
from penstock.spark.sink.columns import RowShape
from penstock.spark.sink.exactly_once import write_exactly_once
from penstock.spark.sink.failures import MarkersUnusable, RowRefused
from penstock.spark.sink.marker import PARTITIONS, QUERY_MARKERS
from penstock.spark.sink.marker_reading import read_markers
from penstock.testing.embedded import EmbeddedBroker


@pytest.mark.parametrize("is_crash", [False, True], ids=["stopped", "crashed"])
def test_a_broker_that_restarts_in_the_middle_of_a_task_costs_nothing(broker: EmbeddedBroker, is_crash: bool) -> None:
    options = options_for(broker.bootstrap)

    def rows() -> Iterator[pa.RecordBatch]:
        given = list(batches(rows_of(0, 0, 400), 100))
        yield from given[:2]
        broker.crash_and_restart() if is_crash else broker.restart()
        yield from given[2:]

    try:
        write_exactly_once(options, task_of(0), SHAPE, rows())
    except SparkFailure:
        # A transaction may be lost with its broker; then Spark tries the task again.
        write(options, task_of(0), rows_of(0, 0, 400))
    assert read(broker.bootstrap) == sorted(rows_of(0, 0, 400))
    assert not write(options, task_of(1)).is_skipped


def test_at_least_once_rides_out_a_restart_and_leaves_no_marker(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap, delivery="at-least-once")

    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches(rows_of(0, 0))
        broker.restart()
        yield from batches(rows_of(0, 1))

    assert write_at_least_once(options, SHAPE, rows()) == 100
    # The same producer serves the worker's next task.
    assert write_at_least_once(options, SHAPE, batches(rows_of(1, 0))) == 50
    assert read(broker.bootstrap) == sorted(rows_of(0, 0) + rows_of(0, 1) + rows_of(1, 0))
    assert QUERY_MARKERS.name not in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics().topics


def test_a_cluster_that_is_not_there_is_named_within_the_delivery_time() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        said = rf"brokers at {address} within 1.5 s"
        options = options_for(address, kafka_delivery_timeout_ms="1500")
        with pytest.raises(Unreachable, match=said):
            write(options, task_of(0))
        options = options_for(address, kafka_delivery_timeout_ms="1500", delivery="at-least-once")
        with pytest.raises(Unreachable, match=said):
            write_at_least_once(options, SHAPE, batches(["a"]))
        end_worker(options)


def test_a_row_that_is_too_large_is_named_and_nothing_of_its_task_is_written(broker: EmbeddedBroker) -> None:
    make_topic(broker.bootstrap, "small", max_message_bytes="2000")
    for size, limit in ((5_000, "the topic's"), (2_000_000, "the client's")):
        options = options_for(broker.bootstrap, topic="small")
        with pytest.raises(
            RowRefused, match=rf"a row of {size} bytes was refused by .*small.*max.message.bytes"
        ) as seen:
            write(options, task_of(0), ["a", "b" * (size // 2)], 1)
        assert "\n" not in str(seen.value), limit
        with pytest.raises(RowRefused, match=rf"a row of {size} bytes"):
            write_at_least_once(options, SHAPE, batches(["b" * (size // 2)]))
    assert read(broker.bootstrap, "small") == []


def test_a_partition_that_is_not_there_is_named(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    batch = pa.record_batch([pa.array([b"v"]), pa.array([9], pa.int32())], ["value", "partition"])
    with pytest.raises(RowRefused, match="partition 9 of target: Local: Unknown partition"):
        write_exactly_once(options, task_of(0), RowShape(value=0, partition=1), iter([batch]))


def test_a_transaction_longer_than_the_broker_allows_is_an_option_to_change(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap, transaction_timeout_ms="3600000")
    with pytest.raises(BadOption, match=r"transaction\.max\.timeout\.ms"):
        write(options, task_of(0))


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("kafka_acks", "1", "would lose rows"),
        ("kafka_request_required_acks", "0", "would lose rows"),
        ("kafka_enable_idempotence", "false", "would double rows"),
        ("kafka_transactional_id", "mine", "transactional.id.prefix"),
        ("kafka_delivery_timeout_ms", "soon", "number of milliseconds"),
        ("kafka_no_such_thing_at_all", "1", "No such configuration property"),
    ],
)
def test_settings_that_break_the_promise_are_refused(option: str, value: str, why: str) -> None:
    with pytest.raises(BadOption, match=why):
        write(options_for("127.0.0.1:1", **{option: value}), task_of(0))


def test_many_workers_make_the_markers_topic_at_once(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    failed: list[BaseException] = []

    def look(number: int) -> None:
        try:
            assert read_markers(options, QUERY_MARKERS, f"query-{number}") == []
        except BaseException as failure:
            failed.append(failure)

    threads = [threading.Thread(target=look, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert not write(options, task_of(0)).is_skipped
    (marker,) = read_markers(options, QUERY_MARKERS, "q")
    assert (marker.batch, marker.task, marker.rows) == (0, 0, 50)


def test_a_markers_topic_that_would_forget_is_not_used(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    make_topic(broker.bootstrap, QUERY_MARKERS.name, PARTITIONS)
    with pytest.raises(MarkersUnusable, match=r"cleanup\.policy=delete: markers would be lost"):
        write(options, task_of(0))
    assert read(broker.bootstrap) == []


def test_a_markers_topic_with_too_few_partitions_is_not_used(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap)
    make_topic(broker.bootstrap, QUERY_MARKERS.name, 1, cleanup_policy="compact")
    with pytest.raises(MarkersUnusable, match="has 1 partitions instead of 8"):
        write(options, task_of(0))
