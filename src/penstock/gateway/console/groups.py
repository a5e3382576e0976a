"""Consumer groups: the list with lags, one with members and partitions, and moving it to other offsets.

Called through the console's routes. A reset is planned first and shown; only a second request with `execute` does it.
"""

import asyncio
import contextlib
from dataclasses import asdict
from operator import attrgetter
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from penstock.admin.cluster import Cluster
from penstock.admin.group_lag import GroupView, Member, PartitionLag, view_groups, with_delays
from penstock.admin.offsets import EARLIEST, LATEST, committed_offsets, find_offsets
from penstock.gateway.console.asking import body_of, field, flag_of, refuse, text_of
from penstock.gateway.console.listing import choose, wanted_of
from penstock.gateway.console.service import Console
from penstock.gateway.console.snapshot import GroupRow
from penstock.gateway.errors import HttpProblem, KafkaFailed, json_response
from penstock.model import TopicPartition

SORTS = ("name", "lag", "state", "progress")
DELAYS_MAX = 50
PARTITIONS_MAX = 10_000
# What a coordinator says to whoever is no member and wants to commit or delete.
HAS_MEMBERS = ("NON_EMPTY_GROUP", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION")
TARGETS = ("earliest", "latest", "time", "shift", "offset")


async def list_groups(console: Console, request: Request) -> Response:
    groups = await console.watcher.groups()
    wanted = wanted_of(request, SORTS)
    is_spark = flag_of(request, "spark")
    state = text_of(request, "state", "")
    rows = [row for row in groups.values() if (row.is_spark or not is_spark) and (not state or state in row.state)]
    keys: dict[str, Any] = {name: attrgetter(name) for name in SORTS[1:]}
    chosen, figures = await asyncio.to_thread(choose, rows, wanted, attrgetter("name"), keys)
    return json_response({**figures, "groups": [_row(row) for row in chosen]})


def _row(row: GroupRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "state": row.state,
        "kind": row.kind,
        "lag": row.lag,
        "progress": row.progress,
        "topics": row.topics[:20],
        "topics_count": len(row.topics),
        "is_spark": row.is_spark,
    }


async def list_delays(console: Console, request: Request) -> Response:
    """How many seconds groups are behind: a record of each partition that is behind is read for it."""
    names = request.query_params.getlist("name")[:DELAYS_MAX]
    views = await console.ask(lambda cluster: [with_delays(cluster, view) for view in view_groups(cluster, names)])
    return json_response({view.group: view.behind_s for view in views})


async def show_group(console: Console, request: Request) -> Response:
    name = text_of(request, "name")
    view = await console.ask(lambda cluster: with_delays(cluster, view_groups(cluster, [name])[0]))
    if view.does_not_exist:
        raise HttpProblem(404, 404, "there is no such group; it may have been deleted, or its offsets have expired")
    row = (await console.watcher.groups()).get(name)
    return json_response(_view(view, row.progress if row is not None else None))


def _view(view: GroupView, progress: float | None) -> dict[str, Any]:
    return {
        "name": view.group,
        "state": view.state,
        "kind": view.kind,
        "assignor": view.assignor,
        # librdkafka writes a node as "(id) host:port".
        "coordinator": None if view.coordinator is None else view.coordinator.rpartition(" ")[2],
        "lag": view.total_lag,
        "behind_s": view.behind_s,
        "progress": progress,
        "epoch": view.facts.epoch,
        "rebalance": asdict(view.facts.rebalance) if view.facts.rebalance is not None else None,
        "members": [_member(member) for member in view.members],
        "partitions": [_partition(one) for one in view.partitions],
    }


def _member(member: Member) -> dict[str, Any]:
    by_topic: dict[str, list[int]] = {}
    for at in member.partitions:
        by_topic.setdefault(at.topic, []).append(at.partition)
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
        "assignment": by_topic,
        "gives_back": [str(at) for at in member.to_give_back],
    }


def _partition(one: PartitionLag) -> dict[str, Any]:
    return {
        "topic": one.at.topic,
        "partition": one.at.partition,
        "committed": one.committed,
        "start": one.start,
        "end": one.end,
        "lag": one.lag,
        "behind_s": one.behind_s,
        "owner": one.owner.client_id if one.owner is not None else None,
        "problem": None if one.error is None else str(one.error.str()),
    }


async def delete_group(console: Console, request: Request) -> Response:
    name: str = field(await body_of(request), "name", str)

    def delete(cluster: Cluster) -> None:
        _require(cluster, cluster.ask(cluster.admin.delete_consumer_groups, [name])[name])

    await console.ask(delete)
    await _show_changes(console)
    return json_response({"changed": [name]})


async def reset_group(console: Console, request: Request) -> Response:
    """What would be committed, partition by partition; with `execute` it is."""
    body = await body_of(request)
    name: str = field(body, "name", str)
    target: str = field(body, "to", str)
    amount: int = field(body, "amount", int, 0)
    topic: str | None = field(body, "topic", str, None)
    numbers: list[Any] = field(body, "partitions", list, [])
    execute: bool = field(body, "execute", bool, False)
    if target not in TARGETS or not all(isinstance(one, int) for one in numbers) or len(numbers) > PARTITIONS_MAX:
        raise refuse(f"say where to: one of {', '.join(TARGETS)}; partitions are numbers")
    count = 0
    if topic is not None:
        facts = await console.kafka.topic(topic)
        if facts is None:
            raise HttpProblem(404, 40403, "there is no such topic")
        count = facts.partitions

    def move(cluster: Cluster) -> list[dict[str, Any]]:
        committed = committed_offsets(cluster, name)
        chosen = _chosen(committed, topic, count, cast("list[int]", numbers))
        moves = plan_moves(cluster, chosen, committed, target, amount)
        if execute:
            _commit(cluster, name, moves)
        return [
            {"topic": at.topic, "partition": at.partition, "old": committed.get(at), "new": new}
            for at, new in moves.items()
        ]

    rows = await console.ask(move)
    if execute:
        await _show_changes(console)
    return json_response({"executed": execute, "partitions": rows})


def _chosen(
    committed: dict[TopicPartition, int], topic: str | None, count: int, numbers: list[int]
) -> list[TopicPartition]:
    """Of a topic all partitions or those named; without one, whatever the group has committed."""
    if topic is None:
        if not committed:
            raise refuse("the group has committed nothing: choose a topic")
        return sorted(committed)
    if any(not 0 <= one < count for one in numbers):
        raise refuse(f"the topic has the partitions 0 to {count - 1}")
    return [TopicPartition(topic, one) for one in (sorted(set(numbers)) or range(count))]


def plan_moves(
    cluster: Cluster, chosen: list[TopicPartition], committed: dict[TopicPartition, int], target: str, amount: int
) -> dict[TopicPartition, int]:
    """The new offset of each, always between the start and the end of its partition."""
    starts, ends = find_offsets(cluster, chosen, EARLIEST), find_offsets(cluster, chosen, LATEST)
    at_time = find_offsets(cluster, chosen, max(0, amount)) if target == "time" else {}
    moves: dict[TopicPartition, int] = {}
    for at in chosen:
        for found in (starts[at], ends[at]):
            if found.error is not None:
                raise KafkaFailed.of(found.error)
        start, end = starts[at].offset or 0, ends[at].offset or 0
        if target == "shift" and at not in committed:
            raise refuse(f"the group has committed no offset of {at} that could be shifted: choose another target")
        new = {
            "earliest": start,
            "latest": end,
            "shift": committed.get(at, 0) + amount,
            "offset": amount,
            # Nothing is that new: what comes next will be.
            "time": end if target != "time" or at_time[at].offset is None else at_time[at].offset or 0,
        }[target]
        moves[at] = min(max(new, start), end)
    return moves


def _commit(cluster: Cluster, name: str, moves: dict[TopicPartition, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka import TopicPartition as Committed

    offsets = [Committed(at.topic, at.partition, new) for at, new in moves.items()]
    futures = cluster.ask(cluster.admin.alter_consumer_group_offsets, [ConsumerGroupTopicPartitions(name, offsets)])
    answer = _require(cluster, futures[name])
    for one in answer.topic_partitions:
        if one.error is not None:
            raise _refusal(one.error)


async def _show_changes(console: Console) -> None:
    """Lists are to show what was just done; but what was done does not fail because they cannot."""
    with contextlib.suppress(KafkaFailed):
        await console.watcher.refresh()


def _require(cluster: Cluster, future: Any) -> Any:
    value, error = cluster.outcome(future)
    if error is not None:
        raise _refusal(error)
    return value


def _refusal(error: Any) -> Exception:
    if error.name() in HAS_MEMBERS:
        return HttpProblem(409, 409, "the group has live members: stop them first, then try again")
    return KafkaFailed.of(error)
