"""The client of Redis Streams: redis-py with hiredis, pipelined where Kafka's client batches.

Run by driving.py in the Python of the other clients. A partition is a key; an acknowledgement is the reply to XADD.
"""

import importlib
import socket
import struct
import time
from typing import Any

import driver
from job import STAMP_BYTES, Job, Outcome, payloads, schedule, time_is_left

PIPELINE = 1_000
READ_MAX = 1_000
DEADLINE_S = 120.0
FIELD = b"v"
WAIT_MS = 1_000
LOOK_EVERY_S = 0.005

redis: Any = importlib.import_module("redis")


def connect(job: Job) -> Any:
    host, _, port = job.address.partition(":")
    return redis.Redis(host=host, port=int(port))


def keys(job: Job) -> list[str]:
    return [f"{job.topic}-{partition}" for partition in range(job.partitions)]


def create(_: Job) -> driver.Work:
    """A key is made by its first message."""
    return lambda: Outcome(0)


def clear(job: Job) -> driver.Work:
    def work() -> Outcome:
        connect(job).unlink(*keys(job))
        return Outcome(0)

    return work


def produce(job: Job) -> driver.Work:
    client, names, values = connect(job), keys(job), payloads(job.size)
    client.ping()

    def work() -> Outcome:
        sent = turn = 0
        goes_on = time_is_left(job)
        while sent < job.count and goes_on():
            pipeline = client.pipeline(transaction=False)
            name = names[turn % len(names)]
            how_many = min(PIPELINE, job.count - sent)
            for number in range(how_many):
                pipeline.xadd(name, {FIELD: values[number % len(values)]})
            pipeline.execute()
            sent, turn = sent + how_many, turn + 1
        return Outcome(sent, sent * job.size)

    return work


def small(job: Job) -> driver.Work:
    """One XADD a request: as many connections, each with one under way, in turns of all of them."""
    value = payloads(job.size, 1)[0]
    host, _, port = job.address.partition(":")
    channels = [socket.create_connection((host, int(port)), timeout=DEADLINE_S) for _ in range(job.connections)]
    frame = command(b"XADD", keys(job)[0].encode(), b"*", FIELD, value) * job.in_flight
    for channel in channels:
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def work() -> Outcome:
        turns = 0
        goes_on = time_is_left(job)
        while turns < max(1, job.count // job.connections // job.in_flight) and goes_on():
            turns += 1
            for channel in channels:
                channel.sendall(frame)
            for channel in channels:
                lines = 0
                while lines < 2 * job.in_flight:  # a reply is a length and an id
                    got = channel.recv(1 << 16)
                    assert got, "the server hung up"
                    lines += got.count(b"\n")
        messages = turns * job.connections * job.in_flight
        return Outcome(messages, messages * job.size)

    return work


def command(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def latency(job: Job) -> driver.Work:
    """What became due while the last pipeline was under way goes together in the next."""
    client, name = connect(job), keys(job)[0]
    filler = payloads(max(1, job.size - STAMP_BYTES), 1)[0]
    client.ping()

    def work() -> Outcome:
        taken_ms: list[float] = []
        due_messages = ((after_s, how_many) for after_s, how_many in schedule(job.rate, job.count))
        began = time.monotonic()
        waiting = next(due_messages, None)
        while waiting is not None:
            if (left := began + waiting[0] - time.monotonic()) > 0:
                time.sleep(left)
            pipeline = client.pipeline(transaction=False)
            dues: list[float] = []
            while waiting is not None and began + waiting[0] <= time.monotonic() and len(dues) < PIPELINE:
                due = began + waiting[0]
                for _ in range(waiting[1]):
                    pipeline.xadd(name, {FIELD: struct.pack(">d", due) + filler})
                    dues.append(due)
                waiting = next(due_messages, None)
            pipeline.execute()
            now = time.monotonic()
            taken_ms += [(now - due) * 1000 for due in dues]
        return Outcome(job.count, job.count * job.size, taken_ms[job.count // 10 :])

    return work


def listen(job: Job) -> driver.Work:
    client, name = connect(job), keys(job)[0]
    client.ping()

    def work() -> Outcome:
        taken_ms: list[float] = []
        last: Any = "0"
        deadline = time.monotonic() + DEADLINE_S
        while len(taken_ms) < job.count and time.monotonic() < deadline:
            for _, entries in client.xread({name: last}, count=READ_MAX, block=WAIT_MS):
                now = time.monotonic()
                taken_ms += [(now - struct.unpack_from(">d", fields[FIELD])[0]) * 1000 for _, fields in entries]
                last = entries[-1][0]
        assert len(taken_ms) >= job.count, f"{len(taken_ms)} of {job.count} messages were read"
        return Outcome(job.count, job.count * job.size, taken_ms[job.count // 10 :])

    return work


def read(job: Job) -> driver.Work:
    """Every group reads everything, from the first message on; they take turns."""
    client, names = connect(job), keys(job)
    client.ping()

    def work() -> Outcome:
        total = 0
        places: list[tuple[str, Any]] = [(name, "0") for _ in range(job.groups) for name in names]
        while places and total < job.count * job.groups:
            further: list[tuple[str, Any]] = []
            for name, last in places:
                for _, entries in client.xread({name: last}, count=READ_MAX):
                    total += len(entries)
                    further.append((name, entries[-1][0]))
            places = further
        assert total >= job.count * job.groups, f"{total} of {job.count * job.groups} messages were read"
        return Outcome(total, total * job.size)

    return work


def first(job: Job) -> driver.Work:
    def work() -> Outcome:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                connect(job).xadd(keys(job)[0], {FIELD: b"first"})
                return Outcome(1)
            except redis.exceptions.RedisError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_EVERY_S)

    return work


ACTS: dict[str, driver.Act] = {
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
    driver.main(ACTS)
