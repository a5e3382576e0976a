"""The leader's side of the throttle of reassignments: whom it slows, by how much, and what it leaves alone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.replication.cluster import Cluster, running_cluster

from penstock.errors import ErrorCode
from penstock.replication.throttle import NOTHING_S, Budget
from penstock.wire.apis import ApiKey

VERSION = 17
NODES = (1, 2, 3)
TOPIC = "orders"
VALUE = "v" * 10_000
EVERY = {"leader_replication_throttled_replicas": "*"}
SLOW = {"leader_replication_throttled_rate": "1"}  # one value takes hours


def test_a_budget_waits_until_what_was_taken_is_paid_off() -> None:
    budget = Budget()
    assert budget.wait_s(100, 10.0) == 0
    budget.take(300)
    assert budget.wait_s(100, 10.0) == 3
    assert budget.wait_s(100, 12.0) == 1
    assert budget.wait_s(50, 12.0) == 2, "a new rate counts at once"
    assert budget.wait_s(50, 99.0) == 0
    assert budget.wait_s(0, 99.0) == NOTHING_S


async def fetch(cluster: Cluster, leader: int, follower: int, offset: int, *, max_wait_ms: int = 0) -> Any:
    topic = cluster.brokers[leader].image.topics[TOPIC]
    ask = {
        "partition": 0,
        "current_leader_epoch": topic.partitions[0].leader_epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": 0,
        "partition_max_bytes": 1 << 20,
    }
    reply = await cluster.request(
        leader,
        ApiKey.FETCH,
        VERSION,
        max_wait=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic_id": topic.id, "partitions": [ask]}],
        forgotten_topics_data=(),
        rack_id="",
        replica_state={"replica_id": follower, "replica_epoch": cluster.brokers[leader].image.brokers[follower].epoch},
    )
    (result,) = reply.responses[0].partitions
    assert result.error_code == ErrorCode.NONE
    return result


async def with_a_laggard(cluster: Cluster, **configs: str) -> tuple[int, int, int]:
    """A topic of which one replica has fallen behind: the leader, the one in sync, and the one that is not."""
    await cluster.create(TOPIC, **configs)
    leader = await cluster.leader(TOPIC)
    in_sync, laggard = (node for node in NODES if node != leader)
    await cluster.stop_fetching(laggard)
    # It has not got this, and is found to lag.
    assert (await cluster.send(leader, TOPIC, VALUE)).error_code == ErrorCode.NONE
    await cluster.in_sync(TOPIC, leader, in_sync)
    return leader, in_sync, laggard


async def test_a_replica_out_of_sync_that_is_over_the_rate_is_given_nothing_and_still_heard(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES, **SLOW) as cluster:
        leader, _, laggard = await with_a_laggard(cluster, **EVERY)
        assert (await fetch(cluster, leader, laggard, 0)).records, "there was nothing to pay off"
        progress = cluster.replica(leader, TOPIC).progress
        assert progress is not None
        asked_at = progress.followers[laggard].asked_at
        again = await fetch(cluster, leader, laggard, 0)
        assert not again.records
        assert again.high_watermark == 1
        assert progress.followers[laggard].asked_at > asked_at


async def test_a_replica_in_sync_is_given_all_and_takes_nothing_of_the_rate(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES, **SLOW) as cluster:
        leader, in_sync, laggard = await with_a_laggard(cluster, **EVERY)
        await cluster.stop_fetching(in_sync)
        for _ in range(3):
            assert (await fetch(cluster, leader, in_sync, 0)).records
        assert (await fetch(cluster, leader, laggard, 0)).records


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_pair_names_the_leader_that_is_to_be_slow(tmp_path: Path, is_named: bool) -> None:
    async with running_cluster(tmp_path, *NODES, **SLOW) as cluster:
        leader, _, laggard = await with_a_laggard(cluster)
        pair = f"0:{leader}" if is_named else f"0:{laggard}"
        change = {"name": "leader.replication.throttled.replicas", "config_operation": 0, "value": pair}
        reply = await cluster.request(
            leader,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            resources=[{"resource_type": 2, "resource_name": TOPIC, "configs": [change]}],
            validate_only=False,
        )
        assert reply.responses[0].error_code == ErrorCode.NONE
        named = cluster.replica(leader, TOPIC).log
        await cluster.until(lambda: named.config.leader_replication_throttled_replicas == (pair,))
        assert (await fetch(cluster, leader, laggard, 0)).records
        assert bool((await fetch(cluster, leader, laggard, 0)).records) != is_named


async def test_what_is_appended_meanwhile_does_not_wake_a_replica_that_would_be_given_nothing(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES, **SLOW) as cluster:
        leader, _, laggard = await with_a_laggard(cluster, **EVERY)
        assert (await fetch(cluster, leader, laggard, 0)).records
        waiting = asyncio.ensure_future(fetch(cluster, leader, laggard, 0, max_wait_ms=600_000))
        progress = cluster.replica(leader, TOPIC).progress
        assert progress is not None
        asked_at = progress.followers[laggard].asked_at
        await cluster.until(lambda: progress.followers[laggard].asked_at > asked_at)
        for _ in range(3):
            await cluster.send(leader, TOPIC, VALUE)
        assert not waiting.done()
        waiting.cancel()


async def test_a_throttled_replica_catches_up_without_asking_for_nothing_all_the_time(tmp_path: Path) -> None:
    values = 30
    settings = {"leader_replication_throttled_rate": "300000", "replica_fetch_max_bytes": "1024"}
    async with running_cluster(tmp_path, *NODES, **settings) as cluster:
        await cluster.create(TOPIC, **EVERY)
        leader = await cluster.leader(TOPIC)
        absent = next(node for node in NODES if node != leader)
        await cluster.crash(absent)
        for _ in range(values):
            assert (await cluster.send(leader, TOPIC, VALUE)).error_code == ErrorCode.NONE
        fetches = cluster.brokers[leader].metrics.requests.child("Fetch")
        before = fetches.value
        await cluster.start(absent)
        await cluster.in_sync(TOPIC, *NODES)
        # One answer brings one value; the rest are those that met the longest wait, and the other follower's.
        assert fetches.value - before < 20 * values
