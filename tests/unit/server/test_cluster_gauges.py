"""What three brokers' pages say of their cluster, while one of them goes and what it had is led by another."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.replication.cluster import Cluster, running_cluster

NODES = (1, 2, 3)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path, *NODES) as cluster:
        yield cluster


def total(cluster: Cluster, name: str) -> float:
    """The sum of a metric over all brokers that run, read as Prometheus reads it."""
    lines = [line for broker in cluster.brokers.values() for line in broker.metrics.render().splitlines()]
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.split(" ")[0].split("{")[0] == name)


async def test_the_cluster_is_seen_to_lose_a_replica_a_leader_and_all(cluster: Cluster) -> None:
    await cluster.create("orders", min_insync_replicas="2")
    first = await cluster.leader("orders")
    for _ in range(3):
        await cluster.send(first, "orders", "value" * 100)
    assert total(cluster, "mq_replication_bytes_out_total") == total(cluster, "mq_replication_bytes_in_total") > 3000
    names = ("mq_active_controller", "mq_broker_registered", "mq_leader_elections_total")
    assert [total(cluster, name) for name in names] == [1, 3, 1]
    bad = [
        "mq_under_replicated_partitions",
        "mq_at_min_isr_partitions",
        "mq_under_min_isr_partitions",
        "mq_leaderless_partitions",
        "mq_unbalanced_leaders",
    ]
    assert [total(cluster, name) for name in bad] == [0, 0, 0, 0, 0]

    await cluster.crash(first)
    second = await cluster.leader("orders")
    others = [node for node in NODES if node != first]
    await cluster.in_sync("orders", *others)
    # Of the one that is gone; its place as the first replica is another's meanwhile.
    await cluster.until(lambda: [total(cluster, name) for name in bad] == [1, 1, 0, 0, 1])
    await cluster.until(lambda: [total(cluster, name) for name in names[:2]] == [1, 2])
    assert cluster.brokers[second].metrics.leaderships.value == 1

    third = next(node for node in others if node != second)
    await cluster.crash(second)
    await cluster.until(lambda: cluster.brokers[third].replicas.led() != [])
    await cluster.until(lambda: [total(cluster, name) for name in bad] == [1, 0, 1, 0, 1])
    assert total(cluster, "mq_unclean_leader_elections_total") == 0


async def test_a_follower_that_stops_fetching_is_seen_to_lag(cluster: Cluster) -> None:
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    await cluster.send(leader, "orders", "one")
    idle = next(node for node in NODES if node != leader)
    await cluster.stop_fetching(idle)
    await cluster.send(leader, "orders", "two", acks=1)
    await cluster.until(lambda: total(cluster, "mq_replica_lag_seconds_max") > 0.5)
    assert total(cluster, "mq_replica_lag_records") == 1
