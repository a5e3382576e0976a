"""Many appends, one fsync: everyone who waits for a log to be durable shares the next sync.

Called by log.partition_log. At most one sync of a log is under way; what is appended meanwhile joins the next one.
A sync starts at the end of the loop turn that asked for it, so that all appends of that turn are in it.
After stop() no sync is ever started again: one that succeeds after one that failed proves nothing (TRAPS L1).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.disk import Disk
from penstock.model import Offset


class SyncWork(NamedTuple):
    """What one sync makes durable: run `job` on an I/O thread, and everything below `upto` is safe."""

    upto: Offset
    job: Callable[[], None]


class GroupSync:
    __slots__ = ("_disk", "_failed", "_prepare", "_running", "_stopped", "_waiters", "durable_offset")

    def __init__(
        self,
        disk: Disk,
        durable_offset: Offset,
        prepare: Callable[[], SyncWork],
        failed: Callable[[BaseException], BaseException],
    ) -> None:
        self._disk = disk
        self._prepare = prepare
        self._failed = failed
        self._waiters: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        self._running = False
        self._stopped: BaseException | None = None
        self.durable_offset = durable_offset

    def wait_for(self, offset: Offset) -> asyncio.Future[None]:
        """Resolved once everything below `offset` is on stable storage, or with the failure that prevents it."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        if offset <= self.durable_offset:
            waiter.set_result(None)
            return waiter
        if self._stopped is not None:
            _fail(waiter, self._stopped)
            return waiter
        assert not self._waiters or self._waiters[-1][0] <= offset
        self._waiters.append((offset, waiter))
        if not self._running:
            self._running = True
            loop.call_soon(self._start)
        return waiter

    def stop(self, error: BaseException) -> None:
        """Nothing more will become durable here, for this reason."""
        self._stopped = error
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                _fail(waiter, error)

    def _start(self) -> None:
        if not self._waiters:
            self._running = False
            return
        work = self._prepare()
        done = self._disk.run(work.job)
        done.add_done_callback(lambda future: self._finish(work.upto, future))

    def _finish(self, upto: Offset, done: "asyncio.Future[None]") -> None:
        error = done.exception() if not done.cancelled() else asyncio.CancelledError()
        if error is not None:
            self._running = False
            self.stop(self._failed(error))
            return
        self.durable_offset = max(self.durable_offset, upto)
        waiters = self._waiters
        while waiters and waiters[0][0] <= upto:
            _, waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
        self._start()


def _fail(waiter: asyncio.Future[None], error: BaseException) -> None:
    waiter.set_exception(error)
    # A producer that hung up is not there to hear it; that must not be reported as a lost exception.
    waiter.exception()
