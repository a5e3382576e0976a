"""Half an hour at half of what goes: does memory grow, do descriptors leak, does latency drift?

`python benchmarks/steady.py [--minutes 30] [--seconds-of-peak 20]`; writes benchmarks/results/steady.json after every
minute. One broker, one producer at half the rate that it reached before, a consumer that follows it, and each minute a
producer and reader of their own at 100 messages a second, whose latency is what another user of the broker would see.
Old segments are deleted all the time, so what retention costs is part of it.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from harness import RunningBroker, broker, create_topic
from machine import describe_machine

RESULTS = Path(__file__).parent / "results" / "steady.json"
LOADED, PROBED = "loaded", "probed"
KEPT_BYTES, SEGMENT_BYTES = 1 << 30, 128 << 20
RETENTION_CHECK_MS = 10_000
LOOK_EVERY_S = 5.0
PROBE_RATE, PROBE_S = 100, 20
AT_ONCE = 10_000
WARM_UP_MINUTES = 5  # until caches and the log have the size that they keep

Sample = dict[str, float]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="a broker at half its peak rate for a long time")
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--seconds-of-peak", type=int, default=20)
    given = parser.parse_args(arguments)
    with broker(f"log.retention.check.interval.ms={RETENTION_CHECK_MS}") as running:
        limits = {"retention_bytes": str(KEPT_BYTES), "segment_bytes": str(SEGMENT_BYTES)}
        create_topic(running, LOADED, **limits)
        create_topic(running, PROBED)
        peak = _bench(running, "produce", LOADED, seconds=given.seconds_of_peak)["messages_per_s"]
        rate = int(peak / 2)
        print(f"peak {peak:,.0f} messages/s; {given.minutes} minutes at {rate:,}", flush=True)
        report: dict[str, Any] = {
            "machine": describe_machine(),
            "peak_per_s": peak,
            "rate_per_s": rate,
            "minutes": [],
            "summary": {},
        }
        load_command = _command(running, "produce", LOADED, seconds=given.minutes * 60, throughput=rate)
        with _following(running) as reader, _process(load_command) as load:
            for _ in range(given.minutes):
                report["minutes"].append(_minute(running, reader))
                report["summary"] = summary(report["minutes"])
                RESULTS.write_text(json.dumps(report, indent=2) + "\n")
                print(json.dumps(report["minutes"][-1]), flush=True)
            out, _ = load.communicate(timeout=120)
            report["load"] = json.loads(out)
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report["summary"], indent=2))
    return 0 if report["load"]["failed"] == 0 else 1


def _minute(running: RunningBroker, reader: "Reader") -> Sample:
    """What a minute looked like: the broker's memory and descriptors all along, latency in its middle."""
    end = time.monotonic() + 60
    rss: list[float] = []
    descriptors: list[float] = []
    cpu_s, had = running.cpu_s(), reader.count
    with _process(_command(running, "latency", PROBED, seconds=PROBE_S, throughput=PROBE_RATE)) as probe:
        while time.monotonic() < end:
            rss.append(running.rss_bytes() / 1e6)
            descriptors.append(float(running.process.num_fds()))
            time.sleep(LOOK_EVERY_S)
        out, _ = probe.communicate(timeout=60)
        found = json.loads(out)
    return {
        "rss_mb": statistics.median(rss),
        "rss_mb_max": max(rss),
        "descriptors": statistics.median(descriptors),
        "descriptors_max": max(descriptors),
        "broker_cpu_share": (running.cpu_s() - cpu_s) / 60,
        "read_per_s": (reader.count - had) / 60,
        "produce_p50_ms": found["latency"]["p50_ms"],
        "produce_p99_ms": found["latency"]["p99_ms"],
        "end_to_end_p50_ms": found["end_to_end"]["p50_ms"],
        "end_to_end_p99_ms": found["end_to_end"]["p99_ms"],
    }


def summary(minutes: Sequence[Sample]) -> dict[str, float]:
    """The last third against the first after the warm-up: 1 where nothing changes."""
    steady = minutes[WARM_UP_MINUTES:]
    third = len(steady) // 3
    if third == 0:
        return {}
    names = ("rss_mb", "descriptors", "produce_p50_ms", "produce_p99_ms", "end_to_end_p50_ms", "end_to_end_p99_ms")
    found: dict[str, float] = {}
    for name in names:
        first, last = ([each[name] for each in part] for part in (steady[:third], steady[-third:]))
        found[f"{name}_first"], found[f"{name}_last"] = statistics.median(first), statistics.median(last)
        found[f"{name}_last_to_first"] = found[f"{name}_last"] / found[f"{name}_first"]
    return found


class Reader:
    """A consumer that keeps up with the load, in a thread of this process."""

    def __init__(self, address: str) -> None:
        self.count = 0
        self._is_over = threading.Event()
        self._consumer = Consumer({"bootstrap.servers": address, "group.id": "steady", "auto.offset.reset": "latest"})
        self._consumer.subscribe([LOADED])
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._is_over.is_set():
            self.count += sum(1 for each in self._consumer.consume(AT_ONCE, 0.1) if each.error() is None)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()


@contextlib.contextmanager
def _following(running: RunningBroker) -> Iterator[Reader]:
    reader = Reader(running.address)
    try:
        yield reader
    finally:
        reader.close()


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def _bench(running: RunningBroker, act: str, topic: str, **options: int) -> dict[str, Any]:
    done = subprocess.run(_command(running, act, topic, **options), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _command(running: RunningBroker, act: str, topic: str, **options: int) -> list[str]:
    command = [sys.executable, "-m", "penstock", "bench", act, "-b", running.address, "-t", topic, "--json"]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    return command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
