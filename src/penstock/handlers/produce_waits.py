"""Producers that wait until their batches are safe: all who wait for the same sync are answered by one callback.

Called by handlers.produce. A request is answered when the last of its waits is done, or when its own time is up.
One timer for all who wait for the same thing, at the earliest of their deadlines.
"""

import asyncio
import math

from penstock.clock import Clock
from penstock.handlers.answers import PendingReply

Wait = asyncio.Future[None]


class _Group:
    __slots__ = ("deadline", "members", "timer")

    def __init__(self) -> None:
        self.members: list[PendingReply] = []
        self.deadline = math.inf
        self.timer: asyncio.TimerHandle | None = None


class ProduceWaits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[Wait, _Group] = {}

    @property
    def is_empty(self) -> bool:
        return not self._groups

    def add(self, wait: Wait, answer: PendingReply) -> None:
        group = self._groups.get(wait)
        if group is None:
            group = self._groups[wait] = _Group()
            wait.add_done_callback(self._done)
        group.members.append(answer)
        if answer.deadline < group.deadline:
            self._arm(wait, group, answer.deadline)

    def _arm(self, wait: Wait, group: _Group, deadline: float) -> None:
        if group.timer is not None:
            group.timer.cancel()
        group.deadline = deadline
        left_s = max(0.0, deadline - self._clock.monotonic())
        group.timer = asyncio.get_running_loop().call_later(left_s, self._time_is_up, wait)

    def _done(self, wait: Wait) -> None:
        group = self._groups.pop(wait)
        if group.timer is not None:
            group.timer.cancel()
        for answer in group.members:
            answer.one_done()

    def _time_is_up(self, wait: Wait) -> None:
        group = self._groups.get(wait)
        if group is None:
            return
        group.timer = None
        now = group.deadline
        for answer in group.members:
            if answer.deadline <= now:
                answer.time_is_up()
        group.members = [answer for answer in group.members if not answer.is_done]
        group.deadline = math.inf
        if group.members:
            self._arm(wait, group, min(answer.deadline for answer in group.members))
