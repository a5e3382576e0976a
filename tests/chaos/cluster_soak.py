"""`make soak`: chaos against a real cluster and simulated seeds, for up to two hours, and a report of both.

The seeds are simulated beside the chaos, with less of a claim to the processor, from a seed drawn anew each time.
The report goes to build/soak.json and, for people, to build/soak.md, which docs/reliability.md keeps of a good run.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cluster_run import Plan, Report, run

ROOT = Path(__file__).parent.parent.parent
FAULTS, RECORDS, SEEDS = 480, 1_000_000, 2000
WHOLE_MINUTES = 120.0
CHAOS_SHARE = 0.9  # of the minutes: the last seeds and the checkers need some
NICE = 15


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SOAK_MINUTES", WHOLE_MINUTES)))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    share = min(1.0, options.minutes / WHOLE_MINUTES)
    plan = Plan(
        seed=options.seed,
        faults=int(FAULTS * share),
        records=int(RECORDS * share),
        seconds_max=options.minutes * 60 * CHAOS_SHARE,
        rate=450,
        session_s=6,
    )
    directory = ROOT / "build" / f"soak-{options.seed}"
    simulation = Simulation(first=1 + options.seed % 1_000_000, seeds=int(SEEDS * share))
    try:
        report = run(plan, directory / "cluster", say)
    except BaseException:
        simulation.end()
        raise
    say(json.dumps(report.as_json(), indent=2))
    simulated = simulation.result()
    (ROOT / "build" / "soak.json").write_text(
        json.dumps({**report.as_json(), "simulation": simulated}, indent=2) + "\n"
    )
    page = as_markdown(report, simulated)
    (ROOT / "build" / "soak.md").write_text(page)
    say(page)
    return 1 if report.violations or report.shortfalls or simulated["exit code"] else 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Simulation:
    """Seeds one after another, a part of them in each of two processes: when the chaos is over, two cores are free."""

    def __init__(self, first: int, seeds: int) -> None:
        self._began, self._first, self._seeds = time.monotonic(), first, seeds
        (ROOT / "build").mkdir(exist_ok=True)
        self._parts = [self._start(first + part, seeds // 2 + (part and seeds % 2)) for part in (0, seeds // 2)]

    def _start(self, first: int, seeds: int) -> tuple["subprocess.Popen[bytes]", Path]:
        command = ["nice", f"-{NICE}", "make", "simulate", f"SEED={first}", f"SEEDS={seeds}"]
        path = ROOT / "build" / f"soak-seeds-{first}.log"
        with path.open("wb") as log:
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True), path

    def result(self) -> dict[str, Any]:
        codes = [process.wait() for process, _ in self._parts]
        return {
            "first seed": self._first,
            "seeds": self._seeds,
            "seconds": round(time.monotonic() - self._began),
            "exit code": max(codes, key=abs),
            "last lines": [line for _, log in self._parts for line in log.read_text().splitlines()[-5:]],
        }

    def end(self) -> None:
        for process, _ in self._parts:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def as_markdown(report: Report, simulated: dict[str, Any]) -> str:
    found = report.as_json()
    names: dict[str, list[float]] = {}
    for struck in report.struck:
        if struck.effect:
            names.setdefault(struck.name, []).append(struck.took_s)
    rows = "\n".join(f"| {name} | {len(times)} |" for name, times in sorted(names.items()))
    failover, gap = found["failover_p50_p95_s"], found["planned_gap_p50_p95_s"]
    return f"""| | |
|---|---|
| seed | {report.plan.seed} |
| length | {report.seconds / 60:.0f} minutes |
| network | {report.network}, metadata in {report.plan.metadata}, session {report.plan.session_s:g} s |
| faults that took effect | {report.effective} of {len(report.struck)} |
| records acknowledged | {report.acked:,} |
| of unknown outcome | {report.unknown:,} |
| transactions | {", ".join(f"{count:,} {name}" for name, count in sorted(report.transactions.items()))} |
| leader killed → acknowledged writes again | {_seconds(failover)}, {len(report.failover_s)} times |
| longest gap of a planned move | {_seconds(gap)}, {len(report.planned_gap_s)} times |
| simulated seeds | {simulated["seeds"]:,} from {simulated["first seed"]} on, in {simulated["seconds"]:,} s |
| exit code of the simulation | {simulated["exit code"]} |
| violations | {len(report.violations)} |

| Fault | Took effect |
|---|---|
{rows}
"""


def _seconds(pair: list[float | None]) -> str:
    shown = ["–" if value is None else f"{value:.2f} s" for value in pair]
    return f"P50 {shown[0]}, P95 {shown[1]}"


if __name__ == "__main__":
    sys.exit(main())
