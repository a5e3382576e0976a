"""Producers that wait until their batches are safe: all who wait for the same sync are answered by one callback.

Called by handlers.produce. A request is answered when the last of its waits is done, or when its own time is up.
One timer for all of them, at the earliest deadline there has been: it goes off now and then, and rarely finds anybody.
"""

import asyncio
import math

from penstock.clock import Clock
from penstock.handlers.answers import PendingReply

Wait = asyncio.Future[None]


class ProduceWaits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[Wait, list[PendingReply]] = {}
        self._look_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def add(self, wait: Wait, reply: PendingReply) -> None:
        waiting = self._waiting.get(wait)
        if waiting is None:
            self._waiting[wait] = [reply]
            wait.add_done_callback(self._done)
        else:
            waiting.append(reply)
        if reply.deadline < self._look_at:
            self._arm(reply.deadline)

    def _done(self, wait: Wait) -> None:
        for reply in self._waiting.pop(wait):
            reply.one_done()

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = deadline
        left_s = max(0.0, deadline - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(left_s, self._look)

    def _look(self) -> None:
        now = max(self._look_at, self._clock.monotonic())
        self._look_at, self._timer = math.inf, None
        for reply in [each for replies in self._waiting.values() for each in replies]:
            if reply.deadline <= now:
                reply.time_is_up()
        deadline = math.inf
        for replies in self._waiting.values():
            # What they wait for may never come, and they need not be remembered until then.
            replies[:] = [each for each in replies if not each.is_done]
            deadline = min(deadline, *(each.deadline for each in replies), math.inf)
        if deadline < self._look_at:
            self._arm(deadline)
