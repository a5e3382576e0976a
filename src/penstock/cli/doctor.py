"""`penstock doctor`: why is this node or this group not moving.

Called by cli.app. Changes nothing. Exit code 0 when all is well, 1 when something was found.
"""

import threading
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.check_directory import check_directory
from penstock.cli.check_groups import judge, needs_second_look
from penstock.cli.check_node import check_advertised, check_connection, check_disks, check_partitions, check_ready
from penstock.cli.check_transactions import check_transactions
from penstock.cli.cluster import Cluster
from penstock.cli.failures import FAILED, CommandFailed
from penstock.cli.finding import Report
from penstock.cli.group_lag import GroupView, list_groups, view_groups
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, safe_text, say
from penstock.cli.readable import find_gaps, skip_gaps

# Longer than consumers take between two automatic commits (5 s): a shorter look would call them all stuck.
INTERVAL_S = 6.0


@with_cluster
def doctor(
    cluster: Cluster,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Also look at a broker's files here.")] = None,
    http: Annotated[
        str | None, typer.Option("--http", envvar="PENSTOCK_HTTP", help="HOST:PORT of /health, 127.0.0.1:9644 mostly.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only this group.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic and its groups.")] = None,
    interval: Annotated[
        float, typer.Option("--interval", min=0.0, help="Seconds between the two looks at a group.")
    ] = INTERVAL_S,
) -> None:
    """Find out why a node or a group is not moving, and what to do about it."""
    report = Report()
    holder = check_directory(data_dir, report) if data_dir is not None else None
    if http is not None:
        check_ready(http, cluster.timeout_s, report)
    if check_connection(cluster, report, holder):
        try:
            _check_cluster(cluster, group, topic, interval, report)
        except CommandFailed as failure:
            report.find(
                f"the cluster stopped answering: {failure.what}",
                "What else is wrong could not be found out.",
                failure.advice or "Try again; if it stays so, look at the broker's log.",
            )
    _print(cluster, report)
    if report.findings:
        raise typer.Exit(FAILED)


def _check_cluster(cluster: Cluster, group: str | None, topic: str | None, interval_s: float, report: Report) -> None:
    if not check_advertised(cluster, report):
        return  # whatever else is asked would end in the same time-out
    topics = check_partitions(cluster, topic, report)
    check_disks(cluster, report)
    check_transactions(cluster, topic, report)
    names = [group] if group is not None else [one.group_id for one in list_groups(cluster)]
    before = [view for view in _look(cluster, names, report) if _reads(view, topic) or view.group == group]
    gaps = find_gaps(cluster, before)
    before = [skip_gaps(view, gaps) for view in before]
    undecided = [view.group for view in before if needs_second_look(view)]
    after = {view.group: view for view in before}
    if undecided:
        if not cluster.as_json:
            say(f"Looking again in {interval_s:g} s at {', '.join(map(safe_text, undecided))}…")
        threading.Event().wait(interval_s)
        after |= {view.group: skip_gaps(view, gaps) for view in _look(cluster, undecided, report)}
    for view in before:
        judge(view, after[view.group], topics, interval_s, report)


def _look(cluster: Cluster, names: list[str], report: Report) -> list[GroupView]:
    found: list[GroupView] = []
    for name in names:
        try:
            found += view_groups(cluster, [name])
        except CommandFailed as failure:
            report.find(
                f"group {name} cannot be described: {failure.what}",
                "Its members may have the same trouble.",
                failure.advice or "Try again in a moment.",
            )
    return found


def _reads(view: GroupView, topic: str | None) -> bool:
    return topic is None or any(one.at.topic == topic for one in view.partitions)


def _print(cluster: Cluster, report: Report) -> None:
    if cluster.as_json:
        findings = [asdict(finding) for finding in report.findings]
        print_json(
            {"healthy": not findings, "findings": findings, "notes": report.notes, "sound": report.sound},
        )
        return
    for line in report.sound:
        typer.echo(f"ok    {safe_text(line)}")
    for line in report.notes:
        typer.echo(f"note  {safe_text(line)}")
    for finding in report.findings:
        typer.echo(f"\nFOUND {safe_text(finding.what)}")
        typer.echo(f"  why it matters  {safe_text(finding.why)}")
        typer.echo(f"  what to do      {safe_text(finding.todo)}")
    count = len(report.findings)
    typer.echo(f"\n{count} finding{'s' if count != 1 else ''}." if count else "\nAll is well.")
