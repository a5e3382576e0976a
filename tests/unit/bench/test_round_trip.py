"""The listener against a consumer that is told what to give."""

import queue
from collections.abc import Callable
from typing import Any

import pytest

from penstock.admin.failures import CommandFailed
from penstock.bench.round_trip import STAMP_BYTES, Listener, new_mark, stamped


class Clock:
    def monotonic(self) -> float:
        return 50.0

    def now_ms(self) -> int:
        return 50_000


class Error:
    def __init__(self, *, retriable: bool) -> None:
        self.retriable: Callable[[], bool] = lambda: retriable
        self.fatal: Callable[[], bool] = lambda: False
        self.name: Callable[[], str] = lambda: "TOPIC_AUTHORIZATION_FAILED"
        self.str: Callable[[], str] = lambda: "not allowed"


class Event:
    def __init__(self, value: bytes | None, error: Error | None = None) -> None:
        self.value: Callable[[], bytes | None] = lambda: value
        self.error: Callable[[], Error | None] = lambda: error


class ScriptedConsumer:
    def __init__(self) -> None:
        self.events: queue.Queue[Event] = queue.Queue()

    def poll(self, timeout_s: float) -> Event | None:
        try:
            return self.events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def consume(self, _limit: int, _timeout_s: float) -> list[Event]:
        return []


def filling() -> Any:
    return iter(lambda: b"x" * 100, None)


def test_only_messages_of_the_run_count_each_with_its_age() -> None:
    consumer = ScriptedConsumer()
    mine, other = new_mark(), new_mark()
    with Listener(consumer, Clock()) as listener:
        histogram = listener.expect(mine)
        for event in (
            Event(stamped(other, filling())(0.0)),
            Event(None),
            Event(mine),  # shorter than a stamp
            Event(None, Error(retriable=True)),
            Event(stamped(mine, filling())(49.75)),
            Event(stamped(mine, filling())(49.5)),
        ):
            consumer.events.put(event)
        assert listener.wait_for(2, histogram, 30, lambda: False) == 0
    assert (histogram.count, histogram.total_us, histogram.max_us) == (2, 750_000, 500_000)


def test_a_message_is_as_long_as_asked_for_stamp_and_all() -> None:
    assert len(stamped(new_mark(), filling())(1.0)) == 100
    assert len(stamped(new_mark(), iter(lambda: b"x" * STAMP_BYTES, None))(1.0)) == STAMP_BYTES


def test_what_does_not_come_is_counted_as_missing_and_a_stop_waits_for_none() -> None:
    with Listener(ScriptedConsumer()) as listener:
        histogram = listener.expect(new_mark())
        assert listener.wait_for(5, histogram, 0.01, lambda: False) == 5
        assert listener.wait_for(5, histogram, 600, lambda: True) == 5


def test_an_error_that_does_not_pass_is_a_sentence() -> None:
    consumer = ScriptedConsumer()
    with Listener(consumer) as listener:
        consumer.events.put(Event(None, Error(retriable=False)))
        with pytest.raises(CommandFailed, match="reading: not allowed"):
            listener.wait_for(1, listener.expect(new_mark()), 600, lambda: False)
