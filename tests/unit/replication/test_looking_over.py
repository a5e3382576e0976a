"""A broker looks over its partitions every second, in steps, so that thousands of them hold nobody up."""

from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.replication.cluster import Cluster, running_cluster

import penstock.broker
from penstock.model import TopicPartition

ORDERS = [TopicPartition("orders", index) for index in range(5)]
OWN = 2  # of four partitions without replicas, on two brokers


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path, 1, 2) as cluster:
        await cluster.create("orders", partitions=len(ORDERS), replicas=2)
        await cluster.create("own", partitions=4, replicas=1)
        await cluster.until(lambda: len(list(cluster.brokers[1].replicas.partitions())) == len(ORDERS) + OWN)
        yield cluster


@pytest.fixture
def looks(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[list[TopicPartition]]:
    """What each step looked at, two at a time."""
    made: list[list[TopicPartition]] = []
    monkeypatch.setattr(penstock.broker, "CHECKED_PER_TURN", 2)
    monkeypatch.setattr(penstock.broker, "CHECK_PAUSE_S", 0)
    monkeypatch.setattr(cluster.brokers[1].repairs, "check", lambda some: made.append([each.at for each in some]))
    return made


def steps_of(walk: Coroutine[Any, Any, None]) -> Iterator[None]:
    """Driven by hand, so that nothing else of the broker runs in between."""
    while True:
        try:
            walk.send(None)
        except StopIteration:
            return
        yield


async def test_every_partition_that_others_keep_too_is_looked_at_once(
    cluster: Cluster, looks: list[list[TopicPartition]]
) -> None:
    steps = len(list(steps_of(cluster.brokers[1]._check_replicas())))
    assert sorted(at for look in looks for at in look) == ORDERS
    assert max(map(len, looks)) == 2
    assert steps == len(looks) == -(-(len(ORDERS) + OWN) // 2), "the others are passed over, two at a time too"


async def test_one_that_was_let_go_between_two_steps_is_left_alone(
    cluster: Cluster, looks: list[list[TopicPartition]], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = cluster.brokers[1]
    for _ in steps_of(broker._check_replicas()):
        monkeypatch.setattr(broker.replicas, "has", lambda partition: partition.at != ORDERS[4])
    assert ORDERS[4] not in [at for look in looks for at in look]
