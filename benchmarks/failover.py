"""How long writers wait when a leader dies, and when it is stopped on purpose: three brokers, acks=all.

A message every few milliseconds to one partition; felt is the longest time between two acknowledgements, so a client's
own waiting counts too. The default session of 6 s has to run out before a dead leader is replaced. Metadata is in
etcd, if that is installed here.
"""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness import percentile
from penstock.testing.cluster import PenstockCluster
from produce import VALUE

TOPIC = "bench"
MOVES = 12
QUIET_S = 0.5  # before the leader goes, so that there is something to compare with
WHOLE_DEADLINE_S = 60.0
SEND_EVERY_S = 0.004


def killed() -> dict[str, Any]:
    """SIGKILL, and its machine says nothing more."""
    return _felt(lambda cluster, node: cluster.kill(node), after_s=12.0)


def stopped() -> dict[str, Any]:
    """SIGTERM, as in a rolling restart: leaders are handed over before the process ends."""
    return _felt(lambda cluster, node: cluster.terminate(node), after_s=2.0)


def _felt(end: Callable[[PenstockCluster, int], object], after_s: float) -> dict[str, Any]:
    metadata = "etcd" if shutil.which("etcd") else "sqlite"
    gaps_s: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        PenstockCluster(Path(folder), metadata=metadata) as cluster,
    ):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
        for _ in range(MOVES):
            leader = _whole(admin)
            gaps_s.append(_gap_s(cluster, after_s, lambda node=leader: end(cluster, node)))
            cluster.start_node(leader)
    gaps_s.sort()
    return {
        "moves": MOVES,
        "metadata in": metadata,
        "p50_s": percentile(gaps_s, 0.5),
        "p95_s": percentile(gaps_s, 0.95),
        "all_s": gaps_s,
    }


def _whole(admin: AdminClient) -> int:
    """The leader, once all three are in sync."""
    deadline = time.perf_counter() + WHOLE_DEADLINE_S
    while True:
        partition = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0]
        if len(partition.isrs) == 3 and partition.leader >= 0:
            return int(partition.leader)
        assert time.perf_counter() < deadline, "not all came back into sync"
        time.sleep(0.1)


def _gap_s(cluster: PenstockCluster, after_s: float, end: Callable[[], object]) -> float:
    acked_at: list[float] = []
    failed: list[str] = []

    def acked(error: object, _: object) -> None:
        acked_at.append(time.perf_counter()) if error is None else failed.append(str(error))

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
    producer.produce(TOPIC, VALUE, partition=0)
    producer.flush(30)  # it is connected before anything is measured

    def run(seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            producer.produce(TOPIC, VALUE, partition=0, on_delivery=acked)
            producer.poll(SEND_EVERY_S)

    run(QUIET_S)
    before = len(acked_at)
    ending = threading.Thread(target=end)
    ending.start()
    run(after_s)
    ending.join()
    producer.flush(60)
    assert not failed, failed[0]
    return max(second - first for first, second in zip(acked_at[before - 1 :], acked_at[before:], strict=False))
