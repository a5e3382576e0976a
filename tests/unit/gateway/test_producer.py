"""Delivery reports reach the loop in bulk; requests are taken whole or not at all."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.gateway.errors import Busy, KafkaFailed
from penstock.gateway.producer import BulkProducer, Delivered, Outgoing


class FakeProducer:
    """librdkafka's place: keeps what it is given until the test delivers it, from a thread that polls."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.kept: list[tuple[bytes, Callable[..., None]]] = []
        self.refused: set[bytes] = set()
        self.due: list[Callable[[], None]] = []
        self._turn = threading.Condition()

    def produce(self, topic: str, value: bytes, key: Any, partition: int, callback: Any, **_: Any) -> None:
        if value in self.refused:
            raise BufferError
        self.kept.append((value, callback))

    def deliver(self, error: Any = None, then: Callable[[], None] | None = None) -> None:
        with self._turn:
            for place, (_, callback) in enumerate(self.kept):
                message = FakeMessage(place)
                self.due.append(lambda callback=callback, message=message: callback(error, message))
            self.kept = []
            self.due += [] if then is None else [then]
            self._turn.notify()

    def poll(self, timeout: float) -> int:
        with self._turn:
            self._turn.wait_for(lambda: self.due, timeout)
            due, self.due = self.due, []
        for report in due:
            report()
        return len(due)

    def flush(self, timeout: float) -> int:
        self.deliver()
        return 0 if self.poll(0) >= 0 else 1


class FakeMessage:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 7


class FakeError:
    def code(self) -> int:
        return 10

    def name(self) -> str:
        return "MSG_SIZE_TOO_LARGE"

    def str(self) -> str:
        return "too large"

    def retriable(self) -> bool:
        return False


async def _producer(records_max: int = 100, bytes_max: int = 100_000) -> tuple[BulkProducer, FakeProducer]:
    made: list[FakeProducer] = []

    def make(settings: Mapping[str, Any]) -> FakeProducer:
        made.append(FakeProducer(settings))
        return made[-1]

    producer = BulkProducer(make, records_max=records_max, bytes_max=bytes_max, delivery_timeout_s=30)
    return producer, made[0]


async def test_one_future_answers_for_all_records_in_order() -> None:
    producer, fake = await _producer()
    sending = producer.send("t", [Outgoing(b"a"), Outgoing(b"b")])
    assert producer.records_under_way == 2
    fake.deliver()
    assert await asyncio.wait_for(sending, 30) == [Delivered(3, 0, 7), Delivered(3, 1, 7)]
    assert (producer.records_under_way, producer.bytes_under_way) == (0, 0)
    assert (await producer.send("t", [])) == []
    await producer.close()


async def test_the_loop_is_woken_once_for_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, fake = await _producer()
    sendings = [producer.send("t", [Outgoing(b"a")]) for _ in range(50)]
    wakes = 0
    loop = asyncio.get_running_loop()
    held = threading.Event()
    real = loop.call_soon_threadsafe

    def counted(callback: Any, *arguments: Any) -> Any:
        nonlocal wakes
        wakes += 1
        # All fifty are reported before the loop gets its turn.
        return real(lambda: (held.wait(30), callback(*arguments)))

    monkeypatch.setattr(producer, "_loop", _Wakes(loop, counted))
    fake.deliver(then=held.set)
    await asyncio.gather(*sendings)
    assert wakes == 1
    await producer.close()


class _Wakes:
    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Any) -> None:
        self._loop = loop
        self.call_soon_threadsafe = wake

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


async def test_what_would_not_fit_is_refused_whole() -> None:
    producer, fake = await _producer(records_max=3, bytes_max=1000)
    with pytest.raises(Busy):
        producer.send("t", [Outgoing(b"a")] * 4)
    with pytest.raises(Busy):
        producer.send("t", [Outgoing(bytes(2000))])
    assert fake.kept == []
    first = producer.send("t", [Outgoing(b"a")] * 2)
    with pytest.raises(Busy):
        producer.send("t", [Outgoing(b"b")] * 2)
    fake.deliver()
    await asyncio.wait_for(first, 30)
    second = producer.send("t", [Outgoing(b"b")] * 2)
    fake.deliver()
    await asyncio.wait_for(second, 30)
    await producer.close()
    with pytest.raises(Busy, match="stopping"):
        producer.send("t", [Outgoing(b"c")])


@pytest.mark.parametrize("refused", [{b"a"}, {b"b"}, {b"a", b"b"}])
async def test_what_librdkafka_refuses_fails_alone(refused: set[bytes]) -> None:
    producer, fake = await _producer()
    fake.refused = refused
    sending = producer.send("t", [Outgoing(b"a"), Outgoing(b"b")])
    fake.deliver()
    outcomes = await asyncio.wait_for(sending, 30)
    assert [isinstance(one, KafkaFailed) for one in outcomes] == [b"a" in refused, b"b" in refused]
    assert all(one.is_retriable for one in outcomes if isinstance(one, KafkaFailed))
    assert producer.records_under_way == 0
    await producer.close()


async def test_what_the_broker_refuses_has_its_code() -> None:
    producer, fake = await _producer()
    sending = producer.send("t", [Outgoing(b"a")])
    fake.deliver(FakeError())
    (outcome,) = await asyncio.wait_for(sending, 30)
    assert isinstance(outcome, KafkaFailed)
    assert (outcome.code, outcome.name, outcome.is_retriable) == (10, "MSG_SIZE_TOO_LARGE", False)
    assert outcome.problem().status == 413
    await producer.close()
