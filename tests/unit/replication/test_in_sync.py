"""Changes of the in-sync set whose outcome is not known: who may have been added counts until it is."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.making import AT, NOW, TOPIC_ID, make_batch, open_at

from penstock.clock import SystemClock
from penstock.cluster.image import BrokerInfo, ClusterImage, PartitionState
from penstock.cluster.layout import Layout
from penstock.cluster.partition_changes import PartitionMoved
from penstock.cluster.store import Ambiguous
from penstock.disk import RealDisk
from penstock.errors import IneligibleReplica, PenstockError, RegistrationLost
from penstock.metrics import BrokerMetrics
from penstock.model import Endpoint, LeaderEpoch, Offset, TopicId
from penstock.replication import in_sync
from penstock.replication.in_sync import InSyncReplicas
from penstock.replication.partition import Partition

ME, NEAR, BACK = 1, 2, 3
LIFE = 9
SEEN = PartitionState(ME, 5, (ME, NEAR), (ME, NEAR, BACK), 1)


class Store:
    """The far end of a change: it says what the test has it say, in turn, and the last thing for ever."""

    def __init__(self, *sayings: PenstockError | PartitionState) -> None:
        self._sayings = list(sayings)
        self.asked = asyncio.Semaphore(0)

    async def change_isr(
        self, topic_id: TopicId, index: int, seen: PartitionState, isr: Sequence[int], epochs: Mapping[int, int]
    ) -> PartitionState:
        self.asked.release()
        saying = self._sayings.pop(0) if len(self._sayings) > 1 else self._sayings[0]
        if isinstance(saying, PenstockError):
            raise saying
        return saying


@pytest.fixture
async def partition(tmp_path: Path) -> AsyncIterator[Partition]:
    disk = RealDisk()
    partition = Partition(AT, TOPIC_ID, LeaderEpoch(5), open_at(tmp_path / str(AT), disk=disk))
    partition.start_from(Offset(0))
    partition.lead(SEEN, ME)
    yield partition
    partition.close()
    disk.close()


async def ask_to_add(partition: Partition, store: Any, monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[None]:
    """The change under way, after the store has been asked twice."""
    monkeypatch.setattr(in_sync, "RETRY_S", 0.0)
    image = ClusterImage(Layout())
    image.brokers[BACK] = BrokerInfo(BACK, Endpoint("127.0.0.1", 1), None, LIFE)
    tasks: list[asyncio.Task[None]] = []
    metrics = BrokerMetrics(SystemClock())
    changes = InSyncReplicas(ME, image, store, metrics, lambda work: tasks.append(asyncio.ensure_future(work)))
    partition.heard(BACK, LIFE, Offset(0), Offset(0))
    changes.add(partition, BACK)
    async with asyncio.timeout(10):
        await store.asked.acquire()
        await store.asked.acquire()
    await asyncio.sleep(0)
    return tasks[0]


def is_committed_without(partition: Partition) -> bool:
    """Whether a record that all but the one to be added have counts as committed."""
    view, header = make_batch("a")
    end = partition.append(view, header, NOW).next_offset
    progress = partition.progress
    assert progress is not None
    # It was heard of long ago: nobody waits for it for its own sake.
    progress.followers[BACK].asked_at = float("-inf")
    partition.heard(NEAR, LIFE, end, Offset(0))
    return partition.high_watermark >= end


async def test_who_may_have_been_added_counts_though_our_registration_is_lost(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(Ambiguous("no answer"), RegistrationLost("this broker's lease ran out"))
    change = await ask_to_add(partition, store, monkeypatch)
    assert not is_committed_without(partition)
    partition.follow(replace(SEEN, leader=BACK, leader_epoch=6, partition_epoch=3))
    await asyncio.wait_for(change, 10)


async def test_who_may_have_been_added_counts_when_another_leads_and_the_image_is_behind(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    elected = replace(SEEN, leader=BACK, leader_epoch=6, isr=(NEAR, BACK), partition_epoch=3)
    change = await ask_to_add(partition, Store(Ambiguous("no answer"), PartitionMoved(elected)), monkeypatch)
    assert not is_committed_without(partition)
    partition.follow(elected)
    await asyncio.wait_for(change, 10)


async def test_a_change_of_a_partition_that_left_this_broker_is_given_up(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = replace(SEEN, leader=NEAR, leader_epoch=6, isr=(NEAR,), replicas=(NEAR, BACK), partition_epoch=2)
    change = await ask_to_add(partition, Store(Ambiguous("no answer"), PartitionMoved(elsewhere)), monkeypatch)
    partition.close()
    await asyncio.wait_for(change, 10)


async def test_who_was_surely_not_added_does_not_count(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    change = await ask_to_add(partition, Store(Ambiguous("no answer"), IneligibleReplica(BACK)), monkeypatch)
    await asyncio.wait_for(change, 10)
    assert is_committed_without(partition)
