"""The metadata stores that the suite of test_store_* runs on, SQLite and a real etcd: a new one adds a Backend.

What every store must do is in test_store_transactions, _watches, _leases and _processes.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

from penstock.cluster.open_store import open_store
from penstock.cluster.sqlite_store import SqliteStore, open_sqlite_store
from penstock.cluster.store import Lease, MetadataStore, Revision
from penstock.testing.etcd import EtcdCluster, encoded


class Backend(Protocol):
    """Opens any number of independent clients on one store, and controls what a test may not wait for."""

    url: str
    lease_s: float

    async def open(self) -> MetadataStore: ...
    async def pass_time(self, seconds: float) -> None: ...
    async def expire(self, lease: Lease) -> None: ...
    async def compact(self, revision: int) -> None: ...
    async def close(self) -> None: ...


class SqliteBackend:
    lease_s = 10.0

    def __init__(self, directory: Path, boot_time: Any) -> None:
        self._path = directory / "metadata.db"
        self.url = f"sqlite:{self._path}"
        self._time = boot_time
        self._opened: list[SqliteStore] = []

    async def open(self) -> MetadataStore:
        store = await open_sqlite_store(self._path, poll_s=0.01, boot_time=self._time)
        self._opened.append(store)
        return store

    async def pass_time(self, seconds: float) -> None:
        self._time.advance(seconds)

    async def expire(self, lease: Lease) -> None:
        self._time.advance(lease.ttl_s + 0.1)

    async def compact(self, revision: int) -> None:
        await self._opened[0].compact(revision)

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


class EtcdBackend:
    # The shortest that leaves a renewal some room.
    lease_s = 2.0

    def __init__(self, etcd: EtcdCluster) -> None:
        self._etcd = etcd
        self.url = etcd.url
        self._opened: list[Any] = []
        everything = {"key": encoded(b"\0"), "range_end": encoded(b"\0")}
        etcd.ask(0, "kv/deleterange", everything)

    async def open(self) -> MetadataStore:
        store = await open_store(self.url, Path())
        self._opened.append(store)
        return store

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def expire(self, lease: Lease) -> None:
        def ask_until_gone() -> None:
            # Zeros are left out of its JSON: one that has half a second left has no TTL there.
            while self._etcd.ask(0, "lease/timetolive", {"ID": lease.id}).get("TTL") != "-1":
                time.sleep(0.05)

        await asyncio.to_thread(ask_until_gone)

    async def compact(self, revision: int) -> None:
        await self._opened[0].compact(revision)

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


async def take(watch: AsyncIterator[Revision], count: int) -> list[Revision]:
    taken: list[Revision] = []
    async with asyncio.timeout(20):
        async for revision in watch:
            taken.append(revision)
            if len(taken) == count:
                break
    return taken
