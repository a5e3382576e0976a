"""Reads a topic as fast as it comes, and counts.

Called by cli.bench. The time to join a group is told apart: a rate is of reading alone, as kafka-consumer-perf-test's
fetch columns are.
Ends at its limit, at the end of the topic when it has none, at a stop, or when nothing came for `idle_s`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from penstock.admin.failures import explain
from penstock.bench.result import Measurement
from penstock.bench.sending import Limit
from penstock.bench.stopping import Stop
from penstock.clock import Clock, SystemClock

_LOOK_S = 0.1
_AT_ONCE = 1000


class Receiver:
    def __init__(
        self, consumer: Any, stop: Stop, observe: Callable[[], None], idle_s: float, clock: Clock | None = None
    ) -> None:
        self._consumer = consumer
        self._stop = stop
        self._observe = observe
        self._idle_s = idle_s
        self._clock = clock or SystemClock()
        self._at_end: set[tuple[str, int]] = set()
        self._assigned_s: float | None = None

    def subscribe(self, topic: str) -> None:
        """As a member of a group: what it gets is known when it has joined."""

        def assigned(_consumer: Any, _partitions: Iterable[Any]) -> None:
            self._assigned_s = self._assigned_s or self._clock.monotonic()

        def revoked(_consumer: Any, partitions: Iterable[Any]) -> None:
            self._at_end -= {(one.topic, one.partition) for one in partitions}

        self._consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)

    def assign(self, starts: list[Any]) -> None:
        self._consumer.assign(starts)
        self._assigned_s = self._clock.monotonic()

    def run(self, limit: Limit | None, found: Measurement) -> bool:
        """Read; whether it came to its end, and not to `idle_s` without a message. `found` grows meanwhile."""
        asked_s = self._clock.monotonic()
        began = self._assigned_s
        last = asked_s
        while not self._stop.is_wanted:
            events = self._take(_AT_ONCE if limit is None else _room(limit, found))
            now = self._clock.monotonic()
            if began is None and self._assigned_s is not None:
                began = last = self._assigned_s
                found.join_s = began - asked_s
            came = self._count(events, found)
            last = now if came else last
            # Time at the end without messages is not time of reading.
            found.elapsed_s = (now if limit is not None else last) - (began or now)
            self._observe()
            if limit is None and self._is_all_at_end():
                return True
            if limit is not None and began is not None and limit.is_reached(found.messages, now - began):
                return True
            if now - last >= self._idle_s:
                return False
        return True

    def _take(self, wanted: int) -> list[Any]:
        """Wait for one message and take what has come with it: neither a call for each nor a wait for more."""
        first = self._consumer.poll(_LOOK_S)
        if first is None:
            return []
        return [first, *self._consumer.consume(wanted - 1, 0)] if wanted > 1 else [first]

    def _count(self, events: list[Any], found: Measurement) -> int:
        came = 0
        size = 0
        for event in events:
            error = event.error()
            if error is None:
                came += 1
                size += len(event)
            elif error.name() == "_PARTITION_EOF":
                self._at_end.add((event.topic(), event.partition()))
            elif error.fatal() or not error.retriable():
                raise explain(error, "reading")
        found.messages += came
        found.received_bytes += size
        return came

    def _is_all_at_end(self) -> bool:
        assigned = {(one.topic, one.partition) for one in self._consumer.assignment()}
        return bool(assigned) and assigned <= self._at_end


def _room(limit: Limit, found: Measurement) -> int:
    return _AT_ONCE if limit.messages is None else min(_AT_ONCE, limit.messages - found.messages)
