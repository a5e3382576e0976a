"""Time and chance, behind small interfaces so that a cluster can run on virtual time from a seed.

Called by everything that reads a clock or needs a random number; nothing else may import `time` or `random`.
"""

import random
import time
from typing import Protocol
from uuid import UUID


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; for deadlines and durations."""
        ...


class SystemClock:
    # Not a method of our own: it is read several times for every request.
    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Rng:
    """Chance from one seed, or from the system when none is given."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed) if seed is not None else random.SystemRandom()

    def uuid(self) -> UUID:
        """A random (version 4) UUID whose text never starts with a dash, as Kafka's topic ids never do."""
        while True:
            value = UUID(int=self._random.getrandbits(128), version=4)
            # A base64 topic id that starts with "-" would be read as an option by command lines.
            if value.bytes[0] >> 2 != 62:
                return value

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)
