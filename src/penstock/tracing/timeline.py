"""Durations on the monotonic clock, shown as times of day: all spans of one request share one point where the two meet.

Made by tracing.tracer, one for each request that is traced. So no span ends before it begins, whatever is done to the
wall clock.
"""

from penstock.clock import Clock


class Timeline:
    __slots__ = ("_epoch_ns", "now", "started")

    def __init__(self, clock: Clock, started: float) -> None:
        self.now = clock.monotonic
        self.started = started
        self._epoch_ns = clock.now_ms() * 1_000_000 - int(clock.monotonic() * 1e9)

    def ns(self, moment: float) -> int:
        """A moment of the monotonic clock, in nanoseconds since 1970."""
        return self._epoch_ns + int(moment * 1e9)
