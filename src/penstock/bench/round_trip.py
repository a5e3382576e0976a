"""The other end of `penstock bench latency`: a consumer that measures how old each message is when it arrives.

Called by cli.bench. Each message carries the mark of its run and the moment it was due, by this process' own clock, so
no two clocks are compared; messages of others on the same topic are passed over. It reads in a thread beside the
sender's, from the offsets where the topic ended before the first message was sent.
"""

import os
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

from penstock.admin.failures import explain
from penstock.bench.histogram import Histogram
from penstock.clock import Clock, SystemClock

END_TO_END = "end_to_end"
_STAMP = struct.Struct(">8sd")
STAMP_BYTES = _STAMP.size
_LOOK_S = 0.1
_AT_ONCE = 500


def new_mark() -> bytes:
    return os.urandom(8)


def stamped(mark: bytes, filling: Iterator[bytes]) -> Callable[[float], bytes]:
    """Makes the messages of one run: the stamp, then what fills them up."""

    def value(due_s: float) -> bytes:
        return _STAMP.pack(mark, due_s) + next(filling)[STAMP_BYTES:]

    return value


class Listener:
    """with Listener(consumer) as listener:
    histogram = listener.expect(mark)
    """

    def __init__(self, consumer: Any, clock: Clock | None = None) -> None:
        self._consumer = consumer
        self._clock = clock or SystemClock()
        self._wanted: tuple[bytes, Histogram] = (b"", Histogram())
        self._is_over = threading.Event()
        self._arrival = threading.Condition()
        self._failure: Any = None
        self._listening = threading.Thread(target=self._listen, name="listener", daemon=True)

    def __enter__(self) -> "Listener":
        self._listening.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._listening.join()

    def expect(self, mark: bytes) -> Histogram:
        """Count messages with this mark from now on, and no others."""
        histogram = Histogram()
        self._wanted = (mark, histogram)
        return histogram

    def wait_for(self, count: int, histogram: Histogram, idle_s: float, is_stopped: Callable[[], bool]) -> int:
        """Until so many have arrived, or none for `idle_s`; gives how many are missing."""
        seen, last = -1, self._clock.monotonic()
        with self._arrival:
            while histogram.count < count and not is_stopped():
                now = self._clock.monotonic()
                if histogram.count > seen:
                    seen, last = histogram.count, now
                elif now - last >= idle_s:
                    break
                self._arrival.wait(_LOOK_S)
                self.check()
        return max(0, count - histogram.count)

    def check(self) -> None:
        if self._failure is not None:
            raise explain(self._failure, "reading")

    def _listen(self) -> None:
        while not self._is_over.is_set() and self._failure is None:
            first = self._consumer.poll(_LOOK_S)
            if first is None:
                continue
            for event in (first, *self._consumer.consume(_AT_ONCE, 0)):
                self._note(event)
            with self._arrival:
                self._arrival.notify_all()

    def _note(self, event: Any) -> None:
        error = event.error()
        if error is not None:
            if error.fatal() or not error.retriable():
                self._failure = error
            return
        now = self._clock.monotonic()
        mark, histogram = self._wanted
        value = event.value()
        if value is not None and len(value) >= STAMP_BYTES and value[: len(mark)] == mark:
            _, due_s = _STAMP.unpack_from(value)
            histogram.record(int((now - due_s) * 1_000_000))
