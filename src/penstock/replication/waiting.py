"""Fetches that wait for more data, by partition: an append wakes exactly those that it may satisfy.

Called by handlers.fetch (wait) and replication.partition (every append). For a committed reader what is appended behind
an open transaction has not come yet; it comes when the last stable offset moves.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol


class WaitingList(Protocol):
    """Where a partition keeps the fetches that wait for it."""

    waiting: "set[FetchWait]"


class WaitingPlace:
    """A list of its own for those who wait for something else of a partition."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: set[FetchWait] = set()


class FetchWait:
    """One fetch that found fewer bytes than it asked for; done when enough came, or when it is called off."""

    __slots__ = ("_bytes_missing", "_places", "done", "is_committed")

    def __init__(self, bytes_missing: int, places: Iterable[WaitingList], *, is_committed: bool = False) -> None:
        self._bytes_missing = bytes_missing
        self.is_committed = is_committed
        self._places = tuple(places)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for place in self._places:
            place.waiting.add(self)

    def appended(self, size: int) -> None:
        self._bytes_missing -= size
        if self._bytes_missing <= 0:
            self.end()

    def end(self) -> None:
        """Let the fetch go on: enough data, its time is up, or a partition it reads is gone."""
        if not self.done.done():
            self.done.set_result(None)
        for place in self._places:
            place.waiting.discard(self)
