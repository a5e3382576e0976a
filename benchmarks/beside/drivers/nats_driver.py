"""The client of NATS JetStream: nats-py, with a window of publishes under way where Kafka's client batches.

Run by driving.py in the Python of the other clients. A topic is a stream on files, a partition a subject of it.
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

PORTION = 1_000
WINDOW = 4_000  # publishes under way, the default of the library's own limit
READ_MAX = 1_000
DEADLINE_S = 120.0
LOOK_EVERY_S = 0.005

nats: Any = importlib.import_module("nats")
js_api: Any = importlib.import_module("nats.js.api")
nats_errors: Any = importlib.import_module("nats.errors")


async def connect(job: Job) -> Any:
    return await nats.connect(f"nats://{job.address}", allow_reconnect=False, pending_size=64 << 20)


def subjects(job: Job) -> list[str]:
    return [f"{job.topic}.{partition}" for partition in range(job.partitions)]


async def create(job: Job) -> Prepared:
    stream = (await connect(job)).jetstream()

    async def work() -> Outcome:
        await stream.add_stream(name=job.topic, subjects=[f"{job.topic}.*"], storage=js_api.StorageType.FILE)
        return Outcome(0)

    return work


async def clear(job: Job) -> Prepared:
    stream = (await connect(job)).jetstream()

    async def work() -> Outcome:
        await stream.delete_stream(job.topic)
        return Outcome(0)

    return work


async def produce(job: Job) -> Prepared:
    stream = (await connect(job)).jetstream(publish_async_max_pending=WINDOW)
    names, values = subjects(job), payloads(job.size)

    async def verify_count(count: int) -> None:
        held = (await stream.stream_info(job.topic)).state.messages
        assert held >= count, f"{held} of {count} messages arrived"

    async def work() -> Outcome:
        sent, goes_on = 0, time_is_left(job)
        while sent < job.count and goes_on():
            for number in range(sent, min(sent + PORTION, job.count)):
                await stream.publish_async(names[number % len(names)], values[number % len(values)])
                sent += 1
        await stream.publish_async_completed()
        await verify_count(sent)
        return Outcome(sent, sent * job.size)

    return work


async def small(job: Job) -> Prepared:
    """One publish a request: every connection awaits `in_flight` of them at a time."""
    streams = [(await connect(job)).jetstream() for _ in range(job.connections)]
    value, name = payloads(job.size, 1)[0], subjects(job)[0]
    turns = max(1, job.count // job.connections // job.in_flight)

    async def keep_asking(stream: Any, goes_on: Callable[[], bool]) -> int:
        asked = 0
        while asked < turns and goes_on():
            await stream.publish(name, value, timeout=DEADLINE_S)
            asked += 1
        return asked

    async def work() -> Outcome:
        goes_on = time_is_left(job)
        asked = await asyncio.gather(*(keep_asking(each, goes_on) for each in streams for _ in range(job.in_flight)))
        messages = sum(asked)
        return Outcome(messages, messages * job.size)

    return work


async def latency(job: Job) -> Prepared:
    stream = (await connect(job)).jetstream(publish_async_max_pending=job.count)
    name, filler = subjects(job)[0], payloads(max(1, job.size - STAMP_BYTES), 1)[0]
    taken_ms: list[float] = []

    async def work() -> Outcome:
        began = time.monotonic()
        for after_s, how_many in schedule(job.rate, job.count):
            due = began + after_s
            if (left := due - time.monotonic()) > 0:
                await asyncio.sleep(left)
            value = struct.pack(">d", due) + filler

            def answered(_: Any, due: float = due) -> None:
                taken_ms.append((time.monotonic() - due) * 1000)

            for _ in range(how_many):
                (await stream.publish_async(name, value)).add_done_callback(answered)
        await stream.publish_async_completed()
        await asyncio.sleep(0)  # the last of the callbacks
        assert len(taken_ms) == job.count, f"{job.count - len(taken_ms)} messages were not acknowledged"
        return Outcome(job.count, job.count * job.size, taken_ms[job.count // 10 :])

    return work


async def listen(job: Job) -> Prepared:
    stream = (await connect(job)).jetstream()
    messages = await stream.subscribe(subjects(job)[0], ordered_consumer=True)

    async def work() -> Outcome:
        taken_ms: list[float] = []
        for _ in range(job.count):
            message = await messages.next_msg(timeout=DEADLINE_S)
            taken_ms.append((time.monotonic() - struct.unpack_from(">d", message.data)[0]) * 1000)
        return Outcome(job.count, job.count * job.size, taken_ms[job.count // 10 :])

    return work


async def read(job: Job) -> Prepared:
    """Every group is an ordered consumer of its own connection: the fastest way to read that the library has."""
    streams = [(await connect(job)).jetstream() for _ in range(job.groups)]

    async def read_all(stream: Any) -> int:
        messages = await stream.subscribe(f"{job.topic}.*", ordered_consumer=True)
        for _ in range(job.count):
            await messages.next_msg(timeout=DEADLINE_S)
        return job.count

    async def work() -> Outcome:
        total = sum(await asyncio.gather(*map(read_all, streams)))
        return Outcome(total, total * job.size)

    return work


async def first(job: Job) -> Prepared:
    async def work() -> Outcome:
        driver.wait_until_listening(job.address, DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, nats_errors.Error):
                stream = (await connect(job)).jetstream()
                await stream.add_stream(name=job.topic, subjects=[f"{job.topic}.*"])
                await stream.publish(subjects(job)[0], b"first")
                return Outcome(1)
            await asyncio.sleep(LOOK_EVERY_S)
        raise TimeoutError("JetStream did not answer")

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
