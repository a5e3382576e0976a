"""Offsets of a group in a real log that is compacted and read again at any time: what was committed is still so."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chaos.test_compaction_crashes import InProcess
from tests.chaos.workload import ManualClock
from tests.simulation.disk import SimulatedDisk

from penstock.clock import Rng
from penstock.config import BrokerConfig, TopicConfig
from penstock.errors import InvalidProducerEpoch
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.offsets import OffsetToCommit
from penstock.log.compactor import Compactor
from penstock.log.directory import LogDirectory, LogRequest
from penstock.metrics import BrokerMetrics
from penstock.model import GROUP_OFFSETS_TOPIC, NO_TOPIC_ID, LeaderEpoch, TopicPartition
from penstock.records.markers import ControlType, Marker
from penstock.replication.ledger import PartitionLedger
from penstock.replication.partition import Partition

ROOT = Path("/data")
AT = TopicPartition(GROUP_OFFSETS_TOPIC, 0)
TOPIC_ID = UUID(int=0x51)
PARTITIONS, PRODUCERS = (0, 1), (7, 8)
NOBODY = ("", None, -1)
DAY_MS = 86_400_000
CONFIG = TopicConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=250,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.0,
)


class World:
    """A coordinator on a disk, and beside it what is stable and pending, by the order in which it was asked for."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = ManualClock()
        self.stable: dict[int, int] = {}
        self.pending: dict[int, dict[int, int]] = {producer: {} for producer in PRODUCERS}
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.asked = 0

    async def open(self) -> None:
        self.logs = LogDirectory(self.disk, ROOT, self.clock, Rng(3))
        self.logs.prepare()
        await self.logs.open_all([LogRequest(AT, TOPIC_ID, CONFIG)])
        partition = Partition(AT, TOPIC_ID, LeaderEpoch(0), self.logs.logs[AT])
        self.coordinator = GroupCoordinator(BrokerConfig({"offsets.topic.num.partitions": "1"}), self.clock, Rng(7))
        await self.coordinator.lead(PartitionLedger(partition, self.clock, self.disk))

    async def close(self) -> None:
        self.coordinator.close()
        await self.logs.close()

    async def take(self, step: tuple[Any, ...]) -> None:
        self.clock.ms += 1_000
        self.asked += 1
        match step:
            case ("plain", partition):
                await self.coordinator.commit_offsets("g", NOBODY, [self._offset(partition)])
                self.stable[partition] = self.asked
            case ("transactional", producer_id, partition):
                await self._send(producer_id, self.epochs[producer_id], partition)
                self.pending[producer_id][partition] = self.asked
            case ("zombie", producer_id, partition):
                if self.epochs[producer_id]:
                    with pytest.raises(InvalidProducerEpoch):
                        await self._send(producer_id, self.epochs[producer_id] - 1, partition)
            case ("end", producer_id, is_commit, is_version_2):
                await self._end(producer_id, is_commit, is_version_2)
            case ("late marker", producer_id):
                if self.pending[producer_id]:
                    with pytest.raises(InvalidProducerEpoch):
                        await self._mark(producer_id, is_commit=True, is_version_2=True)
            case ("delete", partition):
                code, _ = await self.coordinator.delete_offsets("g", [("orders", partition)])
                if not code:
                    for offsets in (self.stable, *self.pending.values()):
                        offsets.pop(partition, None)
            case ("compact", days):
                self.clock.ms += days * DAY_MS
                await self._compact()
            case ("restart",):
                await self.close()
                await self.open()
            case _:
                raise AssertionError(step)

    async def _send(self, producer_id: int, epoch: int, partition: int) -> None:
        offsets = [self._offset(partition)]
        await self.coordinator.commit_in_transaction("g", producer_id, epoch, NOBODY, offsets)

    async def _end(self, producer_id: int, is_commit: bool, is_version_2: bool) -> None:
        self.epochs[producer_id] += is_version_2
        await self._mark(producer_id, is_commit, is_version_2)
        for partition, asked in self.pending[producer_id].items():
            if is_commit:
                self.stable[partition] = max(asked, self.stable.get(partition, 0))
        self.pending[producer_id].clear()

    async def _mark(self, producer_id: int, is_commit: bool, is_version_2: bool) -> None:
        marker = Marker(ControlType.COMMIT if is_commit else ControlType.ABORT, 0)
        epoch = self.epochs[producer_id]
        await self.coordinator.write_marker(0, marker, producer_id, epoch, is_version_2=is_version_2)

    async def _compact(self) -> None:
        compactor = Compactor(self.disk, self.logs, BrokerConfig(), self.clock, BrokerMetrics(self.clock))
        compactor._cleaner = InProcess(self.disk)
        log = self.logs.logs[AT]
        await compactor.run_round({AT: log.last_stable_offset(log.next_offset)}.get)

    def _offset(self, partition: int) -> OffsetToCommit:
        return OffsetToCommit("orders", NO_TOPIC_ID, partition, self.asked, -1, "")

    def check(self) -> None:
        for partition in PARTITIONS:
            found = self.coordinator.committed_offset("g", "orders", NO_TOPIC_ID, partition)
            assert (found and found.offset) == self.stable.get(partition), partition
            is_pending = any(partition in offsets for offsets in self.pending.values())
            assert self.coordinator.is_unstable("g", "orders", partition) == is_pending, partition


partitions, producers = st.sampled_from([0, 0, 0, 1]), st.sampled_from(PRODUCERS)
common = st.one_of(
    st.tuples(st.just("plain"), partitions),
    st.tuples(st.just("transactional"), producers, partitions),
    st.tuples(st.just("end"), producers, st.booleans(), st.booleans()),
)
rare = st.one_of(
    st.tuples(st.just("zombie"), producers, partitions),
    st.tuples(st.just("late marker"), producers),
    st.tuples(st.just("delete"), partitions),
    st.tuples(st.just("compact"), st.sampled_from([0, 2])),
    st.tuples(st.just("restart")),
)
steps = st.integers(0, 3).flatmap(lambda number: rare if number == 3 else common)


@settings(deadline=None, max_examples=60)
@given(st.lists(steps, min_size=10, max_size=40))
def test_compaction_and_restarts_change_neither_what_is_committed_nor_what_is_pending(taken: list[Any]) -> None:
    async def run() -> None:
        world = World()
        await world.open()
        for step in [*taken, ("compact", 2), ("restart",)]:
            await world.take(step)
            world.check()
        await world.close()

    asyncio.run(run())
