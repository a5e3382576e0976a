"""All benchmarks, one command: prints a table, writes benchmarks/results/latest.json.

Run by `make bench`, or `python benchmarks/run.py NAME …` for some of them. Nothing else should be running: what is
measured is this machine at this moment, and the report says which.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import cluster
import failover
import fetch
import footprint
import produce
import rebalance
import transactions
from harness import chosen
from machine import describe_machine

RESULTS = Path(__file__).parent / "results"

BENCHMARKS: dict[str, Callable[[], dict[str, Any]]] = {
    "start": footprint.start,
    "fixture": footprint.fixture,
    "produce-acks-1": lambda: produce.throughput("1"),
    "produce-acks-all": lambda: produce.throughput("all"),
    "small-requests-acks-1": lambda: produce.small_requests(1),
    "small-requests-acks-all": lambda: produce.small_requests(-1),
    "latency-10k": produce.latency,
    "fetch-cached": fetch.cached,
    "transaction-of-one-message": lambda: transactions.one_message(1),
    "transactions-of-8-producers": lambda: transactions.one_message(8),
    "rebalance-200-members": rebalance.two_hundred_members,
    "three-replicas-throughput": cluster.throughput,
    "three-replicas-latency-2k": cluster.latency,
    "three-replicas-planned-moves": cluster.planned_moves,
    "leader-killed": failover.killed,
    "leader-stopped": failover.stopped,
    "partitions-1000": footprint.partitions,
    "topics-10000": footprint.topics,
    "connections-5000": footprint.connections,
}


def main(names: list[str]) -> int:
    console = Console()
    report: dict[str, Any] = {"machine": describe_machine(), "results": {}}
    for name in chosen(names, BENCHMARKS):
        with console.status(name):
            report["results"][name] = BENCHMARKS[name]()
        console.print(_table(name, report["results"][name]))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / ("latest.json" if not names else f"{'-'.join(names)}.json")
    path.write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return 0


def _table(name: str, result: dict[str, Any]) -> Table:
    table = Table(title=name, show_header=False, title_justify="left")
    for key, value in result.items():
        if key == "rows":
            for row in value:
                table.add_row("", ", ".join(f"{label} {_number(each)}" for label, each in row.items()))
        elif not isinstance(value, list):
            table.add_row(key, _number(value))
    return table


def _number(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.3f}" if isinstance(value, float) and abs(value) < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
