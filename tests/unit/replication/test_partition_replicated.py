"""A partition with followers, as its leader sees it: who is answered when, and what a change of roles does to them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.making import AT, NOW, TOPIC_ID, make_batch, open_at

from penstock.cluster.image import PartitionState
from penstock.disk import RealDisk
from penstock.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeaderOrFollower
from penstock.log.partition_log import Appended
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import stamp
from penstock.replication.partition import Partition
from penstock.replication.waiting import FetchWait

ME, NEAR, FAR = 1, 2, 3
ALL = -1
LIFE = 9


def state(*isr: int, leader: int = ME, epoch: int = 5, version: int = 1, elr: tuple[int, ...] = ()) -> PartitionState:
    return PartitionState(leader, epoch, isr, (ME, NEAR, FAR), version, elr)


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"min_insync_replicas": 2}


@pytest.fixture
async def partition(tmp_path: Path, settings: dict[str, Any]) -> Iterator[Partition]:
    disk = RealDisk()
    partition = Partition(AT, TOPIC_ID, LeaderEpoch(5), open_at(tmp_path / str(AT), disk=disk, **settings))
    partition.start_from(Offset(0))
    partition.lead(state(ME, NEAR, FAR), ME)
    yield partition
    partition.close()
    disk.close()


def send(partition: Partition, *values: str, **batch: Any) -> Appended:
    view, header = make_batch(*(values or ("a",)), **batch)
    return partition.append(view, header, NOW)


def replicate(partition: Partition) -> None:
    """One batch as another leader, of an epoch before ours, sent it."""
    batch, _ = make_batch("x")
    stamp(batch, 0, 4)
    partition.log.append_replicated(batch, NOW)


def hear(partition: Partition, node: int, offset: int) -> bool:
    return partition.heard(node, LIFE, Offset(offset), Offset(0))


async def test_a_producer_is_answered_when_all_in_sync_have_its_batch(partition: Partition) -> None:
    safe = partition.safe(send(partition), ALL)
    assert safe is not None
    hear(partition, NEAR, 1)
    assert not safe.done()
    hear(partition, FAR, 1)
    assert safe.done()
    assert partition.high_watermark == 1
    assert partition.log.durable_offset == 0, "three copies do without an fsync"


async def test_with_followers_every_batch_is_written_at_once(partition: Partition) -> None:
    for written in (1, 2, 3):
        view, header = make_batch("a")
        partition.append(view, header, NOW, may_gather=True)
        assert partition.log.written_end == written


async def test_acks_1_waits_for_nobody(partition: Partition) -> None:
    assert partition.safe(send(partition), 1) is None
    assert partition.high_watermark == 0


async def test_a_repeated_batch_waits_for_its_first_copy_to_be_committed(partition: Partition) -> None:
    first = send(partition, "a", producer=4, sequence=0)
    send(partition, "b", producer=4, sequence=1)
    again = send(partition, "a", producer=4, sequence=0)
    assert again.is_duplicate
    assert again.base_offset == first.base_offset
    safe = partition.safe(again, ALL)
    assert safe is not None
    hear(partition, NEAR, 2)
    hear(partition, FAR, 1)
    assert safe.done()


async def test_a_replica_counts_until_the_store_has_dropped_it(partition: Partition) -> None:
    safe = partition.safe(send(partition), ALL)
    assert safe is not None
    hear(partition, NEAR, 1)
    assert not safe.done()
    partition.adopt(state(ME, NEAR, version=2), ME)
    assert safe.done()
    assert safe.exception() is None


async def test_too_few_in_sync_are_told_before_and_after_the_append(partition: Partition) -> None:
    safe = partition.safe(send(partition), ALL)
    patient = partition.committed(Offset(1))
    partition.adopt(state(ME, version=2, elr=(NEAR, FAR)), ME)
    assert safe is not None
    assert isinstance(safe.exception(), NotEnoughReplicasAfterAppend)
    assert partition.high_watermark == 0
    with pytest.raises(NotEnoughReplicas):
        partition.check_in_sync()
    assert patient is not None
    assert not patient.done(), "a coordinator waits until there are enough again"
    partition.adopt(state(ME, NEAR, version=3), ME)
    hear(partition, NEAR, 1)
    assert patient.done()


async def test_an_older_state_of_the_same_leadership_is_not_taken(partition: Partition) -> None:
    partition.adopt(state(ME, NEAR, version=3), ME)
    partition.adopt(state(ME, NEAR, FAR, version=2), ME)
    assert partition.in_sync_count == 2


async def test_who_waits_for_a_commit_is_told_when_another_leads(partition: Partition) -> None:
    safe, patient = partition.safe(send(partition), ALL), partition.committed(Offset(1))
    partition.follow(state(NEAR, FAR, leader=NEAR, epoch=6, version=2))
    assert safe is not None
    assert patient is not None
    assert isinstance(safe.exception(), NotLeaderOrFollower)
    assert isinstance(patient.exception(), NotLeaderOrFollower)
    with pytest.raises(NotLeaderOrFollower):
        send(partition)
    with pytest.raises(NotLeaderOrFollower):
        hear(partition, NEAR, 1)


async def test_a_follower_shows_what_its_leader_has_committed_and_it_has(partition: Partition) -> None:
    partition.follow(state(NEAR, FAR, leader=NEAR, epoch=6, version=2))
    replicate(partition)
    partition.replicated(Offset(0))
    assert partition.high_watermark == 0
    partition.replicated(Offset(7))
    assert partition.high_watermark == 1
    partition.replicated(Offset(0))
    assert partition.high_watermark == 1, "it never falls"


async def test_a_new_leader_knows_the_end_only_when_what_it_began_with_is_committed(partition: Partition) -> None:
    partition.follow(state(NEAR, FAR, leader=NEAR, epoch=6, version=2))
    replicate(partition)
    partition.lead(state(ME, FAR, epoch=7, version=3), ME)
    assert not partition.is_settled
    assert partition.high_watermark == 0
    hear(partition, FAR, 1)
    assert partition.is_settled
    assert partition.high_watermark == 1


async def test_consumers_wait_for_commits_and_followers_for_what_is_written(partition: Partition) -> None:
    consumer, follower = FetchWait(1, [partition]), FetchWait(1, [partition.replicating])
    send(partition)
    assert follower.done.done()
    assert not consumer.done.done()
    hear(partition, NEAR, 1)
    hear(partition, FAR, 1)
    assert consumer.done.done()


async def test_a_consumer_that_wants_more_bytes_waits_for_so_many(partition: Partition) -> None:
    size = make_batch("a")[1].size
    consumer = FetchWait(size + 1, [partition])
    for offset in (1, 2):
        send(partition)
        hear(partition, NEAR, offset)
        hear(partition, FAR, offset)
        assert consumer.done.done() is (offset == 2)


@pytest.mark.parametrize("settings", [{"min_insync_replicas": 1}])
async def test_the_last_one_in_sync_answers_only_from_stable_storage(partition: Partition) -> None:
    partition.adopt(state(ME, version=2), ME)
    safe = partition.safe(send(partition), ALL)
    assert safe is not None
    await safe
    assert partition.log.durable_offset == 1


@pytest.mark.parametrize("settings", [{"min_insync_replicas": 2, "durability": "fsync-all"}])
async def test_with_fsync_all_nobody_reads_what_the_leader_might_forget(partition: Partition) -> None:
    assert partition.safe(send(partition), 1) is None
    hear(partition, NEAR, 1)
    hear(partition, FAR, 1)
    assert partition.log.durable_offset == 0
    assert partition.high_watermark == 0, "the others have synced it, we have not"
    await partition.log.sync.wait_for(Offset(1))
    assert partition.high_watermark == 1, "and nobody has to ask again"


@pytest.mark.parametrize("settings", [{"min_insync_replicas": 2, "durability": "fsync-all"}])
async def test_with_fsync_all_the_leaders_own_copy_is_synced_too(partition: Partition) -> None:
    safe = partition.safe(send(partition), ALL)
    hear(partition, NEAR, 1)
    hear(partition, FAR, 1)
    assert safe is not None
    assert not safe.done()
    await safe
    assert partition.log.durable_offset == 1
    assert partition.high_watermark == 1


async def test_a_partition_that_loses_its_last_follower_commits_what_it_writes(partition: Partition) -> None:
    safe = partition.safe(send(partition), ALL)
    partition.adopt(PartitionState(ME, 5, (ME,), (ME,), 2), ME)
    assert safe is not None
    await safe
    assert partition.high_watermark == 1
    assert partition.is_sole


async def test_a_partition_that_gets_followers_keeps_what_is_committed(partition: Partition) -> None:
    partition.adopt(PartitionState(ME, 5, (ME,), (ME,), 2), ME)
    send(partition)
    partition.adopt(PartitionState(ME, 5, (ME,), (ME, NEAR), 3), ME)
    assert partition.high_watermark == 1
    assert hear(partition, NEAR, 1), "it could be in sync now"


async def test_deleted_records_wait_for_the_followers(partition: Partition) -> None:
    send(partition, "a", "b")
    for node in (NEAR, FAR):
        hear(partition, node, 2)
    partition.log.advance_start(Offset(1))
    started = partition.started(Offset(1))
    assert started is not None
    partition.heard(NEAR, LIFE, Offset(2), Offset(1))
    assert not started.done()
    partition.heard(FAR, LIFE, Offset(2), Offset(1))
    assert started.done()
    assert partition.started(Offset(1)) is None


async def test_deleted_records_wait_for_nobody_when_the_last_follower_is_gone(partition: Partition) -> None:
    send(partition, "a", "b")
    for node in (NEAR, FAR):
        hear(partition, node, 2)
    partition.log.advance_start(Offset(1))
    started = partition.started(Offset(1))
    assert started is not None
    partition.adopt(PartitionState(ME, 5, (ME,), (ME,), 2), ME)
    assert started.done()


async def test_what_others_acknowledged_too_is_synced_when_they_are_gone(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    wait_for = partition.log.sync.wait_for
    monkeypatch.setattr(
        type(partition.log.sync), "wait_for", lambda _, offset: asked.append(offset) or wait_for(offset)
    )
    send(partition)
    for node in (NEAR, FAR):
        hear(partition, node, 1)
    assert (partition.high_watermark, asked) == (1, [])
    partition.adopt(state(ME, version=2, elr=(NEAR,)), ME)
    assert asked == [1]
    partition.follow(state(NEAR, leader=NEAR, epoch=6, version=3))
    partition.lead(state(ME, epoch=7, version=4), ME)
    assert asked == [1, 1], "nor does a new leader know who else had it"
