"""Sends messages as fast as they are taken, or at a fixed rate, and measures each until its acknowledgement.

Called by cli.bench and bench.round_trip. A run ends when all that was sent was answered, so that its rate is of
acknowledged messages.
Laws:
- At a fixed rate a message is measured from when it was due (bench.pace), otherwise from when it was offered.
- At a fixed rate acknowledgements come in a thread of their own, so that none waits while this one sleeps; flat out
  they are taken between two bursts, since two threads would only take turns.
- Only one thread at a time takes acknowledgements: the histogram has no lock.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock.admin.failures import explain
from penstock.bench.histogram import Histogram
from penstock.bench.pace import Pace
from penstock.bench.result import Measurement
from penstock.bench.stopping import Stop
from penstock.clock import Clock, SystemClock

LATENCY = "latency"
# Messages offered together share the moment they are measured from; fifty are offered in a tenth of a millisecond.
_BURST = 50
# A stop, the end of a run and the progress are looked at so often at least.
_LOOK_S = 0.1
_ROOM_S = 0.001


@dataclass(frozen=True, slots=True)
class Limit:
    """Whichever comes first; at least one of them."""

    messages: int | None
    seconds: float | None

    def is_reached(self, messages: int, elapsed_s: float) -> bool:
        return (self.messages is not None and messages >= self.messages) or (
            self.seconds is not None and elapsed_s >= self.seconds
        )


class Sender:
    """`value` makes a message of the moment it is measured from; `observe` is told now and then that time passes."""

    def __init__(
        self,
        producer: Any,
        topic: str,
        value: Callable[[float], bytes],
        stop: Stop,
        observe: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        from confluent_kafka import KafkaException

        self._refusal: type[Exception] = KafkaException
        self._producer = producer
        self._topic = topic
        self._value = value
        self._stop = stop
        self._observe = observe
        self._clock = clock or SystemClock()
        self._polls_itself = True

    def run(self, rate_per_s: int | None, limit: Limit, found: Measurement) -> int:
        """Send until the limit or a stop, wait for all answers; gives how many were sent. `found` grows meanwhile."""
        histogram = found.histograms.setdefault(LATENCY, Histogram())
        began = self._clock.monotonic()

        def look() -> float:
            found.messages, found.elapsed_s = histogram.count, self._clock.monotonic() - began
            found.received_bytes = found.messages * found.size_bytes
            self._observe()
            return found.elapsed_s

        if rate_per_s is None:
            sent = self._send_flat_out(limit, found, look)
        else:
            with self._acknowledgements():
                sent = self._send_at(Pace(rate_per_s, began), limit, found, look)
        # librdkafka gives up by itself after message.timeout.ms, and then says so for each message.
        flushing_s = self._clock.monotonic()
        while self._producer.flush(_LOOK_S):
            look()
        found.waited_s += self._clock.monotonic() - flushing_s
        look()
        return sent

    def _send_flat_out(self, limit: Limit, found: Measurement, look: Callable[[], float]) -> int:
        sent = 0
        elapsed_s = 0.0
        while not self._stop.is_wanted and not limit.is_reached(sent, elapsed_s):
            now = self._clock.monotonic()
            acknowledged = self._measure_from(now, found)
            burst = _BURST if limit.messages is None else min(_BURST, limit.messages - sent)
            for _ in range(burst):
                sent += 1
                # After a wait the others of this burst are measured from a moment of their own.
                if self._offer(now, acknowledged, found):
                    break
            self._producer.poll(0)
            elapsed_s = look()
        return sent

    def _send_at(self, pace: Pace, limit: Limit, found: Measurement, look: Callable[[], float]) -> int:
        sent = 0
        elapsed_s = 0.0
        due_s = -1.0
        acknowledged: Callable[[Any, Any], None] | None = None
        while not self._stop.is_wanted and not limit.is_reached(sent, elapsed_s):
            due = pace.due_count(self._clock.monotonic())
            # A burst at most: far behind its rate, the sender still looks whether it should stop.
            for _ in range(min(due - sent, _BURST)):
                if limit.messages is not None and sent >= limit.messages:
                    break
                if acknowledged is None or pace.due_s(sent) != due_s:
                    due_s = pace.due_s(sent)
                    acknowledged = self._measure_from(due_s, found)
                self._offer(due_s, acknowledged, found)
                sent += 1
            elapsed_s = look()
            left_s = pace.due_s(sent) - self._clock.monotonic()
            if left_s > 0:
                time.sleep(min(left_s, _LOOK_S))
        found.behind_s = max(0.0, self._clock.monotonic() - pace.due_s(sent))
        return sent

    def _offer(self, since_s: float, acknowledged: Callable[[Any, Any], None], found: Measurement) -> bool:
        """Hand one message to librdkafka, and wait while it has no room; whether it had to wait."""
        value = self._value(since_s)
        began: float | None = None
        while True:
            try:
                self._producer.produce(self._topic, value, on_delivery=acknowledged)
            except BufferError:
                began = began or self._clock.monotonic()
                if self._polls_itself:
                    self._producer.poll(_LOOK_S)
                else:
                    time.sleep(_ROOM_S)
            except self._refusal as error:
                raise explain(error, f"sending to {self._topic}") from None
            else:
                if began is None:
                    return False
                found.waited_s += self._clock.monotonic() - began
                return True

    def _measure_from(self, since_s: float, found: Measurement) -> Callable[[Any, Any], None]:
        """What librdkafka calls with the fate of each message that is measured from this moment."""
        monotonic, record = self._clock.monotonic, found.histograms[LATENCY].record

        def acknowledged(error: Any, _: Any) -> None:
            if error is None:
                record(int((monotonic() - since_s) * 1_000_000))
            else:
                found.failed += 1
                found.first_error = found.first_error or error

        return acknowledged

    @contextmanager
    def _acknowledgements(self) -> Generator[None]:
        """Takes acknowledgements as they come, until the end of the block."""
        is_over = threading.Event()

        def take() -> None:
            while not is_over.is_set():
                self._producer.poll(_LOOK_S)

        taking = threading.Thread(target=take, name="acknowledgements", daemon=True)
        self._polls_itself = False
        taking.start()
        try:
            yield
        finally:
            is_over.set()
            taking.join()
            self._polls_itself = True
