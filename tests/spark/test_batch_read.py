"""A batch read of everything a topic can hold, by real Spark from a real broker, against what was produced."""

from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from helpers import DEADLINE_S, Row, Topics
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.spark import register
from penstock.spark.errors import reason
from penstock.testing.embedded import EmbeddedBroker

EPOCH_MS = 1_700_000_000_000
SPARKS_OWN_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)


def load(spark: SparkSession, broker: EmbeddedBroker, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic} | options
    return spark.read.format("penstock").options(**given).load()


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def transactional_rows(broker: EmbeddedBroker, topic: str) -> None:
    """On partition 2: two rows that stand, two that are taken back, two that stand; a marker after each pair."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"t-{topic}"})
    producer.init_transactions(DEADLINE_S)
    for outcome in ("first", "aborted", "last"):
        producer.begin_transaction()
        for number in range(2):
            producer.produce(topic, f"{outcome}-{number}", partition=2, timestamp=EPOCH_MS)
        assert producer.flush(DEADLINE_S) == 0
        if outcome == "aborted":
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)


def test_rows_equal_what_was_produced(spark: SparkSession, broker: EmbeddedBroker, topics: Topics) -> None:
    topic = topics.make(partitions=3)
    produced: list[Row] = []
    for index, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        rows = [
            Row(b"v" * 500 + str(index).encode(), b"key", 0, [("a", b"1"), ("a", None), ("ü", b"")], EPOCH_MS + index),
            Row(None, b"", 0, (), EPOCH_MS + 500 + index),
            Row(b"", None, 0, (), 1),
        ]
        topics.produce(topic, rows, codec)
        produced += rows
    transactional_rows(broker, topic)

    frame = load(spark, broker, topic, includeHeaders="true")
    assert frame.schema == StructType.fromDDL(SPARKS_OWN_SCHEMA)
    collected = frame.orderBy("partition", "offset").collect()
    assert [row.asDict(recursive=True) for row in collected if row.partition == 0] == [
        {
            "key": row.key,
            "value": row.value,
            "topic": topic,
            "partition": 0,
            "offset": offset,
            "timestamp": datetime.fromtimestamp((row.timestamp_ms or -1) / 1000, UTC).replace(tzinfo=None),
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in row.headers] or None,
        }
        for offset, row in enumerate(produced)
    ]
    assert [(row.offset, row.value) for row in collected if row.partition == 2] == [
        (0, b"first-0"),
        (1, b"first-1"),
        (6, b"last-0"),
        (7, b"last-1"),
    ]
    # Without headers they are no column, and with the other isolation what was taken back is seen.
    raw = load(spark, broker, topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert raw.columns == [name for name in frame.columns if name != "headers"]
    assert raw.where("partition = 2").count() == 6


def test_ranges_of_offsets_and_times_and_tasks(spark: SparkSession, broker: EmbeddedBroker, topics: Topics) -> None:
    topic = topics.make(partitions=2)
    topics.produce(topic, [Row(b"v", None, i % 2, (), EPOCH_MS + i) for i in range(20)])
    between = {
        "startingOffsets": f'{{"{topic}":{{"0":3,"1":-2}}}}',
        "endingOffsets": f'{{"{topic}":{{"0":-1,"1":4}}}}',
    }
    frame = load(spark, broker, topic, minPartitions="5", **between)
    assert frame.rdd.getNumPartitions() == 5
    assert offsets(frame) == [(0, n) for n in range(3, 10)] + [(1, n) for n in range(4)]
    timed = load(spark, broker, topic, startingTimestamp=str(EPOCH_MS + 10), endingTimestamp=str(EPOCH_MS + 15))
    assert offsets(timed) == [(0, 5), (0, 6), (0, 7), (1, 5), (1, 6)]
    # In a session that was told of the source by hand.
    registered = spark.newSession()
    register(registered)
    empty = topics.make()
    assert load(registered, broker, empty).count() == 0
    assert offsets(
        spark.read.format("penstock")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "assign": f'{{"{topic}":[1]}}'})
        .load()
    ) == [(1, n) for n in range(10)]


def test_offsets_that_are_gone_are_told_or_left_out(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics
) -> None:
    from confluent_kafka import TopicPartition

    topic = topics.make()
    topics.produce(topic, ["a", "b", "c", "d"])
    for answer in topics.admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        answer.result(DEADLINE_S)
    wanted: dict[str, Any] = {"startingOffsets": f'{{"{topic}":{{"0":0}}}}'}
    with pytest.raises(Exception) as told:  # Spark's own, whichever it takes
        load(spark, broker, topic, **wanted).count()
    assert reason(told.value).startswith(f"{topic}-0 begins at offset 2; offsets 0 to 1 are gone; failOnDataLoss=false")
    assert offsets(load(spark, broker, topic, failOnDataLoss="false", **wanted)) == [(0, 2), (0, 3)]
