"""The client of RabbitMQ streams: rstream, in batches with confirmations.

Run by driving.py in the Python of the other clients. A partition is a stream of its own.
"""

import asyncio
import contextlib
import importlib
import struct
import time
from collections.abc import Callable
from typing import Any

import driver
from driver import AsyncAct, Prepared
from job import STAMP_BYTES, Job, Outcome, payloads, schedule, time_is_left

BATCH_BYTES = 200_000  # well below the largest frame
BATCH_MAX = 1_000
WINDOW = 20_000  # messages that wait for their confirmation
CREDIT = 50  # chunks on their way to a reader
DEADLINE_S = 120.0
LOOK_EVERY_S = 0.02
LOGIN = {"username": "guest", "password": "guest"}

rstream: Any = importlib.import_module("rstream")


def streams(job: Job) -> list[str]:
    return [f"{job.topic}-{partition}" for partition in range(job.partitions)]


async def connect(job: Job) -> Any:
    host, _, port = job.address.partition(":")
    producer = rstream.Producer(host, int(port), max_retries=1, **LOGIN)
    await producer.start()
    return producer


async def create(job: Job) -> Prepared:
    producer = await connect(job)

    async def work() -> Outcome:
        for name in streams(job):
            await producer.create_stream(name, exists_ok=True)
        return Outcome(0)

    return work


async def clear(job: Job) -> Prepared:
    producer = await connect(job)

    async def work() -> Outcome:
        for name in streams(job):
            await producer.delete_stream(name, missing_ok=True)
        return Outcome(0)

    return work


class Confirmations:
    """How many messages are confirmed; lets a sender wait until few enough are under way."""

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed = 0
        self._news = asyncio.Event()

    def __call__(self, status: Any) -> None:
        assert status.is_confirmed, f"a message was refused with code {status.response_code}"
        self.confirmed += 1
        self._news.set()

    async def until_under_way(self, most: int) -> None:
        while self.sent - self.confirmed > most:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), DEADLINE_S)


async def produce(job: Job) -> Prepared:
    producer, names, values = await connect(job), streams(job), payloads(job.size)
    portion = max(1, min(BATCH_MAX, BATCH_BYTES // job.size))
    batch = [values[number % len(values)] for number in range(portion)]

    async def work() -> Outcome:
        confirmations, turn = Confirmations(), 0
        goes_on = time_is_left(job)
        while confirmations.sent < job.count and goes_on():
            how_many = min(portion, job.count - confirmations.sent)
            await confirmations.until_under_way(WINDOW)
            confirmations.sent += how_many
            await producer.send_batch(names[turn % len(names)], batch[:how_many], on_publish_confirm=confirmations)
            turn += 1
        await confirmations.until_under_way(0)
        return Outcome(confirmations.sent, confirmations.sent * job.size)

    return work


async def small(job: Job) -> Prepared:
    """One message a request, each waited for: every connection keeps `in_flight` of them under way."""
    producers = [await connect(job) for _ in range(job.connections)]
    value, name = payloads(job.size, 1)[0], streams(job)[0]
    turns = max(1, job.count // job.connections // job.in_flight)
    for producer in producers:
        await producer.send_wait(name, value, timeout=int(DEADLINE_S))

    async def keep_asking(producer: Any, goes_on: Callable[[], bool]) -> int:
        asked = 0
        while asked < turns and goes_on():
            await producer.send_wait(name, value, timeout=int(DEADLINE_S))
            asked += 1
        return asked

    async def work() -> Outcome:
        goes_on = time_is_left(job)
        asked = await asyncio.gather(*(keep_asking(each, goes_on) for each in producers for _ in range(job.in_flight)))
        messages = sum(asked)
        return Outcome(messages, messages * job.size)

    return work


async def latency(job: Job) -> Prepared:
    producer, name = await connect(job), streams(job)[0]
    filler = payloads(max(1, job.size - STAMP_BYTES), 1)[0]
    taken_ms: list[float] = []
    all_confirmed = asyncio.Event()

    async def work() -> Outcome:
        began = time.monotonic()
        for after_s, how_many in schedule(job.rate, job.count):
            due = began + after_s
            if (left := due - time.monotonic()) > 0:
                await asyncio.sleep(left)

            def confirmed(_: Any, due: float = due) -> None:
                taken_ms.append((time.monotonic() - due) * 1000)
                if len(taken_ms) == job.count:
                    all_confirmed.set()

            await producer.send_batch(name, [struct.pack(">d", due) + filler] * how_many, on_publish_confirm=confirmed)
        await asyncio.wait_for(all_confirmed.wait(), DEADLINE_S)
        return Outcome(job.count, job.count * job.size, taken_ms[job.count // 10 :])

    return work


class Reader:
    """Counts what a subscription brings, and keeps the times of stamped messages."""

    def __init__(self, count: int, is_timed: bool) -> None:
        self.left = count
        self.taken_ms: list[float] = []
        self._is_timed = is_timed
        self._done = asyncio.Event()

    async def __call__(self, message: bytes, _: Any) -> None:
        self.left -= 1
        if self._is_timed:
            self.taken_ms.append((time.monotonic() - struct.unpack_from(">d", message)[0]) * 1000)
        if self.left == 0:
            self._done.set()

    async def finish(self) -> None:
        await asyncio.wait_for(self._done.wait(), DEADLINE_S)


async def subscribe(job: Job, reader: Reader) -> None:
    host, _, port = job.address.partition(":")
    consumer = rstream.Consumer(host, int(port), **LOGIN)
    await consumer.start()
    start = rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST, None)
    for name in streams(job):
        await consumer.subscribe(name, reader, decoder=_as_it_is, offset_specification=start, initial_credit=CREDIT)


def _as_it_is(message: bytes) -> bytes:
    return message


async def listen(job: Job) -> Prepared:
    reader = Reader(job.count, is_timed=True)
    await subscribe(job, reader)

    async def work() -> Outcome:
        await reader.finish()
        return Outcome(job.count, job.count * job.size, reader.taken_ms[job.count // 10 :])

    return work


async def read(job: Job) -> Prepared:
    async def work() -> Outcome:
        readers = [Reader(job.count, is_timed=False) for _ in range(job.groups)]
        for reader in readers:
            await subscribe(job, reader)
        for reader in readers:
            await reader.finish()
        total = job.count * job.groups
        return Outcome(total, total * job.size)

    return work


async def first(job: Job) -> Prepared:
    async def work() -> Outcome:
        driver.wait_until_listening(job.address, DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, asyncio.TimeoutError, rstream.ServerError):
                producer = await connect(job)
                await producer.create_stream(streams(job)[0], exists_ok=True)
                await producer.send_wait(streams(job)[0], b"first")
                return Outcome(1)
            await asyncio.sleep(LOOK_EVERY_S)
        raise TimeoutError("the stream plugin did not answer")

    return work


ASYNC_ACTS: dict[str, AsyncAct] = {
    "create": create,
    "clear": clear,
    "produce": produce,
    "small": small,
    "latency": latency,
    "listen": listen,
    "read": read,
    "first": first,
}

if __name__ == "__main__":
    driver.main({name: driver.on_a_loop(act) for name, act in ASYNC_ACTS.items()})
