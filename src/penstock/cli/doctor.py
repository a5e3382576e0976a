"""`penstock doctor`: why is this node or this group not moving.

Called by cli.app. Changes nothing. Exit code 0 when all is well, 1 when something was found.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.admin.check_directory import check_directory
from penstock.admin.check_node import check_connection, check_ready
from penstock.admin.cluster import Cluster
from penstock.admin.doctor import INTERVAL_S, check_cluster
from penstock.admin.failures import FAILED, CommandFailed
from penstock.admin.finding import Report
from penstock.admin.text import safe_text
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, say


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
            check_cluster(cluster, group, topic, interval, report, lambda line: None if cluster.as_json else say(line))
        except CommandFailed as failure:
            report.find(
                f"the cluster stopped answering: {failure.what}",
                "What else is wrong could not be found out.",
                failure.advice or "Try again; if it stays so, look at the broker's log.",
            )
    _print(cluster, report)
    if report.findings:
        raise typer.Exit(FAILED)


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
