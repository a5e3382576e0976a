"""A partition read while its leader dies: three real brokers."""

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.model import TopicPartition
from penstock.spark.arrow import ArrowDecoder
from penstock.spark.fetching import Cluster, ConnectionSettings, PartitionFetcher
from penstock.testing.plugin import ClusterFactory

DEADLINE_S = 60.0
# Short, so that the death of a broker is noticed soon.
SESSION = {"broker.session.timeout.ms": "2000", "replica.lag.time.max.ms": "2000"}
COUNT = 4000


def test_reading_and_asking_go_on_with_the_next_leader(penstock_cluster_factory: ClusterFactory) -> None:
    brokers = penstock_cluster_factory(metadata="sqlite", overrides=SESSION)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 3, config={"min.insync.replicas": "2"})])["orders"].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "batch.size": 20_000, "acks": "all"})
    for number in range(COUNT):
        producer.produce("orders", str(number).encode().ljust(500), partition=0)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0

    at = TopicPartition("orders", 0)
    bootstrap = [place.rsplit(":", 1) for place in brokers.bootstrap.split(",")]
    settings = ConnectionSettings(tuple((host, int(port)) for host, port in bootstrap), request_timeout_s=20.0)
    cluster = Cluster(settings, deadline_s=DEADLINE_S)
    facts = cluster.topics(["orders"])["orders"]
    assert facts is not None
    fetcher = PartitionFetcher(
        cluster, at, facts.topic_id, 0, COUNT, "read_committed", max_bytes=50_000, deadline_s=DEADLINE_S
    )
    decoder = ArrowDecoder("orders", 0, 0, COUNT, "read_committed", has_headers=False, rows_per_batch=50)
    offsets: list[int] = []
    is_killed = False
    for chunk in fetcher:
        for batch in decoder.feed(chunk):
            offsets += batch["offset"].to_pylist()
        if not is_killed:
            is_killed = True
            brokers.kill(facts.leaders[0])
    for batch in decoder.finish():
        offsets += batch["offset"].to_pylist()
    assert offsets == list(range(COUNT))
    # What was learnt before the broker died is not asked of it again.
    assert cluster.list_offsets({at: -1}, "read_committed")[at][0] == COUNT
    moved = cluster.topics(["orders"])["orders"]
    assert moved is not None
    assert moved.leaders[0] != facts.leaders[0]
    cluster.close()
