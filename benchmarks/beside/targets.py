"""What we set out to reach, as data, and how far a report has got: the table at the head of the page.

Called by report.py. A target is held against Apache Kafka or against a limit of the machine, by the median of the
rounds' ratios. Nothing here is asserted; a row that is not reached says so.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..peers.kafka import Kafka
from ..peers.penstock import Penstock
from . import figures
from .workloads import LIMIT

Report = Mapping[str, Any]
OURS, KAFKA = Penstock.name, Kafka.name
AGAINST_KAFKA = "Kafka"
CPU = "broker_cpu_us_per_message"


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    against: str
    wanted: float
    is_least: bool  # what is reached must be at least this; else at most
    reached: Callable[[Report], float | None]

    @property
    def is_of_machine(self) -> bool:
        return self.against != AGAINST_KAFKA

    @property
    def sign(self) -> str:
        return "≥" if self.is_least else "≤"

    def holds(self, value: float) -> bool:
        return value >= self.wanted if self.is_least else value <= self.wanted


def _rounds(report: Report, workload: str, peer: str) -> list[dict[str, float]]:
    return report.get("workloads", {}).get(workload, {}).get("peers", {}).get(peer, {}).get("rounds", [])


def _to_kafka(workload: str, metric: str, mode: str = "default") -> Callable[[Report], float | None]:
    def reached(report: Report) -> float | None:
        name = f"{workload}, {mode}"
        found = figures.ratios(_rounds(report, name, OURS), _rounds(report, name, KAFKA), metric)
        return None if found is None else found.median

    return reached


def _median(report: Report, workload: str, metric: str) -> float | None:
    values = [each[metric] for each in _rounds(report, f"{workload}, default", OURS) if metric in each]
    return figures.spread(values).median if values else None


def _to_limit(workload: str, metric: str, limit: str) -> Callable[[Report], float | None]:
    def reached(report: Report) -> float | None:
        name = f"{workload}, default"
        found = figures.ratios(_rounds(report, name, OURS), _rounds(report, name, f"{LIMIT}{limit}"), metric)
        return None if found is None else found.median

    return reached


def _beyond(limit: str) -> Callable[[Report], float | None]:
    """Milliseconds of our P99 that are not the disk's in the same round."""

    def reached(report: Report) -> float | None:
        name = "latency-produce-10k, default"
        pairs = zip(_rounds(report, name, OURS), _rounds(report, name, f"{LIMIT}{limit}"), strict=False)
        above = [ours["p99_ms"] - disk["p99_ms"] for ours, disk in pairs]
        return figures.spread(above).median if above else None

    return reached


def _growth(report: Report) -> float | None:
    """The restart of ten times as many partitions, by tenths: 1 where the cost of each stays what it was."""
    few, many = (_median(report, f"partitions-{count}", "restart_s") for count in (10_000, 100_000))
    start = _median(report, "start-to-first-message", "start_s")
    if few is None or many is None or start is None or few <= start:
        return None
    return (many - start) / (few - start) / 10


PRODUCE = "produce-1p-100b-acks-1-none"
PRODUCE_SYNCED = "produce-1p-100b-acks-all-none"
NULL_BROKER = "librdkafka and a null broker"
TARGETS = (
    Target(
        "produce messages/s, 100 B, one partition, acks=1",
        AGAINST_KAFKA,
        1.0,
        True,
        _to_kafka(PRODUCE, "messages_per_s"),
    ),
    Target("the same", NULL_BROKER, 0.9, True, _to_limit(PRODUCE, "messages_per_s", "librdkafka-null-broker")),
    Target(
        "produce, acks=all (ours synced, Kafka's not)",
        AGAINST_KAFKA,
        1.0,
        True,
        _to_kafka(PRODUCE_SYNCED, "messages_per_s"),
    ),
    Target(
        "produce, acks=all",
        NULL_BROKER,
        0.9,
        True,
        _to_limit(PRODUCE_SYNCED, "messages_per_s", "librdkafka-null-broker"),
    ),
    Target("broker CPU per message, 100 B", AGAINST_KAFKA, 0.5, False, _to_kafka(PRODUCE, CPU)),
    Target(
        "small requests/s, 50 connections, acks=1",
        AGAINST_KAFKA,
        1.2,
        True,
        _to_kafka("small-50-connections-1-in-flight-acks-1", "messages_per_s"),
    ),
    Target(
        "the same, acks=all (ours synced, Kafka's not)",
        AGAINST_KAFKA,
        1.2,
        True,
        _to_kafka("small-50-connections-1-in-flight-acks-all", "messages_per_s"),
    ),
    Target(
        "the same, acks=all, neither synced",
        AGAINST_KAFKA,
        1.2,
        True,
        _to_kafka("small-50-connections-1-in-flight-acks-all", "messages_per_s", "page-cache"),
    ),
    Target(
        "the same, acks=all, both synced",
        AGAINST_KAFKA,
        1.2,
        True,
        _to_kafka("small-50-connections-1-in-flight-acks-all", "messages_per_s", "fsync"),
    ),
    Target(
        "the same, acks=1, a broker of ours for each core, two partitions",
        AGAINST_KAFKA,
        1.2,
        True,
        _to_kafka("small-50-connections-2-partitions-acks-1", "messages_per_s"),
    ),
    Target("produce P99 at 10,000/s, acks=all", AGAINST_KAFKA, 0.5, False, _to_kafka("latency-produce-10k", "p99_ms")),
    Target("the same, both synced", AGAINST_KAFKA, 0.5, False, _to_kafka("latency-produce-10k", "p99_ms", "fsync")),
    Target(
        "the same, neither synced", AGAINST_KAFKA, 0.5, False, _to_kafka("latency-produce-10k", "p99_ms", "page-cache")
    ),
    Target("the same, ms above the disk's own P99, one sync after another", "fsync", 2.0, False, _beyond("fsync")),
    Target("the same, ms above the disk's own P99 at that rate", "fsync", 2.0, False, _beyond("fsync-10k")),
    Target(
        "end-to-end P99 at 10,000/s",
        AGAINST_KAFKA,
        0.5,
        False,
        _to_kafka("latency-end-to-end-10k", "end_to_end_p99_ms"),
    ),
    Target(
        "the same, both synced",
        AGAINST_KAFKA,
        0.5,
        False,
        _to_kafka("latency-end-to-end-10k", "end_to_end_p99_ms", "fsync"),
    ),
    Target(
        "the same, neither synced",
        AGAINST_KAFKA,
        0.5,
        False,
        _to_kafka("latency-end-to-end-10k", "end_to_end_p99_ms", "page-cache"),
    ),
    Target("catch-up read MB/s", AGAINST_KAFKA, 1.0, True, _to_kafka("catch-up-cached", "mb_per_s")),
    Target(
        "the same, without a client's work",
        "loopback TCP",
        0.7,
        True,
        _to_limit("catch-up-cached-raw", "mb_per_s", "loopback-tcp"),
    ),
    Target(
        "the same",
        "loopback TCP, 8 MB asked for at a time",
        0.7,
        True,
        _to_limit("catch-up-cached-raw", "mb_per_s", "loopback-replies"),
    ),
    Target(
        "three brokers, acks=all, messages/s",
        AGAINST_KAFKA,
        1.2,
        True,
        _to_kafka("three-brokers-acks-all", "messages_per_s"),
    ),
    Target("start to first message", AGAINST_KAFKA, 0.15, False, _to_kafka("start-to-first-message", "start_s")),
    Target("memory, idle", AGAINST_KAFKA, 0.2, False, _to_kafka("memory", "idle_rss_mb")),
    Target("memory, loaded", AGAINST_KAFKA, 0.4, False, _to_kafka("memory", "loaded_rss_mb")),
    Target("10,000 partitions: restart", AGAINST_KAFKA, 1.0, False, _to_kafka("partitions-10000", "restart_s")),
    Target("the same, growth to 100,000", "linear", 1.5, False, _growth),
)


def rows(report: Report) -> Iterator[tuple[str, str, str, str, str]]:
    """Name, against what, wanted, reached, verdict."""
    for target in TARGETS:
        value = target.reached(report)
        reached = "" if value is None else f"{value:.2f}"
        yield target.name, target.against, f"{target.sign} {target.wanted:g}", reached, _verdict(target, value)


def _verdict(target: Target, value: float | None) -> str:
    if value is None:
        return "not measured"
    if target.is_of_machine and target.is_least and value > 1:
        return "that is no limit: it is slower than we are"
    return "yes" if target.holds(value) else "**no**"
