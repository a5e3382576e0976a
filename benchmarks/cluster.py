"""Three brokers on this machine, three replicas, acks=all: throughput, latency, and how long a move of leaders is felt.

The brokers share the machine with the client, so this is the cost of replication on two cores, not what three machines
give. Metadata is in SQLite: the store is not on the walk of a message.
"""

import asyncio
import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from beside.drivers.librdkafka_bulk import BulkProducer
from harness import free_port, percentile, start_command, wait_for_answer
from penstock.client.connection import ClientConnection
from penstock.model import Endpoint
from produce import PERCENTILES, POLL_S_MIN, TICKS_PER_S, VALUE

NODES = 3
ROUNDS = 5
MESSAGES = 1_000_000
MOVES = 10


class Cluster:
    def __init__(self, addresses: list[str], processes: list[psutil.Process]) -> None:
        self.bootstrap = ",".join(addresses)
        self.processes = processes

    def cpu_s(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self.processes)

    def rss_bytes(self) -> list[int]:
        return [process.memory_info().rss for process in self.processes]


@contextlib.contextmanager
def three_brokers(*settings: str) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        ports = [free_port() for _ in range(NODES)]
        children: list[subprocess.Popen[bytes]] = []
        try:
            for node, port in enumerate(ports, 1):
                options = (f"node.id={node}", f"penstock.metadata=sqlite:{Path(folder) / 'metadata.db'}", *settings)
                children.append(start_command(Path(folder) / f"broker-{node}", port, options))
            for port, child in zip(ports, children, strict=True):
                wait_for_answer(port, child)
            yield Cluster([f"127.0.0.1:{port}" for port in ports], [psutil.Process(child.pid) for child in children])
        finally:
            for child in children:
                child.terminate()
            for child in children:
                child.wait(60)


def create(cluster: Cluster, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    deadline = time.perf_counter() + 30
    while len(admin.list_topics(timeout=10).brokers) < NODES and time.perf_counter() < deadline:
        time.sleep(0.05)
    admin.create_topics([NewTopic("bench", partitions, NODES)])["bench"].result(30)


def throughput() -> dict[str, Any]:
    """One producer, one partition, three replicas, acks=all, 100-byte messages."""
    rates: list[float] = []
    cpu_us: list[float] = []
    with three_brokers() as cluster:
        create(cluster)
        producer = BulkProducer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "linger.ms": "5",
                "batch.num.messages": "10000",
                "queue.buffering.max.messages": "1000000",
                "log_level": "0",
            },
            "bench",
        )
        producer.send([VALUE], 100_000)
        for _ in range(ROUNDS):
            cpu, began = cluster.cpu_s(), time.perf_counter()
            producer.send([VALUE], MESSAGES)
            rates.append(MESSAGES / (time.perf_counter() - began))
            cpu_us.append((cluster.cpu_s() - cpu) / MESSAGES * 1e6)
        rss = cluster.rss_bytes()
    return {
        "messages_per_s": sorted(rates)[ROUNDS // 2],
        "messages_per_s_rounds": rates,
        "cpu_us_per_message_all_brokers": sorted(cpu_us)[ROUNDS // 2],
        "largest_broker_rss_mb": max(rss) / 1e6,
    }


def latency(rate: int = 2_000, seconds: int = 8) -> dict[str, Any]:
    """From produce() to its acknowledgement by all three, at a fixed rate; late sends count as late."""
    with three_brokers() as cluster:
        create(cluster)
        rounds = [_latency_round(cluster, rate, seconds) for _ in range(ROUNDS)]
    middle = {name: sorted(each[name] for each in rounds)[ROUNDS // 2] for name in rounds[0]}
    return {"rate_per_s": rate, **middle, "rounds": rounds}


def _latency_round(cluster: Cluster, rate: int, seconds: int) -> dict[str, float]:
    taken_ms: list[float] = []
    producer = _producer(cluster)

    def sent(due: float) -> Any:
        return lambda error, _: taken_ms.append((time.perf_counter() - due) * 1000) if error is None else None

    began = time.perf_counter()
    for tick in range(seconds * TICKS_PER_S):
        due = began + tick / TICKS_PER_S
        while (left := due - time.perf_counter()) > 0:
            producer.poll(max(left, POLL_S_MIN))
        for _ in range(rate // TICKS_PER_S):
            producer.produce("bench", VALUE, partition=0, on_delivery=sent(due))
    producer.flush(30)
    assert len(taken_ms) == rate * seconds, "some messages were not acknowledged"
    taken_ms = sorted(taken_ms[rate:])
    return {f"p{name}_ms": percentile(taken_ms, share) for name, share in PERCENTILES.items()}


def planned_moves() -> dict[str, Any]:
    """The longest time without an acknowledgement while leaders are moved on purpose, a message every millisecond."""
    with three_brokers("auto.leader.rebalance.enable=false") as cluster:
        create(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        gaps_ms = sorted(_felt_move(cluster, admin) for _ in range(MOVES))
    return {"moves": MOVES, "p50_ms": percentile(gaps_ms, 0.5), "p95_ms": percentile(gaps_ms, 0.95), "all_ms": gaps_ms}


def _felt_move(cluster: Cluster, admin: AdminClient) -> float:
    """Another replica first in the list, then a preferred election, under load."""
    acked_at: list[float] = []
    producer = _producer(cluster)

    def run(seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            producer.produce("bench", VALUE, partition=0, on_delivery=lambda *_: acked_at.append(time.perf_counter()))
            producer.poll(POLL_S_MIN)

    producer.produce("bench", VALUE, partition=0)
    producer.flush(30)  # librdkafka looks for a broker that gives it an id every 500 ms
    run(0.5)
    began = len(acked_at)
    _turn_replicas(cluster, admin)
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("bench", 0)])
    run(3.0)
    producer.flush(30)
    return max(after - before for before, after in zip(acked_at[began - 1 :], acked_at[began:], strict=False)) * 1000


def _turn_replicas(cluster: Cluster, admin: AdminClient) -> None:
    """The last replica becomes the preferred one; nothing is copied."""

    async def turn() -> None:
        host, _, port = cluster.bootstrap.split(",")[0].partition(":")
        async with await ClientConnection.connect(Endpoint(host, int(port))) as connection:
            replicas = [int(node) for node in admin.list_topics("bench").topics["bench"].partitions[0].replicas]
            moved = {"partition_index": 0, "replicas": [replicas[-1], *replicas[:-1]]}
            body = {"timeout": 10_000, "topics": [{"name": "bench", "partitions": [moved]}]}
            await connection.request(45, None, body)

    asyncio.run(turn())


def _producer(cluster: Cluster) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "enable.idempotence": True})
