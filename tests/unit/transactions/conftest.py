"""Virtual time, a ledger in memory and partitions that take markers, for the tests of transactions."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from tests.simulation.virtual_time import MemoryLedger, VirtualClock, VirtualLoop

from penstock.config import BrokerConfig
from penstock.errors import ErrorCode, PenstockError
from penstock.model import TRANSACTION_STATE_TOPIC, TopicPartition
from penstock.records.markers import Marker
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.markers import MarkerToWrite

FIRST_PRODUCER_ID = 1_000


def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Any]:
    return {"virtual time": VirtualLoop}


class StateLedger(MemoryLedger):
    """A partition of `__transaction_state`, where no record is itself part of a transaction."""

    def __init__(self) -> None:
        super().__init__(TRANSACTION_STATE_TOPIC, leader_epoch=4)

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, *, is_version_2: bool = False
    ) -> asyncio.Future[int]:
        raise AssertionError("no record here is part of a transaction")


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
def ledger() -> StateLedger:
    return StateLedger()


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
