"""A librdkafka consumer on a thread of its own, awaited from the event loop.

Called by gateway.kafka, which makes them, and through it by REST, the streams and the console.
Laws:
- All calls of one consumer happen one after another, in its thread; none blocks the loop.
- What was fetched and not handed to anybody (the reader went away, or wanted fewer bytes) is handed out next.
- Offsets count as read only when they were handed out: `delivered` knows them, and commits use it.
- At most QUEUED_KIB of records wait in each consumer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from penstock.gateway.errors import KafkaFailed
from penstock.model import TopicPartition

T = TypeVar("T")

QUEUED_KIB = 4096
FETCH_BYTES = 1024 * 1024
# A poll is cut into pieces, so that closing never waits longer than one.
SLICE_S = 0.2
RECORDS_MAX = 1000
CLOSE_S = 10.0

BOUNDED: Mapping[str, Any] = {
    "queued.max.messages.kbytes": QUEUED_KIB,
    "queued.min.messages": 1000,
    "fetch.message.max.bytes": FETCH_BYTES,
    "fetch.wait.max.ms": 250,
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
    # Asking for a topic must never make it.
    "allow.auto.create.topics": False,
}


class AsyncConsumer:
    def __init__(self, make: Callable[[Mapping[str, Any]], Any], settings: Mapping[str, Any], name: str) -> None:
        """`make` gives a librdkafka Consumer for settings; raises KafkaFailed where they are wrong."""
        self._consumer: Any = make({**BOUNDED, **settings})
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: deque[Any] = deque()
        self._is_closed = False
        # Where the next record handed out of each partition would be.
        self.delivered: dict[TopicPartition, int] = {}
        # Kafka's errors that came in place of records, for whoever reads next.
        self.failure: KafkaFailed | None = None

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def run(self, call: Callable[[Any], T]) -> T:
        """Anything librdkafka's consumer can do, in its thread. Raises KafkaFailed."""
        if self._is_closed:
            raise KafkaFailed(-172, "_STATE", "the consumer is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, call)

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Names, or regular expressions where one starts with ^."""
        await self.run(lambda consumer: consumer.subscribe(list(topics), on_revoke=self._let_go, on_lost=self._let_go))

    async def unsubscribe(self) -> None:
        await self.run(lambda consumer: consumer.unsubscribe())
        self._forget_all()

    async def assign(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """These partitions and no others, each from an offset; None: from what is committed, else auto.offset.reset."""
        wanted = [_at(one, -1001 if offset is None else offset) for one, offset in offsets.items()]
        await self.run(lambda consumer: consumer.assign(wanted))
        self._forget_all()

    async def assignment(self) -> list[TopicPartition]:
        held = await self.run(lambda consumer: consumer.assignment())
        return sorted(TopicPartition(one.topic, one.partition) for one in held)

    async def seek(self, to: Mapping[TopicPartition, int]) -> None:
        """Offsets may be librdkafka's -2 (the beginning) and -1 (the end). Only of partitions that are assigned."""

        def move(consumer: Any) -> None:
            for one, offset in to.items():
                consumer.seek(_at(one, offset))

        await self.run(move)
        self._forget(to.keys())

    async def ends(self, partitions: Iterable[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        """Where each ends now. librdkafka's own "end" is where it ends when the first fetch happens to come."""
        wanted = list(partitions)

        def ask(consumer: Any) -> dict[TopicPartition, int]:
            return {one: consumer.get_watermark_offsets(_at(one), timeout=timeout_s)[1] for one in wanted}

        return await self.run(ask)

    async def poll(self, records_max: int, timeout_s: float, bytes_max: int | None = None) -> list[Any]:
        """Messages as soon as there are any, at most so many; empty when the time is over. Raises KafkaFailed."""
        records_max = min(records_max, RECORDS_MAX)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not self._waiting and self.failure is None:
            left_s = deadline - loop.time()
            slice_s = max(0.0, min(SLICE_S, left_s))
            fetching = asyncio.ensure_future(self.run(partial(_fetch, records_max, slice_s)))
            try:
                self._keep(await asyncio.shield(fetching))
            except asyncio.CancelledError:
                # The thread may have taken records already: they are for the next reader.
                fetching.add_done_callback(self._keep_late)
                raise
            if left_s <= 0:
                break
        if not self._waiting and self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return self._hand_out(records_max, bytes_max)

    def put_back(self, messages: Sequence[Any]) -> None:
        """They were handed out and could not be used: they come again, before all others."""
        self._waiting.extendleft(reversed(messages))
        for message in reversed(messages):
            self.delivered[TopicPartition(message.topic(), message.partition())] = message.offset()

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """These offsets (of the next records to read), or those of all that was handed out."""
        told = self.delivered if offsets is None else offsets
        if not told:
            return
        wanted = [_at(one, offset) for one, offset in told.items()]
        answered = await self.run(lambda consumer: consumer.commit(offsets=wanted, asynchronous=False))
        for one in answered:
            if one.error is not None:
                raise KafkaFailed.of(one.error)

    async def committed(self, partitions: Iterable[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        wanted = [_at(one) for one in partitions]
        answered = await self.run(lambda consumer: consumer.committed(wanted, timeout=timeout_s))
        for one in answered:
            if one.error is not None:
                raise KafkaFailed.of(one.error)
        return {TopicPartition(one.topic, one.partition): one.offset for one in answered if one.offset >= 0}

    async def store_delivered(self) -> None:
        """Let librdkafka's own periodic commit take what was handed out."""
        wanted = [_at(one, offset) for one, offset in self.delivered.items()]
        if wanted:
            await self.run(lambda consumer: consumer.store_offsets(offsets=wanted))

    async def close(self) -> None:
        """Leave the group. Does nothing a second time."""
        if self._is_closed:
            return
        self._is_closed = True
        self._forget_all()
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self._consumer.close)
        self._thread.shutdown(wait=False)
        await asyncio.wait([closing], timeout=CLOSE_S)

    # In its thread

    def _guarded(self, call: Callable[[Any], T]) -> T:
        from confluent_kafka import KafkaException

        try:
            return call(self._consumer)
        except KafkaException as error:
            raise KafkaFailed.of(error) from None
        except (RuntimeError, ValueError, TypeError) as error:
            # librdkafka's handle is closed, or does not know what it was told.
            raise KafkaFailed(-172, "_STATE", str(error)) from None

    def _let_go(self, _: Any, partitions: Sequence[Any]) -> None:
        # Somebody else reads these now, from what is committed: what waits here would be read twice.
        self._forget({TopicPartition(one.topic, one.partition) for one in partitions})

    # In the loop

    def _keep(self, messages: Iterable[Any]) -> None:
        for message in messages:
            if message.error() is None:
                self._waiting.append(message)
            else:
                self.failure = KafkaFailed.of(message.error())

    def _keep_late(self, fetching: "asyncio.Future[list[Any]]") -> None:
        if not fetching.cancelled() and fetching.exception() is None and not self._is_closed:
            self._keep(fetching.result())

    def _hand_out(self, records_max: int, bytes_max: int | None) -> list[Any]:
        """At least one, if there is one: a record larger than the limit would never be read otherwise."""
        given: list[Any] = []
        size = 0
        while self._waiting and len(given) < records_max:
            message = self._waiting[0]
            size += len(message.value() or b"") + len(message.key() or b"")
            if given and bytes_max is not None and size > bytes_max:
                break
            given.append(self._waiting.popleft())
            self.delivered[TopicPartition(message.topic(), message.partition())] = message.offset() + 1
        return given

    def _forget_all(self) -> None:
        self._waiting.clear()
        self.delivered.clear()

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        kept = [one for one in self._waiting if TopicPartition(one.topic(), one.partition()) not in gone]
        self._waiting = deque(kept)
        for one in gone:
            self.delivered.pop(one, None)


def _at(one: TopicPartition, offset: int = -1001) -> Any:
    from confluent_kafka import TopicPartition as Place

    return Place(one.topic, one.partition, offset)


def _fetch(records_max: int, timeout_s: float, consumer: Any) -> list[Any]:
    """librdkafka's consume() waits until it has all it was asked for: wait for one, take the rest as it lies there."""
    first = consumer.poll(timeout_s)
    if first is None:
        return []
    return [first, *consumer.consume(records_max - 1, 0)] if records_max > 1 else [first]
