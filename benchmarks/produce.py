"""How fast producers are served: messages a second from one librdkafka producer, and CPU for each small request."""

import struct
import time
from typing import Any

from beside.drivers.librdkafka_bulk import BulkProducer
from harness import RunningBroker, broker, create_topic, percentile
from penstock.records.record import Record, encode_batch
from penstock.wire.frame import request_frame

VALUE = b"x" * 100
ROUNDS = 5
MESSAGES = 3_000_000
SMALL_REQUESTS = 40_000
IN_FLIGHT = 50
TICKS_PER_S = 1000  # of the latency run: so many times a second, a few messages become due together
POLL_S_MIN = 0.001  # librdkafka's poll counts whole milliseconds


def throughput(acks: str) -> dict[str, Any]:
    """One producer, one partition, 100-byte messages."""
    rates: list[float] = []
    cpu_us: list[float] = []
    with broker() as running:
        create_topic(running, "bench")
        producer = BulkProducer(
            {
                "bootstrap.servers": running.address,
                "acks": acks,
                "linger.ms": "5",
                "batch.num.messages": "10000",
                "queue.buffering.max.messages": "1000000",
                "log_level": "0",
            },
            "bench",
        )
        producer.send([VALUE], 100_000)
        for _ in range(ROUNDS):
            cpu, began = running.cpu_s(), time.perf_counter()
            producer.send([VALUE], MESSAGES)
            took = time.perf_counter() - began
            rates.append(MESSAGES / took)
            cpu_us.append((running.cpu_s() - cpu) / MESSAGES * 1e6)
        rss = running.rss_bytes()
    return {
        "messages_per_s": sorted(rates)[len(rates) // 2],
        "messages_per_s_rounds": rates,
        "broker_cpu_us_per_message": sorted(cpu_us)[len(cpu_us) // 2],
        "broker_rss_mb": rss / 1e6,
    }


def small_requests(acks: int) -> dict[str, Any]:
    """Produce requests of one batch of one message each, fifty in flight on one connection."""
    rounds: list[tuple[float, float]] = []
    with broker() as running:
        create_topic(running, "bench")
        frame = _produce_frame(acks)
        rounds.extend(_send_small(running, frame) for _ in range(ROUNDS))
    rounds.sort(key=lambda each: each[1])
    rate, cpu_us = rounds[len(rounds) // 2]
    return {"requests_per_s": rate, "broker_cpu_us_per_request": cpu_us, "rounds": rounds}


def _send_small(running: RunningBroker, frame: bytes) -> tuple[float, float]:
    """As many new requests as answers have come in, sent together, as an event-driven client does."""
    channel = running.connect().channel
    channel.sendall(frame)
    reply_bytes = len(channel.recv(1 << 16))  # all replies are as long as the first
    cpu, began = running.cpu_s(), time.perf_counter()
    channel.sendall(frame * IN_FLIGHT)
    sent, received = IN_FLIGHT, 0
    while received < SMALL_REQUESTS * reply_bytes:
        received += len(channel.recv(1 << 16))
        due = min(received // reply_bytes + IN_FLIGHT, SMALL_REQUESTS) - sent
        if due > 0:
            channel.sendall(frame * due)
            sent += due
    took, cpu = time.perf_counter() - began, running.cpu_s() - cpu
    channel.close()
    return SMALL_REQUESTS / took, cpu / SMALL_REQUESTS * 1e6


def _produce_frame(acks: int) -> bytes:
    batch = bytes(encode_batch([Record(0, time.time_ns() // 1_000_000, None, VALUE, ())]))
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + struct.pack(">h5sii", 5, b"bench", 1, 0)
    return request_frame(0, 8, 7, "bench", body + struct.pack(">i", len(batch)) + batch)


def latency(rate: int = 10_000, seconds: int = 8) -> dict[str, Any]:
    """From produce() to its acknowledgement, acks=all with fsync, at a fixed rate; late sends count as late."""
    with broker() as running:
        create_topic(running, "bench")
        rounds = [_latency_round(running, rate, seconds) for _ in range(ROUNDS)]
    middle = {name: sorted(each[name] for each in rounds)[ROUNDS // 2] for name in rounds[0]}
    return {"rate_per_s": rate, **middle, "rounds": rounds}


def _latency_round(running: RunningBroker, rate: int, seconds: int) -> dict[str, float]:
    from confluent_kafka import Producer

    taken_ms: list[float] = []
    producer = Producer(
        {"bootstrap.servers": running.address, "acks": "all", "linger.ms": 0, "enable.idempotence": True}
    )

    def sent(due: float) -> Any:
        return lambda error, _: taken_ms.append((time.perf_counter() - due) * 1000) if error is None else None

    began = time.perf_counter()
    for tick in range(seconds * TICKS_PER_S):
        # Measured from when the messages were due, not from when we got round to them: no coordinated omission.
        due = began + tick / TICKS_PER_S
        while (left := due - time.perf_counter()) > 0:
            producer.poll(max(left, POLL_S_MIN))  # a shorter one would spin on a core that the broker needs
        for _ in range(rate // TICKS_PER_S):
            producer.produce("bench", VALUE, partition=0, on_delivery=sent(due))
    producer.flush(30)
    assert len(taken_ms) == rate * seconds, "some messages were not acknowledged"
    taken_ms = sorted(taken_ms[rate:])  # the first second warms up
    return {f"p{name}_ms": percentile(taken_ms, share) for name, share in PERCENTILES.items()}


PERCENTILES = {"50": 0.5, "95": 0.95, "99": 0.99, "99_9": 0.999}
