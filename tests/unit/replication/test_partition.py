"""One partition as its leader sees it: who is answered when, and who is refused."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import AT, NOW, TOPIC_ID, make_batch, open_at

from penstock.disk import RealDisk
from penstock.errors import FencedLeaderEpoch, StorageFailed, UnknownLeaderEpoch
from penstock.log.partition_log import Appended
from penstock.model import LeaderEpoch
from penstock.records.markers import ControlType, Marker
from penstock.replication.partition import Partition
from penstock.replication.waiting import FetchWait

ALL, LEADER = -1, 1

Make = Callable[..., Partition]


class Syncs:
    """How often a segment was synced."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, act: Act) -> None:
        self.count += act.kind == "sync" and act.path.suffix == ".log"


@pytest.fixture
def syncs() -> Syncs:
    return Syncs()


@pytest.fixture
async def make(tmp_path: Path, syncs: Syncs) -> AsyncIterator[Make]:
    disk = WatchedDisk(RealDisk(), syncs)
    made: list[Partition] = []

    def make_partition(**settings: Any) -> Partition:
        log = open_at(tmp_path / str(AT), disk=disk, **settings)
        made.append(Partition(AT, TOPIC_ID, LeaderEpoch(5), log))
        return made[-1]

    yield make_partition
    for partition in made:
        partition.close()
    disk.close()


def send(partition: Partition, *values: str, **batch: Any) -> Appended:
    view, header = make_batch(*(values or ("a",)), **batch)
    return partition.append(view, header, NOW)


async def test_acks_all_waits_for_the_sync_and_acks_one_does_not(make: Make, syncs: Syncs) -> None:
    partition = make()
    assert partition.safe(send(partition), LEADER) is None
    wait = partition.safe(send(partition), ALL)
    assert wait is not None
    assert not wait.done()
    await wait
    assert partition.log.durable_offset == 2
    assert syncs.count == 1


async def test_in_page_cache_mode_nobody_waits(make: Make, syncs: Syncs) -> None:
    partition = make(durability="page-cache")
    assert partition.safe(send(partition), ALL) is None
    await asyncio.sleep(0)
    assert syncs.count == 0


async def test_a_batch_sent_again_waits_as_long_as_its_first_copy_is_not_durable(make: Make) -> None:
    partition = make()
    first = send(partition, producer=7, sequence=0)
    again = send(partition, producer=7, sequence=0)
    assert again == (first.base_offset, first.next_offset, True)
    wait = partition.safe(again, ALL)
    assert wait is not None
    await wait
    assert partition.safe(send(partition, producer=7, sequence=0), ALL) is None, "now it is durable"


async def test_after_flush_messages_even_acks_one_waits(make: Make) -> None:
    partition = make(flush_messages=3)
    assert partition.safe(send(partition), LEADER) is None
    assert partition.safe(send(partition), LEADER) is None
    wait = partition.safe(send(partition), LEADER)
    assert wait is not None
    await wait
    assert partition.log.durable_offset == 3
    assert partition.safe(send(partition), LEADER) is None


async def test_after_flush_ms_what_lies_in_the_page_cache_is_synced(make: Make, syncs: Syncs) -> None:
    partition = make(flush_ms=1)
    assert partition.safe(send(partition), LEADER) is None
    assert partition.safe(send(partition), LEADER) is None
    async with asyncio.timeout(10):
        while partition.log.durable_offset < 2:  # noqa: ASYNC110 (nobody waits for this sync, which is the point)
            await asyncio.sleep(0.001)
    assert syncs.count == 1


async def test_a_flush_that_is_due_on_a_failed_log_is_not_tried(make: Make, syncs: Syncs) -> None:
    partition = make(flush_ms=1)
    partition.safe(send(partition), LEADER)
    partition.log.failure = StorageFailed("the disk is gone")
    partition._flush()
    await asyncio.sleep(0)
    assert syncs.count == 0


async def test_what_is_written_is_visible_at_once(make: Make) -> None:
    partition = make()
    send(partition, "a", "b")
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


async def test_an_append_wakes_whoever_waits_for_data_and_a_repeat_does_not(make: Make) -> None:
    partition = make()
    view, header = make_batch("a", producer=7, sequence=0)
    partition.append(memoryview(bytearray(view)), header, NOW)
    wait = FetchWait(1, (partition,))
    partition.append(view, header, NOW)
    assert not wait.done.done(), "nothing new has come"
    send(partition)
    assert wait.done.done()


COMMIT = Marker(ControlType.COMMIT, 0)


async def test_committed_readers_wait_for_the_marker_and_others_do_not(make: Make) -> None:
    partition = make()
    committed, other = FetchWait(1, (partition,), is_committed=True), FetchWait(1, (partition,))
    send(partition, producer=7, sequence=0, is_transactional=True)
    assert (committed.done.done(), other.done.done()) == (False, True)
    send(partition)
    assert not committed.done.done(), "what stands behind an open transaction has not come yet"
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
    appended = partition.append_marker(COMMIT, 7, 0, NOW)
    assert appended == (2, 3, False)
    assert committed.done.done()
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)


async def test_a_marker_that_moves_nothing_wakes_no_committed_reader(make: Make) -> None:
    partition = make()
    send(partition, producer=7, sequence=0, is_transactional=True)
    send(partition, producer=8, sequence=0, is_transactional=True)
    wait, other = FetchWait(1, (partition,), is_committed=True), FetchWait(10**6, (partition,))
    partition.append_marker(COMMIT, 8, 0, NOW)
    assert not wait.done.done()
    partition.append_marker(COMMIT, 7, 0, NOW)
    assert wait.done.done()
    assert not other.done.done(), "a marker is a few bytes"


async def test_without_transactions_committed_readers_are_woken_by_size(make: Make) -> None:
    partition = make()
    _, header = make_batch("a")
    wait = FetchWait(header.size + 1, (partition,), is_committed=True)
    send(partition)
    assert not wait.done.done()
    send(partition)
    assert wait.done.done()


async def test_a_marker_is_waited_for_like_data(make: Make, syncs: Syncs) -> None:
    partition = make()
    send(partition, producer=7, sequence=0, is_transactional=True)
    wait = partition.safe(partition.append_marker(COMMIT, 7, 0, NOW), ALL)
    assert wait is not None
    await wait
    assert (partition.log.durable_offset, syncs.count) == (2, 1)


async def test_a_partition_that_leaves_lets_go_of_those_who_wait(make: Make) -> None:
    partition = make(flush_ms=10**6)
    partition.safe(send(partition), LEADER)
    wait = FetchWait(10**6, (partition,))
    partition.close()
    assert wait.done.done()


async def test_clients_of_another_leader_epoch_are_told_so(make: Make) -> None:
    partition = make()
    partition.check_epoch(-1)
    partition.check_epoch(5)
    with pytest.raises(FencedLeaderEpoch):
        partition.check_epoch(4)
    with pytest.raises(UnknownLeaderEpoch):
        partition.check_epoch(6)


async def test_batches_carry_the_epoch_of_the_leader_that_wrote_them(make: Make) -> None:
    partition = make()
    send(partition)
    partition.leader_epoch = LeaderEpoch(6)
    send(partition)
    assert partition.log.epochs.end_of(LeaderEpoch(5), partition.log.next_offset) == (5, 1)
