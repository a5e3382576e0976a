"""Leaders and followers: what is acknowledged is where it should be, whoever dies."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.replication.cluster import Cluster, running_cluster

from penstock.errors import CorruptMessage, ErrorCode
from penstock.log.partition_log import PartitionLog
from penstock.model import Offset, TopicPartition
from penstock.wire.apis import ApiKey

NODES = (1, 2, 3)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path, *NODES) as cluster:
        yield cluster


async def test_what_is_acknowledged_is_on_every_replica_in_sync(cluster: Cluster) -> None:
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    for number in range(5):
        answer = await cluster.send(leader, "orders", f"value-{number}")
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
        for node in NODES:
            assert cluster.replica(node, "orders").log.next_offset > number
    await cluster.until(lambda: all(cluster.replica(node, "orders").high_watermark == 5 for node in NODES))
    assert len({tuple(cluster.values(node, "orders")) for node in NODES}) == 1


async def test_only_the_leader_takes_records_and_others_name_it(cluster: Cluster) -> None:
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    other = next(node for node in NODES if node != leader)
    answer = await cluster.send(other, "orders", "lost way")
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_another_replica_leads_when_the_leader_dies_and_nothing_is_lost(cluster: Cluster) -> None:
    await cluster.create("orders")
    first = await cluster.leader("orders")
    sent = [f"value-{number}" for number in range(10)]
    for value in sent:
        await cluster.send(first, "orders", value)
    await cluster.crash(first)
    second = await cluster.leader("orders")
    assert cluster.replica(second, "orders").leader_epoch == 1
    answer = await cluster.send(second, "orders", "after")
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 10)
    await cluster.in_sync("orders", *(node for node in NODES if node != first))
    await cluster.start(first)
    await cluster.in_sync("orders", *NODES)
    assert cluster.values(first, "orders", 11) == [*sent, "after"]


async def test_a_former_leader_lets_go_of_what_nobody_else_has(cluster: Cluster) -> None:
    await cluster.create("orders")
    first = await cluster.leader("orders")
    others = [node for node in NODES if node != first]
    await cluster.send(first, "orders", "kept")
    for node in others:
        await cluster.stop_fetching(node)
    # Written by the leader alone: acks=1 promises no more.
    answer = await cluster.send(first, "orders", "let go", acks=1)
    assert answer.error_code == ErrorCode.NONE
    await cluster.crash(first)
    second = await cluster.leader("orders")
    assert (await cluster.send(second, "orders", "instead")).error_code == ErrorCode.NONE
    await cluster.start(first)
    await cluster.in_sync("orders", *NODES)
    assert cluster.values(first, "orders", 2) == ["kept", "instead"]
    assert cluster.values(first, "orders", 2) == cluster.values(second, "orders", 2)


async def test_too_few_in_sync_refuse_before_and_after_the_append(cluster: Cluster) -> None:
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    others = [node for node in NODES if node != leader]
    await cluster.send(leader, "orders", "first")
    await cluster.crash(*others)
    # The leader does not know yet that they are gone: it writes, and hears while it waits.
    answer = await cluster.send(leader, "orders", "unknown", timeout_ms=20_000)
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    answer = await cluster.send(leader, "orders", "refused")
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.replica(leader, "orders").high_watermark == 1, "nothing is committed by too few"
    await cluster.start(*others)
    await cluster.until(lambda: cluster.replica(leader, "orders").high_watermark == 2)


async def test_a_batch_sent_again_to_a_new_leader_is_written_once(cluster: Cluster) -> None:
    await cluster.create("orders")
    first = await cluster.leader("orders")
    batch = {"producer_id": 7, "producer_epoch": 0}
    await cluster.send(first, "orders", "one", base_sequence=0, **batch)
    answer = await cluster.send(first, "orders", "two", base_sequence=1, **batch)
    await cluster.crash(first)
    second = await cluster.leader("orders")
    again = await cluster.send(second, "orders", "two", base_sequence=1, **batch)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, answer.base_offset)
    await cluster.until(lambda: cluster.replica(second, "orders").high_watermark == 2)
    assert cluster.values(second, "orders") == ["one", "two"]


async def test_a_clean_stop_hands_leadership_over_without_waiting_for_a_lease(cluster: Cluster) -> None:
    await cluster.create("orders", partitions=6)
    leaders = {await cluster.leader("orders", index) for index in range(6)}
    assert leaders == set(NODES)
    await cluster.stop(1)
    assert all(cluster.leader_of("orders", index) in (2, 3) for index in range(6))
    for state in cluster.brokers[2].image.topics["orders"].partitions:
        assert 1 not in state.isr


async def test_a_broker_with_a_new_disk_leads_nothing_and_refills(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.create("orders")
    first = await cluster.leader("orders")
    for number in range(3):
        await cluster.send(first, "orders", f"value-{number}")
    await cluster.crash(first)
    (tmp_path / f"broker-{first}").rename(tmp_path / "lost")
    await cluster.start(first)
    await cluster.in_sync("orders", *NODES)
    assert cluster.leader_of("orders") != first
    await cluster.until(lambda: cluster.replica(first, "orders").high_watermark == 3)
    assert cluster.values(first, "orders") == ["value-0", "value-1", "value-2"]


async def test_the_only_replica_on_a_new_disk_does_not_pretend_to_be_empty(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.create("orders", replicas=1)
    only = await cluster.leader("orders")
    await cluster.send(only, "orders", "gone with the disk")
    await cluster.crash(only)
    (tmp_path / f"broker-{only}").rename(tmp_path / "lost")
    await cluster.start(only)
    other = next(node for node in NODES if node != only)
    await cluster.until(lambda: only in cluster.brokers[other].image.brokers)
    state = cluster.brokers[only].image.topics["orders"].partitions[0]
    assert (state.leader, state.isr, state.elr) == (-1, (), ())
    assert (await cluster.send(only, "orders", "more")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_damage_below_the_recovery_point_is_set_aside_and_fetched_anew(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.create("orders")
    first = await cluster.leader("orders")
    follower = next(node for node in NODES if node != first)
    for number in range(20):
        await cluster.send(first, "orders", f"value-{number}" * 50)
    await cluster.stop(follower)  # cleanly: all of it is below the recovery point
    segment = next((tmp_path / f"broker-{follower}" / "orders-0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    # Something an open log checks: without the mark of a clean stop all is read.
    (tmp_path / f"broker-{follower}" / "clean-stop.json").unlink()
    (tmp_path / f"broker-{follower}" / "orders-0" / "leader-epoch-checkpoint").unlink()
    await cluster.start(follower)
    await cluster.in_sync("orders", *NODES)
    assert cluster.values(follower, "orders", 20) == cluster.values(first, "orders", 20)
    assert cluster.brokers[follower].metrics.replicas_rebuilt.value == 1
    assert list((tmp_path / f"broker-{follower}").glob("*-damaged"))


async def test_damage_found_while_running_is_set_aside_and_fetched_anew(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.create("orders")
    first = await cluster.leader("orders")
    follower = next(node for node in NODES if node != first)
    for number in range(20):
        await cluster.send(first, "orders", f"value-{number}" * 50)
    epoch = cluster.brokers[first].image.brokers[follower].epoch
    partition = cluster.replica(follower, "orders")
    partition.log.tell_damage(CorruptMessage("no batch at byte 7"))
    await cluster.until(lambda: cluster.brokers[follower].metrics.replicas_rebuilt.value == 1)
    await cluster.in_sync("orders", *NODES)
    assert cluster.brokers[first].image.brokers[follower].epoch > epoch, "it is another life that is in sync now"
    assert cluster.values(follower, "orders", 20) == cluster.values(first, "orders", 20)


async def test_a_log_that_is_being_cut_is_not_taken_for_a_broken_one(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create("orders")
    first = await cluster.leader("orders")
    follower = next(node for node in NODES if node != first)
    await cluster.send(first, "orders", "kept")
    await cluster.send(first, "orders", "cut")
    broker, partition = cluster.brokers[follower], cluster.replica(follower, "orders")
    is_cut, go_on = asyncio.Event(), asyncio.Event()
    log = partition.log

    async def work() -> PartitionLog:
        cut = await broker.logs.truncate(log, Offset(1))
        is_cut.set()
        await go_on.wait()
        return cut

    cutting = asyncio.ensure_future(broker.replicas.cut(partition, work))
    await is_cut.wait()
    assert partition.log.failure is not None
    broker.repairs.check([partition])
    go_on.set()
    await cutting
    await cluster.until(lambda: partition.log.next_offset == 2)
    assert "given up" not in caplog.text
    assert cluster.values(follower, "orders", 2) == ["kept", "cut"]


async def test_groups_and_their_offsets_move_with_their_partition(cluster: Cluster) -> None:
    await cluster.create("orders")
    found = await cluster.request(1, ApiKey.FIND_COORDINATOR, 3, key="readers", key_type=0)
    assert found.error_code == ErrorCode.NONE
    first = found.node_id
    body = {
        "group_id": "readers",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 42}]}],
    }

    async def commit(node: int) -> int:
        reply = await cluster.request(node, ApiKey.OFFSET_COMMIT, 8, **body)
        return reply.topics[0].partitions[0].error_code

    async with asyncio.timeout(20):
        code = await commit(first)
        while code != ErrorCode.NONE:  # still being loaded
            await asyncio.sleep(0.01)
            code = await commit(first)
    await cluster.crash(first)
    survivor = next(iter(cluster.brokers))
    second = first
    async with asyncio.timeout(20):
        while second == first:
            found = await cluster.request(survivor, ApiKey.FIND_COORDINATOR, 3, key="readers", key_type=0)
            second = found.node_id if found.error_code == ErrorCode.NONE else first
            await asyncio.sleep(0.01)
    offset = -1
    async with asyncio.timeout(20):
        while offset != 42:
            reply = await cluster.request(
                second,
                ApiKey.OFFSET_FETCH,
                7,
                group_id="readers",
                topics=[{"name": "orders", "partition_indexes": [0]}],
                require_stable=False,
            )
            offset = reply.topics[0].partitions[0].committed_offset if reply.topics else -1
            await asyncio.sleep(0.01)


async def test_a_damaged_replica_is_in_sync_for_nobody_when_its_log_is_set_aside(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("orders")
    first = await cluster.leader("orders")
    follower = next(node for node in NODES if node != first)
    broker = cluster.brokers[follower]
    await cluster.send(first, "orders", "acknowledged")
    renew_epoch, set_damaged_aside = broker._membership.renew_epoch, broker.logs.set_damaged_aside
    counted: list[bool] = []

    def is_counted() -> bool:
        return follower in broker.image.topics["orders"].partitions[0].isr

    async def renew_late() -> None:
        # As long as its former life lasts, the leader may take it back: what it fetches is all there.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await cluster.until(is_counted)
        await renew_epoch()

    async def look_and_set_aside(at: TopicPartition) -> None:
        counted.append(is_counted())
        await set_damaged_aside(at)

    monkeypatch.setattr(broker._membership, "renew_epoch", renew_late)
    monkeypatch.setattr(broker.logs, "set_damaged_aside", look_and_set_aside)
    cluster.replica(follower, "orders").log.tell_damage(CorruptMessage("no batch at byte 7"))
    await cluster.until(lambda: broker.metrics.replicas_rebuilt.value == 1)
    assert counted == [False]
    await cluster.in_sync("orders", *NODES)
    assert cluster.values(follower, "orders", 1) == ["acknowledged"]


async def test_damage_found_while_out_of_sync_is_rebuilt_too(cluster: Cluster) -> None:
    await cluster.create("orders")
    first = await cluster.leader("orders")
    follower = next(node for node in NODES if node != first)
    await cluster.stop_fetching(follower)
    await cluster.send(first, "orders", "missed", acks=1)
    await cluster.in_sync("orders", *(node for node in NODES if node != follower))
    cluster.replica(follower, "orders").log.tell_damage(CorruptMessage("no batch at byte 7"))
    await cluster.until(lambda: cluster.brokers[follower].metrics.replicas_rebuilt.value == 1)
    await cluster.in_sync("orders", *NODES)


async def test_deleting_records_tells_a_leadership_that_ended_meanwhile_of_that_partition_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    await cluster.send(leader, "orders", "deleted")
    partition, logs = cluster.replica(leader, "orders"), cluster.brokers[leader].logs
    save_points = logs.save_points

    async def save_and_resign() -> None:
        await save_points()
        assert partition.state is not None
        partition.follow(partition.state)

    monkeypatch.setattr(logs, "save_points", save_and_resign)
    reply = await cluster.request(
        leader,
        ApiKey.DELETE_RECORDS,
        topics=[{"name": name, "partitions": [{"partition_index": 0, "offset": 1}]} for name in ("orders", "gone")],
        timeout=5_000,
    )
    codes = {topic.name: topic.partitions[0].error_code for topic in reply.topics}
    assert codes == {
        "orders": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
