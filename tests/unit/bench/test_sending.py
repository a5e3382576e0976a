"""The sender against a producer that is told how to behave, on a clock of the test's own."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from penstock.bench.result import Measurement
from penstock.bench.sending import LATENCY, Limit, Sender
from penstock.bench.stopping import Stop

TICK_S = 0.0005


class SteppingClock:
    """Half a millisecond later each time it is read."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        self.now_s += TICK_S
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


class ScriptedProducer:
    """Has room for `room` messages and answers them when polled, or all at once without room for any.

    `on_produce` sees each message first.
    """

    def __init__(self, room: int = 10_000, on_produce: Callable[[int], Any] = lambda _: None) -> None:
        self.sent: list[bytes] = []
        self._room = room
        self._on_produce = on_produce
        self._waiting: deque[tuple[Any, Any]] = deque()

    def produce(self, _topic: str, value: bytes, on_delivery: Callable[[Any, Any], None]) -> None:
        if len(self._waiting) >= self._room > 0:
            raise BufferError
        self.sent.append(value)
        error = self._on_produce(len(self.sent))
        if self._room == 0:
            on_delivery(error, None)
        else:
            self._waiting.append((on_delivery, error))

    def poll(self, timeout_s: float) -> None:
        if not self._waiting and timeout_s:
            threading.Event().wait(0.001)  # as librdkafka does: it does not spin
        while self._waiting:
            on_delivery, error = self._waiting.popleft()
            on_delivery(error, None)

    def flush(self, timeout_s: float) -> int:
        self.poll(0)
        return 0


def run(producer: ScriptedProducer, rate: int | None, limit: Limit, clock: SteppingClock, stop: Stop) -> Measurement:
    found = Measurement(size_bytes=4)
    observed: list[int] = []
    sender = Sender(producer, "t", lambda _: b"abcd", stop, lambda: observed.append(found.messages), clock)
    assert sender.run(rate, limit, found) == len(producer.sent)
    assert observed[-1] == found.messages
    assert found.received_bytes == 4 * found.messages
    return found


def test_a_pause_is_felt_by_all_messages_that_fell_due_in_it_not_only_by_the_one_that_met_it() -> None:
    clock = SteppingClock()

    def pause(number: int) -> None:
        clock.now_s += 1.0 if number == 10 else 0.0

    # Answered at once, so that nothing takes any time but the pause.
    found = run(ScriptedProducer(room=0, on_produce=pause), 1000, Limit(1000, None), clock, Stop())
    histogram = found.histograms[LATENCY]
    assert histogram.count == 1000
    assert 1_000_000 <= histogram.max_us < 1_100_000
    # Measured from when each was sent, only one in a thousand would have waited at all.
    half_us = histogram.percentile_us(0.5)
    assert half_us is not None
    assert 250_000 < half_us < 1_000_000


def test_a_full_queue_is_waited_for_and_every_message_is_sent_once() -> None:
    producer = ScriptedProducer(room=7)
    found = run(producer, None, Limit(333, None), SteppingClock(), Stop())
    assert (found.messages, len(producer.sent), found.failed) == (333, 333, 0)
    assert found.waited_s > 0
    assert not found.is_client_limited(1000)


def test_who_never_waits_was_the_limit_itself() -> None:
    found = run(ScriptedProducer(), None, Limit(None, 1.0), SteppingClock(), Stop())
    assert found.is_client_limited(None)
    assert found.elapsed_s >= 1.0


def test_failures_are_counted_apart_and_the_first_is_kept() -> None:
    producer = ScriptedProducer(on_produce=lambda number: f"error {number}" if number % 10 == 0 else None)
    found = run(producer, None, Limit(100, None), SteppingClock(), Stop())
    assert (found.messages, found.failed, found.first_error) == (90, 10, "error 10")


@pytest.mark.parametrize("rate", [None, 500])
def test_a_stop_ends_it_and_what_was_sent_is_still_counted(rate: int | None) -> None:
    stop = Stop()

    def wish(number: int) -> None:
        stop.is_wanted = number >= 60

    producer = ScriptedProducer(on_produce=wish)
    found = run(producer, rate, Limit(1_000_000, None), SteppingClock(), stop)
    assert 60 <= found.messages == len(producer.sent) <= 110


def test_a_rate_beyond_what_is_taken_ends_in_time_and_says_how_far_it_is_behind() -> None:
    clock = SteppingClock()

    def slow(_: int) -> None:
        clock.now_s += 0.01

    found = run(ScriptedProducer(on_produce=slow), 1000, Limit(None, 2.0), clock, Stop())
    assert found.messages < 250
    assert found.is_behind
    assert found.document()["behind_s"] > 1.5
