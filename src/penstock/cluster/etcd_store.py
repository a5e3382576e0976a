"""The metadata store of many hosts: etcd, as a MetadataStore.

Called by open_store, which imports this only where etcd is wanted: gRPC costs a broker time and memory.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence

from penstock.cluster.etcd_client import OPERATION_S, Effect, EtcdClient
from penstock.cluster.etcd_endpoint import COMPACT, LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, RANGE, TXN
from penstock.cluster.etcd_faults import RpcFailed, is_compacted, is_lease_gone
from penstock.cluster.etcd_messages import MESSAGES, bounds, key_value, txn_request, txn_result
from penstock.cluster.etcd_watch import watch
from penstock.cluster.store import (
    NO_LEASE,
    Compare,
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
)

# etcd walks the rest of the range for every page, so small ones cost more than they save.
PAGE_KEYS = 10_000
RANGE_TRIES = 5


class EtcdStore:
    """Takes over a client that is connected, and closes it."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    async def get(self, key: str) -> KeyValue | None:
        response = await self._client.call(RANGE, MESSAGES["RangeRequest"](key=key.encode()), Effect.NONE)
        return key_value(response.kvs[0]) if response.kvs else None

    async def range(self, prefix: str) -> Snapshot:
        for _ in range(RANGE_TRIES):
            try:
                return await self._range(prefix)
            except RpcFailed as fault:
                # The revision the first page was read at was compacted before the last one: begin again.
                if not is_compacted(fault):
                    raise
        raise Unavailable(f"etcd was compacted {RANGE_TRIES} times while {prefix!r} was read")

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation] = ()
    ) -> TxnResult:
        check_txn(compare, then, orelse)
        is_reading = all(isinstance(operation, Get) for operation in (*then, *orelse))
        request = txn_request(compare, then, orelse)
        try:
            return txn_result(await self._client.call(TXN, request, Effect.NONE if is_reading else Effect.ONCE))
        except RpcFailed as fault:
            if is_lease_gone(fault):
                raise LeaseLost(_leases(then, orelse)) from None
            raise

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Revision]:
        return watch(self._client, prefix, from_revision)

    async def lease(self, ttl_s: float) -> "EtcdLease":
        # One granted by an answer that was lost ends by itself, so asking again does no harm.
        request = MESSAGES["LeaseGrantRequest"](ttl=math.ceil(ttl_s))
        granted = await self._client.call(LEASE_GRANT, request, Effect.REPEATABLE)
        return EtcdLease(self, granted.id, ttl_s)

    async def renew(self, lease: int, deadline_s: float) -> None:
        request = MESSAGES["LeaseKeepAliveRequest"](id=lease)
        response = await self._client.call(LEASE_KEEP_ALIVE, request, Effect.REPEATABLE, deadline_s)
        if response.ttl <= 0:
            raise LeaseLost(lease)

    async def revoke(self, lease: int) -> None:
        try:
            await self._client.call(LEASE_REVOKE, MESSAGES["LeaseRevokeRequest"](id=lease), Effect.REPEATABLE)
        except RpcFailed as fault:
            if not is_lease_gone(fault):
                raise

    async def compact(self, revision: int) -> None:
        """Forget the history up to `revision`, of everybody who uses this etcd; left to its operator otherwise."""
        try:
            request = MESSAGES["CompactRequest"](revision=revision, physical=True)
            await self._client.call(COMPACT, request, Effect.REPEATABLE)
        except RpcFailed as fault:
            if not is_compacted(fault):
                raise

    async def close(self) -> None:
        await self._client.close()

    async def _range(self, prefix: str) -> Snapshot:
        key, range_end = bounds(prefix)
        items: list[KeyValue] = []
        revision = 0
        while True:
            request = MESSAGES["RangeRequest"](key=key, range_end=range_end, limit=PAGE_KEYS, revision=revision)
            page = await self._client.call(RANGE, request, Effect.NONE)
            revision = revision or page.header.revision
            items += map(key_value, page.kvs)
            if not page.more:
                return Snapshot(revision, tuple(items))
            key = page.kvs[-1].key + b"\0"


class EtcdLease:
    """`ttl_s` is what was asked for; etcd counts in whole seconds and never less than that."""

    def __init__(self, store: EtcdStore, lease: int, ttl_s: float) -> None:
        self._store = store
        self.id = lease
        self.ttl_s = ttl_s
        self.lost = asyncio.Event()

    async def renew(self) -> None:
        try:
            await self._store.renew(self.id, min(self.ttl_s, OPERATION_S))
        except LeaseLost:
            self.lost.set()
            raise

    async def revoke(self) -> None:
        await self._store.revoke(self.id)
        self.lost.set()


def _leases(then: Sequence[Operation], orelse: Sequence[Operation]) -> int:
    """The lease a transaction names; ours never name two."""
    return next((each.lease for each in (*then, *orelse) if isinstance(each, Put) and each.lease != NO_LEASE), NO_LEASE)
