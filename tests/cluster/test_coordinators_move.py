"""Groups and transactions go on when the broker that coordinates them is killed."""

from collections.abc import Iterator
from typing import Any

import pytest
from cluster_client import DEADLINE_S, QUICK, Client
from cluster_clients import insist
from cluster_eyes import Eyes
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import PenstockCluster

COUNT = 200
MODES: list[dict[str, Any]] = [
    {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
    {"group.protocol": "consumer"},
]


@pytest.fixture
def eyes(cluster: PenstockCluster) -> Iterator[Eyes]:
    opened = Eyes(cluster.metadata_url, cluster.directory)
    opened.open()
    yield opened
    opened.close()


def coordinators(eyes: Eyes, topic: str) -> set[int]:
    return {state.leader for state in eyes.partitions(topic)} - {-1}


def take(consumer: Consumer, count: int) -> list[int]:
    numbers: list[int] = []
    while len(numbers) < count:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"only {len(numbers)} of {count} came"
        if message.error() is None:
            numbers.append(int(message.value() or b""))
    return numbers


def committed(cluster: PenstockCluster) -> int:
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "billing", **QUICK})
    found: list[TopicPartition] = []
    insist(lambda: found.extend(reader.committed([TopicPartition("orders", 0)], DEADLINE_S)))
    reader.close()
    return found[0].offset


@pytest.mark.parametrize("mode", MODES, ids=["classic", "consumer"])
def test_a_group_goes_on_from_its_commits_when_its_coordinator_is_killed(
    cluster: PenstockCluster, eyes: Eyes, mode: dict[str, Any]
) -> None:
    client = Client()
    client.create(cluster, "orders", partitions=1)
    producer = client.producer(cluster)
    client.send(producer, "orders", 0, COUNT, partitions=1)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **mode,
            **QUICK,
        }
    )
    consumer.subscribe(["orders"])
    assert take(consumer, COUNT) == list(range(COUNT))
    consumer.commit(asynchronous=False)
    for node in cluster.node_ids:
        # Each in its turn, so the one that coordinates this group is among them.
        assert eyes.wait_whole(DEADLINE_S)
        cluster.kill(node)
        assert eyes.wait(lambda node=node: node not in coordinators(eyes, "__consumer_offsets"), DEADLINE_S)
        assert committed(cluster) == COUNT
        cluster.start_node(node)
    client.send(producer, "orders", COUNT, COUNT, partitions=1)
    assert take(consumer, COUNT) == list(range(COUNT, 2 * COUNT))
    insist(lambda: consumer.commit(asynchronous=False))
    consumer.close()


def test_a_transaction_is_committed_whole_although_its_coordinator_is_killed(
    cluster: PenstockCluster, eyes: Eyes
) -> None:
    client = Client()
    client.create(cluster, "accounts")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "bank", **QUICK})
    insist(lambda: producer.init_transactions(DEADLINE_S))
    committed: list[bytes] = []
    for turn, node in enumerate(cluster.node_ids):
        assert eyes.wait_whole(DEADLINE_S)
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("accounts", f"{partition} {turn}".encode(), partition=partition)
        producer.flush(DEADLINE_S)
        cluster.kill(node)
        insist(lambda: producer.commit_transaction(DEADLINE_S))
        committed += [f"{partition} {turn}".encode() for partition in range(3)]
        cluster.start_node(node)
    assert client.read_all(cluster, "accounts") == sorted(committed)
