"""Until when a consumer group waits for each member, and for what. Numbers only: the coordinator holds the timer.

Called by groups.consumer_group and groups.classic_members.
"""

from enum import Enum, auto


class Awaited(Enum):
    HEARTBEAT = auto()
    REVOCATION = auto()  # that it gives back what the target takes from it
    JOIN = auto()  # that a classic member joins again, since there is a new target
    SYNC = auto()  # that a classic member fetches what it was assigned


class Deadlines:
    __slots__ = ("_by_member", "_none_before_ms")

    def __init__(self) -> None:
        self._by_member: dict[str, dict[Awaited, int]] = {}
        # A heartbeat moves one deadline; looking at those of all members for the next would cost more than the rest.
        self._none_before_ms: int | None = None

    def set(self, member_id: str, awaited: Awaited, at_ms: int) -> None:
        self._by_member.setdefault(member_id, {})[awaited] = at_ms
        if self._none_before_ms is None or at_ms < self._none_before_ms:
            self._none_before_ms = at_ms

    def set_if_none(self, member_id: str, awaited: Awaited, at_ms: int) -> None:
        if awaited not in self._by_member.get(member_id, ()):
            self.set(member_id, awaited, at_ms)

    def met(self, member_id: str, awaited: Awaited) -> None:
        self._by_member.get(member_id, {}).pop(awaited, None)

    def forget(self, member_id: str) -> None:
        self._by_member.pop(member_id, None)

    def missed(self, now_ms: int) -> list[tuple[str, Awaited]]:
        """A member at most once, with the first of what it missed. The caller sees to it that they are forgotten."""
        missed: list[tuple[str, Awaited]] = []
        self._none_before_ms = None
        for member_id, deadlines in self._by_member.items():
            late = [awaited for awaited, at_ms in deadlines.items() if at_ms <= now_ms]
            if late:
                missed.append((member_id, late[0]))
            elif deadlines:
                first_ms = min(deadlines.values())
                if self._none_before_ms is None or first_ms < self._none_before_ms:
                    self._none_before_ms = first_ms
        return missed

    def next_ms(self) -> int | None:
        """When to look again at the latest; there may be nothing due then."""
        return self._none_before_ms if self._by_member else None
