"""The gateway's one producer: records in from the event loop, delivery reports back to it in bulk.

Called by gateway.kafka, which owns it.
Laws:
- A report costs the loop nothing by itself: librdkafka's thread counts a request's records down, puts the request into
  a deque when none is left, and wakes the loop once for all that lie there.
- A request is taken as a whole or refused as a whole (Busy): half of it is never sent because a queue was full.
- Records and bytes under way are bounded, whether the cluster answers or not.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from penstock.gateway.errors import Busy, KafkaFailed

log = logging.getLogger(__name__)

POLL_S = 0.1
CLOSE_S = 5.0
ANY_PARTITION = -1

Headers = Sequence[tuple[str, bytes | None]]


class Outgoing(NamedTuple):
    """One record to be sent; `partition` None lets the key choose, as Java's clients do. `timestamp_ms` 0: now."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Headers = ()
    timestamp_ms: int = 0

    @property
    def size(self) -> int:
        # What librdkafka keeps beside the bytes themselves is counted roughly.
        return 100 + len(self.value or b"") + len(self.key or b"")


class Delivered(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int


Outcome = Delivered | KafkaFailed


class _Request:
    """Records that are answered together."""

    __slots__ = ("bytes", "future", "left", "outcomes")

    def __init__(self, count: int, size: int, future: "asyncio.Future[list[Outcome]]") -> None:
        self.outcomes: list[Any] = [None] * count
        self.left = count
        self.bytes = size
        self.future = future


class BulkProducer:
    def __init__(
        self,
        make: Callable[[Mapping[str, Any]], Any],
        *,
        records_max: int,
        bytes_max: int,
        delivery_timeout_s: float,
    ) -> None:
        """`make` gives a librdkafka Producer for settings."""
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._producer: Any = make(
            {
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 3,
                # As Java's producers choose, so that a key has one partition whoever sends it.
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": records_max,
                "queue.buffering.max.kbytes": bytes_max // 1024,
                "message.timeout.ms": int(delivery_timeout_s * 1000),
                # Beyond librdkafka's default, for topics that allow more: the broker is to say what is too large.
                "message.max.bytes": max(1_000_000, min(bytes_max, 1_000_000_000)),
                "compression.type": "lz4",
            }
        )
        self._done: deque[_Request] = deque()
        self._counting = threading.Lock()
        self._is_woken = False
        self._is_closing = False
        self._records = self._bytes = 0
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._poll, name="gateway-deliveries", daemon=True)
        self._thread.start()

    @property
    def records_under_way(self) -> int:
        return self._records

    @property
    def bytes_under_way(self) -> int:
        return self._bytes

    def send(self, topic: str, records: Sequence[Outgoing]) -> "asyncio.Future[list[Outcome]]":
        """All records at once; the future gives what became of each, in order. Raises Busy before any is sent."""
        count, size = len(records), sum([record.size for record in records])
        if self._records + count > self._records_max or self._bytes + size > self._bytes_max:
            raise Busy(
                f"{self._records} records ({self._bytes} bytes) wait to be sent, no more are kept: try again later"
            )
        if self._is_closing:
            raise Busy("the gateway is stopping: send to another one, or try again later")
        request = _Request(count, size, self._loop.create_future())
        if not count:
            request.future.set_result([])
            return request.future
        self._records += count
        self._bytes += size
        produce, report, refused = self._producer.produce, self._report, 0
        for place, record in enumerate(records):
            options: dict[str, Any] = {"headers": list(record.headers)} if record.headers else {}
            try:
                produce(
                    topic,
                    record.value,
                    record.key,
                    ANY_PARTITION if record.partition is None else record.partition,
                    partial(report, request, place),
                    timestamp=record.timestamp_ms,
                    **options,
                )
            except BufferError:
                request.outcomes[place] = KafkaFailed(-184, "_QUEUE_FULL", "librdkafka's queue is full", True)
                refused += 1
            except Exception as error:
                # What librdkafka will not take at all: a topic's name, a size.
                request.outcomes[place] = KafkaFailed.of(error)
                refused += 1
        if refused and self._count_down(request, refused):
            self._loop.call_soon(self._hand_over)
        return request.future

    async def close(self) -> None:
        """What is under way may still arrive; what does not within a few seconds has failed."""
        self._is_closing = True
        await asyncio.to_thread(self._thread.join)
        left = await asyncio.to_thread(self._producer.flush, CLOSE_S)
        if left:
            log.warning("%d records were not delivered before the gateway stopped", left)
            await asyncio.to_thread(self._producer.purge)
            await asyncio.to_thread(self._producer.flush, 1)
        self._hand_over()

    # In librdkafka's thread

    def _poll(self) -> None:
        while not self._is_closing:
            self._producer.poll(POLL_S)

    def _report(self, request: _Request, place: int, error: Any, message: Any) -> None:
        if error is not None:
            request.outcomes[place] = KafkaFailed.of(error)
        else:
            request.outcomes[place] = Delivered(message.partition(), message.offset(), message.timestamp()[1])
        if not self._count_down(request, 1):
            return
        # Read and set without a lock: at worst the loop is woken twice. It clears the flag before it looks.
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._hand_over)
            except RuntimeError:
                return  # the loop has ended: nobody waits any more

    def _count_down(self, request: _Request, by: int) -> bool:
        """Whether those were the last. Called by the loop too, for what librdkafka refused: hence the lock."""
        with self._counting:
            request.left -= by
            is_complete = not request.left
        if is_complete:
            self._done.append(request)
        return is_complete

    # In the loop

    def _hand_over(self) -> None:
        self._is_woken = False
        while self._done:
            request = self._done.popleft()
            self._records -= len(request.outcomes)
            self._bytes -= request.bytes
            if not request.future.done():
                request.future.set_result(request.outcomes)
