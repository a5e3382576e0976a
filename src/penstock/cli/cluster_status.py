"""`penstock cluster status` and `load`: is everything there, in sync and even; and how much each broker does.

Called by cli.cluster_app.
"""

import time
from collections import Counter
from typing import Annotated, Any, NamedTuple

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.cluster_view import ClusterView, Partition, view_cluster
from penstock.admin.failures import FAILED
from penstock.admin.offsets import LATEST, describe_log_dirs, find_offsets
from penstock.admin.text import render_size
from penstock.cli.options import with_cluster
from penstock.cli.output import Cell, print_json, print_table, say
from penstock.clock import SystemClock

SHOWN_MAX = 50


@with_cluster
def status(
    cluster: Cluster,
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 1 if a partition has no leader or takes no acks=all writes.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Every partition that is not as it should be.")
    ] = False,
) -> None:
    """Who is there, who leads what, and what is not as it should be."""
    view = view_cluster(cluster, with_min_insync=True)
    found = {at: what for at, one in sorted(view.partitions.items()) if (what := _what_is_wrong(view, one))}
    counts = Counter(what for each in found.values() for what in each)
    unavailable = counts["no leader"] + counts["too few in sync"]
    if cluster.as_json:
        print_json(_document(view, found, counts))
    else:
        _print_brokers(view)
        shown = list(found.items())[: None if everything else SHOWN_MAX]
        if shown:
            rows = [_row(view.partitions[at], what) for at, what in shown]
            print_table(["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "WHAT"], rows)
        if len(found) > len(shown):
            say(f"… and {len(found) - len(shown)} more; --all shows them.")
        typer.echo(_summary(view, counts))
    if check and unavailable:
        raise typer.Exit(FAILED)


def _what_is_wrong(view: ClusterView, partition: Partition) -> list[str]:
    wrong: list[str] = []
    if partition.leader is None:
        wrong.append("no leader")
    elif view.is_under_min_insync(partition):
        wrong.append("too few in sync")
    if partition.is_under_replicated:
        wrong.append("under-replicated")
    if partition.move is not None:
        wrong.append("moving")
    return wrong


def _print_brokers(view: ClusterView) -> None:
    leaders, preferred, holders = view.leaders(), view.preferred(), view.holders()
    rows: list[list[Cell]] = [
        [
            str(node),
            str(broker.endpoint),
            broker.rack,
            "controller" if node == view.controller else "",
            leaders[node],
            preferred[node],
            holders[node],
        ]
        for node, broker in view.brokers.items()
    ]
    rows.extend(
        [str(node), "not there", None, "", leaders[node], preferred[node], holders[node]] for node in view.missing
    )
    title = f"Cluster {view.cluster_id}" if view.cluster_id else None
    print_table(["BROKER", "ADDRESS", "RACK", "", "LEADS", "PREFERRED", "REPLICAS"], rows, title)


def _row(partition: Partition, what: list[str]) -> list[Cell]:
    said = list(what)
    if partition.move is not None:
        gains, losses = partition.move.adding, partition.move.removing
        said[said.index("moving")] = f"moving (+{_names(gains) or 'none'} -{_names(losses) or 'none'})"
    leader = "none" if partition.leader is None else str(partition.leader)
    return [str(partition.at), leader, _names(partition.replicas), _names(partition.in_sync), ", ".join(said)]


def _summary(view: ClusterView, counts: Counter[str]) -> str:
    said = [
        f"{counts[what]} {words}"
        for what, words in (
            ("no leader", "without a leader"),
            ("too few in sync", "with too few in sync for acks=all"),
            ("under-replicated", "under-replicated"),
            ("moving", "being moved"),
        )
        if counts[what]
    ]
    elsewhere = sum(not one.is_led_by_preferred for one in view.partitions.values() if one.leader is not None)
    if elsewhere:
        said.append(f"{elsewhere} not led by the preferred broker")
    return f"{len(view.partitions)} partitions: {', '.join(said) or 'all led and in sync'}."


def _document(view: ClusterView, found: dict[Any, list[str]], counts: Counter[str]) -> dict[str, Any]:
    leaders, preferred, holders = view.leaders(), view.preferred(), view.holders()
    nodes = [*view.brokers, *view.missing]
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller,
        "brokers": [
            {
                "id": node,
                "endpoint": str(view.brokers[node].endpoint) if node in view.brokers else None,
                "rack": view.brokers[node].rack if node in view.brokers else None,
                "present": node in view.brokers,
                "leaders": leaders[node],
                "preferred_leaders": preferred[node],
                "replicas": holders[node],
            }
            for node in nodes
        ],
        "partitions": len(view.partitions),
        "without_leader": counts["no leader"],
        "under_min_insync": counts["too few in sync"],
        "under_replicated": counts["under-replicated"],
        "moving": counts["moving"] if view.knows_moves else None,
        "not_led_by_preferred": sum(
            not one.is_led_by_preferred for one in view.partitions.values() if one.leader is not None
        ),
        "wrong": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "leader": view.partitions[at].leader,
                "replicas": view.partitions[at].replicas,
                "in_sync_replicas": view.partitions[at].in_sync,
                "what": what,
            }
            for at, what in found.items()
        ],
    }


class _Load(NamedTuple):
    """What one broker holds and does. None where it does not say."""

    id: int
    rack: str | None
    leaders: int
    replicas: int
    size_bytes: int | None
    usable_bytes: int | None
    messages_per_s: float
    bytes_per_s: int | None


@with_cluster
def load(
    cluster: Cluster,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between the two samples.")] = 5.0,
) -> None:
    """What each broker holds, leads and takes: two samples of offsets and directories, some seconds apart."""
    view = view_cluster(cluster)
    clock = SystemClock()
    started = clock.monotonic()
    ends, sizes = _sample(cluster, view)
    time.sleep(interval)
    elapsed_s = clock.monotonic() - started
    later_ends, later_sizes = _sample(cluster, view)
    rates: Counter[int] = Counter()
    for at, end in later_ends.items():
        leader = view.partitions[at].leader
        if leader is not None and at in ends:
            rates[leader] += max(0, end - ends[at])
    free = {log_dir.broker: log_dir.usable_bytes for log_dir in describe_log_dirs(cluster)}
    leaders, holders = view.leaders(), view.holders()
    rows = [
        _Load(
            node,
            broker.rack,
            leaders[node],
            holders[node],
            later_sizes.get(node),
            free.get(node),
            round(rates[node] / elapsed_s, 1),
            round((later_sizes[node] - sizes[node]) / elapsed_s) if node in sizes and node in later_sizes else None,
        )
        for node, broker in view.brokers.items()
    ]
    if cluster.as_json:
        print_json([row._asdict() for row in rows])
        return
    table: list[list[Cell]] = [
        [
            str(row.id),
            row.rack,
            row.leaders,
            row.replicas,
            render_size(row.size_bytes),
            render_size(row.usable_bytes),
            row.messages_per_s,
            row.bytes_per_s,
        ]
        for row in rows
    ]
    print_table(["BROKER", "RACK", "LEADS", "REPLICAS", "ON DISK", "FREE", "MESSAGES/S IN", "BYTES/S GROWN"], table)


def _sample(cluster: Cluster, view: ClusterView) -> tuple[dict[Any, int], dict[int, int]]:
    """The end of every partition that has a leader, and the bytes on each broker's disks."""
    led = [at for at, one in view.partitions.items() if one.leader is not None]
    ends = {at: found.offset for at, found in find_offsets(cluster, led, LATEST).items() if found.offset is not None}
    sizes: dict[int, int] = {}
    for log_dir in describe_log_dirs(cluster):
        sizes[log_dir.broker] = sizes.get(log_dir.broker, 0) + sum(log_dir.sizes.values())
    return ends, sizes


def _names(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))
