"""Partitions moved from broker to broker: AlterPartitionReassignments, ListPartitionReassignments.

Called by server.dispatch; cluster.partition_changes decides and writes, and the controller finishes what is begun here.
The error of one partition leaves the others alone. A client's time-out is the longest it waits, not a promise that
nothing happens afterwards.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.cluster.image import PartitionState
from penstock.cluster.partition_writes import Place
from penstock.errors import (
    ErrorCode,
    InvalidReplicationFactor,
    InvalidRequest,
    PenstockError,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from penstock.handlers.context import HandlerContext, Request
from penstock.model import TopicPartition

Body = Mapping[str, Any]


async def handle_alter_partition_reassignments(context: HandlerContext, request: Request) -> Body:
    body = request.body
    is_factor_free: bool = getattr(body, "allow_replication_factor_change", True)
    asked = [
        (TopicPartition(topic.name, one.partition_index), one.replicas)
        for topic in body.topics
        for one in topic.partitions
    ]
    times = Counter(at for at, _ in asked)
    results: dict[TopicPartition, PenstockError | None] = {}
    wanted: dict[TopicPartition, Place] = {}
    targets: dict[Place, tuple[int, ...] | None] = {}
    for at, replicas in asked:
        try:
            if times[at] > 1:
                raise InvalidRequest(f"partition {at} is named twice in one request")
            topic = context.image.topics.get(at.topic)
            if topic is None or not 0 <= at.partition < len(topic.partitions):
                raise UnknownTopicOrPartition(f"there is no partition {at}")
            if replicas and not is_factor_free:
                _require_same_factor(at, topic.partitions[at.partition], replicas)
            wanted[at] = topic.id, at.partition
            targets[topic.id, at.partition] = None if replicas is None else tuple(replicas)
            results[at] = RequestTimedOut(f"the reassignment of {at} was not written in time; it may still be")
        except PenstockError as error:
            results[at] = error
    if wanted:
        try:
            async with asyncio.timeout(body.timeout.total_seconds()):
                done = await context.partition_changes.reassign(targets)
            for at, place in wanted.items():
                outcome = done[place]
                results[at] = outcome if isinstance(outcome, PenstockError) else None
        except TimeoutError:
            pass
        except PenstockError as error:
            results.update(dict.fromkeys(wanted, error))
    topics: dict[str, list[Body]] = {}
    for at, error in results.items():
        result: Body = {"partition_index": at.partition, "error_code": ErrorCode.NONE}
        if error is not None:
            result = {"partition_index": at.partition, "error_code": error.code, "error_message": str(error)}
        topics.setdefault(at.topic, []).append(result)
    return {
        "allow_replication_factor_change": is_factor_free,
        "responses": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }


def _require_same_factor(at: TopicPartition, state: PartitionState, replicas: Any) -> None:
    present = len(state.replicas) - len(state.adding)
    if len(replicas) != present:
        raise InvalidReplicationFactor(
            f"{at} has {present} replicas and was to get {len(replicas)}, which the request itself does not allow"
        )


def handle_list_partition_reassignments(context: HandlerContext, request: Request) -> Body:
    topics = context.image.topics
    wanted: dict[str, Iterable[int]] = {}
    if request.body.topics is None:
        wanted = {name: range(len(topic.partitions)) for name, topic in topics.items()}
    else:
        # What is not there is not being moved, which is no error; what is named twice is told once.
        for each in request.body.topics:
            wanted[each.name] = dict.fromkeys((*wanted.get(each.name, ()), *each.partition_indexes))
    answers: list[Body] = []
    for name, indexes in wanted.items():
        topic = topics.get(name)
        if topic is None:
            continue
        states = topic.partitions
        moving = [
            _ongoing(index, states[index])
            for index in indexes
            if 0 <= index < len(states) and (states[index].adding or states[index].removing)
        ]
        if moving:
            answers.append({"name": name, "partitions": moving})
    return {"topics": answers}


def _ongoing(index: int, state: PartitionState) -> Body:
    return {
        "partition_index": index,
        "replicas": state.replicas,
        "adding_replicas": state.adding,
        "removing_replicas": state.removing,
    }
