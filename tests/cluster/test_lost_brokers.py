"""One broker of three is killed, paused, cut off or wiped; clients go on and nothing acknowledged is missing."""

from collections.abc import Iterator

import pytest
from cluster_client import DEADLINE_S, Client, in_partition_order
from cluster_eyes import Eyes
from confluent_kafka.admin import AdminClient

from penstock.testing import PenstockCluster
from penstock.testing.plugin import ClusterFactory

NUMBERS = 600


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def eyes(cluster: PenstockCluster) -> Iterator[Eyes]:
    opened = Eyes(cluster.metadata_url, cluster.directory)
    opened.open()
    yield opened
    opened.close()


def test_any_one_broker_may_be_killed_while_producers_go_on(
    cluster: PenstockCluster, client: Client, eyes: Eyes
) -> None:
    client.create(cluster, "orders")
    producer = client.producer(cluster)
    for turn, node in enumerate(cluster.node_ids):
        client.send(producer, "orders", turn * NUMBERS, NUMBERS // 2)
        cluster.kill(node)
        client.send(producer, "orders", turn * NUMBERS + NUMBERS // 2, NUMBERS // 2)
        cluster.restart(node)
        assert eyes.wait_whole(DEADLINE_S), eyes.partitions("orders")
    assert client.errors == []
    assert client.read_all(cluster, "orders") == in_partition_order(3 * NUMBERS)


def test_two_of_three_brokers_away_refuse_writes_and_lose_none(
    cluster: PenstockCluster, client: Client, eyes: Eyes
) -> None:
    client.create(cluster, "orders", partitions=1)
    client.send(client.producer(cluster), "orders", 0, 100, partitions=1)
    cluster.kill(1)
    cluster.kill(2)
    hasty = client.producer(cluster, **{"message.timeout.ms": 4000})
    hasty.produce("orders", b"too few copies", partition=0, on_delivery=client.told)
    hasty.flush(DEADLINE_S)
    assert len(client.errors) == 1
    cluster.start_nodes([1, 2])
    client.send(client.producer(cluster), "orders", 100, 100, partitions=1)
    values = client.read_all(cluster, "orders", 1)
    assert [value for value in values if value != b"too few copies"] == [str(n).encode() for n in range(200)]


def test_a_wiped_broker_is_filled_again_before_it_counts(cluster: PenstockCluster, client: Client, eyes: Eyes) -> None:
    client.create(cluster, "orders")
    client.send(client.producer(cluster), "orders", 0, NUMBERS)
    assert eyes.wait_whole(DEADLINE_S)
    cluster.kill(1)
    cluster.wipe(1)
    cluster.start_node(1)
    assert eyes.wait(lambda: 1 in eyes.present and eyes.is_whole, DEADLINE_S), eyes.partitions("orders")
    # The others leave, so what is read now is what the new disk holds.
    cluster.terminate(2)
    cluster.terminate(3)
    assert eyes.wait(lambda: {state.leader for state in eyes.partitions("orders")} == {1}, DEADLINE_S)
    # What is committed a leader that just came in sync may learn only once enough replicas are in sync again.
    cluster.start_node(2)
    assert eyes.wait(lambda: all({1, 2} == set(state.isr) for state in eyes.partitions("orders")), DEADLINE_S)
    assert {state.leader for state in eyes.partitions("orders")} == {1}
    assert client.read_all(cluster, "orders") == in_partition_order(NUMBERS)


def test_all_brokers_killed_at_once_come_back_with_everything(
    cluster: PenstockCluster, client: Client, eyes: Eyes
) -> None:
    client.create(cluster, "orders")
    client.send(client.producer(cluster), "orders", 0, NUMBERS)
    for node in cluster.node_ids:
        cluster.kill(node)
    cluster.start_nodes(cluster.node_ids)
    client.send(client.producer(cluster), "orders", NUMBERS, NUMBERS)
    assert client.errors == []
    assert client.read_all(cluster, "orders") == in_partition_order(2 * NUMBERS)


def test_a_paused_leader_is_replaced_and_does_not_speak_when_it_wakes(
    cluster: PenstockCluster, client: Client, eyes: Eyes
) -> None:
    client.create(cluster, "orders", partitions=1)
    producer = client.producer(cluster)
    client.send(producer, "orders", 0, 100, partitions=1)
    leader = eyes.leader("orders", 0)
    with cluster.paused(leader):
        assert eyes.wait(lambda: eyes.leader("orders", 0) not in (leader, -1), DEADLINE_S)
        client.send(producer, "orders", 100, 100, partitions=1)
    client.send(producer, "orders", 200, 100, partitions=1)
    assert eyes.wait_whole(DEADLINE_S), eyes.partitions("orders")
    assert client.errors == []
    assert client.read_all(cluster, "orders", 1) == [str(n).encode() for n in range(300)]


def test_a_leader_cut_off_from_everybody_is_replaced_and_comes_back(
    cluster: PenstockCluster, client: Client, eyes: Eyes
) -> None:
    client.create(cluster, "orders", partitions=1)
    producer = client.producer(cluster)
    client.send(producer, "orders", 0, 100, partitions=1)
    leader = eyes.leader("orders", 0)
    cluster.cut(leader)
    # SQLite is a file and not cut; there the leader stays the leader, and shrinks its ISR to what would not do.
    if cluster.etcd is not None:
        assert eyes.wait(lambda: eyes.leader("orders", 0) not in (leader, -1), DEADLINE_S)
        client.send(producer, "orders", 100, 100, partitions=1)
        cluster.heal()
    else:
        cluster.heal()
        client.send(producer, "orders", 100, 100, partitions=1)
    assert eyes.wait_whole(DEADLINE_S), eyes.partitions("orders")
    assert client.errors == []
    assert client.read_all(cluster, "orders", 1) == [str(n).encode() for n in range(200)]


@pytest.mark.timeout(180)
def test_a_rolling_restart_fails_no_produce(cluster: PenstockCluster, client: Client, eyes: Eyes) -> None:
    client.create(cluster, "orders")
    producer = client.producer(cluster)
    for turn, node in enumerate(cluster.node_ids):
        client.send(producer, "orders", turn * NUMBERS, NUMBERS // 2)
        assert cluster.terminate(node) == 0
        client.send(producer, "orders", turn * NUMBERS + NUMBERS // 2, NUMBERS // 2)
        cluster.start_node(node)
        assert eyes.wait_whole(DEADLINE_S), eyes.partitions("orders")
    assert client.errors == []
    assert client.read_all(cluster, "orders") == in_partition_order(3 * NUMBERS)


def test_a_broker_that_stops_hands_its_leaders_over_first(
    penstock_cluster_factory: ClusterFactory, client: Client
) -> None:
    """With a session far longer than the test nobody can have been found dead."""
    cluster = penstock_cluster_factory(overrides={"broker.session.timeout.ms": "600000"})
    eyes = Eyes(cluster.metadata_url, cluster.directory)
    eyes.open()
    client.create(cluster, "orders")
    client.send(client.producer(cluster), "orders", 0, NUMBERS)
    assert eyes.wait_whole(DEADLINE_S)
    assert cluster.terminate(1) == 0
    assert eyes.wait(lambda: eyes.led_by(1, "orders") == [], DEADLINE_S)
    client.send(client.producer(cluster), "orders", NUMBERS, NUMBERS)
    assert client.errors == []
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("orders", timeout=DEADLINE_S)
    assert {partition.leader for partition in found.topics["orders"].partitions.values()} <= {2, 3}
    eyes.close()
