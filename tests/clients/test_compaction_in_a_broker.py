"""Compaction as a running broker does it: the worker process, the swap, readers meanwhile."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import EmbeddedBroker

KEYS = 20
WRITES = 2000


@pytest.fixture
def compacted(penstock_broker_factory: Callable[..., EmbeddedBroker]) -> EmbeddedBroker:
    """A broker with a compacted topic of many small segments, in which every key was written a hundred times."""
    broker = penstock_broker_factory({"log.cleaner.backoff.ms": "3600000"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.01"}
    admin.create_topics([NewTopic("state", 1, 1, config=settings)])["state"].result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 10})
    for number in range(WRITES):
        producer.produce("state", str(number), key=f"key-{number % KEYS}")
    assert producer.flush(30) == 0
    return broker


def compact(broker: EmbeddedBroker) -> None:
    broker.run(broker.broker.compact())


def read_all(broker: EmbeddedBroker) -> list[tuple[int, str, str]]:
    """(offset, key, value) of everything in the topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("state", 0, 0)])
    found: list[tuple[int, str, str]] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return found
        found.append((message.offset(), message.key().decode(), message.value().decode()))


def latest(records: list[tuple[int, str, str]]) -> dict[str, tuple[int, str]]:
    return {key: (offset, value) for offset, key, value in records}


def test_compaction_keeps_the_last_value_of_every_key_at_its_old_offset(compacted: EmbeddedBroker) -> None:
    before = read_all(compacted)
    compact(compacted)
    after = read_all(compacted)
    assert len(after) < len(before) / 2
    assert latest(after) == latest(before)
    assert [offset for offset, _, _ in after] == sorted({offset for offset, _, _ in after})
    assert compacted.broker.metrics.compactions.value == 1


def test_a_compacted_log_is_the_same_after_a_crash(compacted: EmbeddedBroker) -> None:
    compact(compacted)
    before = read_all(compacted)
    compacted.crash_and_restart()
    assert read_all(compacted) == before


def test_compaction_goes_on_from_where_it_was_after_a_restart(compacted: EmbeddedBroker) -> None:
    compact(compacted)
    compacted.restart()
    compact(compacted)
    assert compacted.broker.metrics.compactions.value == 0, "nothing new was written, so there is nothing to do"


def test_an_idempotent_producer_goes_on_after_its_batches_were_compacted(compacted: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": compacted.bootstrap, "enable.idempotence": True})
    for number in range(200):
        producer.produce("state", str(number), key="one")
        producer.flush(30)
    compact(compacted)
    compacted.crash_and_restart()
    producer.produce("state", "last", key="one")
    assert producer.flush(30) == 0
    assert latest(read_all(compacted))["one"][1] == "last"


def test_a_topic_deleted_and_made_anew_starts_empty_though_the_old_one_was_compacted(
    compacted: EmbeddedBroker,
) -> None:
    compact(compacted)
    admin = AdminClient({"bootstrap.servers": compacted.bootstrap})
    admin.delete_topics(["state"])["state"].result(10)
    admin.create_topics([NewTopic("state", 1, 1)])["state"].result(10)
    assert read_all(compacted) == []
