"""What the gateway must reach: records through REST, registry reads, the console's first paint, its cost to producers.

Run by `python benchmarks/gateway.py [NAME …]`; prints tables, writes results/gateway.json, where measurements that were
not named stay as they were. Needs chromium for the console. Broker and gateway are processes of their own, started as a
user starts them; the load is this process (gateway_load), but for the latencies, which are `penstock bench latency`.

The console beside a producer (`console-*`): rounds with and without the console take turns, in an order that changes
each time, at one broker. In both the same browser runs and a gateway that was just started; without the console its
page is blank and nobody has asked that gateway anything (it goes on looking at the cluster for a while after somebody
has). Broker and producer share the first core, the browser has the last for itself, so that what a page takes to draw,
which is no cost of the broker's, is not counted as one. The gateway is on the browser's core, or (`-same-core`) on the
broker's, where every step it takes is one the broker waits for.

A result says how much of the machine others took meanwhile: well above a tenth of a core, measure again. (Of the
browser's own processes some end unseen and are counted there too.)
"""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import uvloop
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from gateway_console import FEW_TOPICS, TOPICS, console_beside, first_paint
from gateway_load import ROUNDS, Post, gateway, get, post, read, register
from harness import RunningBroker, broker, chosen, create_topic, percentile, spread
from machine import describe_machine

RESULTS = Path(__file__).parent / "results" / "gateway.json"

POST_SECONDS = 5.0
PARTITIONS = 4
RECORDS_A_REQUEST = 100
JSON_VALUE = {"id": 123456, "name": "a small record", "state": "open", "amount": 12.5, "tags": ["x", "y"]}
BINARY_VALUE = "eHh4" * 33  # 99 bytes

READS_PER_S = 1_000
READ_SECONDS = 10.0
SUBJECTS = 200

_OWN = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def rest() -> dict[str, Any]:
    """Records a second through one gateway, each form of request by itself."""
    with broker() as running, gateway(running) as (address, process):
        create_topic(running, "rest", PARTITIONS)
        cluster = get(address, "/v3/clusters")["data"][0]["cluster_id"]
        return {
            name: _rest_rounds(running, address, process, what, connections)
            for name, (what, connections) in _posts(f"/v3/clusters/{cluster}/topics/rest/records").items()
        }


def _posts(records_path: str) -> dict[str, tuple[Post, int]]:
    """What is sent, and over how many connections."""

    def v2(form: str, value: Any) -> Post:
        body = json.dumps({"records": [{"value": value}] * RECORDS_A_REQUEST}, separators=(",", ":")).encode()
        kind = f"application/vnd.kafka.{form}.v2+json"
        return Post("/topics/rest", kind, body, RECORDS_A_REQUEST, b'"error_code":null')

    record = json.dumps({"value": {"type": "JSON", "data": JSON_VALUE}}, separators=(",", ":")).encode() + b"\n"
    kind, delivered = "application/json", b'"error_code":200,'
    streamed = Post(records_path, kind, record * RECORDS_A_REQUEST, RECORDS_A_REQUEST, delivered, is_streamed=True)
    return {
        "v2-json": (v2("json", JSON_VALUE), 8),
        "v2-binary": (v2("binary", BINARY_VALUE), 8),
        "v3-streamed": (streamed, 4),
        "v3-one-record-a-request": (Post(records_path, kind, record, 1, delivered), 64),
    }


def _rest_rounds(
    running: RunningBroker, address: str, process: psutil.Process, what: Post, connections: int
) -> dict[str, Any]:
    uvloop.run(post(address, what, connections, 1.0))  # warms up
    before, rates, cores, own_cores = _records_in(running, "rest"), list[float](), list[float](), list[float]()
    delivered = 0
    for _ in range(ROUNDS):
        cpu, own = _cpu_s(process), time.process_time()
        count, took = uvloop.run(post(address, what, connections, POST_SECONDS))
        delivered += count
        rates.append(count / took)
        cores.append((_cpu_s(process) - cpu) / took)
        own_cores.append((time.process_time() - own) / took)
    kept = _records_in(running, "rest") - before
    assert kept == delivered, f"{delivered} records reported, {kept} in the topic"
    return {
        **spread("records_per_s", rates),
        "connections": connections,
        "gateway_cores": statistics.median(cores),
        "load_cores": statistics.median(own_cores),
    }


def registry() -> dict[str, Any]:
    """Latency of reads at a fixed rate: schemas by id, and the newest version of a subject."""
    with broker() as running, gateway(running) as (address, process):
        ids = [register(address, subject) for subject in range(SUBJECTS)]
        paths = [b"/schemas/ids/%d" % one for one in ids]
        paths += [b"/subjects/topic-%d-value/versions/latest" % subject for subject in range(SUBJECTS)]
        uvloop.run(read(address, paths, READS_PER_S, 2.0, 0))  # warms up
        rounds: list[list[float]] = []
        cores: list[float] = []
        for seed in range(ROUNDS):
            cpu, began = _cpu_s(process), time.perf_counter()
            rounds.append(uvloop.run(read(address, paths, READS_PER_S, READ_SECONDS, seed)))
            cores.append((_cpu_s(process) - cpu) / (time.perf_counter() - began))
    found: dict[str, Any] = {"reads_per_s": READS_PER_S, "gateway_cores": statistics.median(cores)}
    for name, share in {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p99_9_ms": 0.999}.items():
        found |= spread(name, [percentile(each, share) for each in rounds])
    return {"reads": {**found, **spread("max_ms", [each[-1] for each in rounds])}}


def _own_cpu_s() -> float:
    """Of this process and all that it has started and seen end."""
    return sum([used.ru_utime + used.ru_stime for used in map(resource.getrusage, _OWN)])


def _busy_cpu_s() -> float:
    times = psutil.cpu_times()
    return times.user + times.nice + times.system


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _records_in(running: RunningBroker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": running.address, "group.id": "count"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, one), 30) for one in range(PARTITIONS)]
    consumer.close()
    return sum(end for _, end in ends)


BENCHMARKS: dict[str, Callable[[], dict[str, Any]]] = {
    "rest": rest,
    "registry": registry,
    "first-paint": first_paint,
    "console-100-topics": lambda: console_beside(FEW_TOPICS),
    "console-100-topics-same-core": lambda: console_beside(FEW_TOPICS, is_same_core=True),
    "console-10000-topics": lambda: console_beside(TOPICS),
}


def main(names: list[str]) -> int:
    console = Console()
    report: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in chosen(names, BENCHMARKS):
        machine, own, busy, began = describe_machine(), _own_cpu_s(), _busy_cpu_s(), time.perf_counter()
        with console.status(name):
            results = BENCHMARKS[name]()
        others = _busy_cpu_s() - busy - (_own_cpu_s() - own)
        machine["cores_taken_by_others"] = max(0.0, others / (time.perf_counter() - began))
        report[name] = {"machine": machine, "results": results}
        console.print(_table(name, results), f"others took {machine['cores_taken_by_others']:.2f} cores meanwhile")
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def _table(name: str, found: dict[str, dict[str, Any]]) -> Table:
    table = Table(title=name, title_justify="left")
    table.add_column("")
    for variant in found:
        table.add_column(variant, justify="right")
    for key, value in next(iter(found.values())).items():
        if not isinstance(value, list):
            table.add_row(key, *(f"{each[key]:,.2f}" for each in found.values()))
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
