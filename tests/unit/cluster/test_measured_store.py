"""The store with a watch on it says what the store says, and how long that took."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.cluster.measured_store import MeasuredStore
from penstock.cluster.sqlite_store import open_sqlite_store
from penstock.cluster.store import Get, LeaseLost, Put, created_at
from penstock.metrics import BrokerMetrics


class HandClock(SystemClock):
    seconds = 50.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def metrics() -> BrokerMetrics:
    return BrokerMetrics(SystemClock())


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def store(tmp_path: Path, metrics: BrokerMetrics, clock: HandClock) -> AsyncIterator[MeasuredStore]:
    store = MeasuredStore(await open_sqlite_store(tmp_path / "m.db", poll_s=0.01), clock, metrics)
    yield store
    await store.close()


async def test_calls_are_passed_on_and_timed(store: MeasuredStore, metrics: BrokerMetrics) -> None:
    lease = await store.lease(30)
    result = await store.txn([created_at("/a", 0)], [Put("/a", b"1", lease.id)], [Get("/a")])
    assert result.ok
    await lease.renew()
    found = await store.get("/a")
    assert found is not None
    assert (found.value, lease.ttl_s, lease.lost.is_set()) == (b"1", 30, False)
    assert [item.key for item in (await store.range("/")).items] == ["/a"]
    async for revision in store.watch("/", result.revision):
        assert revision.number == result.revision
        break
    await lease.revoke()
    assert await store.get("/a") is None
    counts = {labels[0]: sum(child.counts) for labels, child in metrics.metadata_latency.children()}
    assert counts == {"lease": 1, "txn": 1, "renew": 1, "get": 2, "range": 1, "revoke": 1}


async def test_what_fails_is_counted_and_is_no_sign_of_life(
    store: MeasuredStore, metrics: BrokerMetrics, clock: HandClock
) -> None:
    lease = await store.lease(30)
    await store.revoke(lease.id)
    age = metrics.metadata_contact_age.read
    assert age is not None
    clock.seconds += 40
    with pytest.raises(LeaseLost):
        await lease.renew()
    assert metrics.metadata_errors.child("renew", "LeaseLost").value == 1
    assert age() == 40
    call = asyncio.ensure_future(store.measure("get", asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert {labels for labels, _ in metrics.metadata_errors.children()} == {("renew", "LeaseLost")}
    await store.get("/a")
    assert age() == 0
