"""Offsets committed plainly and inside transactions, in any order, with crashes: a whole coordinator against a model.

The model knows nothing of coordinators: it reads the log from the start and compares the offsets of records.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.clock import Rng, SystemClock
from penstock.config import BrokerConfig
from penstock.errors import InvalidProducerEpoch, PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.group_records import OffsetRecord, decode_record
from penstock.groups.offsets import OffsetToCommit
from penstock.model import GROUP_OFFSETS_TOPIC, NO_TOPIC_ID, TopicPartition
from penstock.records.batch import BatchHeader, read_header, stamp
from penstock.records.markers import ControlType, Marker, decode_marker, encode_marker
from penstock.records.record import decode_records

GROUPS, PARTITIONS, PRODUCERS = ("g", "h"), (0, 1), (7, 8)
NOBODY = ("", None, -1)
TURNS = 6

Key = tuple[str, int]


class CrashingLedger:
    """Batches in memory, of which those from `committed` on may not survive."""

    topic_partition = TopicPartition(GROUP_OFFSETS_TOPIC, 0)
    leader_epoch = 0

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.committed = 0
        self.refuses = False
        self._waiting: list[asyncio.Future[int]] = []

    def append(self, batch: bytes | bytearray) -> asyncio.Future[int]:
        if self.refuses:
            raise InvalidProducerEpoch("refused")
        kept = bytearray(batch)
        stamp(memoryview(kept), read_header(self.batches[-1]).next_offset if self.batches else 0, 0)
        self.batches.append(kept)
        self._waiting.append(asyncio.get_running_loop().create_future())
        return self._waiting[-1]

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, *, is_version_2: bool = False
    ) -> asyncio.Future[int]:
        ids = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        return self.append(encode_marker(marker, offset=0, timestamp=0, **ids))

    async def read_all(self) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        for batch in self.batches:
            yield read_header(batch), memoryview(batch)

    def commit(self, count: int) -> None:
        for waiting in self._waiting[:count]:
            waiting.set_result(0)
            self.committed += 1
        del self._waiting[:count]

    def crash(self, survivors: int) -> None:
        """Of what was not committed, the first few may have reached the disk all the same."""
        del self.batches[self.committed + survivors :]
        self.committed = len(self.batches)
        self._waiting.clear()


@dataclass
class Model:
    """(offset of the record, offset committed) by group and partition; pending by producer."""

    stable: dict[Key, tuple[int, int]] = field(default_factory=dict)
    pending: dict[int, dict[Key, tuple[int, int]]] = field(default_factory=dict)
    batches_read: int = 0

    def read(self, batch: bytearray) -> None:
        self.batches_read += 1
        header = read_header(batch)
        for record in decode_records(batch, header, 1 << 20):
            if header.is_control:
                ended = self.pending.pop(header.producer_id, {})
                if decode_marker(record).control_type is ControlType.COMMIT:
                    for key, value in ended.items():
                        self.stable[key] = max(value, self.stable.get(key, value))
                continue
            assert record.key is not None
            decoded = decode_record(record.key, record.value)
            if not isinstance(decoded, OffsetRecord):
                continue
            key = (decoded.group_id, decoded.partition)
            if decoded.committed is None:
                self.stable.pop(key, None)
                for pending in self.pending.values():
                    pending.pop(key, None)
            elif header.is_transactional:
                value = (record.offset, decoded.committed.offset)
                self.pending.setdefault(header.producer_id, {})[key] = value
            else:
                self.stable[key] = (record.offset, decoded.committed.offset)

    def unstable(self) -> set[Key]:
        return {key for pending in self.pending.values() for key in pending}


class World:
    def __init__(self) -> None:
        self.ledger = CrashingLedger()
        self.model = Model()
        self.coordinator = self._make()
        self.asked: list[Awaitable[Any]] = []
        self.next_value = 0

    def _make(self) -> GroupCoordinator:
        return GroupCoordinator(BrokerConfig({"offsets.topic.num.partitions": "1"}), SystemClock(), Rng(7))

    async def take(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("plain", group, partition):
                self.asked.append(self.coordinator.commit_offsets(group, NOBODY, [self._offset(partition)]))
            case ("transactional", producer_id, group, partition, is_refused):
                self.ledger.refuses = is_refused
                offsets = [self._offset(partition)]
                self.asked.append(self.coordinator.commit_in_transaction(group, producer_id, 0, NOBODY, offsets))
                self.ledger.refuses = False
            case ("end", producer_id, control_type):
                self.asked.append(self.coordinator.write_marker(0, Marker(control_type, 0), producer_id, 0))
            case ("delete offset", group, partition):
                deleting = self.coordinator.delete_offsets(group, [("orders", partition)])
                self.asked.append(asyncio.ensure_future(deleting))
            case ("delete group", group):
                self.asked.append(asyncio.ensure_future(self.coordinator.delete_group(group)))
            case ("commit", count):
                await self.turn()
                self.ledger.commit(count)
                await self.turn()
            case ("crash", survivors):
                self.ledger.crash(survivors)
                self.coordinator.close()
                self.coordinator = self._make()
                await self.coordinator.lead(self.ledger)
            case _:
                raise AssertionError(step)

    async def turn(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def check(self) -> None:
        batches, committed, model = self.ledger.batches, self.ledger.committed, self.model
        for batch in batches[model.batches_read : committed]:
            model.read(batch)
        unstable = model.unstable()
        for batch in batches[committed:]:
            if read_header(batch).is_transactional and not read_header(batch).is_control:
                unstable.update(_keys_in(batch))
        for group in GROUPS:
            for partition in PARTITIONS:
                key = (group, partition)
                found = self.coordinator.committed_offset(group, "orders", NO_TOPIC_ID, partition)
                expected = model.stable.get(key)
                assert (found and found.offset) == (expected and expected[1]), key
                assert self.coordinator.is_unstable(group, "orders", partition) == (key in unstable), key

    def _offset(self, partition: int) -> OffsetToCommit:
        self.next_value += 1
        return OffsetToCommit("orders", NO_TOPIC_ID, partition, self.next_value, -1, "")


def _keys_in(batch: bytearray) -> list[Key]:
    records = decode_records(batch, read_header(batch), 1 << 20)
    decoded = [decode_record(record.key or b"", record.value) for record in records]
    return [(record.group_id, record.partition) for record in decoded if isinstance(record, OffsetRecord)]


# Few of each, since what may go wrong needs several transactions to meet at one partition.
groups, partitions, producers = st.sampled_from("gggh"), st.sampled_from([0, 0, 0, 1]), st.sampled_from(PRODUCERS)
common = st.one_of(
    st.tuples(st.just("plain"), groups, partitions),
    st.tuples(st.just("transactional"), producers, groups, partitions, st.just(False)),
    st.tuples(st.just("end"), producers, st.sampled_from([ControlType.COMMIT, ControlType.COMMIT, ControlType.ABORT])),
    st.tuples(st.just("commit"), st.integers(1, 8)),
)
rare = st.one_of(
    st.tuples(st.just("transactional"), producers, groups, partitions, st.just(True)),
    st.tuples(st.just("delete offset"), groups, partitions),
    st.tuples(st.just("delete group"), groups),
    st.tuples(st.just("crash"), st.integers(0, 3)),
)
steps = st.integers(0, 9).flatmap(lambda number: rare if number == 9 else common)


@settings(deadline=None, max_examples=100)
@given(st.lists(steps, min_size=20, max_size=50))
def test_committed_offsets_are_what_the_log_says_and_pending_ones_are_never_served_as_stable(taken: list[Any]) -> None:
    async def run() -> None:
        world = World()
        await world.coordinator.lead(world.ledger)
        for step in taken:
            await world.take(step)
            world.check()
        await world.take(("commit", len(world.ledger.batches)))
        await world.take(("commit", len(world.ledger.batches)))
        world.check()
        for outcome in await asyncio.gather(*world.asked, return_exceptions=True):
            assert not isinstance(outcome, BaseException) or isinstance(outcome, PenstockError), outcome
        world.coordinator.close()

    asyncio.run(run())
