"""A query on three brokers: a leader is killed, comes back, and leads again by election; the query goes on."""

from collections import Counter
from pathlib import Path

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import NewTopic
from helpers import DEADLINE_S, Row, Topics, wait_until
from pyspark.sql import SparkSession

from penstock.testing.plugin import ClusterFactory

ROWS = 400
SESSION = {"broker.session.timeout.ms": "2000", "replica.lag.time.max.ms": "2000"}


def test_a_query_goes_on_when_its_leader_dies_and_when_leaders_move(
    spark: SparkSession, penstock_cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    cluster = penstock_cluster_factory(metadata="sqlite", overrides=SESSION)
    with Topics(cluster.bootstrap) as topics:
        source, target = "source", "target"
        made = topics.admin.create_topics([NewTopic(name, 2, 3) for name in (source, target)])
        for done in made.values():
            done.result(DEADLINE_S)
        query = (
            spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", cluster.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .load()
            .select("key", "value")
            .writeStream.format("penstock")
            .option("kafka.bootstrap.servers", cluster.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:

            def more(phase: int) -> None:
                rows = [Row(f"{phase}-{number}".encode(), None, number % 2) for number in range(ROWS)]
                topics.produce(source, rows)
                wait_until(
                    lambda: query.exception() or len(topics.read(target)) >= (phase + 1) * ROWS, f"phase {phase}", 90
                )
                assert query.exception() is None

            more(0)
            victim = leader(topics, source)
            cluster.kill(victim)
            more(1)
            assert leader(topics, source) != victim
            cluster.start_node(victim)
            # Preferred again as soon as it is in sync again: the leader moves while the query runs.
            wait_until(lambda: moved(topics, source, victim), "the leader moves back")
            more(2)
        finally:
            query.stop()
        found = Counter(values(topics, target))
    assert found == Counter(f"{phase}-{number}" for phase in range(3) for number in range(ROWS))


def leader(topics: Topics, topic: str) -> int:
    return topics.admin.list_topics(topic, DEADLINE_S).topics[topic].partitions[0].leader


def moved(topics: Topics, topic: str, wanted: int) -> bool:
    """Whether `wanted` leads; it is asked for where it does not."""
    partition = topics.admin.list_topics(topic, DEADLINE_S).topics[topic].partitions[0]
    if partition.leader != wanted and wanted in partition.isrs:
        assert partition.replicas[0] == wanted, "the preferred replica led at first"
        topics.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(DEADLINE_S)
    return partition.leader == wanted


def values(topics: Topics, topic: str) -> list[str]:
    return [(message.value() or b"").decode() for message in topics.read(topic)]
