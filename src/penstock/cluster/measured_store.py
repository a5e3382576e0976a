"""The metadata store, with a watch on it: how long each call takes, how many fail, when it last answered.

Made by broker around the store it opened; everybody who reads or writes metadata is given this one. A broker that
cannot reach its store goes on with what it knows and changes nothing, so nobody would notice but for these figures.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar

from penstock.clock import Clock
from penstock.cluster.store import Compare, KeyValue, Lease, MetadataStore, Operation, Revision, Snapshot, TxnResult
from penstock.metrics import BrokerMetrics

T = TypeVar("T")


class MeasuredStore:
    def __init__(self, store: MetadataStore, clock: Clock, metrics: BrokerMetrics) -> None:
        self._store = store
        self._clock = clock
        self._latency_ms = metrics.metadata_latency
        self._errors = metrics.metadata_errors
        self._answered_at = clock.monotonic()
        metrics.metadata_contact_age.read = lambda: clock.monotonic() - self._answered_at

    async def get(self, key: str) -> KeyValue | None:
        return await self.measure("get", self._store.get(key))

    async def range(self, prefix: str) -> Snapshot:
        return await self.measure("range", self._store.range(prefix))

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation] = ()
    ) -> TxnResult:
        return await self.measure("txn", self._store.txn(compare, then, orelse))

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Revision]:
        return self._store.watch(prefix, from_revision)

    async def lease(self, ttl_s: float) -> Lease:
        return MeasuredLease(await self.measure("lease", self._store.lease(ttl_s)), self)

    async def revoke(self, lease: int) -> None:
        await self.measure("revoke", self._store.revoke(lease))

    async def close(self) -> None:
        await self._store.close()

    async def measure(self, operation: str, call: Awaitable[T]) -> T:
        started = self._clock.monotonic()
        try:
            result = await call
        except Exception as error:  # which a call that was called off is not: the store has not said anything
            self._errors.child(operation, type(error).__name__).value += 1
            raise
        self._answered_at = self._clock.monotonic()
        self._latency_ms.child(operation).observe((self._answered_at - started) * 1000)
        return result


class MeasuredLease:
    def __init__(self, lease: Lease, store: MeasuredStore) -> None:
        self._lease = lease
        self._store = store

    @property
    def id(self) -> int:
        return self._lease.id

    @property
    def ttl_s(self) -> float:
        return self._lease.ttl_s

    @property
    def lost(self) -> asyncio.Event:
        return self._lease.lost

    async def renew(self) -> None:
        await self._store.measure("renew", self._lease.renew())

    async def revoke(self) -> None:
        await self._store.measure("revoke", self._lease.revoke())
