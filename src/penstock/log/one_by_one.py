"""Work that must not run twice at once, in the order in which it was asked for.

Called by log.directory (what is saved for all logs) and log.partition_log (what changes the files of one).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]


class OneByOne:
    """Whatever was begun goes on to its end, even if whoever asked for it is cancelled."""

    __slots__ = ("_last", "_waiting")

    def __init__(self) -> None:
        self._last: asyncio.Task[None] | None = None
        # The last of them, as long as it has not begun.
        self._waiting: asyncio.Task[None] | None = None

    async def run(self, work: Work) -> None:
        await _wait(self._queue(work))

    async def run_shared(self, work: Work) -> None:
        """The same for work that everyone may share who asks before it begins: one save of all there is to save."""
        await _wait(self._waiting or self._queue(work))

    async def idle(self) -> None:
        while self._last is not None and not self._last.done():
            await asyncio.wait((self._last,))

    def _queue(self, work: Work) -> "asyncio.Task[None]":
        before = self._last

        async def turn() -> None:
            if before is not None and not before.done():
                await asyncio.wait((before,))
            if self._waiting is task:
                self._waiting = None
            await work()

        task = self._last = self._waiting = asyncio.ensure_future(turn())
        return task


async def _wait(task: "asyncio.Task[None]") -> None:
    try:
        # The wait may be cancelled, the task goes on. Not shield: since Python 3.14 that reports its failure as well.
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        # Nobody may be left to hear how it ends.
        task.add_done_callback(_say_failure)
        raise
    task.result()


def _say_failure(task: "asyncio.Task[None]") -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logger.error("work whose asker was cancelled failed: %s", error)
