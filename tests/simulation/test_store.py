"""The simulated metadata store passes the suite that the real ones pass, and fails as they do when told to."""

import asyncio
import random
from typing import Any

import pytest
from tests.simulation.loop import World
from tests.simulation.store import StoreClient, StoreState
from tests.unit.cluster import conftest, test_store_leases, test_store_transactions, test_store_watches

from penstock.cluster.store import Ambiguous, Lease, MetadataStore, Put, Unavailable


class _RealTime:
    """A world for the suite, whose tests run on a real loop: time is the loop's, and what the test adds to it."""

    def __init__(self) -> None:
        self.chance = random.Random(1)
        self.added_s = 0.0

    def now(self) -> float:
        return asyncio.get_running_loop().time() + self.added_s

    def after(self, delay_s: float, act: Any, *arguments: Any) -> None:
        asyncio.get_running_loop().call_later(delay_s, act, *arguments)

    def mark(self, *what: object) -> None:
        pass


class SimulatedBackend:
    lease_s = 10.0

    def __init__(self) -> None:
        self._world: Any = _RealTime()
        self._state = StoreState(self._world)

    async def open(self) -> MetadataStore:
        return StoreClient(self._state, "client")

    async def pass_time(self, seconds: float) -> None:
        self._world.added_s += seconds
        self._state.expire()

    async def expire(self, lease: Lease) -> None:
        await self.pass_time(lease.ttl_s + 0.1)

    async def compact(self, revision: int) -> None:
        self._state.compact(revision)


@pytest.fixture
def store_factory() -> SimulatedBackend:
    return SimulatedBackend()


client = conftest.client

# Everything but test_store_processes: a store in memory cannot have a second process.
for _suite in (test_store_transactions, test_store_watches, test_store_leases):
    for _name in dir(_suite):
        if _name.startswith("test_"):
            globals()[_name] = getattr(_suite, _name)


def in_a_world(work: Any) -> None:
    world = World(1)
    try:
        world.loop.run_until_complete(world.spawn(world.nature, work(StoreClient(StoreState(world), "client"))))
    finally:
        world.close()


def test_a_client_cut_off_before_it_asked_has_changed_nothing():
    async def work(store: StoreClient) -> None:
        store.cut()
        with pytest.raises(Unavailable):
            await store.txn([], [Put("/a", b"1")])
        store.mend()
        assert await store.get("/a") is None

    in_a_world(work)


def test_an_answer_that_is_lost_leaves_the_outcome_unknown_and_the_change_made():
    async def work(store: StoreClient) -> None:
        store.lost_answer_chance = 1.0
        with pytest.raises(Ambiguous):
            await store.txn([], [Put("/a", b"1")])
        store.lost_answer_chance = 0.0
        item = await store.get("/a")
        assert item is not None
        assert item.value == b"1"

    in_a_world(work)
