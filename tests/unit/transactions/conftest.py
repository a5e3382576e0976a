"""Virtual time, a ledger in memory and partitions that take markers, for the tests of transactions."""

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from penstock.config import BrokerConfig
from penstock.errors import ErrorCode, PenstockError
from penstock.model import TopicPartition
from penstock.records.batch import BatchHeader, read_header, stamp
from penstock.records.markers import Marker
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.markers import MarkerToWrite

FIRST_PRODUCER_ID = 1_000


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
    """A partition of `__transaction_state` that commits in the next turn, unless it is told to hold or to refuse."""

    def __init__(self, partition: int = 0) -> None:
        self.topic_partition = TopicPartition("__transaction_state", partition)
        self.leader_epoch = 4
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
        self, marker: Marker, producer_id: int, producer_epoch: int, *, is_version_2: bool
    ) -> asyncio.Future[int]:
        raise AssertionError("no record here is part of a transaction")

    def release(self) -> None:
        assert self.held is not None
        held, self.held = self.held, None
        for committed in held:
            committed.set_result(0)

    async def read_all(self) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        for batch in list(self.batches):
            await asyncio.sleep(0)
            yield read_header(batch), memoryview(batch)


class Partitions:
    """Where markers go. A partition answers with the codes it was given first, and takes the marker then."""

    def __init__(self) -> None:
        self.written: list[MarkerToWrite] = []
        self.codes: dict[TopicPartition, list[ErrorCode]] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, markers: Sequence[MarkerToWrite]) -> dict[TopicPartition, ErrorCode]:
        await self.gate.wait()
        answers: dict[TopicPartition, ErrorCode] = {}
        for marker in markers:
            codes = self.codes.get(marker.partition)
            answers[marker.partition] = codes.pop(0) if codes else ErrorCode.NONE
            if answers[marker.partition] is ErrorCode.NONE:
                self.written.append(marker)
        return answers


class ProducerIds:
    """1000, 1001, ..., unless it has none to give."""

    def __init__(self) -> None:
        self.next = FIRST_PRODUCER_ID
        self.refusal: PenstockError | None = None

    async def allocate(self) -> int:
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        self.next += 1
        return self.next - 1


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture
def partitions() -> Partitions:
    return Partitions()


@pytest.fixture
def producer_ids() -> ProducerIds:
    return ProducerIds()


@pytest.fixture
def settings() -> dict[str, str]:
    """Settings of the broker, for a test to change."""
    return {}


@pytest.fixture
def make_coordinator(
    clock: VirtualClock, partitions: Partitions, producer_ids: ProducerIds, settings: dict[str, str]
) -> Callable[[], TransactionCoordinator]:
    """Coordinators over one partition, as a broker and the one started after it would be."""

    def make() -> TransactionCoordinator:
        given = {"transaction.state.log.num.partitions": "1", **settings}
        return TransactionCoordinator(BrokerConfig(given), clock, producer_ids.allocate, partitions.write)

    return make


@pytest.fixture
async def coordinator(make_coordinator: Any, ledger: MemoryLedger) -> AsyncIterator[TransactionCoordinator]:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    yield coordinator
    coordinator.close()
