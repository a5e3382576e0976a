"""The cluster at a glance, its brokers, transactions and what the doctor finds.

Called through the console's routes. The doctor takes seconds, so it runs beside; its last report is kept.
"""

import asyncio
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.admin.cluster import Cluster
from penstock.admin.doctor import INTERVAL_S, check_cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.finding import Report
from penstock.admin.hanging import look_at
from penstock.admin.transaction_views import describe_transactions, led_partitions, list_transactions
from penstock.gateway.console.asking import text_of
from penstock.gateway.console.listing import choose, wanted_of
from penstock.gateway.console.service import Console
from penstock.gateway.console.snapshot import GroupRow, Snapshot
from penstock.gateway.errors import json_response

TRANSACTION_SORTS = ("name", "state", "since_ms")
TRANSACTIONS_MAX = 5000
HELD_MAX = 500


async def show_session(console: Console, request: Request) -> Response:
    """What the page must know before it draws anything. Answers without asking the cluster."""
    return json_response(
        {
            "cluster_id": console.kafka.cluster_id,
            "bootstrap": console.kafka.bootstrap,
            "is_connected": console.kafka.is_connected,
            "is_readonly": console.is_readonly,
            "has_registry": console.registry is not None,
            "has_metrics": console.watcher.has_metrics,
        }
    )


async def show_overview(console: Console, request: Request) -> Response:
    snapshot = await console.watcher.snapshot()
    groups = await console.watcher.groups()
    # In a thread: it counts all partitions.
    return json_response(await asyncio.to_thread(_overview, console, snapshot, groups))


def _overview(console: Console, snapshot: Snapshot, groups: Mapping[str, GroupRow]) -> dict[str, Any]:
    view = snapshot.view
    latest = console.watcher.history.latest
    topics = snapshot.topics.values()
    busiest = sorted(topics, key=lambda row: -(latest(("topic", row.name, "messages_in")) or 0.0))[:5]
    behind = sorted(groups.values(), key=lambda row: -(row.lag or 0))[:5]
    leaders, holders = view.leaders(), view.holders()
    dirs: dict[int, list[dict[str, Any]]] = {}
    for one in snapshot.log_dirs:
        told = {"path": one.path, "error": one.error, "total_bytes": one.total_bytes, "usable_bytes": one.usable_bytes}
        dirs.setdefault(one.broker, []).append({**told, "used_bytes": sum(one.sizes.values())})
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller,
        "brokers": [
            {
                "id": broker.id,
                "address": str(broker.endpoint),
                "rack": broker.rack,
                "is_controller": broker.id == view.controller,
                "leads": leaders.get(broker.id, 0),
                "holds": holders.get(broker.id, 0),
                "log_dirs": dirs.get(broker.id, []),
            }
            for broker in view.brokers.values()
        ],
        "missing_brokers": view.missing,
        "topics": len(snapshot.topics),
        "internal_topics": sum(row.is_internal for row in topics),
        "partitions": len(view.partitions),
        "under_replicated": sum(row.under_replicated for row in topics),
        "offline": sum(row.offline for row in topics),
        "moving": sum(one.move is not None for one in view.partitions.values()),
        "size_bytes": sum(row.size_bytes or 0 for row in topics) if snapshot.log_dirs else None,
        "groups": len(groups),
        "lag": sum(row.lag or 0 for row in groups.values()),
        "spark_queries": sum(row.is_spark for row in groups.values()),
        "is_measured": console.watcher.history.latest_ms is not None,
        "busiest": [
            {"name": row.name, "messages_in": latest(("topic", row.name, "messages_in"))}
            for row in busiest
            if latest(("topic", row.name, "messages_in"))
        ],
        "behind": [{"name": row.name, "lag": row.lag, "state": row.state} for row in behind if row.lag],
        "processes": console.watcher.brokers,
        "failure": console.watcher.failure,
    }


async def show_transactions(console: Console, request: Request) -> Response:
    wanted = wanted_of(request, TRANSACTION_SORTS)
    state = text_of(request, "state", "")

    def ask(cluster: Cluster) -> list[dict[str, Any]]:
        cluster.require_plaintext("Listing transactions")
        listed = list_transactions(cluster, states=[state] if state else [])[:TRANSACTIONS_MAX]
        views = {view.transactional_id: view for view in describe_transactions(cluster, [one[0] for one in listed])}
        rows: list[dict[str, Any]] = []
        for one in listed:
            view = views.get(one.transactional_id)
            rows.append(
                {
                    "name": one.transactional_id,
                    "state": one.state,
                    "producer_id": one.producer_id,
                    "coordinator": one.coordinator,
                    "epoch": view.producer_epoch if view else None,
                    "timeout_ms": view.timeout_ms if view else None,
                    "since_ms": view.since_ms if view else None,
                    "partitions": [str(at) for at in sorted(view.partitions)][:50] if view else [],
                    "partitions_count": len(view.partitions) if view else 0,
                }
            )
        return rows

    rows = await console.ask(ask)
    keys = {name: itemgetter(name) for name in TRANSACTION_SORTS[1:]}
    chosen, figures = choose(rows, wanted, lambda row: row["name"], keys)
    return json_response({**figures, "transactions": chosen, "now_ms": console.clock.now_ms()})


async def show_hanging(console: Console, request: Request) -> Response:
    """Transactions that partitions hold open, with how each stands with its coordinator. Asks every leader."""

    def ask(cluster: Cluster) -> list[dict[str, Any]]:
        cluster.require_plaintext("Looking for hanging transactions")
        return [
            {
                "topic": held.open.at.topic,
                "partition": held.open.at.partition,
                "start_offset": held.open.start_offset,
                "producer_id": held.open.producer_id,
                "standing": held.standing.value,
                "name": held.coordinated.transactional_id if held.coordinated is not None else None,
                "last_write_ms": held.open.last_write_ms,
            }
            for held in look_at(cluster, led_partitions(cluster))[:HELD_MAX]
        ]

    return json_response({"held": await console.ask(ask), "now_ms": console.clock.now_ms()})


async def show_doctor(console: Console, request: Request) -> Response:
    return json_response({"is_running": False, "report": None, **console.doctor})


async def run_doctor(console: Console, request: Request) -> Response:
    """Begins an examination, unless one is going on."""
    if not console.doctor.get("is_running"):
        console.doctor.update(is_running=True, said="Asking the brokers…", error=None)
        task = asyncio.get_running_loop().create_task(_examine(console))
        console.tasks.add(task)
        task.add_done_callback(console.tasks.discard)
    return await show_doctor(console, request)


async def _examine(console: Console) -> None:
    def say(line: str) -> None:
        console.doctor["said"] = line

    def examine() -> Report:
        report = Report()
        # An admin client of its own, in a thread of its own: it takes longer than the pool's threads may be held.
        check_cluster(console.kafka.admin, None, None, INTERVAL_S, report, say)
        return report

    try:
        report = await asyncio.to_thread(examine)
        console.doctor["report"] = {
            "at_ms": console.clock.now_ms(),
            "findings": [{"what": one.what, "why": one.why, "todo": one.todo} for one in report.findings],
            "sound": report.sound,
            "notes": report.notes,
        }
    except CommandFailed as failure:
        console.doctor["error"] = f"{failure.what} {failure.advice}".strip()
    except Exception as failure:
        # It runs by itself; who asked for it looks here for what became of it.
        console.doctor["error"] = f"the examination failed: {failure}"
    finally:
        console.doctor["is_running"] = False
