"""Topics: the list, one with its partitions, and settings of anything that has some.

Called through the console's routes.
"""

import asyncio
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.admin.cluster import Cluster, admin_types
from penstock.admin.cluster_view import Partition
from penstock.admin.offsets import EARLIEST, LATEST, find_offsets
from penstock.gateway.console.asking import flag_of, refuse, text_of
from penstock.gateway.console.listing import choose, wanted_of
from penstock.gateway.console.service import Console, value_of
from penstock.gateway.console.snapshot import TopicRow
from penstock.gateway.errors import HttpProblem, json_response
from penstock.model import TopicPartition

SORTS = ("name", "partitions", "replication", "messages", "size_bytes", "messages_in")
# Where a value comes from, as people say it.
SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "cluster",
    "STATIC_BROKER_CONFIG": "broker file",
    "DEFAULT_CONFIG": "default",
    "GROUP_CONFIG": "group",
}


async def list_topics(console: Console, request: Request) -> Response:
    snapshot = await console.watcher.snapshot()
    wanted = wanted_of(request, SORTS)
    shows_internal = flag_of(request, "internal")
    rows = [row for row in snapshot.topics.values() if shows_internal or not row.is_internal]
    latest = console.watcher.history.latest
    keys: dict[str, Any] = {name: attrgetter(name) for name in SORTS[1:-1]}

    def messages_in(row: TopicRow) -> float | None:
        return latest(("topic", row.name, "messages_in"))

    keys["messages_in"] = messages_in
    # In a thread: sorting ten thousand would hold everybody else up.
    chosen, figures = await asyncio.to_thread(choose, rows, wanted, attrgetter("name"), keys, is_in_order=True)
    hidden = len(snapshot.topics) - len(rows)
    return json_response({**figures, "hidden": hidden, "topics": [_row(console, row) for row in chosen]})


def _row(console: Console, row: TopicRow) -> dict[str, Any]:
    latest = console.watcher.history.latest
    told: dict[str, Any] = {name: getattr(row, name) for name in TopicRow.__slots__}
    told["messages_in"] = latest(("topic", row.name, "messages_in"))
    if console.watcher.has_metrics:
        told["bytes_in"] = latest(("topic", row.name, "bytes_in"))
        told["messages_out"] = latest(("topic", row.name, "messages_out"))
    return told


async def show_topic(console: Console, request: Request) -> Response:
    """Asked of the cluster now, not of the last look: who opens a topic wants to know how it is."""
    name = text_of(request, "name")
    snapshot = await console.watcher.snapshot()
    if name not in snapshot.topics:
        await console.watcher.refresh()
        snapshot = await console.watcher.snapshot()
    row = snapshot.topics.get(name)
    if row is None:
        raise HttpProblem(404, 40403, "there is no such topic; it may have been deleted")
    partitions = snapshot.partitions_of(name)
    asked = [one.at for one in partitions]

    def ask(cluster: Cluster) -> Any:
        return find_offsets(cluster, asked, EARLIEST), find_offsets(cluster, asked, LATEST)

    starts, ends = await console.ask(ask)
    groups = await console.watcher.groups()
    readers = [
        {"name": group.name, "state": group.state, "lag": _lag_in(group.committed or {}, name, starts, ends)}
        for group in groups.values()
        if name in group.topics
    ]
    told = [_partition(one, starts[one.at], ends[one.at], snapshot.sizes.get(one.at)) for one in partitions]
    return json_response({**_row(console, row), "rows": told, "groups": sorted(readers, key=lambda one: one["name"])})


def _lag_in(committed: Mapping[TopicPartition, int], topic: str, starts: Any, ends: Any) -> int:
    return sum(
        max(0, ends[at].offset - max(offset, starts[at].offset or 0))
        for at, offset in committed.items()
        if at.topic == topic and at in ends and ends[at].offset is not None
    )


def _partition(one: Partition, start: Any, end: Any, size: int | None) -> dict[str, Any]:
    return {
        "partition": one.at.partition,
        "leader": one.leader,
        "replicas": one.replicas,
        "in_sync": one.in_sync,
        "adding": one.move.adding if one.move else (),
        "removing": one.move.removing if one.move else (),
        "start": start.offset,
        "end": end.offset,
        "size_bytes": size,
    }


async def show_configs(console: Console, request: Request) -> Response:
    kind, name = text_of(request, "kind", "topic"), text_of(request, "name")
    if kind not in ("topic", "broker", "group"):
        raise refuse("kind is to be topic, broker or group")

    def ask(cluster: Cluster) -> list[dict[str, Any]]:
        types = admin_types()
        asked = types.ConfigResource(types.ResourceType[kind.upper()], name)
        (future,) = cluster.ask(cluster.admin.describe_configs, [asked]).values()
        return [_config(types, entry) for entry in value_of(cluster, future).values()]

    entries = await console.ask(ask)
    return json_response({"kind": kind, "name": name, "configs": sorted(entries, key=lambda one: one["name"])})


def _config(types: Any, entry: Any) -> dict[str, Any]:
    source = types.ConfigSource(entry.source).name if isinstance(entry.source, int) else entry.source.name
    synonyms: Any = entry.synonyms or {}
    fallback = next((one.value for one in synonyms.values() if one.source != entry.source), None)
    return {
        "name": entry.name,
        "value": None if entry.is_sensitive else entry.value,
        "source": SOURCES.get(source, source.lower()),
        "is_overridden": source in ("DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "GROUP_CONFIG"),
        "is_read_only": bool(entry.is_read_only),
        "is_sensitive": bool(entry.is_sensitive),
        "fallback": None if entry.is_sensitive else fallback,
    }
