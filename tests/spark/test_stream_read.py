"""Streaming reads through all that happens to a query and to its topics: restarts, growth, deletion, retention."""

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from helpers import DEADLINE_S, Row, Topics, wait_until
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.errors import reason
from penstock.testing.embedded import EmbeddedBroker


class Job:
    """A query that keeps what it was given; each run is one with the trigger availableNow on the same checkpoint."""

    def __init__(self, spark: SparkSession, broker: EmbeddedBroker, topic: str, checkpoint: Path) -> None:
        self._spark, self._broker, self._topic, self._checkpoint = spark, broker, topic, checkpoint
        self.batches: list[list[str]] = []
        self.fails_once = False

    def keep(self, frame: DataFrame, _: int) -> None:
        rows = frame.select("value").collect()
        if self.fails_once:
            self.fails_once = False
            raise RuntimeError("the sink is out of order")
        self.batches.append(sorted(row.value.decode() for row in rows))

    def run(self, **options: str) -> list[list[str]]:
        """The batches of this run."""
        self.batches = []
        query = self._stream(options).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return self.batches

    def start(self, **options: str):
        return self._stream(options).start()

    def failure(self, **options: str) -> str:
        with pytest.raises(Exception) as told:  # Spark's own
            self.run(**options)
        return reason(told.value)

    def fail_in_sink(self, **options: str) -> None:
        """A batch that is planned and read, and not done: the next run has to do it again."""
        self.fails_once = True
        with pytest.raises(Exception, match="the sink is out of order"):
            self.run(**options)

    def _stream(self, options: dict[str, str]):
        given = {
            "kafka.bootstrap.servers": self._broker.bootstrap,
            "startingOffsets": "earliest",
            "commit.group.id": "none",
            **({} if "subscribePattern" in options else {"subscribe": self._topic}),
        }
        stream = self._spark.readStream.format("penstock").options(**given | options).load()
        return stream.writeStream.foreachBatch(self.keep).option("checkpointLocation", str(self._checkpoint))


def flat(batches: list[list[str]]) -> list[str]:
    return sorted(value for batch in batches for value in batch)


def test_limits_restarts_and_new_partitions(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.make(partitions=2)
    topics.produce(topic, [Row(f"{i:02}".encode(), None, i % 2) for i in range(20)])
    job = Job(spark, broker, topic, tmp_path)
    batches = job.run(maxOffsetsPerTrigger="8")
    assert [len(batch) for batch in batches] == [8, 8, 4]
    assert flat(batches) == [f"{i:02}" for i in range(20)]
    # Restarted: only what is new, that of partitions which were not there before too; a failed batch comes again.
    topics.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(DEADLINE_S)
    # By a producer of its own: the other one knows of two partitions, and asks again in minutes.
    topics.produce(topic, [Row(f"{i}".encode(), None, i % 3) for i in range(20, 26)], "lz4")
    job.fail_in_sink(minPartitions="4")
    topics.produce(topic, [Row(b"26", None, 0)])
    assert flat(job.run(minPartitions="4")) == [f"{i}" for i in range(20, 27)]
    assert job.run() == []


def test_a_topic_made_anew_and_what_retention_removed(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.make()
    topics.produce(topic, ["a", "b"])
    job = Job(spark, broker, topic, tmp_path)
    assert job.run() == [["a", "b"]]
    # More records than the old one had: offsets alone would not tell.
    topics.delete(topic)
    topics.make(topic)
    topics.produce(topic, ["c", "d", "e"])
    assert job.failure().startswith(f"topic {topic} was deleted and made anew")
    assert job.run(failOnDataLoss="false") == [["c", "d", "e"]]
    # Retention between two runs: seen when the batch is planned.
    topics.produce(topic, ["f", "g", "h"])
    remove_before(topics, topic, 4)
    assert f"{topic}-0 begins at offset 4 now: offsets 3 to 3 (1) were removed unread" in job.failure()
    # Retention after the batch was planned: seen when it is read.
    job.fail_in_sink(failOnDataLoss="false")
    remove_before(topics, topic, 5)
    assert "of offsets 4 to 5, 4 to 4 (1) were removed before they were read" in job.failure()
    assert job.run(failOnDataLoss="false") == [["h"]]


def test_topics_that_appear_and_vanish_while_a_query_runs(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    stays, goes = topics.make("shop-stays"), topics.make("shop-goes")
    topics.make("shop")  # does not match as a whole
    for topic in (stays, goes, "shop"):
        topics.produce(topic, [f"{topic}-0"])
    careless = Job(spark, broker, "", tmp_path / "careless")
    careful = Job(spark, broker, f"{stays},{goes}", tmp_path / "careful")
    going_on = careless.start(subscribePattern="shop-.+", failOnDataLoss="false")
    failing = careful.start()
    try:
        for job in (careless, careful):
            wait_until(lambda job=job: flat(job.batches) == ["shop-goes-0", "shop-stays-0"], "the first rows")
        # Filled before any query can know of it: all of it is read, though the query started long ago.
        late = topics.make("shop-late", partitions=2)
        topics.produce(late, [Row(f"late-{number}".encode(), None, number % 2) for number in range(4)])
        lates = [f"late-{number}" for number in range(4)]
        wait_until(lambda: flat(careless.batches)[:4] == lates, "a topic that appears")
        topics.delete(goes)
        wait_until(lambda: not failing.isActive, "the query that may lose nothing to end")
        assert reason(failing.exception()).startswith(f"{goes}-0 is gone; what was not read from offset 1 on is lost")
        topics.produce(stays, ["shop-stays-1"])
        wait_until(lambda: "shop-stays-1" in flat(careless.batches) or not going_on.isActive, "the other to go on")
        assert going_on.exception() is None
    finally:
        for query in (going_on, failing):
            query.stop()
    assert flat(careless.batches) == [*lates, "shop-goes-0", "shop-stays-0", "shop-stays-1"]
    assert flat(careful.batches) == ["shop-goes-0", "shop-stays-0"]


def test_a_query_outlives_its_broker(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.make(partitions=2)
    topics.produce(topic, [Row(b"0", None, 0)])
    job = Job(spark, broker, topic, tmp_path)
    query = job.start(minOffsetsPerTrigger="1", maxTriggerDelay="1s")
    try:
        for number in range(1, 4):
            wait_until(
                lambda seen=number: query.exception() or len(flat(job.batches)) >= seen, "rows before the restart"
            )
            if number % 2:
                broker.crash_and_restart()
            else:
                broker.restart()
            topics.produce(topic, [Row(str(number).encode(), None, number % 2)])
        wait_until(lambda: query.exception() or len(flat(job.batches)) >= 4, "rows after the restarts")
        assert query.exception() is None
        assert flat(job.batches) == ["0", "1", "2", "3"]
    finally:
        query.stop()


def remove_before(topics: Topics, topic: str, offset: int) -> None:
    for answer in topics.admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        answer.result(DEADLINE_S)
