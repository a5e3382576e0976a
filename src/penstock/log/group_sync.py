"""Many appends, one fsync: everyone who waits for a log to be durable shares the next sync.

Called by log.partition_log. At most one sync of a log is under way; what is appended meanwhile joins the next one.
A sync starts at the end of the first loop turn that brought nobody new, so that whoever comes together shares it: where
many wait, those that one sync answered come again one by one, and would each begin another. If that turn brought
nothing for anybody else either, the loop is free, and the disk may run the sync right there.
After stop() no sync is ever started again: one that succeeds after one that failed proves nothing (TRAPS L1).
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from penstock.clock import SystemClock
from penstock.disk import Disk
from penstock.model import Offset

# While each turn brings somebody new. The first of them waits for so many turns at most, and every sync costs as much
# processor time as several requests.
TURNS_MAX = 8


class SyncWork(NamedTuple):
    """What one sync makes durable: once `job`, which blocks, has run, everything below `upto` is safe."""

    upto: Offset
    job: Callable[[], None]
    is_brief: bool = False  # a little of one file, nothing else


class GroupSync:
    __slots__ = (
        "_brought",
        "_disk",
        "_failed",
        "_job",
        "_next",
        "_prepare",
        "_running",
        "_stopped",
        "durable_offset",
        "monotonic",
        "observe_ms",
    )

    def __init__(
        self,
        disk: Disk,
        durable_offset: Offset,
        prepare: Callable[[], SyncWork | None],
        failed: Callable[[BaseException], BaseException],
    ) -> None:
        self._disk = disk
        self._prepare = prepare
        self._failed = failed
        # What everyone who asks before the next sync starts is given; and the same for the one under way, or just ended
        # while we look whether those it answered come again.
        self._next: asyncio.Future[None] | None = None
        self._running: asyncio.Future[None] | None = None
        self._job: asyncio.Future[None] | None = None
        self._brought = False  # whether this turn brought somebody who shares the next sync
        self._stopped: BaseException | None = None
        self.durable_offset = durable_offset
        self.observe_ms: Callable[[float], None] = _ignore
        # Not the loop's own time, which stands still while the loop works.
        self.monotonic: Callable[[], float] = SystemClock.monotonic

    def wait_for(self, offset: Offset) -> asyncio.Future[None]:
        """Resolved once everything below `offset`, which is written, is on stable storage; or with why it never will.

        One future for all who wait for the same sync: add a callback, or shield it before awaiting it.
        """
        if self._next is not None and offset > self.durable_offset:
            self._brought = True
            return self._next
        loop = asyncio.get_running_loop()
        if offset <= self.durable_offset:
            done: asyncio.Future[None] = loop.create_future()
            done.set_result(None)
            return done
        if self._stopped is not None:
            return _failed(loop.create_future(), self._stopped)
        self._next = loop.create_future()
        self._brought = True
        if self._running is None:
            self._running = self._next
            loop.call_soon(self._gather, TURNS_MAX, self._disk.traffic())
        return self._next

    def stop(self, error: BaseException) -> None:
        """Nothing more will become durable here, for this reason."""
        self._stopped = error
        for waiting in (self._running, self._next):
            if waiting is not None and not waiting.done():
                _failed(waiting, error)
        self._next = None

    async def idle(self) -> None:
        """After stop(): returns when no thread is at work on this log's files any more, or raises why one failed."""
        if self._job is not None:
            await asyncio.wait((self._job,))
            self._job.result()

    def _gather(self, turns: int, traffic_before: int) -> None:
        traffic = self._disk.traffic()
        if turns and self._brought:
            self._brought = False
            asyncio.get_running_loop().call_soon(self._gather, turns - 1, traffic)
        else:
            self._start(is_loop_free=traffic == traffic_before)

    def _start(self, *, is_loop_free: bool) -> None:
        if self._next is None:
            self._running = None
            return
        self._running, self._next = self._next, None
        work = self._prepare()
        if work is None:  # stop() was called, and has told everybody
            self._running = None
            return
        began = self.monotonic()
        if work.is_brief:
            done = self._job = self._disk.run_brief(work.job, is_loop_free=is_loop_free)
        else:
            done = self._job = self._disk.run(work.job)
        if done.done():
            self._finish(work.upto, began, done)
        else:
            done.add_done_callback(lambda future: self._finish(work.upto, began, future))

    def _finish(self, upto: Offset, began: float, done: "asyncio.Future[None]") -> None:
        error = done.exception() if not done.cancelled() else asyncio.CancelledError()
        if error is not None:
            self.stop(self._failed(error))
            self._running = None
            return
        self.observe_ms((self.monotonic() - began) * 1000)
        self.durable_offset = max(self.durable_offset, upto)
        if self._running is not None and not self._running.done():
            self._running.set_result(None)
        # Those who are answered now may come again at once.
        self._brought = True
        self._gather(TURNS_MAX, self._disk.traffic())


def _failed(waiting: asyncio.Future[None], error: BaseException) -> asyncio.Future[None]:
    waiting.set_exception(error)
    # A producer that hung up is not there to hear it; that must not be reported as a lost exception.
    waiting.exception()
    return waiting


def _ignore(_: float) -> None:
    pass
