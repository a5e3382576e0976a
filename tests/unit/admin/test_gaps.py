"""Lags that are no messages: what doctor leaves out before it calls a group stuck."""

from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position

from penstock.admin.cluster import Cluster
from penstock.admin.gaps import Gap, find_gaps, skip_gaps
from penstock.admin.group_lag import GroupView, PartitionLag
from penstock.model import TopicPartition
from penstock.testing import EmbeddedBroker

DEADLINE_S = 30
T0 = TopicPartition("t", 0)


def group(*partitions: PartitionLag) -> GroupView:
    return GroupView("g", "stable", "classic", "range", None, (), partitions)


def lag(committed: int | None, end: int, at: TopicPartition = T0) -> PartitionLag:
    return PartitionLag(at, committed, 0, end, None, None)


def test_who_stands_in_a_gap_counts_as_being_at_its_end() -> None:
    view = skip_gaps(group(lag(9, 10), lag(8, 10), lag(7, 10), lag(None, 10)), {T0: Gap(8, 10)})
    assert [one.lag for one in view.partitions] == [0, 0, 3, None]


def test_what_comes_after_a_gap_counts_again() -> None:
    assert skip_gaps(group(lag(9, 15)), {T0: Gap(8, 10)}).partitions[0].lag == 5


@pytest.fixture
def cluster(penstock_broker: EmbeddedBroker) -> Cluster:
    return Cluster(penstock_broker.bootstrap, {}, DEADLINE_S, as_json=False)


@pytest.fixture
def producer(penstock_broker: EmbeddedBroker) -> Producer:
    return new_producer(penstock_broker)


def new_producer(broker: EmbeddedBroker) -> Producer:
    """It begins when the markers of whatever came before it are written."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "pay"})
    producer.init_transactions(DEADLINE_S)
    return producer


def write(producer: Any, *values: bytes) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce("t", value, partition=0)
    assert producer.flush(DEADLINE_S) == 0


def test_markers_and_aborted_records_at_the_end_are_a_gap(cluster: Cluster, producer: Producer) -> None:
    write(producer, b"0", b"1")
    producer.commit_transaction(DEADLINE_S)  # the marker is at offset 2
    write(producer, b"3")
    producer.abort_transaction(DEADLINE_S)  # at offset 4
    behind, at_marker, at_record = group(lag(1, 5)), group(lag(2, 5)), group(lag(4, 5))
    assert find_gaps(cluster, [behind]) == {}
    assert find_gaps(cluster, [at_marker]) == {T0: Gap(2, 5)}
    assert find_gaps(cluster, [behind, at_marker, at_record]) == {T0: Gap(2, 5)}
    assert find_gaps(cluster, [group(lag(5, 5), lag(None, 5))]) == {}


def test_behind_an_open_transaction_there_is_nothing_to_read_yet(
    penstock_broker: EmbeddedBroker, cluster: Cluster, producer: Producer
) -> None:
    write(producer, b"0")
    assert find_gaps(cluster, [group(lag(0, 1))]) == {T0: Gap(0, 1)}
    producer.commit_transaction(DEADLINE_S)
    new_producer(penstock_broker)
    assert find_gaps(cluster, [group(lag(0, 2))]) == {}


def test_looking_commits_nothing(cluster: Cluster, producer: Producer) -> None:
    write(producer, b"0")
    producer.commit_transaction(DEADLINE_S)
    find_gaps(cluster, [group(lag(0, 2))])
    reader = cluster.consumer({"group.id": "penstock-cli"})
    (committed,) = reader.committed([Position("t", 0)], DEADLINE_S)
    reader.close()
    assert committed.offset < 0
