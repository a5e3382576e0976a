"""`penstock cluster drain` and `rebalance`: plans made from how the cluster is, and carried out.

Called by cli.cluster_app. What they plan is in admin.placing, how it is done in cli.reassigning.
"""

from typing import Annotated, Any

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.cluster_view import ClusterView, view_cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.placing import Assignment, balance, changes, copies, evacuate
from penstock.cli.cluster_elect import elect_preferred
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.cli.reassign import Throttle, plan_document
from penstock.cli.reassigning import move

DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would be moved.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is done.")]


@with_cluster
def drain(
    cluster: Cluster,
    node: Annotated[int, typer.Argument(metavar="NODE", show_default=False, help="A broker's id.")],
    throttle_bytes_s: Throttle = None,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
) -> None:
    """Move every replica, and with them the leaders, off a broker; then it can be stopped for good."""
    view = _settled_view(cluster)
    # A broker that is gone for good is drained as well: its replicas are made anew from the others.
    if node not in view.missing:
        view.require_broker(node)
    current = view.assignment()
    targets = changes(current, evacuate(current, view.racks, {node}))
    if dry_run:
        _show_plan(cluster, view, current, targets)
        return
    if targets:
        view = move(cluster, view, targets, throttle_bytes_s=throttle_bytes_s, waits=not no_wait)
    if no_wait:
        _report(cluster, {"node": node, "begun": len(targets)}, f"{len(targets)} partitions leave broker {node}.")
        return
    left = view.holders()[node]
    if left:
        raise CommandFailed(
            f"broker {node} still holds {left} replicas, of topics made meanwhile or of moves taken back",
            "Drain it again; to keep new topics off it, stop it right afterwards.",
        )
    _report(
        cluster,
        {"node": node, "moved": len(targets), "replicas": left},
        f"Broker {node} holds nothing any more: {len(targets)} partitions were moved. Stop it, and it is gone.",
    )


@with_cluster
def rebalance(
    cluster: Cluster, throttle_bytes_s: Throttle = None, dry_run: DryRun = False, no_wait: NoWait = False
) -> None:
    """Spread replicas and leaders evenly over the brokers that are there, and over racks, with few moves."""
    view = _settled_view(cluster)
    if view.missing:
        names = ", ".join(map(str, view.missing))
        raise CommandFailed(
            f"replicas are held by brokers that are not there: {names}",
            "Start them again, or `penstock cluster drain` each of them first if they are gone for good.",
        )
    current = view.assignment()
    targets = changes(current, balance(current, view.racks))
    if dry_run:
        _show_plan(cluster, view, current, targets)
        return
    if targets:
        move(cluster, view, targets, throttle_bytes_s=throttle_bytes_s, waits=not no_wait)
    elected = 0 if no_wait else elect_preferred(cluster)
    _report(
        cluster,
        {"begun" if no_wait else "moved": len(targets), "copies": copies(current, targets), "leaders_elected": elected},
        f"{len(targets)} partitions changed, {copies(current, targets)} replicas moved, {elected} leaders elected."
        if targets or elected
        else "Replicas and leaders are even already.",
    )


def _settled_view(cluster: Cluster) -> ClusterView:
    """Plans are made from where replicas are; while some are on their way, two plans would cross."""
    cluster.require_plaintext("reassigning partitions")
    view = view_cluster(cluster)
    moving = sum(partition.move is not None for partition in view.partitions.values())
    if moving:
        raise CommandFailed(
            f"{moving} partitions are being moved already",
            "Wait for them (`penstock cluster reassign verify`), or take them back (`… reassign cancel`).",
        )
    return view


def _show_plan(cluster: Cluster, view: ClusterView, current: Assignment, targets: Assignment) -> None:
    if cluster.as_json:
        print_json({"copies": copies(current, targets), "plan": plan_document(targets)})
        return
    if not targets:
        say("Nothing would be moved.")
        return
    rows = [
        [str(at), ",".join(map(str, current[at])), ",".join(map(str, replicas)), view.partitions[at].leader]
        for at, replicas in targets.items()
    ]
    print_table(["PARTITION", "REPLICAS", "PLANNED", "LEADER"], rows)
    say(f"{len(targets)} partitions would change, {copies(current, targets)} replicas would be copied.")


def _report(cluster: Cluster, document: dict[str, Any], sentence: str) -> None:
    if cluster.as_json:
        print_json(document)
    else:
        typer.echo(sentence)
