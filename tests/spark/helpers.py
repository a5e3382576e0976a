"""What the Spark tests share: topics made, filled and read with librdkafka, pipelines run, and waiting.

Rows go in and come out by another client than penstock.spark's own, so that it is judged and does not judge itself.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.spark.pipeline.loading import LoadedPipeline
from penstock.spark.pipeline.running import PipelineRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

DEADLINE_S = 60.0
_names = itertools.count()


class Row(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


def wait_until(condition: Callable[[], T], what: str = "", deadline_s: float = DEADLINE_S) -> T:
    """The first true answer of `condition`; an assertion that names `what` when there is none in time."""
    end = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < end, f"not within {deadline_s} s: {what or condition}"
        time.sleep(0.02)


def run_once(spark: "SparkSession", loaded: LoadedPipeline) -> PipelineRun:
    """Everything that is there now, and its progress."""
    with PipelineRun(loaded, spark, is_once=True) as run:
        run.wait()
    return run


class Topics:
    """Clients of one broker, kept for the life of a test module."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producers: dict[str, Producer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for producer in self._producers.values():
            producer.flush(DEADLINE_S)
        self._producers.clear()

    def make(self, name: str | None = None, partitions: int = 1, **config: str) -> str:
        """A new topic; config as keywords with underscores for dots. Without a name, one that nobody else has."""
        name = name or f"topic-{next(_names)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(DEADLINE_S)
        return name

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(DEADLINE_S)

    def produce(self, topic: str, rows: Iterable[Row | bytes | str], compression: str = "none") -> int:
        """Produce and wait until all is acknowledged; how many there were."""
        producer = self._producers.get(compression)
        if producer is None:
            producer = self._producers[compression] = Producer(
                {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "compression.type": compression}
            )
        failed: list[KafkaError] = []

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        count = 0
        for row in rows:
            given = row if isinstance(row, Row) else Row(row.encode() if isinstance(row, str) else row)
            extra = {} if given.partition is None else {"partition": given.partition}
            if given.timestamp_ms is not None:
                extra["timestamp"] = given.timestamp_ms
            while True:
                try:
                    producer.produce(
                        topic, given.value, given.key, headers=list(given.headers), on_delivery=told, **extra
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
        assert producer.flush(DEADLINE_S) == 0, "not acknowledged in time"
        assert not failed, failed[0]
        return count

    def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """Per partition, the first offset and the one after the last (read_committed's view of it)."""
        consumer = self._consumer()
        try:
            partitions = consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), DEADLINE_S)
                for number in partitions
            }
        finally:
            consumer.close()

    def read(self, topic: str) -> list[Message]:
        """All that read_committed sees of a topic, by partition and offset."""
        consumer = self._consumer()
        try:
            numbers = sorted(consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
            messages: list[Message] = []
            unread = set(numbers)
            end = time.monotonic() + DEADLINE_S
            while unread:
                assert time.monotonic() < end, f"{topic}: partitions {unread} not read to their end"
                for message in consumer.consume(10_000, 0.2):
                    error = message.error()
                    if error is None:
                        messages.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        unread.discard(message.partition())
                    else:
                        raise AssertionError(str(error))
            return sorted(messages, key=lambda message: (message.partition(), message.offset()))
        finally:
            consumer.close()

    def values(self, topic: str) -> list[bytes | None]:
        return [message.value() for message in self.read(topic)]

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "spark-tests",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
            }
        )
