"""What was measured, as JSON and as a page: medians with spreads, ratios of ours to each, bars, and who was missing.

Called by command.py. Runs of some workloads are merged into one file, so each entry carries its own commit and time.
The page is made from the JSON alone.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..peers.model import Mode
from ..peers.roster import OURS
from . import figures, targets
from .figures import Better, Figures
from .rounds import Measured
from .workloads import WORKLOADS, Workload

BAR_WIDTH = 24
# Sizes, acks, compression, partitions: one line each, in a table of their own.
MATRIX = {f"{each.name}, {Mode.DEFAULT}" for each in WORKLOADS if each.family == "produce" and not each.is_core}
BESIDE = (  # what stands beside each headline, where it was measured
    ("client_cpu_us_per_message", "client CPU µs"),
    ("broker_cpu_us_per_message", "broker CPU µs"),
    ("broker_rss_mb", "RSS MB"),
    ("rss_mb", "RSS MB"),
    ("disk_bytes_per_message", "disk B"),
    ("p50_ms", "P50 ms"),
    ("p95_ms", "P95 ms"),
    ("p99_ms", "P99 ms"),
    ("p99_9_ms", "P99.9 ms"),
    ("end_to_end_p50_ms", "end to end P50 ms"),
    ("end_to_end_p99_ms", "end to end P99 ms"),
    ("end_to_end_p99_9_ms", "end to end P99.9 ms"),
    ("idle_rss_mb", "idle RSS MB"),
    ("kb_each", "KB each"),
    ("create_ms_each", "create ms each"),
    ("metadata_ms", "metadata ms"),
    ("left_s", "one leaves s"),
)
Report = dict[str, Any]


def entry(
    workload: Workload, mode: Mode, results: Mapping[str, Measured], ours: str, machine: Mapping[str, Any]
) -> Report:
    """One workload in one mode."""
    mine: Sequence[Figures] = results[ours].rounds if ours in results else ()
    found: Report = {
        "machine": dict(machine),
        "metric": workload.metric,
        "better": str(workload.better),
        "mode": str(mode),
        "peers": {},
        "ratios": {},
    }
    for name, measured in results.items():
        if measured.rounds:
            found["peers"][name] = {"rounds": measured.rounds, "summary": figures.summary(measured.rounds)}
        if measured.reason is not None:
            found["peers"].setdefault(name, {})["reason"] = measured.reason
        ratio = figures.ratios(mine, measured.rounds, workload.metric) if name != ours else None
        if ratio is not None:
            found["ratios"][name] = ratio.plain()
    return found


def merged(path: Path, new: Report) -> Report:
    """The file as it was, with what was measured now in place of its like."""
    old: Report = json.loads(path.read_text()) if path.exists() else {}
    parts = ("peers", "workloads", "limits")
    return {part: {**old.get(part, {}), **new.get(part, {})} for part in parts}


def write(path: Path, report: Report) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")


def page(report: Report) -> str:
    """The section of docs/benchmarks.md, as Markdown."""
    lines = ["## Beside others", "", *_who(report.get("peers", {})), "", "### The targets", "", *_targets(report), ""]
    workloads: Mapping[str, Report] = report.get("workloads", {})
    for name, found in workloads.items():
        if name not in MATRIX:
            lines += [f"### {name}", "", *_table(found), "", f"Commit {_where(found)}.", ""]
    if matrix := {name: found for name, found in workloads.items() if name in MATRIX}:
        lines += ["### produce, every size, compression and number of partitions", "", *_matrix(matrix), ""]
    if report.get("limits"):
        lines += ["### The limits of this machine", "", *_limits(report["limits"]), ""]
    return "\n".join(lines)


def _who(peers: Mapping[str, Mapping[str, str]]) -> list[str]:
    lines = ["| system | version |", "|---|---|"]
    for name, about in peers.items():
        lines.append(f"| {name} | {about.get('version') or 'not measured: ' + _cell(about['reason'])} |")
    return lines


def _targets(report: Report) -> list[str]:
    header = ("", "against", "wanted", "reached", "holds")
    return [_row(header), _row(["---"] * len(header)), *(_row(row) for row in targets.rows(report))]


def _table(found: Mapping[str, Any]) -> list[str]:
    metric, is_lower = found["metric"], found["better"] == Better.LOWER
    measured = {name: each["summary"] for name, each in found["peers"].items() if metric in each.get("summary", {})}
    present = {key for each in measured.values() for key in each} - {metric}
    columns = [(key, title) for key, title in BESIDE if key in present]
    title = f"{metric.replace('_', ' ')} ({'less' if is_lower else 'more'} is better)"
    header = ["system", title, "", "ours to it", *(heading for _, heading in columns)]
    lines = [_row(header), _row(["---"] * len(header))]
    most = max((each[metric]["median"] for each in measured.values()), default=0.0)
    for name, each in sorted(measured.items(), key=lambda one: one[1][metric]["median"], reverse=not is_lower):
        values = [number(each[key]["median"]) if key in each else "" for key, _ in columns]
        ratio = found["ratios"].get(name)
        against = between(ratio) if ratio else ""
        lines.append(_row([name, between(each[metric]), bar(each[metric]["median"], most), against, *values]))
    for name, each in found["peers"].items():
        if "reason" in each:
            lines.append(_row([name, f"not measured: {_cell(each['reason'])}", *[""] * (len(header) - 2)]))
    return lines


def _matrix(workloads: Mapping[str, Report]) -> list[str]:
    """A line for each workload and each system beside ours."""
    header = ("partitions, size, acks, compression", "beside", "ours, messages/s", "theirs", "ours to theirs")
    header = (*header, "broker CPU µs, ours", "theirs", "commit")
    lines = [_row(header), _row(["---"] * len(header))]
    cpu = "broker_cpu_us_per_message"
    for name, found in workloads.items():
        label = name.removeprefix("produce-").removesuffix(f", {Mode.DEFAULT}")
        ours = found["peers"].get(OURS.name, {}).get("summary")
        for other, ratio in found["ratios"].items():
            theirs = found["peers"][other]["summary"]
            rates = [between(each[found["metric"]]) for each in (ours, theirs)]
            costs = [number(each[cpu]["median"]) if cpu in each else "" for each in (ours, theirs)]
            lines.append(_row([label, other, *rates, between(ratio), *costs, _where(found)]))
    return lines


def _where(found: Mapping[str, Any]) -> str:
    machine = found["machine"]
    told = [str(machine[key]) for key in ("commit", "at") if key in machine]
    return ", ".join([*told, *([f"Python {machine['python']}"] if "python" in machine else [])])


def _limits(limits: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    lines = ["| limit | figure | median (between) |", "|---|---|---|"]
    for name, found in limits.items():
        lines += [f"| {name} | {figure.replace('_', ' ')} | {between(value)} |" for figure, value in found.items()]
    return lines


def between(spread: Mapping[str, float]) -> str:
    return f"{number(spread['median'])} ({number(spread['low'])} to {number(spread['high'])})"


def number(value: float) -> str:
    """Three figures that matter."""
    if value == 0:
        return "0"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 4
    return f"{value:,.{digits}f}"


def bar(value: float, most: float) -> str:
    return "█" * max(1, round(value / most * BAR_WIDTH)) if most > 0 else ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """One line that cannot break a table."""
    return " ".join(text.split()).replace("|", "/")
