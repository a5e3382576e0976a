"""The cluster of penstock.testing itself: what users of the fixture are promised."""

import os

import pytest
from cluster_client import Client, in_partition_order

from penstock.testing import PenstockCluster
from penstock.testing.namespaces import why_no_namespaces
from penstock.testing.plugin import ClusterFactory

REASON = why_no_namespaces()


def test_a_broker_keeps_its_address_through_a_restart(penstock_cluster: PenstockCluster) -> None:
    before = penstock_cluster.bootstrap
    penstock_cluster.kill(2)
    penstock_cluster.restart(2)
    assert penstock_cluster.bootstrap == before
    penstock_cluster.wait_acquainted()
    client = Client()
    client.create(penstock_cluster, "orders")
    client.send(client.producer(penstock_cluster), "orders", 0, 30)
    assert client.read_all(penstock_cluster, "orders") == in_partition_order(30)


def test_nothing_is_left_of_a_cluster_that_was_stopped(penstock_cluster: PenstockCluster) -> None:
    pids = [broker.pid for broker in penstock_cluster.brokers.values()]
    penstock_cluster.pause(1)
    penstock_cluster.cut(2)
    penstock_cluster.stop()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_proxy_knows_brokers_from_clients(penstock_cluster: PenstockCluster) -> None:
    client = Client()
    client.create(penstock_cluster, "orders")
    client.send(client.producer(penstock_cluster), "orders", 0, 300)
    ways = {way for way, count in penstock_cluster.proxy.carried_bytes.items() if count}
    assert {way for way in ways if "clients" not in way} >= {(1, 2), (2, 1), (2, 3), (3, 2), (1, 3), (3, 1)}
    assert ("clients", 1) in ways


def test_clients_cut_from_one_broker_are_served_again_when_it_is_healed(penstock_cluster: PenstockCluster) -> None:
    client = Client()
    client.create(penstock_cluster, "orders")
    producer = client.producer(penstock_cluster)
    client.send(producer, "orders", 0, 30)
    penstock_cluster.cut("clients", 1)
    for number in range(30, 60):
        producer.produce("orders", str(number).encode(), partition=number % 3, on_delivery=client.told)
    assert producer.flush(1.0) > 0, "what broker 1 leads is not acknowledged"
    penstock_cluster.heal()
    assert producer.flush(60) == 0
    assert client.errors == []
    assert client.read_all(penstock_cluster, "orders") == in_partition_order(60)


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_brokers_in_namespaces_survive_a_line_that_loses_packets(penstock_cluster_factory: ClusterFactory) -> None:
    cluster = penstock_cluster_factory(namespaces=True, overrides={"replica.lag.time.max.ms": "2000"})
    client = Client()
    client.create(cluster, "orders")
    producer = client.producer(cluster)
    client.send(producer, "orders", 0, 30)
    cluster.cut(1, 2)
    client.send(producer, "orders", 30, 30)
    cluster.heal()
    assert client.errors == []
    assert client.read_all(cluster, "orders") == in_partition_order(60)
