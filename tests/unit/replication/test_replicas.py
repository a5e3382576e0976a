"""The partitions a broker holds: found by name and id, gone when the topic goes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.log.making import NOW, all_values, make_batch

from penstock.clock import Rng, SystemClock
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.layout import Layout
from penstock.config import TopicConfig
from penstock.disk import RealDisk
from penstock.errors import StorageFailed, UnknownTopicId, UnknownTopicOrPartition
from penstock.log.directory import LogDirectory
from penstock.metrics import BrokerMetrics
from penstock.model import TopicPartition
from penstock.replication.replicas import Replicas
from penstock.replication.waiting import FetchWait

NODE, OTHER = 1, 2
OLD, NEW = UUID(int=1), UUID(int=2)
CONFIG = TopicConfig(file_delete_delay_ms=0)


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    disk, clock = RealDisk(), SystemClock()
    logs = LogDirectory(disk, tmp_path, clock, Rng(1))
    logs.prepare()
    await logs.open_all(())
    yield Replicas(logs, BrokerMetrics(clock), ClusterImage(Layout()), NODE)
    logs.release()
    disk.close()


def host(replicas: Replicas, topic_id: UUID = OLD, partitions: int = 2, epoch: int = 0) -> None:
    states = {index: PartitionState(NODE, epoch, (NODE,), (NODE,), epoch) for index in range(partitions)}
    replicas.host("orders", topic_id, CONFIG, states)


def send(replicas: Replicas, value: str) -> None:
    view, header = make_batch(value)
    replicas.find("orders", 0).append(view, header, NOW)


async def test_a_partition_is_found_by_name_and_by_id(replicas: Replicas) -> None:
    host(replicas)
    assert replicas.find("orders", 1) is replicas.find_by_id(OLD, 1)
    assert replicas.find("orders", 1).at == TopicPartition("orders", 1)
    assert {partition.at.partition for partition in replicas.partitions()} == {0, 1}


async def test_what_is_not_here_is_unknown(replicas: Replicas) -> None:
    host(replicas)
    with pytest.raises(UnknownTopicOrPartition):
        replicas.find("nothing", 0)
    with pytest.raises(UnknownTopicOrPartition):
        replicas.find("orders", 2)
    with pytest.raises(UnknownTopicId):
        replicas.find_by_id(NEW, 0)


async def test_a_topic_may_get_more_partitions_and_a_new_epoch(replicas: Replicas) -> None:
    host(replicas, partitions=1)
    first = replicas.find("orders", 0)
    host(replicas, partitions=3, epoch=4)
    assert replicas.find("orders", 0) is first
    assert first.leader_epoch == 4
    assert replicas.find("orders", 2).leader_epoch == 4


@pytest.mark.parametrize(
    ("isr", "elr", "missed", "is_unclean"),
    [
        ((OTHER, NODE), (), 0, False),
        ((), (NODE,), 0, False),
        ((OTHER,), (), 0, True),
        # It came back into sync while it could not hear of it.
        ((OTHER,), (), 1, False),
    ],
)
async def test_leading_without_having_been_in_sync_is_counted(
    replicas: Replicas, isr: tuple[int, ...], elr: tuple[int, ...], missed: int, is_unclean: bool
) -> None:
    def state(leader: int, epoch: int, isr: tuple[int, ...], elr: tuple[int, ...] = ()) -> PartitionState:
        return PartitionState(leader, epoch, isr, (NODE, OTHER), epoch * (1 + missed), elr)

    replicas.host("orders", OLD, CONFIG, {0: state(OTHER, 0, isr, elr)})
    counted = (replicas._metrics.leaderships, replicas._metrics.unclean_elections)
    assert [each.value for each in counted] == [0, 0]
    replicas.host("orders", OLD, CONFIG, {0: state(NODE, 1, (NODE,))})
    replicas.host("orders", OLD, CONFIG, {0: state(NODE, 1, (NODE,))})
    assert [each.value for each in counted] == [1, int(is_unclean)]


async def test_new_settings_reach_the_logs(replicas: Replicas) -> None:
    host(replicas)
    changed = TopicConfig(retention_ms=5)
    replicas.configure("orders", changed)
    replicas.configure("nothing", changed)
    assert all(partition.log.config is changed for partition in replicas.partitions())


async def test_a_dropped_topic_is_unknown_at_once_and_lets_its_readers_go(replicas: Replicas) -> None:
    host(replicas)
    wait = FetchWait(10, (replicas.find("orders", 0),))
    replicas.drop("orders")
    replicas.drop("orders")
    assert wait.done.done()
    with pytest.raises(UnknownTopicOrPartition):
        replicas.find("orders", 0)
    with pytest.raises(UnknownTopicId):
        replicas.find_by_id(OLD, 0)
    assert replicas.logs.logs == {}


async def test_a_topic_of_the_same_name_starts_anew_the_moment_the_old_one_went(replicas: Replicas) -> None:
    host(replicas)
    send(replicas, "of the old one")
    replicas.drop("orders")
    host(replicas, NEW)
    assert replicas.find("orders", 0).high_watermark == 0
    send(replicas, "of the new one")
    log = replicas.find_by_id(NEW, 0).log
    await asyncio.shield(log.sync.wait_for(log.next_offset))
    assert all_values(log) == ["of the new one"]
    with pytest.raises(UnknownTopicId):
        replicas.find_by_id(OLD, 0)


async def test_a_log_that_does_not_open_is_one_partition_offline_and_no_error_of_the_topic(
    replicas: Replicas, tmp_path: Path
) -> None:
    (tmp_path / "orders-1").write_bytes(b"no directory")
    host(replicas)
    assert replicas.find("orders", 0).high_watermark == 0
    with pytest.raises(StorageFailed, match="orders-1"):
        replicas.find("orders", 1)
    assert len(replicas.failures()) == 1
    replicas.drop("orders")
    assert replicas.failures() == []


async def test_a_log_that_failed_while_running_is_among_the_failures(replicas: Replicas) -> None:
    host(replicas)
    replicas.find("orders", 1).log.failure = failure = StorageFailed("the disk is gone")
    assert replicas.failures() == [failure]


async def test_how_far_everything_is_committed_is_told_for_all_partitions(replicas: Replicas) -> None:
    host(replicas)
    send(replicas, "a")
    committed = replicas.committed_offsets()
    assert committed == {TopicPartition("orders", 0): 1, TopicPartition("orders", 1): 0}
    assert {at: replicas.stable_offset(at) for at in committed} == committed
    for other in (TopicPartition("orders", 2), TopicPartition("others", 0)):
        assert replicas.stable_offset(other) is None


async def test_a_rebuild_of_a_topic_that_went_leaves_a_new_one_of_its_name_alone(replicas: Replicas) -> None:
    followed = PartitionState(OTHER, 3, (OTHER,), (OTHER, NODE), 1)
    replicas.host("orders", OLD, CONFIG, {0: followed})
    damaged = replicas.topics["orders"].partitions[0]

    async def take_long() -> bool:
        """Meanwhile the topic is deleted and made anew."""
        replicas.drop("orders")
        host(replicas, NEW)
        send(replicas, "of the new one")
        return True

    assert not await replicas.rebuild(damaged, take_long)
    assert not await replicas.rebuild(damaged, take_long), "it is none of ours any more"
    log = replicas.find_by_id(NEW, 0).log
    assert replicas.failures() == []
    assert all_values(log) == ["of the new one"]


async def test_a_follower_that_somebody_counts_on_is_not_rebuilt(replicas: Replicas) -> None:
    followed = PartitionState(OTHER, 3, (OTHER, NODE), (OTHER, NODE), 1)
    replicas.host("orders", OLD, CONFIG, {0: followed})
    partition = replicas.topics["orders"].partitions[0]
    log = partition.log

    async def refuse() -> bool:
        return False

    assert not await replicas.rebuild(partition, refuse)
    assert partition.log is log
    assert log.failure is None
