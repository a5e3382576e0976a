"""How long, and how often, something that fails is tried again.

Used by fetching.cluster and fetching.partition_fetcher. A wait can be cut short by an Event, so that closing is prompt.
"""

import random
import threading
import time

_FIRST_PAUSE_S = 0.05
PAUSE_MAX_S = 1.0


class Patience:
    """From `begin` on until the deadline; `pause` waits a little longer each time, with jitter so that tasks part."""

    def __init__(self, limit_s: float, is_over: threading.Event | None = None) -> None:
        self.limit_s = limit_s
        self._is_over = is_over or threading.Event()
        self.begin()

    def begin(self) -> None:
        """All went well: count anew."""
        self._began = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def left_s(self) -> float:
        return max(0.0, self.limit_s - self.spent_s)

    @property
    def is_spent(self) -> bool:
        return self.spent_s >= self.limit_s

    def pause(self) -> None:
        # Somewhere between half of the pause and all of it; never past the deadline.
        self._is_over.wait(min(self._pause_s * random.uniform(0.5, 1.0), self.left_s))
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)
