"""Virtual time and a ledger in memory for the tests of groups: hours pass in milliseconds, and nothing sleeps."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.simulation.virtual_time import MemoryLedger, VirtualClock, VirtualLoop
from tests.unit.groups.consuming import World
from tests.unit.groups.driving import Driver

from penstock.clock import Rng
from penstock.config import BrokerConfig
from penstock.groups.coordinator import GroupCoordinator
from penstock.model import GROUP_OFFSETS_TOPIC


def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Any]:
    return {"virtual time": VirtualLoop}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger(GROUP_OFFSETS_TOPIC, leader_epoch=0)


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


@pytest.fixture
def driver() -> Driver:
    return Driver()
