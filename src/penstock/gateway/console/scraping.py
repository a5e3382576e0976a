"""What brokers say of themselves on their /metrics pages: traffic by topic, and how long producing takes.

Called by watching, in a thread. Only the lines that the console shows are read.
Laws: a page that is too large, too slow or not there is no page; a counter that fell was begun anew and gives no rate.
"""

import re
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PAGE_BYTES_MAX = 32 * 1024 * 1024
TIMEOUT_S = 3.0

TRAFFIC = {
    "mq_messages_in_total": "messages_in",
    "mq_messages_out_total": "messages_out",
    "mq_bytes_in_total": "bytes_in",
    "mq_bytes_out_total": "bytes_out",
}
LATENCY = "mq_produce_latency_ms_bucket"
GAUGES = {
    "mq_connections": "connections",
    "process_resident_memory_bytes": "memory_bytes",
    "mq_uptime_seconds": "uptime_s",
    "process_cpu_seconds_total": "cpu_s",
}

_TOPIC = re.compile(r'topic="((?:[^"\\]|\\.)*)"')
_BOUND = re.compile(r'le="([^"]*)"')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(slots=True)
class Reading:
    """All brokers' pages at one moment, added up."""

    traffic: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    # Upper bound in ms -> requests that took at most so long.
    latency: dict[float, float] = field(default_factory=dict[float, float])
    # One dictionary for each page that answered.
    brokers: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])


def scrape(addresses: Iterable[str]) -> Reading:
    """`addresses`: of pages, as http://host:port/metrics. Blocks."""
    reading = Reading()
    # Not through a proxy that the environment may name: brokers are asked directly.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for address in addresses:
        try:
            answer: Any
            with opener.open(address, timeout=TIMEOUT_S) as answer:
                page: bytes = answer.read(PAGE_BYTES_MAX + 1)
        except (OSError, ValueError):
            continue
        if len(page) <= PAGE_BYTES_MAX:
            read_page(page.decode(errors="replace"), address, reading)
    return reading


def read_page(page: str, address: str, reading: Reading) -> None:
    """Add one page in Prometheus' text format to a reading. Lines that make no sense are passed over."""
    gauges = reading.brokers.setdefault(address, {})
    for line in page.splitlines():
        if not line.startswith(("mq_messages_", "mq_bytes_", LATENCY, "mq_connections", "mq_uptime", "process_")):
            continue
        name_and_labels, _, number = line.rpartition(" ")
        name, brace, labels = name_and_labels.partition("{")
        try:
            value = float(number)
        except ValueError:
            continue
        if name in TRAFFIC:
            found = _TOPIC.search(labels)
            topic = _ESCAPED.sub(r"\1", found.group(1)) if found else ""
            key = (topic, TRAFFIC[name])
            reading.traffic[key] = reading.traffic.get(key, 0.0) + value
        elif name == LATENCY and brace:
            found = _BOUND.search(labels)
            if found:
                try:
                    bound = float(found.group(1))
                except ValueError:
                    continue
                reading.latency[bound] = reading.latency.get(bound, 0.0) + value
        elif name in GAUGES and not brace:
            gauges[GAUGES[name]] = value


def rates(before: Reading, after: Reading, elapsed_s: float) -> dict[tuple[str, str], float | None]:
    """Per second, by topic and kind; topic "" is the sum of all."""
    found: dict[tuple[str, str], float | None] = {}
    sums: dict[str, float] = {}
    # A broker that came or went changes the sums without any traffic.
    is_comparable = before.brokers.keys() == after.brokers.keys() and elapsed_s > 0
    for (topic, kind), value in after.traffic.items():
        grown = value - before.traffic.get((topic, kind), 0.0)
        if not is_comparable or grown < 0:
            found[(topic, kind)] = None
            continue
        found[(topic, kind)] = grown / elapsed_s
        sums[kind] = sums.get(kind, 0.0) + grown / elapsed_s
    for kind in TRAFFIC.values():
        found[("", kind)] = sums.get(kind, 0.0) if is_comparable and after.brokers else None
    return found


def quantile(before: Mapping[float, float], after: Mapping[float, float], share: float) -> float | None:
    """How long (ms) the given share of the requests between two readings took at most; None if there were none."""
    bounds = sorted(after)
    counts = [after[bound] - before.get(bound, 0.0) for bound in bounds]
    if not counts or counts[-1] <= 0 or min(counts) < 0:
        return None
    sought = share * counts[-1]
    low, below = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= sought:
            if bound == float("inf"):
                return low
            # As Prometheus does: evenly spread inside a bucket.
            inside = count - below
            return low + (bound - low) * ((sought - below) / inside if inside else 1.0)
        low, below = bound, count
    return low
