"""From the loop to the collector: a queue with an end, and the one thread that empties it.

Made by tracing.tracer. The loop only ever appends; all that takes time or can fail happens on the thread.
Laws:
- `put` never waits. A full queue drops what is new, and what could not be delivered is gone; both are counted.
- The thread outlives any failure of the exporter, and ends with `close` or with the process.
- `close` takes no longer than its deadline, whether the collector answers or not.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from penstock.tracing.span import Span

logger = logging.getLogger(__name__)

QUEUE_SPANS_MAX = 4_096
EXPORT_SPANS_MAX = 64  # at once: the interpreter is kept from the loop while they are encoded
EXPORT_EVERY_S = 1.0
CLOSE_DEADLINE_S = 2.0


class Exporter(Protocol):
    """OpenTelemetry's, or a test's."""

    def export(self, spans: Sequence[Span]) -> bool:
        """Deliver them; False if they are lost. Called on the sender's thread alone."""
        ...

    def close(self) -> None:
        """Give up what is under way. Called on any thread."""
        ...


class SpanSender:
    def __init__(self, exporter: Exporter, name: str) -> None:
        """`name`: of the collector, for the log."""
        self._exporter = exporter
        self._name = name
        self._queue: deque[Span] = deque()
        self._wake = threading.Event()
        self._is_stopping = False
        self._is_failing = False
        # Each is written by one thread alone, so that no count is lost between the two.
        self._not_taken = 0
        self._not_delivered = 0
        self.delivered = 0
        self._thread = threading.Thread(target=self._run, name="penstock-traces", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._not_taken + self._not_delivered

    def put(self, span: Span) -> None:
        queue = self._queue
        if len(queue) >= QUEUE_SPANS_MAX:
            self._not_taken += 1
            return
        queue.append(span)
        if len(queue) == EXPORT_SPANS_MAX:
            self._wake.set()

    def close(self, deadline_s: float) -> None:
        """Send what is left, as far as the deadline lets it. Blocks: not for the loop."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join(deadline_s)
        self.abandon()

    def abandon(self) -> None:
        """Send nothing more. Does not wait for the thread, which may sit in a call of the exporter a little longer."""
        self._is_stopping = True
        self._queue.clear()
        self._wake.set()
        self._exporter.close()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(EXPORT_EVERY_S)
            self._wake.clear()
            # Read before the queue is: what was put before the stop was asked for is still sent.
            is_last = self._is_stopping
            while batch := self._next_batch():
                self._export(batch)

    def _next_batch(self) -> list[Span]:
        batch: list[Span] = []
        try:
            while len(batch) < EXPORT_SPANS_MAX:
                batch.append(self._queue.popleft())
        except IndexError:
            pass  # empty, or emptied by abandon() meanwhile
        return batch

    def _export(self, batch: Sequence[Span]) -> None:
        try:
            is_delivered = self._exporter.export(batch)
        except Exception as error:  # whatever an exporter raises, the thread goes on with the next spans
            logger.debug("spans could not be exported", exc_info=error)
            is_delivered = False
        if is_delivered:
            self.delivered += len(batch)
        else:
            self._not_delivered += len(batch)
        # Said once each way: a collector that is away for a day is not worth a line every second.
        if is_delivered and self._is_failing:
            logger.info("traces: %s takes spans again", self._name)
        elif not is_delivered and not self._is_failing and not self._is_stopping:
            logger.warning("traces: %s takes no spans; they are dropped and counted until it does", self._name)
        self._is_failing = not is_delivered
