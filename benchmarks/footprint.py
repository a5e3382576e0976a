"""What a broker weighs and how it grows: start, memory, partitions, topics, connections."""

import resource
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import RunningBroker, broker, connect
from penstock.testing import EmbeddedBroker

ROUNDS = 5
FIXTURE_ROUNDS = 21
CONNECTIONS = 5_000


def start() -> dict[str, Any]:
    """From the command to the first answered request, and memory when nothing happens."""
    times: list[float] = []
    rss: list[int] = []
    for _ in range(ROUNDS):
        with broker() as running:
            times.append(running.started_in_s)
            rss.append(running.rss_bytes())
    return {"start_s": sorted(times)[len(times) // 2], "start_s_rounds": times, "idle_rss_mb": max(rss) / 1e6}


def fixture() -> dict[str, Any]:
    """How long a test waits for the broker that `penstock.testing` gives it, in its own process."""
    times: list[float] = []
    for _ in range(FIXTURE_ROUNDS):
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            began = time.perf_counter()
            with EmbeddedBroker(Path(folder)) as embedded, connect(embedded.bootstrap) as channel:
                channel.call(18, 3, {"client_software_name": "bench", "client_software_version": "1"})
                times.append(time.perf_counter() - began)
    later = sorted(times[1:])
    return {"first_ms": times[0] * 1000, "later_ms": later[len(later) // 2] * 1000, "later_max_ms": later[-1] * 1000}


def partitions(count: int = 1_000) -> dict[str, Any]:
    """How long a broker with `count` partitions that hold records takes to come back, stopped cleanly and killed."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        with broker(data_dir=Path(folder)) as running:
            empty_s = running.started_in_s
            _create(running, 1, count, "wide")
            _fill(running, count)
        with broker(data_dir=Path(folder)) as running:
            clean_s = running.started_in_s
            subprocess.run(["kill", "-9", str(running.process.pid)], check=True)
            running.process.wait(10)
        with broker(data_dir=Path(folder)) as running:
            crash_s = running.started_in_s
    return {
        "partitions": count,
        "start_empty_s": empty_s,
        "start_after_clean_stop_s": clean_s,
        "start_after_kill_s": crash_s,
        "added_by_partitions_s": clean_s - empty_s,
    }


def topics(counts: tuple[int, ...] = (1_000, 2_000, 4_000, 10_000)) -> dict[str, Any]:
    """Topics created and described, a thousand a request: the time for each must not grow with how many there are."""
    rows: list[dict[str, float]] = []
    with broker() as running:
        made = 0
        for count in counts:
            began = time.perf_counter()
            _create(running, count - made, 1, f"t{count}")
            created_s = time.perf_counter() - began
            began = time.perf_counter()
            connection = running.connect()
            answer = connection.call(3, 12, {"topics": None, "allow_auto_topic_creation": False})
            described_s = time.perf_counter() - began
            assert len(answer.topics) == count, len(answer.topics)
            rows.append(
                {
                    "topics": count,
                    "create_ms_each": created_s / (count - made) * 1000,
                    "describe_ms_each": described_s / count * 1000,
                    "rss_mb": running.rss_bytes() / 1e6,
                }
            )
            made = count
    return {"rows": rows}


def connections() -> dict[str, Any]:
    """Memory of idle connections that have each asked once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with broker() as running:
        before = running.rss_bytes()
        host, _, port = running.address.partition(":")
        held: list[socket.socket] = []
        for _ in range(CONNECTIONS):
            channel = socket.create_connection((host, int(port)))
            channel.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
            channel.recv(4096)
            held.append(channel)
        after = running.rss_bytes()
        for channel in held:
            channel.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return {"connections": CONNECTIONS, "kb_each": (after - before) / CONNECTIONS / 1000}


def _create(running: RunningBroker, topic_count: int, partition_count: int, prefix: str) -> None:
    connection = running.connect()
    for first in range(0, topic_count, 1000):
        names = [f"{prefix}-{number}" for number in range(first, min(first + 1000, topic_count))]
        wanted = [{"name": name, "num_partitions": partition_count, "replication_factor": 1} for name in names]
        answer = connection.call(19, 5, {"topics": wanted, "timeout": 60_000})
        assert all(topic.error_code == 0 for topic in answer.topics), answer.topics[0]


def _fill(running: RunningBroker, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": running.address, "acks": "all", "linger.ms": 50})
    for partition in range(count):
        producer.produce("wide-0", b"x" * 1000, partition=partition)
    assert producer.flush(60) == 0
