"""What a user sees of a mistake: one sentence, soon, whatever Spark wraps it in."""

import socket
from pathlib import Path

import pytest
from helpers import Topics
from pyspark.sql import SparkSession

from penstock.spark.errors import reason
from penstock.testing.embedded import EmbeddedBroker


def failure_of_read(spark: SparkSession, **options: str) -> str:
    with pytest.raises(Exception) as told:  # Spark's own, whichever it takes
        spark.read.format("penstock").options(**options).load().count()
    return reason(told.value)


def test_a_mistake_is_one_sentence(spark: SparkSession, broker: EmbeddedBroker, topics: Topics) -> None:
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    assert failure_of_read(spark, subscribe="a", startingOffset="earliest", **servers).startswith(
        "unknown option startingoffset: did you mean startingOffsets?"
    )
    assert failure_of_read(spark, subscribe="no-such-topic", **servers).startswith("no-such-topic is not there")
    with pytest.raises(Exception) as told:  # as above
        spark.read.format("penstock").schema("a int").options(subscribe=topics.make(), **servers).load().count()
    assert "the source has a schema of its own" in reason(told.value)


def test_a_schema_that_does_not_fit_is_told(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.make()
    topics.produce(topic, ['{"id": 1}', '{"id": "one"}'])
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "value.format": "json"}
    assert "NONSENSE" in failure_of_read(spark, **given, **{"value.schema": "id NONSENSE"})
    assert "value.schema" in failure_of_read(spark, **given)
    given |= {"value.schema": "id INT"}
    wanted = f"{topic}-0 at offset 1: the value does not decode as json: "
    assert failure_of_read(spark, **given).startswith(wanted)
    # In a stream, what came before it is done, and no more of it.
    done: list[int] = []
    stream = spark.readStream.format("penstock").options(**given, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    query = stream.load().writeStream.foreachBatch(lambda batch, _: done.append(batch.count()))
    query = query.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception) as told:  # Spark's own
        query.awaitTermination(60)
    assert reason(told.value).startswith(wanted)
    assert done == [1]


def test_brokers_that_cannot_be_reached_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given = {"kafka.bootstrap.servers": address, "kafka.request.timeout.ms": "1000"}
        assert address in failure_of_read(spark, subscribe="a", **given)
        stream = spark.readStream.format("penstock").options(subscribe="a", **given).load()
        query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        with pytest.raises(Exception) as told:  # Spark's own
            query.awaitTermination(60)
        assert address in reason(told.value)
        for delivery in ("exactly-once", "at-least-once"):
            rows = spark.range(1).selectExpr("'v' AS value").write.format("penstock").mode("append")
            with pytest.raises(Exception) as told:  # as above
                rows.options(topic="a", delivery=delivery, **given, **{"kafka.delivery.timeout.ms": "1000"}).save()
            assert reason(told.value).startswith(f"no answer from the brokers at {address} within 1 s")


def test_a_stream_that_cannot_start_says_why(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    stream = (
        spark.readStream.format("penstock")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "a", "endingOffsets": "latest"})
        .load()
    )
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception) as told:  # Spark's own
        query.awaitTermination(60)
    assert reason(told.value) == "endingOffsets is for batches: a stream has no end"
