"""Fetch as replicas and as consumers near a replica ask it: what a leader says to whom."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.replication.cluster import Cluster, running_cluster

from penstock.disk import RealFile
from penstock.errors import ErrorCode
from penstock.model import Offset
from penstock.wire.apis import ApiKey

NODES = (1, 2, 3)
VERSION = 17


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path, *NODES) as cluster:
        await cluster.create("orders")
        leader = await cluster.leader("orders")
        for number in range(3):
            await cluster.send(leader, "orders", f"value-{number}")
        yield cluster


async def fetch(
    cluster: Cluster,
    node: int,
    *,
    replica: int = -1,
    life: int = -1,
    offset: int = 0,
    epoch: int = -1,
    last_epoch: int = -1,
    rack: str = "",
) -> Any:
    """The answer about the one partition."""
    topic = cluster.brokers[node].image.topics["orders"]
    reply = await cluster.request(
        node,
        ApiKey.FETCH,
        VERSION,
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            {
                "topic_id": topic.id,
                "partitions": [
                    {
                        "partition": 0,
                        "current_leader_epoch": epoch,
                        "fetch_offset": offset,
                        "last_fetched_epoch": last_epoch,
                        "log_start_offset": 0,
                        "partition_max_bytes": 1 << 20,
                    }
                ],
            }
        ],
        forgotten_topics_data=(),
        rack_id=rack,
        replica_state={"replica_id": replica, "replica_epoch": life},
    )
    return reply.responses[0].partitions[0]


async def leader_and_follower(cluster: Cluster) -> tuple[int, int, int]:
    leader = await cluster.leader("orders")
    follower = next(node for node in NODES if node != leader)
    return leader, follower, cluster.brokers[leader].image.brokers[follower].epoch


async def test_a_replica_is_given_what_is_written_whether_committed_or_not(cluster: Cluster) -> None:
    leader, follower, life = await leader_and_follower(cluster)
    for node in NODES:
        if node != leader:
            await cluster.stop_fetching(node)
    await cluster.send(leader, "orders", "not committed", acks=1)
    result = await fetch(cluster, leader, replica=follower, life=life, offset=3, epoch=0, last_epoch=0)
    assert result.error_code == ErrorCode.NONE
    assert result.records
    consumer = await fetch(cluster, leader, offset=3)
    assert (consumer.error_code, bool(consumer.records)) == (ErrorCode.NONE, False)


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, ErrorCode.NONE)]
)
async def test_a_replica_must_follow_the_epoch_that_leads(cluster: Cluster, epoch: int, code: ErrorCode) -> None:
    leader, follower, life = await leader_and_follower(cluster)
    result = await fetch(cluster, leader, replica=follower, life=life, offset=3, epoch=epoch)
    assert result.error_code == code


async def test_who_is_no_replica_or_no_longer_the_same_is_refused_and_counts_for_nothing(cluster: Cluster) -> None:
    leader, follower, life = await leader_and_follower(cluster)
    await cluster.stop_fetching(follower)
    stranger = await fetch(cluster, leader, replica=9, life=life, offset=3, epoch=0)
    former = await fetch(cluster, leader, replica=follower, life=life - 1, offset=3, epoch=0)
    assert (stranger.error_code, former.error_code) == (ErrorCode.NOT_LEADER_OR_FOLLOWER,) * 2
    assert (await fetch(cluster, leader, replica=follower, life=life + 7, offset=0, epoch=0)).error_code == 0
    progress = cluster.replica(leader, "orders").progress
    assert progress is not None
    assert (progress.followers[follower].broker_epoch, progress.followers[follower].next_offset) == (life + 7, 0)


async def test_a_replica_with_records_of_an_epoch_we_never_had_is_told_where_it_parts(cluster: Cluster) -> None:
    leader, follower, life = await leader_and_follower(cluster)
    await cluster.stop_fetching(follower)
    progress = cluster.replica(leader, "orders").progress
    assert progress is not None
    before = progress.followers[follower].next_offset
    beyond = await fetch(cluster, leader, replica=follower, life=life, offset=9, epoch=0, last_epoch=0)
    assert (beyond.error_code, beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (0, 0, 3)
    assert not beyond.records
    assert progress.followers[follower].next_offset == before, "what it says it has is not what we have"


async def test_a_consumer_is_sent_to_a_replica_in_its_rack_and_reads_there(cluster: Cluster) -> None:
    leader, follower, _ = await leader_and_follower(cluster)
    await cluster.until(lambda: cluster.replica(follower, "orders").high_watermark == 3)
    sent = await fetch(cluster, leader, rack=f"rack-{follower}")
    assert (sent.error_code, sent.preferred_read_replica, bool(sent.records)) == (0, follower, False)
    near = await fetch(cluster, follower, rack=f"rack-{follower}", epoch=0)
    assert (near.error_code, near.high_watermark, bool(near.records)) == (0, 3, True)
    stays = await fetch(cluster, leader, rack=f"rack-{leader}")
    assert (stays.preferred_read_replica, bool(stays.records)) == (-1, True)
    elsewhere = await fetch(cluster, leader, rack="another planet")
    assert (elsewhere.preferred_read_replica, bool(elsewhere.records)) == (-1, True)


async def test_a_consumer_that_is_ahead_of_a_follower_is_asked_to_come_again(cluster: Cluster) -> None:
    _, follower, _ = await leader_and_follower(cluster)
    result = await fetch(cluster, follower, offset=50)
    assert result.error_code == ErrorCode.OFFSET_NOT_AVAILABLE


async def test_ends_are_asked_of_the_leader_alone(cluster: Cluster) -> None:
    leader, follower, _ = await leader_and_follower(cluster)

    async def latest(node: int) -> Any:
        body = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {
                    "name": "orders",
                    "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}],
                }
            ],
        }
        return (await cluster.request(node, ApiKey.LIST_OFFSETS, 7, **body)).topics[0].partitions[0]

    assert (await latest(leader)).offset == 3
    assert (await latest(follower)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("is_replica", [True, False])
async def test_a_read_from_disk_that_ends_after_the_leadership_did_says_nothing_of_offsets(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, is_replica: bool
) -> None:
    leader, follower, life = await leader_and_follower(cluster)
    partition, broker = cluster.replica(leader, "orders"), cluster.brokers[leader]
    assert partition.state is not None
    await cluster.stop_fetching(follower)
    read, run = partition.log.read, broker.disk.run
    begun, may_go_on = asyncio.Event(), asyncio.Event()

    def read_cold(*arguments: Any, cached_only: bool = True, **how: Any) -> memoryview | None:
        return None if cached_only else read(*arguments, cached_only=False, **how)

    async def run_late(work: Callable[..., Any], *arguments: Any) -> Any:
        begun.set()
        await may_go_on.wait()
        return await run(work, *arguments)

    monkeypatch.setattr(partition.log, "read", read_cold)
    monkeypatch.setattr(broker.disk, "run", run_late)
    who = {"replica": follower, "life": life, "epoch": 0, "last_epoch": 0} if is_replica else {}
    asked = asyncio.ensure_future(fetch(cluster, leader, offset=2, **who))
    await begun.wait()
    monkeypatch.undo()
    # Another leads, which has less; here the log is cut to that.
    partition.follow(replace(partition.state, leader=follower, leader_epoch=1, partition_epoch=9))
    partition.cut(await broker.logs.truncate(partition.log, Offset(1)))
    may_go_on.set()
    # A replica that is told that its offset is out of range lets go of everything, a consumer goes who knows where.
    assert (await asked).error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


async def test_a_bit_that_flipped_on_the_leaders_disk_is_served_to_nobody_and_the_replica_is_made_anew(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.leader("orders")
    for number in range(3, 20):
        await cluster.send(leader, "orders", f"value-{number}" * 50)
    broker, partition = cluster.brokers[leader], cluster.replica(leader, "orders")
    segment = partition.log.segments[0]
    content = bytearray(segment.path().read_bytes())
    content[segment.position_of(Offset(10)) + 200] ^= 1
    segment.path().write_bytes(content)
    # All that was written is long out of the page cache: every read is one from the disk.
    monkeypatch.setattr(RealFile, "read_cached", lambda *_: None)
    assert (await fetch(cluster, leader, offset=3)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await cluster.until(lambda: broker.metrics.replicas_rebuilt.value == 1)
    await cluster.in_sync("orders", *NODES)
    expected = [f"value-{number}" * (50 if number > 2 else 1) for number in range(20)]
    assert [cluster.values(node, "orders", 20) for node in NODES] == [expected] * 3
    answer = await fetch(cluster, await cluster.leader("orders"), offset=3)
    assert answer.error_code == ErrorCode.NONE
    assert b"value-10" in answer.records
