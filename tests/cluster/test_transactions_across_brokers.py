"""Transactions whose coordinator, partitions and group are on different brokers, with a stock client."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import PenstockCluster

PARTITIONS = 6
IDS = 6  # enough that all three brokers coordinate some
DEADLINE_S = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with PenstockCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS, 3)])["orders"].result(DEADLINE_S)
        yield cluster


def transactional(cluster: PenstockCluster, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(DEADLINE_S)
    return producer


def write(producer: Producer, value: str) -> None:
    """One message to every partition, hence to every broker."""
    for partition in range(PARTITIONS):
        producer.produce("orders", f"{value}/{partition}".encode(), partition=partition)


def read_committed(cluster: PenstockCluster, transactional_ids: list[str]) -> set[str]:
    """All that committed readers see, up to the end as they see it, once these ids have nothing under way."""
    for transactional_id in transactional_ids:
        transactional(cluster, transactional_id)  # is given the id only when its markers are written
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("orders", partition, 0) for partition in range(PARTITIONS)])
    seen: set[str] = set()
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, "a partition has no end that committed readers can reach"
        if message.error():
            ended.add(message.partition())
        else:
            seen.add((message.value() or b"").decode())
    consumer.close()
    return seen


def test_every_transaction_is_seen_whole_or_not_at_all(cluster: PenstockCluster) -> None:
    expected: set[str] = set()
    names = [f"whole-{number}" for number in range(IDS)]
    for name in names:
        producer = transactional(cluster, name)
        for turn in range(3):
            producer.begin_transaction()
            write(producer, f"{name}-{turn}")
            if turn == 1:
                producer.abort_transaction(DEADLINE_S)
            else:
                producer.commit_transaction(DEADLINE_S)
                expected |= {f"{name}-{turn}/{partition}" for partition in range(PARTITIONS)}
    assert {value for value in read_committed(cluster, names) if value.startswith("whole-")} == expected


def test_offsets_are_committed_with_the_transaction_wherever_their_group_is_kept(cluster: PenstockCluster) -> None:
    for number in range(IDS):
        group = f"group-{number}"
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False})
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(0.1)
        producer = transactional(cluster, f"offsets-{number}")
        for offset, is_commit in ((1, True), (2, False)):
            producer.begin_transaction()
            write(producer, f"offsets-{number}")
            positions = [TopicPartition("orders", 0, offset)]
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), DEADLINE_S)
            if is_commit:
                producer.commit_transaction(DEADLINE_S)
            else:
                producer.abort_transaction(DEADLINE_S)
        consumer.close()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition("orders", 0)])]
        (committed,) = admin.list_consumer_group_offsets(asked)[group].result(DEADLINE_S).topic_partitions
        assert committed.offset == 1


def test_operators_see_the_transactions_of_all_brokers(cluster: PenstockCluster) -> None:
    opened = [transactional(cluster, f"open-{number}") for number in range(IDS)]
    for number, producer in enumerate(opened):
        producer.begin_transaction()
        write(producer, f"open-{number}")
        producer.flush(DEADLINE_S)
    listed = penstock(cluster, "transactions", "list", "--state", "Ongoing")
    names = {one["transactional_id"] for one in listed}
    assert names >= {f"open-{number}" for number in range(IDS)}
    assert len({one["coordinator"] for one in listed}) > 1
    (described,) = penstock(cluster, "transactions", "describe", "open-0")
    assert len(described["partitions"]) == PARTITIONS
    assert penstock(cluster, "transactions", "find-hanging") == []
    for producer in opened:
        producer.abort_transaction(DEADLINE_S)


def test_a_transaction_goes_on_when_its_coordinator_dies(cluster: PenstockCluster) -> None:
    names = ["orphan-0", "orphan-1"]
    for transactional_id in names:
        producer = transactional(cluster, transactional_id)
        producer.begin_transaction()
        write(producer, f"{transactional_id}-kept")
        producer.flush(DEADLINE_S)
        listed = penstock(cluster, "transactions", "list", "--state", "Ongoing")
        (coordinator,) = [one["coordinator"] for one in listed if one["transactional_id"] == transactional_id]
        cluster.kill(coordinator)
        producer.commit_transaction(60)
        cluster.start_node(coordinator)
        producer.begin_transaction()
        write(producer, f"{transactional_id}-dropped")
        producer.abort_transaction(60)
    seen = {value for value in read_committed(cluster, names) if value.startswith("orphan-")}
    assert seen == {f"{name}-kept/{partition}" for name in names for partition in range(PARTITIONS)}


def penstock(cluster: PenstockCluster, *arguments: str) -> Any:
    """What a command of the CLI says, as JSON."""
    command = [str(Path(sys.executable).with_name("penstock")), *arguments, "--json"]
    done = subprocess.run(
        [*command, "--bootstrap", cluster.bootstrap], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
