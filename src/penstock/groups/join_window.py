"""How long a rebalancing group waits for its members to join.

Called by groups.classic_group. The first rebalance of an empty group waits a little though everybody known has joined:
more members tend to follow the first within moments, and each rebalance spared is a pause spared.
"""

from penstock.coordination import Now


class JoinWindow:
    __slots__ = ("_delay_ms", "_joined_since", "_remaining_ms", "deadline_ms", "is_initial")

    def __init__(self, initial_delay_ms: int) -> None:
        self._delay_ms = initial_delay_ms
        self._remaining_ms = 0
        self._joined_since = False
        self.is_initial = False
        self.deadline_ms: int | None = None

    def open_initial(self, rebalance_timeout_ms: int, now: Now) -> None:
        self.is_initial = True
        self._joined_since = False
        self._remaining_ms = max(rebalance_timeout_ms - self._delay_ms, 0)
        self.deadline_ms = now.steady_ms + self._delay_ms

    def open(self, rebalance_timeout_ms: int, now: Now) -> None:
        self.is_initial = False
        self.deadline_ms = now.steady_ms + rebalance_timeout_ms

    def somebody_joined(self) -> None:
        self._joined_since = True

    def is_over(self, now: Now) -> bool:
        """At its deadline an initial window is open for longer if somebody came, up to the rebalance time-out."""
        if self.deadline_ms is None or now.steady_ms < self.deadline_ms:
            return False
        if not (self.is_initial and self._joined_since and self._remaining_ms > 0):
            return True
        self._joined_since = False
        longer_ms = min(self._delay_ms, self._remaining_ms)
        self._remaining_ms -= longer_ms
        self.deadline_ms = now.steady_ms + longer_ms
        return False

    def close(self) -> None:
        self.is_initial = False
        self.deadline_ms = None
