"""A worker's life without Spark: tasks written by the sink's own core, workers that die, topics read by librdkafka."""

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.spark.connections import drop_cluster
from penstock.spark.options import WriteOptions, write_options
from penstock.spark.sink import at_least_once, marker_reading, marker_topic, transaction
from penstock.spark.sink.columns import RowShape
from penstock.spark.sink.exactly_once import Task, Written, write_exactly_once
from penstock.spark.sink.marker import QUERY_MARKERS

DEADLINE_S = 60.0
SHAPE = RowShape(value=1, key=0)


def options_for(bootstrap: str, **more: str) -> WriteOptions:
    """Options as a user writes them, with underscores for dots."""
    given = {name.replace("_", "."): value for name, value in more.items()}
    return write_options({"kafka.bootstrap.servers": bootstrap, "topic": "target", **given})


def batches(values: Iterable[str], rows_per_batch: int = 100) -> Iterator[pa.RecordBatch]:
    texts = list(values)
    for at in range(0, len(texts), rows_per_batch):
        part = pa.array([text.encode() for text in texts[at : at + rows_per_batch]], pa.binary())
        yield pa.record_batch([part, part], ["key", "value"])


def rows_of(batch: int, task: int, count: int = 50) -> list[str]:
    return [f"{batch}/{task}/{number}" for number in range(count)]


def task_of(batch: int, task: int = 0, query: str = "q", run: str = "run-1") -> Task:
    return Task(query, run, batch, task, QUERY_MARKERS)


def write(options: WriteOptions, task: Task, values: Iterable[str] | None = None, rows_per_batch: int = 100) -> Written:
    given = rows_of(task.batch, task.task) if values is None else values
    return write_exactly_once(options, task, SHAPE, batches(given, rows_per_batch))


def end_worker(options: WriteOptions) -> None:
    """What SIGKILL leaves of a worker: nothing here, and whatever was open in the cluster stays open there."""
    for kept in (transaction._kept, at_least_once._kept, marker_reading._kept, marker_topic._checked):
        kept.clear()
    drop_cluster(options.connection)


def make_topic(bootstrap: str, name: str, partitions: int = 2, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(DEADLINE_S)


def read(bootstrap: str, topic: str = "target", isolation: str = "read_committed") -> list[str]:
    """The values in a topic, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        numbers = set(consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        found: list[str] = []
        deadline = time.monotonic() + DEADLINE_S
        while numbers:
            assert time.monotonic() < deadline, f"{topic}: partitions {numbers} have no end"
            for message in consumer.consume(10_000, 0.1):
                error = message.error()
                if error is None:
                    found.append((message.value() or b"").decode())
                elif error.code() == KafkaError._PARTITION_EOF:
                    numbers.discard(message.partition())
                else:
                    raise AssertionError(str(error))
        return sorted(found)
    finally:
        consumer.close()
