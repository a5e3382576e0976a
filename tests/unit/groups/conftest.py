"""Virtual time and a ledger in memory for the tests of groups: hours pass in milliseconds, and nothing sleeps."""

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.unit.groups.consuming import World

from penstock.clock import Rng
from penstock.config import BrokerConfig
from penstock.errors import PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.model import GROUP_OFFSETS_TOPIC, TopicPartition
from penstock.records.batch import BatchHeader, read_header, stamp
from penstock.records.markers import Marker, encode_marker


class _InstantSelector(selectors.DefaultSelector):
    """Instead of waiting for time to pass, lets it have passed."""

    now = 1_000.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events:
            assert timeout is not None, "everybody waits, and nothing will ever happen"
            self.now += timeout
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual = _InstantSelector()
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.now

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # A timer that fails would otherwise be a line in the log, and the test would pass.
        raise AssertionError(context) from context.get("exception")


def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Any]:
    return {"virtual time": VirtualLoop}


class VirtualClock:
    wall_start_ms = 1_700_000_000_000

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return self.wall_start_ms + round(self.monotonic() * 1000)


class MemoryLedger:
    """A partition of `__consumer_offsets` that commits in the next turn, unless it is told to hold or to refuse."""

    def __init__(self, partition: int = 0) -> None:
        self.topic_partition = TopicPartition(GROUP_OFFSETS_TOPIC, partition)
        self.leader_epoch = 0
        self.batches: list[bytearray] = []
        self.held: list[asyncio.Future[int]] | None = None
        self.refusal: PenstockError | None = None
        self._next_offset = 0

    def append(self, batch: bytes | bytearray) -> asyncio.Future[int]:
        if self.refusal is not None:
            raise self.refusal
        kept = bytearray(batch)
        stamp(memoryview(kept), self._next_offset, self.leader_epoch)
        self._next_offset = read_header(kept).next_offset
        self.batches.append(kept)
        committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self.held is None:
            committed.set_result(read_header(kept).base_offset)
        else:
            self.held.append(committed)
        return committed

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, *, is_version_2: bool = False
    ) -> asyncio.Future[int]:
        ids = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        return self.append(encode_marker(marker, offset=0, timestamp=0, **ids))

    def release(self) -> None:
        assert self.held is not None
        held, self.held = self.held, None
        for committed in held:
            committed.set_result(0)

    async def read_all(self) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        for batch in list(self.batches):
            await asyncio.sleep(0)
            yield read_header(batch), memoryview(batch)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture
def settings() -> dict[str, str]:
    """Settings of the broker, for a test to change."""
    return {}


@pytest.fixture
def make_coordinator(clock: VirtualClock, settings: dict[str, str]) -> Callable[[], GroupCoordinator]:
    """Coordinators over one partition, as a broker and the one started after it would be."""

    def make() -> GroupCoordinator:
        given = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0", **settings}
        return GroupCoordinator(BrokerConfig(given), clock, Rng(7))

    return make


@pytest.fixture
async def coordinator(make_coordinator: Any, ledger: MemoryLedger) -> AsyncIterator[GroupCoordinator]:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    yield coordinator
    coordinator.close()


@pytest.fixture
async def world(clock: Any, ledger: Any, settings: dict[str, str]) -> AsyncIterator[World]:
    world = World(clock, ledger, settings)
    await world.start()
    yield world
    world.coordinator.close()
