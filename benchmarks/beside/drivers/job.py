"""What a client process is asked to do, and what it says afterwards; the same for every system.

Used on both sides: driving.py writes a Job, a driver reads it and writes an Outcome. Only the standard library, for
drivers run in a Python of their own.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

TICKS_PER_S = 1_000  # of a fixed rate: so often a few messages become due together
PAYLOADS = 1_000  # different messages of one job, sent again and again
STAMP_BYTES = 8  # a due time, at the front of messages whose way is timed
PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p99_9_ms": 0.999}
WORDS = (
    *("order", "payment", "customer", "shipped", "pending", "status", "warehouse", "price", "amount", "currency"),
    *("created", "updated", "region", "north", "south", "express", "standard", "invoice", "item", "quantity"),
)


@dataclass(frozen=True, slots=True)
class Job:
    act: str
    address: str
    creates: bool = False  # the topic is made first
    topic: str = "bench"
    count: int = 0  # messages, requests or transactions
    size: int = 100
    partitions: int = 1
    replicas: int = 1
    acks: str = "all"
    compression: str = "none"
    rate: int = 0  # messages a second, where it is fixed
    connections: int = 1
    in_flight: int = 1
    groups: int = 1
    seconds_max: float = 0  # after which no more is sent, though `count` is not reached; 0 for no such end


@dataclass(frozen=True, slots=True)
class Outcome:
    messages: int
    size_bytes: int = 0
    latencies_ms: Sequence[float] = ()
    figures: dict[str, float] = field(default_factory=dict[str, float])
    verify: Callable[[], None] | None = None  # called when the clock has stopped; raises where the work was not done


def payloads(size: int, count: int = PAYLOADS, seed: int = 1) -> list[bytes]:
    """Words and numbers, which compress about as events do; the same for every system."""
    source = random.Random(seed)
    made: list[bytes] = []
    for _ in range(count):
        parts: list[str] = []
        length = 0
        while length < size:
            parts.append(f"{source.choice(WORDS)}={source.randrange(10**6)};")
            length += len(parts[-1])
        made.append("".join(parts)[:size].encode())
    return made


def time_is_left(job: Job) -> Callable[[], bool]:
    """Whether to send more: asked between portions, from the first call on."""
    if not job.seconds_max:
        return lambda: True
    end = time.monotonic() + job.seconds_max
    return lambda: time.monotonic() < end


def schedule(rate: int, count: int) -> Iterator[tuple[float, int]]:
    """When, in seconds from the beginning, how many messages become due: `count` in all, `rate` a second."""
    sent = tick = 0
    while sent < count:
        due = min(count, rate * (tick + 1) // TICKS_PER_S)
        if due > sent:
            yield tick / TICKS_PER_S, due - sent
            sent = due
        tick += 1


def percentiles(latencies_ms: Sequence[float]) -> dict[str, float]:
    """By nearest rank, so that every figure is one that was measured."""
    ordered = sorted(latencies_ms)
    return {name: ordered[_rank(share, len(ordered))] for name, share in PERCENTILES.items()} if ordered else {}


def _rank(share: float, count: int) -> int:
    # In whole thousandths: 0.999 * 1000 is a little more than 999 in floating point.
    return max(0, -(-round(share * 1000) * count // 1000) - 1)
