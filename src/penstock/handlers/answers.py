"""What a handler gives back: a reply now, at the end of this turn of the loop, or later.

Called by handlers that parse their requests themselves, server.dispatch and server.connection. The two kinds of our own
are for Produce, whose answers come by the ten thousand a second: a future and its callbacks would cost more than the
request does.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import final

from penstock.metrics import Histogram

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview


class Hangup:
    """Instead of an answer: close the connection (what Kafka does where a protocol has no place for the error)."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why


# One frame in pieces to be written in order; None where the client wants no answer (acks=0).
Reply = bytes | Sequence[Buffer] | Hangup | None


@final
class LateReply:
    """A frame that is better made at the end of this turn of the loop, when others of its kind can share the work."""

    __slots__ = ("latency_ms", "make", "started")

    def __init__(self, make: Callable[[], bytes]) -> None:
        self.make = make
        # Set by server.dispatch: when the request came, and where the time it took is to be counted.
        self.started = 0.0
        self.latency_ms: Histogram | None = None


@final
class PendingReply:
    """A frame that is made when all it waits for is done, or its time is up; who asked to be told is told at once."""

    __slots__ = ("_callbacks", "_left", "_make", "deadline", "is_cancelled", "reply")

    def __init__(self, make: Callable[[], bytes], waits: int, deadline: float) -> None:
        self._make = make
        self._left = waits
        self.deadline = deadline  # on the broker's monotonic clock
        self._callbacks: list[Callable[[], None]] = []
        self.reply: Reply = None
        self.is_cancelled = False

    @property
    def is_done(self) -> bool:
        return self._left <= 0

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """To be told once; only before it is done."""
        self._callbacks.append(callback)

    def one_done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._finish()

    def time_is_up(self) -> None:
        if self._left > 0:
            self._left = 0
            self._finish()

    def cancel(self) -> None:
        """Nobody is there to hear it any more."""
        self.is_cancelled = True
        self.time_is_up()

    def _finish(self) -> None:
        if not self.is_cancelled:
            try:
                self.reply = self._make()
            except Exception as error:
                # Others wait for the same thing, and are answered all the same.
                logger.exception("an answer could not be made")
                self.reply = Hangup(f"a request failed: {error!r}")
        for callback in self._callbacks:
            callback()

    async def wait(self) -> Reply:
        if not self.is_done:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.add_done_callback(lambda: None if done.done() else done.set_result(None))
            await done
        return self.reply


Answer = Reply | LateReply | PendingReply | asyncio.Future[Reply]
LATER = (PendingReply, asyncio.Future)


async def made(answer: Answer) -> Reply:
    """The reply itself, for a handler that waits for it."""
    if isinstance(answer, LateReply):
        return answer.make()
    if isinstance(answer, PendingReply):
        return await answer.wait()
    return await answer if isinstance(answer, asyncio.Future) else answer
