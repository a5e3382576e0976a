"""Rows into topics through Spark: batch and stream, every column, and what is refused."""

import datetime
from pathlib import Path

import pytest
from helpers import Row, Topics, wait_until
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.spark.errors import reason
from penstock.spark.sink.marker import QUERY_MARKERS, WRITE_MARKERS
from penstock.testing.embedded import EmbeddedBroker

ROWS = 4000
# Long enough for a machine that has much else to do; nothing is waited for that long elsewhere.
PATIENCE_S = 300
SCHEMA = (
    "key string, value binary, topic string, partition int, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)


def save(rows: DataFrame, broker: EmbeddedBroker, **options: str) -> None:
    rows.write.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap).options(**options).mode(
        "append"
    ).save()


@pytest.mark.timeout(600)
def test_a_batch_write_puts_every_column_in_its_place(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics
) -> None:
    one, two = topics.make(partitions=3), topics.make()
    at = datetime.datetime(2024, 2, 29, 12, 30, 0, 250_000, tzinfo=datetime.UTC)
    given = [
        ("k", b"v", one, 2, at, [("h", b"1"), ("h", None)]),
        (None, b"", one, 1, None, None),
        ("tomb", None, two, None, at, []),
    ]
    save(spark.createDataFrame(given, SCHEMA), broker)
    (other, first), (tombstone,) = topics.read(one), topics.read(two)
    assert (first.key(), first.value(), first.partition()) == (b"k", b"v", 2)
    assert first.headers() == [("h", b"1"), ("h", None)]
    assert first.timestamp()[1] == int(at.timestamp() * 1000)
    assert (other.key(), other.value(), other.partition(), other.headers()) == (None, b"", 1, None)
    assert other.timestamp()[1] > int(at.timestamp() * 1000), "no time given is now"
    assert (tombstone.key(), tombstone.value()) == (b"tomb", None)
    # Texts as they are, the option over the column, many rows from several tasks, each once.
    many = spark.range(0, ROWS, numPartitions=4).selectExpr("cast(id as string) as value", "'nowhere' as topic")
    for delivery in ("exactly-once", "at-least-once"):
        target = topics.make(partitions=2)
        save(many, broker, topic=target, delivery=delivery)
        assert sorted(int(value or b"") for value in topics.values(target)) == list(range(ROWS))
    assert len(topics.read(WRITE_MARKERS.name)) == 2 + 4


@pytest.mark.timeout(600)
def test_a_stream_is_written_once_over_a_restart_in_one_session(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.make(partitions=2), topics.make(partitions=2)
    checkpoint = tmp_path / "checkpoint"
    server = {"kafka.bootstrap.servers": broker.bootstrap}
    stream = spark.readStream.format("penstock").options(**server, subscribe=source, startingOffsets="earliest").load()
    writer = stream.select("key", "value", "timestamp").writeStream.format("penstock").options(**server, topic=target)
    writer = writer.option("checkpointLocation", str(checkpoint))
    old = 1_600_000_000_000
    topics.produce(source, [Row(f"a{number}".encode(), None, number % 2, timestamp_ms=old) for number in range(ROWS)])
    query = writer.start()
    try:
        wait_until(lambda: (checkpoint / "commits" / "0").exists(), "the first batch", PATIENCE_S)
        topics.produce(source, [Row(b"b", None, 0), Row(b"b", None, 1)])
        wait_until(lambda: len(topics.read(target)) == ROWS + 2, "the second batch", PATIENCE_S)
    finally:
        query.stop()
    # As if the driver had died between the sink's commit and Spark's: the last batch comes again, and is skipped.
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for path in (checkpoint / "commits").glob(f"*{last}*"):
        path.unlink()
    topics.produce(source, [Row(b"c", None, 0)])
    assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
    values = sorted(topics.values(target), key=lambda value: value or b"")
    assert values == [*sorted(f"a{number}".encode() for number in range(ROWS)), b"b", b"b", b"c"]
    assert {message.timestamp()[1] for message in topics.read(target) if (message.value() or b"")[:1] == b"a"} == {old}
    assert topics.read(QUERY_MARKERS.name)


def test_what_cannot_be_written_is_told_in_one_sentence(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics
) -> None:
    rows = spark.range(1).selectExpr("'v' as value", "cast(null as string) as topic")
    target = topics.make(max_message_bytes="2000")
    refused = {
        "null topic present in the data": (rows, {}),
        "'value' not found": (rows.drop("value"), {"topic": target}),
        "topic option required": (rows.drop("topic"), {}),
        "value attribute type must be string or binary, not int": (
            spark.range(1).select(f.lit(1).alias("value")),
            {"topic": target},
        ),
        f"a row of 9000 bytes was refused by partition 0 of {target}": (
            spark.range(1).select(f.repeat(f.lit("x"), 9000).alias("value")),
            {"topic": target},
        ),
        "would lose rows": (rows, {"topic": target, "kafka.acks": "1"}),
        "cannot be overwritten": (rows, {"topic": target, "mode": "overwrite"}),
    }
    for sentence, (wrong, options) in refused.items():
        mode = options.pop("mode", "append")
        server = {"kafka.bootstrap.servers": broker.bootstrap}
        with pytest.raises(Exception, match=r"(?s).") as seen:
            wrong.write.format("penstock").options(**server, **options).mode(mode).save()
        assert sentence in reason(seen.value), reason(seen.value)
    assert topics.read(target) == []
