"""One chaos run: three brokers, a metadata store, load, faults from a seed, and at the end the checkers.

Called by test_cluster_chaos and cluster_soak; by hand: python tests/chaos/cluster_run.py --help.
A run is red if a checker finds something, if fewer faults took effect than the quota, or if too few records were
acknowledged meanwhile. Nothing is judged by time but progress after everything is healed.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import psutil
from cluster_arena import Arena, Moment, give_clocks, give_small_disks, take_small_disks
from cluster_checkers import (
    Outcome,
    StoredBatch,
    check_commits,
    check_delivery,
    check_growth,
    check_leaders,
    check_logs,
    check_queue,
    check_replicas,
    check_settled,
    check_transfers,
)
from cluster_clients import ACCOUNT_COUNT, ACCOUNTS, QUEUE, QUEUE_PARTITIONS, Ack
from cluster_eyes import Eyes
from cluster_load import History, LoadProcess
from cluster_machine_faults import CLOCK_TOPIC
from cluster_nemesis import Nemesis, Struck
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.records.batch import read_header
from penstock.testing.cluster import PenstockCluster
from penstock.testing.etcd import etcd_binary
from penstock.testing.namespaces import why_no_namespaces

HEALED_DEADLINE_S = 90.0
CLOCK_PARTITIONS = 6  # so that a broker that is there most likely leads one
PROGRESS_RECORDS, PROGRESS_DEADLINE_S = 100, 10.0
# Of the disk that is filled up at times: room for all that is acknowledged, and not much more.
DISK_BYTES_MIN, DISK_BYTES_PER_RECORD = 400 << 20, 2000
RESIDENT_GROWTH_MAX = 150 << 20
DESCRIPTOR_GROWTH_MAX = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is to reach."""

    seed: int
    faults: int  # that took effect
    records: int  # acknowledged meanwhile
    seconds_max: float  # then it ends, with what it has
    rate: float  # records a second
    session_s: float
    metadata: Literal["sqlite", "etcd"] = "etcd"
    namespaces: bool = True


@dataclass(slots=True)
class Report:
    plan: Plan
    seconds: float = 0.0
    acked: int = 0
    unknown: int = 0
    transactions: dict[str, int] = field(default_factory=dict[str, int])
    effective: int = 0
    struck: list[Struck] = field(default_factory=list[Struck])
    left_out: list[str] = field(default_factory=list[str])
    network: str = ""
    failover_s: list[float] = field(default_factory=list[float])
    planned_gap_s: list[float] = field(default_factory=list[float])
    violations: list[str] = field(default_factory=list[str])

    @property
    def shortfalls(self) -> list[str]:
        """What was not reached; a run that proves too little is as red as one that finds something."""
        short: list[str] = []
        if self.effective < self.plan.faults:
            short.append(f"only {self.effective} of {self.plan.faults} faults took effect")
        if self.acked < self.plan.records:
            short.append(f"only {self.acked} of {self.plan.records} records were acknowledged")
        return short

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "shortfalls": self.shortfalls,
            "failover_p50_p95_s": [quantile(self.failover_s, 0.5), quantile(self.failover_s, 0.95)],
            "planned_gap_p50_p95_s": [quantile(self.planned_gap_s, 0.5), quantile(self.planned_gap_s, 0.95)],
        }


def quantile(values: Sequence[float], share: float) -> float | None:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


def run(plan: Plan, directory: Path, say: Callable[[str], None]) -> Report:
    why_not = why_no_namespaces() if plan.namespaces else "not asked for"
    report = Report(plan, network="network namespaces" if why_not is None else f"fault proxy ({why_not})")
    say(f"seed {plan.seed}, {plan.metadata}, {report.network}, session {plan.session_s:g} s")
    overrides = {
        "broker.session.timeout.ms": str(int(plan.session_s * 1000)),
        "replica.lag.time.max.ms": str(int(plan.session_s * 1000)),
        "log.flush.offset.checkpoint.interval.ms": "1000",
        "replica.high.watermark.checkpoint.interval.ms": "1000",
        "log.segment.bytes": str(8 << 20),
        "leader.imbalance.check.interval.seconds": "20",
        "auto.create.topics.enable": "false",
    }
    cluster = PenstockCluster(directory, metadata=plan.metadata, overrides=overrides, namespaces=why_not is None)
    clocks = give_clocks(cluster, [3])
    small_disks = give_small_disks(cluster, [2], max(DISK_BYTES_MIN, plan.records * DISK_BYTES_PER_RECORD))
    means = {plan.metadata, *(["faketime"] if clocks else []), *(["small disk"] if small_disks else [])}
    means |= {"strace"} if shutil.which("strace") else set()
    began = time.monotonic()
    try:
        cluster.start()
        _create_topics(cluster)
        _run_on(cluster, plan, report, clocks, small_disks, means, say)
        report.violations += check_logs({f"broker {node}": broker.log for node, broker in cluster.brokers.items()})
    finally:
        cluster.destroy()
        take_small_disks(cluster, small_disks)
    report.seconds = time.monotonic() - began
    return report


def _create_topics(cluster: PenstockCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    stamped = {"message.timestamp.type": "LogAppendTime"}
    wanted = [NewTopic(QUEUE, QUEUE_PARTITIONS, 3), NewTopic(ACCOUNTS, ACCOUNT_COUNT, 3)]
    wanted.append(NewTopic(CLOCK_TOPIC, CLOCK_PARTITIONS, 3, config=stamped))
    for made in admin.create_topics(wanted).values():
        made.result(30)


def _run_on(
    cluster: PenstockCluster,
    plan: Plan,
    report: Report,
    clocks: dict[int, Path],
    small_disks: set[int],
    means: set[str],
    say: Callable[[str], None],
) -> None:
    eyes = Eyes(cluster.metadata_url, cluster.directory)
    eyes.open()
    load = LoadProcess(cluster.bootstrap, cluster.directory, plan.rate, plan.seed)
    try:
        arena = Arena(cluster, eyes, load, random.Random(plan.seed), plan.session_s, clocks, small_disks)
        assert eyes.wait(lambda: load.acked >= PROGRESS_RECORDS, 60.0), f"no load before any fault: {load.status}"
        sizes = _sizes(cluster)
        nemesis = Nemesis(arena, means)
        report.left_out = nemesis.left_out
        deadline = time.monotonic() + plan.seconds_max

        def is_enough() -> bool:
            reached = len(nemesis.effective) >= plan.faults and load.acked >= plan.records
            missing = nemesis.families - {struck.family for struck in nemesis.effective}
            return (reached and not missing) or time.monotonic() > deadline

        nemesis.run(is_enough, say)
        report.struck, report.effective = nemesis.struck, len(nemesis.effective)
        report.violations += _heal(cluster, eyes, load)
        report.acked = load.acked
        history = load.finish()
        report.violations += _judge(history, eyes) + _judge_sizes(sizes, _sizes(cluster))
        report.unknown = len(history.unknown)
        report.transactions = dict(Counter(outcome.value for outcome in history.outcomes.values()))
        report.failover_s = [gap for moment in arena.moments for gap in _failover(moment, history.acked)]
        report.planned_gap_s = [gap for moment in arena.moments for gap in _gap(moment, history.acked)]
        cluster.stop()
        report.violations += _judge_files(cluster, history)
    finally:
        if load.is_alive:
            load.kill()
        eyes.close()


def _heal(cluster: PenstockCluster, eyes: Eyes, load: LoadProcess) -> list[str]:
    """After the last fault: everything comes back by itself, and there is progress."""
    cluster.heal()
    for node, broker in cluster.brokers.items():
        cluster.resume(node)
        if not broker.is_alive:
            cluster.start_node(node)
    if not eyes.wait_whole(HEALED_DEADLINE_S):
        states = {topic.name: topic.partitions for topic in eyes.image.topics.values()}
        return [f"not every replica is in sync {HEALED_DEADLINE_S:g} s after the last fault: {states}"]
    acked = load.acked
    if not eyes.wait(lambda: load.acked >= acked + PROGRESS_RECORDS, PROGRESS_DEADLINE_S):
        return [f"only {load.acked - acked} records in {PROGRESS_DEADLINE_S:g} s after everything was healed"]
    return []


def _judge(history: History, eyes: Eyes) -> list[str]:
    acked = {ack.value: (ack.partition, ack.offset) for ack in history.acked}
    readers = {"tail": history.tail, "final": history.final, "again": history.again}
    violations = [f"a producer ended fatally: {fatal}" for fatal in history.fatal]
    violations += check_queue(acked, history.sent, readers, "final")
    total = sum(leg.amount for leg in history.legs if leg.transfer.startswith("opening"))
    violations += check_transfers(history.outcomes, history.legs, total)
    for group, delivered in history.delivered.items():
        violations += check_delivery(group, acked, delivered)
        violations += check_commits(group, history.observed[group], history.attempts[group])
    violations += check_settled(history.ends)
    violations += check_leaders(eyes.history)
    if not eyes.is_gapless:
        violations.append("the history of the metadata store has a hole, so leaders were not checked")
    if not any(outcome is Outcome.COMMITTED for outcome in history.outcomes.values()):
        violations.append("no transaction was committed, so none was checked")
    return violations


def _judge_files(cluster: PenstockCluster, history: History) -> list[str]:
    violations: list[str] = []
    for partition, (high_watermark, _) in history.ends.items():
        replicas = {
            node: stored_batches(broker.data_dir / partition, high_watermark)
            for node, broker in cluster.brokers.items()
        }
        violations += check_replicas(partition, replicas, high_watermark)
    return violations


def stored_batches(directory: Path, below: int) -> list[StoredBatch]:
    """Every whole batch of a partition's files, in order; what lies above the high watermark may be torn."""
    found: list[StoredBatch] = []
    for segment in sorted(directory.glob("*.log")):
        content = segment.read_bytes()
        at = 0
        while at + 61 <= len(content):
            header = read_header(content, at)
            if header.base_offset >= below or at + header.size > len(content):
                break
            found.append(StoredBatch(header.base_offset, header.last_offset, content[at : at + header.size]))
            at += header.size
    return found


def _sizes(cluster: PenstockCluster) -> dict[int, tuple[int, int]]:
    processes = {node: psutil.Process(broker.pid) for node, broker in cluster.brokers.items()}
    return {node: (process.memory_info().rss, process.num_fds()) for node, process in processes.items()}


def _judge_sizes(before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]]) -> list[str]:
    violations: list[str] = []
    for node in before:
        violations += check_growth(f"memory of broker {node}", before[node][0], after[node][0], RESIDENT_GROWTH_MAX)
        violations += check_growth(f"files of broker {node}", before[node][1], after[node][1], DESCRIPTOR_GROWTH_MAX)
    return violations


def _failover(moment: Moment, acks: Sequence[Ack]) -> list[float]:
    """From the death of a leader to the first acknowledgement of a record sent after it, per partition."""
    if moment.kind != "killed":
        return []
    firsts = [
        min((a.acked_at for a in acks if a.partition == partition and a.sent_at >= moment.at), default=None)
        for partition in moment.partitions
    ]
    return [first - moment.at for first in firsts if first is not None]


def _gap(moment: Moment, acks: Sequence[Ack]) -> list[float]:
    """The longest time without an acknowledgement around a planned move, per partition."""
    if moment.kind != "planned":
        return []
    gaps: list[float] = []
    for partition in moment.partitions:
        times = sorted(
            ack.acked_at
            for ack in acks
            if ack.partition == partition and moment.at - 0.5 <= ack.acked_at <= moment.until + 1.0
        )
        gaps += [max(after - before for before, after in pairwise(times))] if len(times) > 1 else []
    return gaps


def main() -> int:
    parser = argparse.ArgumentParser(description="One chaos run against a real cluster.")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rate", type=float, default=600.0)
    parser.add_argument("--session", type=float, default=3.0)
    parser.add_argument("--metadata", choices=("sqlite", "etcd"), default="etcd" if etcd_binary() else "sqlite")
    parser.add_argument("--proxy-only", action="store_true", help="no network namespaces, even as root")
    parser.add_argument("--keep", type=Path, help="a directory for data and logs that stays")
    options = parser.parse_args()
    plan = Plan(
        options.seed,
        options.faults,
        options.records,
        options.seconds,
        options.rate,
        options.session,
        options.metadata,
        not options.proxy_only,
    )

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="penstock-chaos-") as temporary:
        report = run(plan, options.keep or Path(temporary), say)
    found = report.as_json()
    say(json.dumps({name: value for name, value in found.items() if name != "struck"}, indent=2))
    return 1 if report.violations or report.shortfalls else 0


if __name__ == "__main__":
    sys.exit(main())
