"""The metadata store of one host: a SQLite file that one or several broker processes share.

Called by broker, which opens it and hands it to controller, membership and feed as a MetadataStore.
All SQL runs on one thread of its own, named penstock-metadata. Watchers in this process are woken by the commit itself;
what other processes write is seen by asking the file every `poll_s` whether it changed: 0.01 where brokers share it,
slower where one node is alone and idleness should cost nothing.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from penstock.cluster.boot_time import BootTime, SystemBootTime
from penstock.cluster.sqlite_file import SqliteFile
from penstock.cluster.sqlite_place import Machine, this_machine
from penstock.cluster.store import (
    Ambiguous,
    Compare,
    KeyValue,
    LeaseLost,
    Operation,
    Revision,
    Snapshot,
    TxnResult,
    Unavailable,
    check_txn,
)
from penstock.errors import PenstockError

T = TypeVar("T")

DEADLINE_S = 15.0
POLL_ALONE_S = 0.2
POLL_SHARED_S = 0.01
OPERATIONS_WAITING_MAX = 10_000
HISTORY_CHANGES_MAX = 50_000


class SqliteStore:
    """Made by `open_sqlite_store`."""

    def __init__(self, thread: ThreadPoolExecutor, poll_s: float, deadline_s: float) -> None:
        self._thread = thread
        self._poll_s = poll_s
        self._deadline_s = deadline_s
        self._loop = asyncio.get_running_loop()
        self._watchers: set[asyncio.Event] = set()
        self._waiting = 0
        self._closed = False
        self._file: SqliteFile
        self._ticking: asyncio.Task[None]

    async def start(self, path: Path, boot_time: BootTime, machine: Machine, history_changes_max: int) -> None:
        self._file = await self._run(SqliteFile, path, boot_time, machine, history_changes_max, self._wake_from_thread)
        self._ticking = asyncio.create_task(self._tick(), name="metadata-tick")

    async def get(self, key: str) -> KeyValue | None:
        return await self._run(self._file.get, key)

    async def range(self, prefix: str) -> Snapshot:
        return await self._run(self._file.range, prefix)

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation] = ()
    ) -> TxnResult:
        check_txn(compare, then, orelse)
        return await self._run(self._file.txn, compare, then, orelse)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Revision]:
        awake = asyncio.Event()
        self._watchers.add(awake)
        try:
            while True:
                awake.clear()
                revisions, reached = await self._run(self._file.history, prefix, from_revision)
                for revision in revisions:
                    yield revision
                if reached >= from_revision:
                    from_revision = reached + 1
                else:
                    # No deadline: a watch waits as long as nothing happens. The tick wakes it if the file fails.
                    await awake.wait()
        finally:
            self._watchers.discard(awake)

    async def lease(self, ttl_s: float) -> "SqliteLease":
        return SqliteLease(self, await self._run(self._file.grant, round(ttl_s * 1000)), ttl_s)

    async def renew(self, lease: int) -> None:
        await self._run(self._file.renew, lease)

    async def revoke(self, lease: int) -> None:
        await self._run(self._file.revoke, lease)

    async def compact(self, revision: int) -> None:
        """Forget the history up to `revision`; the store does so by itself past a number of changes."""
        await self._run(self._file.compact, revision)

    async def close(self) -> None:
        if self._closed:
            return
        self._ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._ticking
        try:
            await self._run(self._file.close)
        finally:
            self._closed = True
            self._wake()
            self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        if self._closed:
            raise Unavailable("the metadata store is closed")
        if self._waiting >= OPERATIONS_WAITING_MAX:
            raise Unavailable(f"{self._waiting} metadata operations are waiting already")
        future = self._thread.submit(work, *arguments)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future.cancelled():
                raise Unavailable(f"the metadata store was busy for {self._deadline_s:g} s") from None
            raise Ambiguous(f"the metadata store did not answer within {self._deadline_s:g} s") from None
        finally:
            self._waiting -= 1

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                changed = await self._run(self._file.tick)
            except PenstockError:
                # Whoever uses the store gets the error; here it only means that watchers should go and see.
                changed = True
            if changed:
                self._wake()

    def _wake_from_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for awake in self._watchers:
            awake.set()


class SqliteLease:
    def __init__(self, store: SqliteStore, lease: int, ttl_s: float) -> None:
        self._store = store
        self.id = lease
        self.ttl_s = ttl_s
        self.lost = asyncio.Event()

    async def renew(self) -> None:
        try:
            await self._store.renew(self.id)
        except LeaseLost:
            self.lost.set()
            raise

    async def revoke(self) -> None:
        await self._store.revoke(self.id)
        self.lost.set()


async def open_sqlite_store(
    path: Path,
    *,
    poll_s: float = POLL_ALONE_S,
    boot_time: BootTime | None = None,
    machine: Machine | None = None,
    history_changes_max: int = HISTORY_CHANGES_MAX,
    deadline_s: float = DEADLINE_S,
) -> SqliteStore:
    """Open or create the file; raises StoreUnusable where it is damaged, too new, or another machine's."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-metadata")
    store = SqliteStore(thread, poll_s, deadline_s)
    try:
        await store.start(path, boot_time or SystemBootTime(), machine or this_machine(), history_changes_max)
    except BaseException:
        thread.shutdown(wait=False)
        raise
    return store
