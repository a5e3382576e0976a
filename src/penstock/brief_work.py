"""Work that is done sooner than a thread could be asked to do it: a sync, on a disk that is quick.

Called by disk.RealDisk. The way to a thread and back costs as much processor time as the sync, and on few cores two
waits for the scheduler, milliseconds at times. So a sync runs on the event loop while that harms nobody: nobody else
asks for the loop, no other sync is under way, and the disk has been quick. After one that was not, all of them go to
threads for a while: of a disk that stalls the loop sees a small part.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from penstock.clock import Clock

T = TypeVar("T")

QUICK_S = 0.0005
REST_PER_SLOW_S = 20  # as many times as long as the slow one took


class BriefWork:
    """Decides where each piece of work runs. Called on the loop, except for `timed`."""

    __slots__ = ("_is_turn_taken", "_monotonic", "_rest_until")

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._rest_until = 0.0
        self._is_turn_taken = False

    def may_run_here(self) -> bool:
        """One in each turn of the loop: where several logs want theirs, threads do them side by side."""
        return not self._is_turn_taken and self._monotonic() >= self._rest_until

    def run_here(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        self._is_turn_taken = True
        loop.call_soon(self._end_turn)
        done: asyncio.Future[T] = loop.create_future()
        try:
            done.set_result(self.timed(work))
        except Exception as error:  # an interrupt is the loop's, and ends it
            done.set_exception(error)
        return done

    def timed(self, work: Callable[[], T]) -> T:
        """Also on a thread: a disk that was slow there would be slow here."""
        began = self._monotonic()
        try:
            return work()
        finally:
            ended = self._monotonic()
            if ended - began > QUICK_S:
                self._rest_until = ended + REST_PER_SLOW_S * (ended - began)

    def _end_turn(self) -> None:
        self._is_turn_taken = False
