"""Kafka's requests on plain sockets, where a client would be what is measured: small requests, reads, connections.

Called by kafka_driver. Produce v8 and Fetch v4 are old enough for every broker here and new enough for Kafka 4.
"""

import contextlib
import resource
import selectors
import socket
import struct
import time
from typing import Any

import driver
from confluent_kafka.admin import AdminClient
from job import Job, Outcome, payloads, time_is_left

from penstock.records.record import Record, encode_batch
from penstock.wire.frame import request_frame

PRODUCE, FETCH, API_VERSIONS = (0, 8), (1, 4), (18, 0)
READ_BYTES = 8 << 20
RECEIVE_BYTES = 1 << 16
DEADLINE_S = 120.0
LOOK_EVERY_S = 0.005
ASK_VERSIONS = struct.pack(">ihhih", 10, *API_VERSIONS, 1, -1)


def connect(address: str) -> socket.socket:
    host, _, port = address.split(",")[0].partition(":")
    channel = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return channel


def wait_for_answer(address: str, deadline_s: float) -> None:
    """Until every node answers an ApiVersions request."""
    deadline = time.monotonic() + deadline_s
    for one in address.split(","):
        while True:
            with contextlib.suppress(OSError), connect(one) as channel:
                channel.sendall(ASK_VERSIONS)
                if channel.recv(4):
                    break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{one} did not answer within {deadline_s:.0f} s")
            time.sleep(LOOK_EVERY_S)


def small(job: Job) -> driver.Work:
    """Produce requests of one message each: every connection keeps `in_flight` of them under way.

    Connections are shared out over the partitions, each to the broker that leads its own.
    """
    leaders = leaders_of(job) if job.partitions > 1 else [job.address]
    frames = {
        connect(leaders[number % len(leaders)]): produce_frame(job, number % len(leaders))
        for number in range(job.connections)
    }
    channels = list(frames)
    reply_bytes = 0
    for channel, frame in frames.items():
        channel.sendall(frame)
        reply_bytes = len(read_frame(channel)) + 4  # all replies are as long as the first

    def work() -> Outcome:
        with selectors.DefaultSelector() as selector:
            received = dict.fromkeys(channels, 0)
            sent = dict.fromkeys(channels, job.in_flight)
            each = job.count // job.connections
            for channel in channels:
                selector.register(channel, selectors.EVENT_READ)
                channel.sendall(frames[channel] * job.in_flight)
            busy, goes_on = len(channels), time_is_left(job)
            while busy:
                for key, _ in selector.select(DEADLINE_S):
                    channel = key.fileobj
                    assert isinstance(channel, socket.socket)
                    got = len(channel.recv(RECEIVE_BYTES))
                    assert got, "the broker hung up"
                    received[channel] += got
                    answered = received[channel] // reply_bytes
                    due = min(answered + job.in_flight, each) - sent[channel] if goes_on() else 0
                    if due > 0:
                        channel.sendall(frames[channel] * due)
                        sent[channel] += due
                    elif answered >= sent[channel]:
                        selector.unregister(channel)
                        busy -= 1
        answers = sum(received.values()) // reply_bytes
        return Outcome(answers, answers * job.size)

    return work


def leaders_of(job: Job) -> list[str]:
    """The address of each partition's leader, once all have one."""
    admin: Any = AdminClient({"bootstrap.servers": job.address})
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        told = admin.list_topics(job.topic, DEADLINE_S)
        partitions = told.topics[job.topic].partitions
        nodes = [told.brokers.get(partitions[index].leader) for index in sorted(partitions)]
        if len(nodes) == job.partitions and all(node is not None for node in nodes):
            return [f"{node.host}:{node.port}" for node in nodes]
        time.sleep(LOOK_EVERY_S)
    raise TimeoutError(f"{job.topic} has no leaders")


def produce_frame(job: Job, partition: int = 0) -> bytes:
    batch = bytes(encode_batch([Record(0, time.time_ns() // 1_000_000, None, payloads(job.size, 1)[0], ())]))
    name = job.topic.encode()
    body = struct.pack(">hhii", -1, -1 if job.acks == "all" else int(job.acks), 30_000, 1)
    body += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, partition, len(batch)) + batch
    return request_frame(*PRODUCE, 7, "bench", body)


def read(job: Job) -> driver.Work:
    """Fetches one partition from its start to its end and throws the records away: only the broker should be busy."""
    channel = connect(job.address)
    buffer = bytearray(READ_BYTES + (1 << 20))

    def work() -> Outcome:
        offset = total = 0
        while offset < job.count:
            channel.sendall(fetch_frame(job.topic, offset))
            size = receive(channel, buffer)
            after = next_offset(buffer, size, offset, records_at(job.topic))
            assert after > offset, f"nothing came at offset {offset}"
            offset, total = after, total + size
        return Outcome(offset, total)

    return work


def fetch_frame(topic: str, offset: int) -> bytes:
    name = topic.encode()
    body = struct.pack(">iiiib", -1, 500, 1, 64 << 20, 0)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, 0, offset, READ_BYTES)
    return request_frame(*FETCH, 1, "bench", body)


def records_at(topic: str) -> int:
    """Where the records of a Fetch v4 answer begin that holds one partition and no aborted transactions.

    Correlation id, throttle, topics; name; partitions, index, error, high watermark, stable offset, aborted, length.
    """
    return 12 + (2 + len(topic)) + 4 + 4 + 2 + 8 + 8 + 4 + 4


def next_offset(buffer: bytearray, size: int, offset: int, at: int) -> int:
    """After the last whole batch."""
    while at + 61 <= size:
        base, length = struct.unpack_from(">qi", buffer, at)
        if at + 12 + length > size:
            break
        (delta,) = struct.unpack_from(">i", buffer, at + 23)
        offset = base + delta + 1
        at += 12 + length
    return offset


def receive(channel: socket.socket, buffer: bytearray) -> int:
    """One answer without its length; gives how long it is."""
    view = memoryview(buffer)
    size, got = 4, 0
    for part in ("length", "answer"):
        got = 0
        while got < size:
            more = channel.recv_into(view[got:size])
            assert more, "the broker hung up"
            got += more
        if part == "length":
            (size,) = struct.unpack_from(">i", buffer)
            assert size <= len(buffer), f"an answer of {size} bytes"
    return got


def read_frame(channel: socket.socket) -> bytes:
    buffer = bytearray(READ_BYTES)
    return bytes(buffer[: receive(channel, buffer)])


def connections(job: Job) -> driver.Work:
    """Opens them, has each answered once, and holds them until it is told to end."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held: list[socket.socket] = []

    def work() -> Outcome:
        for _ in range(job.count):
            channel = connect(job.address)
            channel.sendall(ASK_VERSIONS)
            assert channel.recv(RECEIVE_BYTES), "the broker hung up"
            held.append(channel)
        return Outcome(job.count)

    return work
