"""The lag of streaming queries, as `penstock groups describe` shows it."""

import json
from pathlib import Path

from helpers import Row, Topics, wait_until
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.testing.embedded import EmbeddedBroker


def lags(broker: EmbeddedBroker, group: str) -> dict[int, tuple[int, int, bool]] | None:
    """Of each partition, what the group has done, what it has not, and whether time passes over that; or no group."""
    result = CliRunner().invoke(app, ["groups", "describe", group, "--bootstrap", broker.bootstrap, "--json"])
    if result.exit_code != 0:
        return None
    (found,) = json.loads(result.stdout)
    return {
        row["partition"]: (row["committed_offset"], row["lag"], row["lag_seconds"] > 0) for row in found["partitions"]
    }


def source(spark: SparkSession, broker: EmbeddedBroker, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("penstock").options(**given | options).load()


def test_lag_is_that_of_the_query_by_its_name(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.make(partitions=2)
    topics.produce(topic, [Row(b"v", None, i % 2) for i in range(10)])
    writer = source(spark, broker, topic).writeStream.format("noop").queryName("by-name")
    writer = writer.option("checkpointLocation", str(tmp_path))
    # A query that has ended has nothing left to do, though Spark tells nobody that its last batch is done.
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert lags(broker, "spark-by-name") == {0: (5, 0, False), 1: (5, 0, False)}
    # While none runs, lag grows; the next one, after a restart, goes on with the same group.
    topics.produce(topic, [Row(b"v", None, 0) for _ in range(3)])
    assert lags(broker, "spark-by-name") == {0: (5, 3, True), 1: (5, 0, False)}
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        wait_until(
            lambda: lags(broker, "spark-by-name") == {0: (8, 0, False), 1: (5, 0, False)}, "lag of a query that waits"
        )
    finally:
        query.stop()


def test_lag_goes_to_the_group_that_is_named_or_to_none(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.make()
    topics.produce(topic, ["a", "b"])
    for group in ("mine", "none"):
        stream = source(spark, broker, topic, **{"commit.group.id": group})
        writer = stream.writeStream.format("noop").queryName(f"named-{group}")
        writer = writer.option("checkpointLocation", str(tmp_path / group))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert lags(broker, "mine") == {0: (2, 0, False)}
    assert lags(broker, "none") is None
    assert lags(broker, "spark-named-mine") is None
    assert lags(broker, "spark-named-none") is None
