"""How fast consumers are served: bytes a second of data that is in the page cache, over one connection."""

import struct
import time
from typing import Any

from beside.drivers.librdkafka_bulk import BulkProducer
from harness import RunningBroker, broker, create_topic
from penstock.wire.frame import request_frame

MESSAGE = b"x" * 1000
MESSAGES = 600_000
ROUNDS = 5
READ_BYTES = 8 << 20


def cached() -> dict[str, Any]:
    rates: list[float] = []
    cpu_s_per_gb: list[float] = []
    with broker() as running:
        create_topic(running, "bench")
        producer = BulkProducer({"bootstrap.servers": running.address, "acks": "1", "log_level": "0"}, "bench")
        producer.send([MESSAGE], MESSAGES)
        for _ in range(ROUNDS):
            cpu, began = running.cpu_s(), time.perf_counter()
            size = _read_all(running)
            took = time.perf_counter() - began
            rates.append(size / took)
            cpu_s_per_gb.append((running.cpu_s() - cpu) / size * 1e9)
    return {
        "gb_per_s": sorted(rates)[len(rates) // 2] / 1e9,
        "gb_per_s_rounds": [rate / 1e9 for rate in rates],
        "broker_cpu_s_per_gb": sorted(cpu_s_per_gb)[len(cpu_s_per_gb) // 2],
    }


def _read_all(running: RunningBroker) -> int:
    """Fetch from the start to the end, throwing the records away: only the broker should be busy."""
    connection = running.connect()
    buffer = bytearray(READ_BYTES + (1 << 16))
    offset = total = 0
    while offset < MESSAGES:
        connection.channel.sendall(_fetch_frame(offset))
        size = _receive(connection.channel, buffer)
        offset = _next_offset(buffer, size, offset)
        total += size
    connection.channel.close()
    return total


def _receive(channel: Any, buffer: bytearray) -> int:
    view = memoryview(buffer)
    got = 0
    while got < 4:
        got += channel.recv_into(view[got:4])
    (size,) = struct.unpack_from(">i", buffer)
    got = 0
    while got < size:
        got += channel.recv_into(view[got:size])
    return size


def _next_offset(buffer: bytearray, size: int, offset: int) -> int:
    """After the last whole batch of the one partition; version 4 has its records 51 bytes in, for this topic name."""
    at = RECORDS_AT
    while at + 61 <= size:
        base, length = struct.unpack_from(">qi", buffer, at)
        if at + 12 + length > size:
            break
        (delta,) = struct.unpack_from(">i", buffer, at + 23)
        offset = base + delta + 1
        at += 12 + length
    return offset


# correlation id, throttle, topics, name ("bench"), partitions, index, error, high watermark, LSO, aborted, length
RECORDS_AT = 4 + 4 + 4 + 7 + 4 + 4 + 2 + 8 + 8 + 4 + 4


def _fetch_frame(offset: int) -> bytes:
    body = struct.pack(">iiiib", -1, 500, 1, 64 << 20, 0)
    body += struct.pack(">ih5siiqi", 1, 5, b"bench", 1, 0, offset, READ_BYTES)
    return request_frame(1, 4, 1, "bench", body)
