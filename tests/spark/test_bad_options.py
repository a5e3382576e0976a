"""What a user sees of a mistake: one sentence, soon, whatever Spark wraps it in."""

import socket

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


def test_brokers_that_cannot_be_reached_are_named(spark: SparkSession) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = failure_of_read(
            spark,
            subscribe="a",
            **{"kafka.bootstrap.servers": address, "kafka.request.timeout.ms": "1000"},
        )
    assert address in said


def test_a_stream_that_cannot_start_says_why(spark: SparkSession, broker: EmbeddedBroker, tmp_path) -> None:
    stream = (
        spark.readStream.format("penstock")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "a", "endingOffsets": "latest"})
        .load()
    )
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception) as told:  # Spark's own
        query.awaitTermination(60)
    assert reason(told.value) == "endingOffsets is for batches: a stream has no end"
