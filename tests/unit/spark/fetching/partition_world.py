"""Topics with records and transactions in a real broker, and a range of them read through the decoder."""

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.model import TopicPartition
from penstock.spark.arrow import ArrowDecoder
from penstock.spark.fetching import Cluster, PartitionFetcher
from penstock.testing.embedded import EmbeddedBroker

DEADLINE_S = 30.0
Open = Callable[..., Cluster]


def create(broker: EmbeddedBroker, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(DEADLINE_S)


def produce(broker: EmbeddedBroker, topic: str, count: int, *, first: int = 0, size: int = 20, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "partitioner": "random", **settings})
    for number in range(first, first + count):
        producer.produce(topic, str(number).zfill(size).encode(), partition=0)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def transact(broker: EmbeddedBroker, topic: str, batches: list[tuple[int, bool | None]]) -> Producer:
    """Transactions of so many records each, committed or not; None leaves the last one open."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(DEADLINE_S)
    for count, is_committed in batches:
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, f"{is_committed}-{number}".encode(), partition=0)
        producer.flush(DEADLINE_S)
        if is_committed is not None:
            (producer.commit_transaction if is_committed else producer.abort_transaction)(DEADLINE_S)
    return producer


def read(
    cluster: Cluster,
    topic: str,
    start: int,
    end: int,
    isolation: str = "read_committed",
    between: Callable[[], None] = lambda: None,
    **options: Any,
) -> list[tuple[int, bytes]]:
    """(offset, value) of [start, end), through the decoder; `between` runs after the first chunk."""
    at = TopicPartition(topic, 0)
    facts = cluster.topics([topic])[topic]
    assert facts is not None
    fetcher = PartitionFetcher(
        cluster, at, facts.topic_id, start, end, isolation, **{"deadline_s": DEADLINE_S, **options}
    )
    decoder = ArrowDecoder(topic, 0, start, end, isolation, has_headers=False)
    rows: list[tuple[int, bytes]] = []
    for number, chunk in enumerate(fetcher):
        for batch in decoder.feed(chunk):
            rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
        if number == 0:
            between()
    for batch in decoder.finish():
        rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    assert not [thread for thread in threading.enumerate() if thread.name == f"penstock-fetch-{at}"]
    return rows
