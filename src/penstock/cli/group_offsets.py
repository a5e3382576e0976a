"""`penstock groups reset-offsets` and `delete-offsets`: what a group is to read next, changed from outside.

Called by cli.groups.
Laws:
- Without --execute nothing is changed.
- A new offset always lies between the start and the end of its partition.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed, explain
from penstock.admin.offsets import (
    EARLIEST,
    LATEST,
    Found,
    TopicPartitions,
    committed_offsets,
    error_name,
    expand,
    find_offsets,
)
from penstock.cli.arguments import parse_duration_ms, parse_moment_ms, parse_topic_partitions
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.clock import SystemClock
from penstock.errors import ErrorCode
from penstock.model import Endpoint, TopicPartition
from penstock.wire.apis import ApiKey

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]


@dataclass(frozen=True, slots=True)
class Target:
    """Where to, in one of the ways one may say it. Exactly one is set."""

    to_moment_ms: int | None = None  # EARLIEST and LATEST included
    shift_by: int | None = None
    to_offset: int | None = None


class Move(NamedTuple):
    at: TopicPartition
    old: int | None
    new: int


@with_cluster
def reset_offsets(
    cluster: Cluster,
    group: GroupArgument,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,...]", help="Repeatable.")
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Whatever the group has committed.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the oldest message there is.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end: skip everything there is.")] = False,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="TIME", help="To the first message from then on.")
    ] = None,
    to_timestamp: Annotated[
        int | None, typer.Option("--to-timestamp", metavar="MS", min=0, help="The same, in ms since 1970.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="DURATION", help="So long ago: 90s, 1h30m, 2d, PT1H.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="N messages on, or back if it is negative.")
    ] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0, help="To this very one.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without, it is only shown.")] = False,
) -> None:
    """Let a group go on from elsewhere. The group must have no members; nothing changes without --execute."""
    target = choose_target(to_earliest, to_latest, to_datetime, to_timestamp, by_duration, shift_by, to_offset)
    committed = committed_offsets(cluster, group)
    partitions = _choose_partitions(cluster, group, topic or [], all_topics, committed)
    moves = plan_moves(cluster, partitions, committed, target)
    if execute:
        _commit(cluster, group, moves)
    rows = [
        {"topic": move.at.topic, "partition": move.at.partition, "old_offset": move.old, "new_offset": move.new}
        for move in moves
    ]
    if cluster.as_json:
        print_json({"group": group, "executed": execute, "partitions": rows})
        return
    print_table(["TOPIC", "PARTITION", "COMMITTED", "NEW"], [list(row.values()) for row in rows])
    say(f"Group {group} is set." if execute else "Nothing was changed: add --execute to do it.")


@with_cluster
def delete_offsets(
    cluster: Cluster,
    group: GroupArgument,
    topic: Annotated[list[str], typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,...]", help="Repeatable.")],
) -> None:
    """Forget what a group has committed for topics it no longer reads."""
    cluster.require_plaintext("delete-offsets")
    chosen = [parse_topic_partitions(one) for one in topic]
    committed = committed_offsets(cluster, group)
    doomed = [at for at in sorted(committed) if any(_is_meant(at, one) for one in chosen)]
    if not doomed:
        raise CommandFailed(
            f"group {group} has committed nothing there", "`penstock groups describe` shows what it has."
        )
    by_topic: dict[str, list[dict[str, int]]] = {}
    for at in doomed:
        by_topic.setdefault(at.topic, []).append({"partition_index": at.partition})
    body = {
        "group_id": group,
        "topics": [{"name": name, "partitions": numbers} for name, numbers in by_topic.items()],
    }
    reply = cluster.request(ApiKey.OFFSET_DELETE, body, _coordinator(cluster, group))
    _require_done(reply.error_code, f"deleting offsets of group {group}")
    for one in reply.topics:
        for partition in one.partitions:
            _require_done(partition.error_code, f"deleting the offset of {one.name}-{partition.partition_index}")
    if cluster.as_json:
        print_json([{"topic": at.topic, "partition": at.partition, "outcome": "deleted"} for at in doomed])
        return
    for at in doomed:
        typer.echo(f"{at}: deleted")


def choose_target(
    to_earliest: bool,
    to_latest: bool,
    to_datetime: str | None,
    to_timestamp: int | None,
    by_duration: str | None,
    shift_by: int | None,
    to_offset: int | None,
) -> Target:
    chosen: list[Target] = []
    if to_earliest:
        chosen.append(Target(to_moment_ms=EARLIEST))
    if to_latest:
        chosen.append(Target(to_moment_ms=LATEST))
    if to_datetime is not None:
        chosen.append(Target(to_moment_ms=parse_moment_ms(to_datetime)))
    if to_timestamp is not None:
        chosen.append(Target(to_moment_ms=to_timestamp))
    if by_duration is not None:
        chosen.append(Target(to_moment_ms=SystemClock().now_ms() - parse_duration_ms(by_duration)))
    if shift_by is not None:
        chosen.append(Target(shift_by=shift_by))
    if to_offset is not None:
        chosen.append(Target(to_offset=to_offset))
    if len(chosen) != 1:
        raise typer.BadParameter(
            "say once where to: --to-earliest, --to-latest, --to-datetime, --to-timestamp, --by-duration, --shift-by "
            "or --to-offset"
        )
    return chosen[0]


def plan_moves(
    cluster: Cluster, partitions: Iterable[TopicPartition], committed: dict[TopicPartition, int], target: Target
) -> list[Move]:
    partitions = list(partitions)
    starts = _require_offsets(find_offsets(cluster, partitions, EARLIEST))
    ends = _require_offsets(find_offsets(cluster, partitions, LATEST))
    moment = target.to_moment_ms
    found = find_offsets(cluster, partitions, moment) if moment is not None and moment >= 0 else {}
    moves: list[Move] = []
    for at in partitions:
        old = committed.get(at)
        if moment == EARLIEST:
            new = starts[at]
        elif moment == LATEST:
            new = ends[at]
        elif moment is not None:
            # Nothing is that new: what comes next will be.
            offset = found[at].offset
            new = ends[at] if offset is None else offset
        elif target.shift_by is not None:
            if old is None:
                raise CommandFailed(f"{at}: the group has committed no offset to shift", "Use one of the --to options.")
            new = old + target.shift_by
        else:
            assert target.to_offset is not None
            new = target.to_offset
        moves.append(Move(at, old, min(max(new, starts[at]), ends[at])))
    return moves


def _choose_partitions(
    cluster: Cluster, group: str, topics: list[str], all_topics: bool, committed: dict[TopicPartition, int]
) -> list[TopicPartition]:
    if all_topics == bool(topics):
        raise typer.BadParameter("give either --topic or --all-topics")
    if topics:
        return expand(cluster, [parse_topic_partitions(topic) for topic in topics])
    if not committed:
        raise CommandFailed(f"group {group} has committed nothing", "Name the topics with --topic.")
    return sorted(committed)


def _require_offsets(found: dict[TopicPartition, Found]) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for at, one in found.items():
        if one.error is not None:
            raise explain(one.error, f"asking where {at} starts and ends")
        offsets[at] = one.offset or 0
    return offsets


def _commit(cluster: Cluster, group: str, moves: list[Move]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka import TopicPartition as Committed

    offsets = [Committed(move.at.topic, move.at.partition, move.new) for move in moves]
    futures = cluster.ask(cluster.admin.alter_consumer_group_offsets, [ConsumerGroupTopicPartitions(group, offsets)])
    answer: Any = cluster.result(futures[group], f"setting the offsets of group {group}")
    for one in answer.topic_partitions:
        if one.error is not None:
            raise explain(one.error, f"setting the offset of {one.topic}-{one.partition}")


def _is_meant(at: TopicPartition, chosen: TopicPartitions) -> bool:
    return at.topic == chosen.topic and (not chosen.partitions or at.partition in chosen.partitions)


def _coordinator(cluster: Cluster, group: str) -> Endpoint:
    reply = cluster.request(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [group], "key": group})
    # Until version 3 the one answer is the reply itself.
    found = reply.coordinators[0] if hasattr(reply, "coordinators") else reply
    _require_done(found.error_code, f"looking for the broker that keeps group {group}")
    return Endpoint(found.host, found.port)


def _require_done(code: int, doing: str) -> None:
    if int(code) == ErrorCode.NONE:
        return
    from confluent_kafka import KafkaError

    raise explain(KafkaError(int(code), error_name(int(code))), doing)
