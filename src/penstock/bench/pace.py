"""When each message of a fixed rate is due, counted from the start and never from the message before it.

Called by bench.sending. A sender that was held up owes all that fell due meanwhile, and each is measured from when it
was due: a broker that stops for a second is seen by every message of that second, not by the one that met it
(no coordinated omission).

Messages fall due together, a thousand times a second: a sleeping thread does not wake more exactly than that.
"""

from dataclasses import dataclass

TICKS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class Pace:
    rate_per_s: int
    began_s: float

    def due_s(self, number: int) -> float:
        """When message `number`, counted from 0, is due."""
        return self.began_s + number * TICKS_PER_S // self.rate_per_s / TICKS_PER_S

    def due_count(self, now_s: float) -> int:
        """How many messages are due by now."""
        ticks = int((now_s - self.began_s) * TICKS_PER_S) + 1
        return max(0, -(-ticks * self.rate_per_s // TICKS_PER_S))
