"""The metadata store of a simulated cluster: etcd as its clients see it, in memory, on virtual time, with its faults.

`StoreState` is the truth, which never fails; `StoreClient` is one broker's way to it and satisfies MetadataStore. It is
held to the same conformance suite as the real backends.
What can go wrong for one client: it reaches nothing (Unavailable, or Ambiguous where the request got through and the
answer did not), everything takes long, an answer is lost though the transaction ran, its watches lag behind. For all:
leases that run out by virtual time, history that is compacted away.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from tests.simulation.loop import World

from penstock.cluster.store import (
    NO_LEASE,
    Ambiguous,
    Change,
    Compacted,
    Compare,
    Delete,
    Get,
    KeyValue,
    LeaseLost,
    Operation,
    Put,
    Revision,
    Snapshot,
    TxnResult,
    Unavailable,
    check_txn,
    holds,
)

DELAY_S = 0.001
JITTER_S = 0.002
DEADLINE_S = 3.0


class StoreState:
    def __init__(self, world: World) -> None:
        self.world = world
        self.revision = 1
        self.compacted = 0
        self.items: dict[str, KeyValue] = {}
        self.history: list[Revision] = []
        self.leases: dict[int, tuple[float, float]] = {}
        self._next_lease = 7_000
        self.clients: list[StoreClient] = []
        # Told of every revision as it is made: the invariants read the history of the cluster here.
        self.on_revision: Callable[[Revision], None] = lambda revision: None

    def txn(self, compare: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation]) -> TxnResult:
        self.expire()
        ok = all(holds(each, self.items.get(each.key)) for each in compare)
        operations = then if ok else orelse
        for operation in operations:
            if isinstance(operation, Put) and operation.lease != NO_LEASE and operation.lease not in self.leases:
                raise LeaseLost(operation.lease)
        number = self.revision + 1
        changes: list[Change] = []
        reads: list[KeyValue | None] = []
        for operation in operations:
            match operation:
                case Put(key, value, lease):
                    old = self.items.get(key)
                    created, version = (old.create_revision, old.version + 1) if old else (number, 1)
                    item = self.items[key] = KeyValue(key, value, created, number, version, lease)
                    changes.append(Change(key, item))
                case Delete(key):
                    if self.items.pop(key, None) is not None:
                        changes.append(Change(key, None))
                case Get(key):
                    reads.append(self.items.get(key))
        self._commit(changes)
        return TxnResult(ok, self.revision, tuple(reads))

    def range(self, prefix: str) -> Snapshot:
        self.expire()
        keys = sorted((key for key in self.items if key.startswith(prefix)), key=str.encode)
        return Snapshot(self.revision, tuple(self.items[key] for key in keys))

    def grant(self, ttl_s: float) -> int:
        self._next_lease += 1
        self.leases[self._next_lease] = (self.world.now() + ttl_s, ttl_s)
        self.world.after(ttl_s, self.expire)
        return self._next_lease

    def renew(self, lease: int) -> None:
        self.expire()
        if lease not in self.leases:
            raise LeaseLost(lease)
        _, ttl_s = self.leases[lease]
        self.leases[lease] = (self.world.now() + ttl_s, ttl_s)
        self.world.after(ttl_s, self.expire)

    def revoke(self, lease: int) -> None:
        self.leases.pop(lease, None)
        keys = [key for key, item in self.items.items() if item.lease == lease]
        for key in keys:
            del self.items[key]
        self._commit([Change(key, None) for key in keys])

    def expire(self) -> None:
        now = self.world.now()
        for lease in [lease for lease, (ends_at, _) in self.leases.items() if ends_at <= now]:
            self.world.mark("expired", lease)
            self.revoke(lease)

    def compact(self, revision: int) -> None:
        self.compacted = max(self.compacted, revision)
        del self.history[: bisect_left(self.history, self.compacted + 1, key=lambda seen: seen.number)]

    def since(self, revision: int) -> list[Revision]:
        return self.history[bisect_left(self.history, revision, key=lambda seen: seen.number) :]

    def _commit(self, changes: list[Change]) -> None:
        if not changes:
            return
        self.revision += 1
        revision = Revision(self.revision, tuple(changes))
        self.history.append(revision)
        self.world.mark("revision", self.revision, [change.key for change in changes])
        self.on_revision(revision)
        for client in self.clients:
            client.changed()


class StoreClient:
    def __init__(self, state: StoreState, name: str) -> None:
        self._state = state
        self._world = state.world
        self.name = name
        self.is_cut = False
        self.delay_s = 0.0
        self.watch_lag_s = 0.0
        self.lost_answer_chance = 0.0
        self.faults = 0
        self._closed = False
        self._watchers: dict[asyncio.Event, None] = {}
        state.clients.append(self)

    async def get(self, key: str) -> KeyValue | None:
        def read() -> KeyValue | None:
            self._state.expire()
            return self._state.items.get(key)

        return await self._call(read, is_write=False)

    async def range(self, prefix: str) -> Snapshot:
        return await self._call(lambda: self._state.range(prefix), is_write=False)

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation] = ()
    ) -> TxnResult:
        check_txn(compare, then, orelse)
        return await self._call(lambda: self._state.txn(compare, then, orelse), is_write=True)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Revision]:
        awake = asyncio.Event()
        self._watchers[awake] = None
        try:
            while True:
                awake.clear()
                self._check_open()
                if self.is_cut:
                    self.faults += 1
                    raise Unavailable(f"{self.name} lost its watch")
                if from_revision <= self._state.compacted:
                    raise Compacted(self._state.compacted)
                for revision in self._state.since(from_revision):
                    from_revision = revision.number + 1
                    seen = tuple(change for change in revision.changes if change.key.startswith(prefix))
                    if seen:
                        yield Revision(revision.number, seen)
                if self._state.revision < from_revision:
                    await awake.wait()
        finally:
            self._watchers.pop(awake, None)

    async def lease(self, ttl_s: float) -> "SimulatedLease":
        return SimulatedLease(self, await self._call(lambda: self._state.grant(ttl_s), is_write=True), ttl_s)

    async def renew(self, lease: int) -> None:
        await self._call(lambda: self._state.renew(lease), is_write=True)

    async def revoke(self, lease: int) -> None:
        await self._call(lambda: self._state.revoke(lease), is_write=True)

    async def compact(self, revision: int) -> None:
        await self._call(lambda: self._state.compact(revision), is_write=True)

    async def close(self) -> None:
        self._closed = True
        self.changed()

    def changed(self) -> None:
        """Something was committed, or the way to the store has changed: watchers look, after their lag."""
        for awake in tuple(self._watchers):
            self._world.after(self.watch_lag_s + self._way_s(), awake.set)

    def cut(self) -> None:
        self.is_cut = True
        self.changed()

    def mend(self) -> None:
        self.is_cut = False

    async def _call(self, work: Callable[[], Any], *, is_write: bool) -> Any:
        """Send, have it done, hear of it: each takes time, and each may fail."""
        self._check_open()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asked = {"arrived": False}

        def arrive() -> None:
            if self.is_cut:
                self.faults += 1
                return
            asked["arrived"] = True
            try:
                result, error = work(), None
            except Exception as failure:
                result, error = None, failure
            self._world.after(self.delay_s + self._way_s(), reply, result, error)

        def reply(result: Any, error: Exception | None) -> None:
            is_lost = self.is_cut or self._world.chance.random() < self.lost_answer_chance
            if is_lost:
                self.faults += 1
            elif not answer.done():
                if error is None:
                    answer.set_result(result)
                else:
                    answer.set_exception(error)

        self._world.after(self.delay_s + self._way_s(), arrive)
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await answer
        except TimeoutError:
            if asked["arrived"] and is_write:
                raise Ambiguous(f"{self.name}: the store did not answer") from None
            raise Unavailable(f"{self.name}: the store is away") from None

    def _way_s(self) -> float:
        return DELAY_S + self._world.chance.random() * JITTER_S

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the metadata store is closed")


class SimulatedLease:
    def __init__(self, client: StoreClient, lease: int, ttl_s: float) -> None:
        self._client = client
        self.id = lease
        self.ttl_s = ttl_s
        self.lost = asyncio.Event()

    async def renew(self) -> None:
        try:
            await self._client.renew(self.id)
        except LeaseLost:
            self.lost.set()
            raise

    async def revoke(self) -> None:
        await self._client.revoke(self.id)
        self.lost.set()
