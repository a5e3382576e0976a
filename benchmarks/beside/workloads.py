"""What is measured, as data: every workload of the comparison, what it needs, which figure is its headline.

Read by command.py, rounds.py and alone.py; nothing runs here. A Workload of the kind TOGETHER is driven through all
peers in alternation while all of them are up; ALONE starts each peer by itself, because starting and stopping is timed.
`quickly` divides counts: it shows that everything works and measures nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from ..peers.model import Ability, Mode
from .drivers.job import Job
from .figures import Better

SIZES = (10, 100, 1_000, 10_000)
RATES = (1_000, 10_000, 50_000)
LATENCY_S = 10
PRODUCE_BYTES = 300_000_000  # of one round, or PRODUCE_COUNT_MAX messages where those are fewer bytes
PRODUCE_COUNT_MAX = 2_000_000
READ_COUNT = 500_000
QUICK_DIVISOR = 100
QUICK_COUNT_MIN = 20
SECONDS_MAX = 5.0  # of one round: some clients would take minutes for what others send in a second
RECOVERY_BYTES = 10_000_000_000
ALL_MODES = (Mode.DEFAULT, Mode.FSYNC, Mode.PAGE_CACHE)
LIMIT = "limit: "  # before its name, where it stands among the peers
KAFKA_ONLY = frozenset({Ability.KAFKA})


class Kind(StrEnum):
    TOGETHER = "together"
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    family: str  # what --only names
    job: Job  # without an address
    metric: str
    better: Better = Better.HIGHER
    kind: Kind = Kind.TOGETHER
    modes: tuple[Mode, ...] = (Mode.DEFAULT,)
    needs: frozenset[Ability] = frozenset()
    nodes: int = 1
    per_core: bool = False  # whoever runs on one core has a broker for each (`penstock serve --brokers`)
    fill: int = 0  # messages that must be there before
    listens: bool = False  # a second client reads what the first sends
    is_cold: bool = False  # what was filled is not in the page cache
    is_core: bool = False  # one of the targets' rows
    limits: tuple[str, ...] = ()  # of the machine, measured in the same rounds

    def quickly(self) -> "Workload":
        count = self.job.count if self.job.count <= QUICK_COUNT_MIN else self._less(self.job.count)
        partitions = min(self.job.partitions, 12)
        return replace(self, job=replace(self.job, count=count, partitions=partitions), fill=self._less(self.fill))

    def _less(self, count: int) -> int:
        return max(QUICK_COUNT_MIN, count // QUICK_DIVISOR) if count else 0


def _produce() -> Iterator[Workload]:
    for partitions in (1, 12):
        for size in SIZES:
            for acks in ("1", "all"):
                for compression in ("none", "lz4", "zstd"):
                    needs = {Ability.CHOICE_OF_ACKS} if acks == "1" else set[Ability]()
                    needs |= {Ability.COMPRESSION} if compression != "none" else set()
                    count = min(PRODUCE_COUNT_MAX, PRODUCE_BYTES // size)
                    job = Job("produce", "", count=count, size=size, seconds_max=SECONDS_MAX)
                    job = replace(job, partitions=partitions, acks=acks, compression=compression)
                    is_core = size == 100 and partitions == 1 and compression == "none"
                    yield Workload(
                        f"produce-{partitions}p-{size}b-acks-{acks}-{compression}",
                        "produce",
                        job,
                        "messages_per_s",
                        modes=ALL_MODES if is_core else (Mode.DEFAULT,),
                        needs=frozenset(needs),
                        is_core=is_core,
                        limits=("librdkafka-null-broker",) if is_core else (),
                    )


def _small() -> Iterator[Workload]:
    for connections, in_flight in ((1, 1), (1, 50), (50, 1)):
        for acks in ("1", "all"):
            count = 150_000 if connections * in_flight > 1 else 5_000
            job = Job("small", "", count=count, acks=acks, seconds_max=SECONDS_MAX)
            yield Workload(
                f"small-{connections}-connections-{in_flight}-in-flight-acks-{acks}",
                "small",
                replace(job, connections=connections, in_flight=in_flight),
                "messages_per_s",
                # Both synced, acks=1 is acks=all; neither synced, it is what it is by default.
                modes=ALL_MODES if connections > 1 and acks == "all" else (Mode.DEFAULT,),
                needs=frozenset({Ability.CHOICE_OF_ACKS}) if acks == "1" else frozenset(),
                is_core=connections > 1,
            )
    for acks in ("1", "all"):
        yield Workload(
            f"small-50-connections-2-partitions-acks-{acks}",
            "small",
            Job("small", "", count=150_000, acks=acks, connections=50, partitions=2, seconds_max=SECONDS_MAX),
            "messages_per_s",
            modes=(Mode.DEFAULT,) if acks == "1" else (Mode.DEFAULT, Mode.PAGE_CACHE),
            needs=KAFKA_ONLY | {Ability.CHOICE_OF_ACKS},
            per_core=True,
            is_core=True,
        )


def _latency() -> Iterator[Workload]:
    for listens in (False, True):
        for rate in RATES:
            yield Workload(
                f"latency-{'end-to-end' if listens else 'produce'}-{rate // 1000}k",
                "latency",
                Job("latency", "", count=rate * LATENCY_S, rate=rate),
                "end_to_end_p99_ms" if listens else "p99_ms",
                Better.LOWER,
                modes=ALL_MODES if rate == 10_000 else (Mode.DEFAULT,),
                listens=listens,
                is_core=rate == 10_000,
                limits=("fsync", "fsync-10k") if rate == 10_000 and not listens else (),
            )


def _read() -> Iterator[Workload]:
    job = Job("read", "", count=READ_COUNT, size=1_000)
    for is_cold in (False, True):
        name = "cold" if is_cold else "cached"
        yield Workload(f"catch-up-{name}", "read", job, "mb_per_s", fill=READ_COUNT, is_cold=is_cold, is_core=True)
        yield Workload(
            f"catch-up-{name}-raw",
            "read",
            replace(job, act="raw-read"),
            "mb_per_s",
            needs=KAFKA_ONLY,
            fill=READ_COUNT,
            is_cold=is_cold,
            is_core=True,
            limits=() if is_cold else ("loopback-tcp", "loopback-replies"),
        )
    few = READ_COUNT // 5
    fan_out = replace(job, count=few, groups=10)
    yield Workload("fan-out-10-groups", "read", fan_out, "mb_per_s", fill=few)


def _kafka() -> Iterator[Workload]:
    three = Job("produce", "", count=1_000_000, replicas=3)
    yield Workload(
        "three-brokers-acks-all",
        "cluster",
        three,
        "messages_per_s",
        needs=frozenset({Ability.CLUSTER}),
        nodes=3,
        is_core=True,
    )
    yield Workload(
        "three-brokers-latency-2k",
        "cluster",
        replace(three, act="latency", count=2_000 * LATENCY_S, rate=2_000),
        "p99_ms",
        Better.LOWER,
        needs=frozenset({Ability.CLUSTER}),
        nodes=3,
    )
    yield Workload(
        "transactions-of-one-message",
        "transactions",
        Job("transactions", "", count=1_000),
        "messages_per_s",
        needs=frozenset({Ability.TRANSACTIONS}),
    )
    yield Workload(
        "rebalance-100-members",
        "rebalance",
        Job("rebalance", "", count=100, partitions=300),
        "joined_s",
        Better.LOWER,
        needs=frozenset({Ability.GROUPS}),
    )


def _alone() -> Iterator[Workload]:
    alone = Kind.ALONE
    lower = Better.LOWER
    yield Workload("start-to-first-message", "start", Job("first", "", count=1), "start_s", lower, alone, is_core=True)
    loaded = Job("produce", "", count=1_000_000)
    yield Workload("memory", "memory", loaded, "loaded_rss_mb", lower, alone, is_core=True)
    yield Workload(
        "recovery-after-kill-10gb",
        "recovery",
        Job("first", "", count=1),
        "recovered_s",
        lower,
        alone,
        needs=frozenset({Ability.RESTART}),
        fill=RECOVERY_BYTES // 1_000,
    )
    for count in (1_000, 10_000, 100_000):
        yield Workload(
            f"partitions-{count}",
            "partitions",
            Job("partitions", "", count=count),
            "restart_s",
            lower,
            alone,
            needs=frozenset({Ability.KAFKA, Ability.MANY_PARTITIONS}),
            is_core=count == 10_000,
        )
    yield Workload(
        "connections-10000",
        "connections",
        Job("connections", "", count=10_000),
        "kb_each",
        lower,
        alone,
        needs=KAFKA_ONLY,
    )


WORKLOADS: tuple[Workload, ...] = (*_produce(), *_small(), *_latency(), *_read(), *_kafka(), *_alone())
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(workload.family for workload in WORKLOADS))


def chosen(only: list[str], core: bool) -> list[Workload]:
    """By family or by name; an unknown one is an error that says what there is."""
    known = {*FAMILIES, *(workload.name for workload in WORKLOADS)}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise LookupError(f"no workload {', '.join(unknown)}; there are the families {', '.join(FAMILIES)}")
    wanted = [each for each in WORKLOADS if not only or each.family in only or each.name in only]
    return [each for each in wanted if each.is_core] if core else wanted
