"""`penstock groups`: list, describe with lag, delete; reset-offsets and delete-offsets are in group_offsets.py.

Called by cli.app.
"""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed, explain
from penstock.admin.group_lag import CONSUMER, GroupView, list_groups, view_groups, with_delays
from penstock.admin.text import render_duration, safe_text
from penstock.cli import group_offsets
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.model import TopicPartition

app = typer.Typer(no_args_is_help=True, help="List, describe and delete consumer groups; move their offsets.")

Names = Annotated[list[str], typer.Argument(metavar="GROUP", show_default=False)]


@app.command("list")
@with_cluster
def list_all(cluster: Cluster) -> None:
    """Which groups there are, and in which state."""
    facts = [
        {
            "group": one.group_id,
            "state": one.state.name.lower().replace("_", " "),
            "type": one.type.name.lower(),
        }
        for one in list_groups(cluster)
    ]
    if cluster.as_json:
        print_json(facts)
    elif facts:
        print_table(["GROUP", "STATE", "TYPE"], [list(fact.values()) for fact in facts])
    else:
        say("There are no groups; one appears when a consumer with a group.id joins or commits.")


@app.command("describe")
@with_cluster
def describe(
    cluster: Cluster,
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Every group.")] = False,
) -> None:
    """Members, and for each partition the committed offset, the end and the lag, in messages and in time."""
    if everything == bool(names):
        raise typer.BadParameter("name groups, or give --all")
    wanted = [one.group_id for one in list_groups(cluster)] if everything else names or []
    views = [with_delays(cluster, view) for view in view_groups(cluster, wanted)]
    missing = [view.group for view in views if view.does_not_exist]
    if missing and not everything:
        raise CommandFailed(f"there is no group {missing[0]}", "`penstock groups list` shows which there are.")
    if cluster.as_json:
        print_json([_document(view) for view in views])
        return
    for view in views:
        _print_view(view)


@app.command("delete")
@with_cluster
def delete(
    cluster: Cluster, names: Names, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Delete groups and the offsets they have committed. Only a group without members can go."""
    if not yes:
        question = f"Delete {', '.join(map(safe_text, names))} with their offsets?"
        typer.confirm(question, abort=True, err=True)
    futures = cluster.ask(cluster.admin.delete_consumer_groups, list(dict.fromkeys(names)))
    deleted: list[str] = []
    failure = None
    for name, future in futures.items():
        _, error = cluster.outcome(future)
        if error is None:
            deleted.append(name)
        else:
            failure = failure or explain(error, f"deleting group {name}")
    if cluster.as_json:
        print_json([{"group": name, "outcome": "deleted"} for name in deleted])
    else:
        for name in deleted:
            typer.echo(f"{safe_text(name)}: deleted")
    if failure is not None:
        raise failure


app.command("reset-offsets")(group_offsets.reset_offsets)
app.command("delete-offsets")(group_offsets.delete_offsets)


def _document(view: GroupView) -> dict[str, Any]:
    return {
        "group": view.group,
        "state": view.state,
        "type": view.kind,
        "assignor": view.assignor,
        "epoch": view.facts.epoch,
        "target_epoch": view.facts.target_epoch,
        "last_rebalance": {"at": view.facts.rebalance.at, "cause": view.facts.rebalance.cause}
        if view.facts.rebalance
        else None,
        "coordinator": view.coordinator,
        "total_lag": view.total_lag,
        "lag_seconds": view.behind_s,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "instance_id": member.instance_id,
                "epoch": view.facts.member_epochs.get(member.member_id),
                "partitions": _places(member.partitions),
                "target_partitions": None if member.target is None else _places(member.target),
            }
            for member in view.members
        ],
        "partitions": [
            {
                "topic": one.at.topic,
                "partition": one.at.partition,
                "committed_offset": one.committed,
                "start_offset": one.start,
                "end_offset": one.end,
                "lag": one.lag,
                "lag_seconds": one.behind_s,
                "member_id": one.owner.member_id if one.owner else None,
            }
            for one in view.partitions
        ],
    }


def _places(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": at.topic, "partition": at.partition} for at in partitions]


def _print_view(view: GroupView) -> None:
    typer.echo(f"Group        {safe_text(view.group)}")
    typer.echo(f"State        {view.state}" + (f", assignor {safe_text(view.assignor)}" if view.assignor else ""))
    facts = view.facts
    if facts.epoch is None:
        typer.echo(f"Type         {view.kind}")
    else:
        target = "" if facts.target_epoch == facts.epoch else f", its target still of epoch {facts.target_epoch}"
        typer.echo(f"Type         {view.kind}, epoch {facts.epoch}{target}")
    if facts.rebalance:
        typer.echo(f"Rebalanced   {safe_text(facts.rebalance.at)}: {safe_text(facts.rebalance.cause)}")
    if view.coordinator:
        typer.echo(f"Coordinator  {view.coordinator}")
    behind = "" if view.behind_s is None else f", {render_duration(view.behind_s)} behind"
    typer.echo(f"Total lag    {view.total_lag}{behind}")
    if view.members:
        _print_members(view)
    if view.partitions:
        rows = [
            [
                one.at.topic,
                one.at.partition,
                one.committed,
                one.start,
                one.end,
                one.lag,
                render_duration(one.behind_s),
                one.owner.client_id if one.owner else None,
                one.owner.host if one.owner else None,
            ]
            for one in view.partitions
        ]
        print_table(["TOPIC", "PARTITION", "COMMITTED", "START", "END", "LAG", "BEHIND", "CLIENT", "HOST"], rows)
    else:
        typer.echo("It has committed no offsets.")
    typer.echo()


def _print_members(view: GroupView) -> None:
    columns = ["CLIENT", "HOST", "PARTITIONS", "INSTANCE", "MEMBER"]
    rows: list[list[str | int | None]] = [
        [member.client_id, member.host, len(member.partitions), member.instance_id, member.member_id]
        for member in view.members
    ]
    if view.kind == CONSUMER:
        columns[3:3] = ["TARGET", "EPOCH"]
        for member, row in zip(view.members, rows, strict=True):
            row[3:3] = [
                None if member.target is None else len(member.target),
                view.facts.member_epochs.get(member.member_id),
            ]
    print_table(columns, rows)
