"""Leaders chosen when somebody asks for it: ElectLeaders.

Called by server.dispatch; cluster.partition_changes decides and writes. The error of one partition leaves the others
alone. A client's time-out is the longest it waits, not a promise that nothing happens afterwards.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.cluster.partition_changes import ElectionMode
from penstock.cluster.partition_writes import Place
from penstock.errors import ErrorCode, InvalidRequest, PenstockError, RequestTimedOut, UnknownTopicOrPartition
from penstock.handlers.context import HandlerContext, Request
from penstock.model import TopicPartition

Body = Mapping[str, Any]


async def handle_elect_leaders(context: HandlerContext, request: Request) -> Body:
    body = request.body
    # Version 0 knows but one kind.
    number: int = getattr(body, "election_type", ElectionMode.PREFERRED.value)
    try:
        mode = ElectionMode(number)
    except ValueError:
        raise InvalidRequest(f"{number} is no kind of election") from None
    asked = _asked(context, body.topic_partitions)
    results = await _elect(context, asked, mode, body.timeout.total_seconds())
    topics: dict[str, list[Body]] = {}
    for at, error in results.items():
        if body.topic_partitions is None and error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
            # Who asks for all of them wants to hear of those where there was something to do.
            continue
        result: Body = {"partition_id": at.partition, "error_code": ErrorCode.NONE}
        if error is not None:
            result = {"partition_id": at.partition, "error_code": error.code, "error_message": str(error)}
        topics.setdefault(at.topic, []).append(result)
    return {
        "error_code": ErrorCode.NONE,
        "replica_election_results": [
            {"topic": name, "partition_result": partitions} for name, partitions in topics.items()
        ],
    }


def _asked(context: HandlerContext, topics: Any) -> list[TopicPartition]:
    if topics is None:
        return [
            TopicPartition(topic.name, index)
            for topic in context.image.topics.values()
            for index in range(len(topic.partitions))
        ]
    # One named twice is elected once: the second time nothing would be left to do.
    return list(dict.fromkeys(TopicPartition(each.topic, index) for each in topics for index in each.partitions))


async def _elect(
    context: HandlerContext, asked: Sequence[TopicPartition], mode: ElectionMode, timeout_s: float
) -> dict[TopicPartition, PenstockError | None]:
    """Why not, for each partition; None where it has the leader that was asked for."""
    results: dict[TopicPartition, PenstockError | None] = {}
    known: dict[TopicPartition, Place] = {}
    for at in asked:
        topic = context.image.topics.get(at.topic)
        if topic is None or not 0 <= at.partition < len(topic.partitions):
            results[at] = UnknownTopicOrPartition(f"there is no partition {at}")
        else:
            results[at] = RequestTimedOut(f"no leader of {at} was elected in time; it may still be")
            known[at] = topic.id, at.partition
    if known:
        try:
            async with asyncio.timeout(timeout_s):
                done = await context.partition_changes.elect(known.values(), mode)
            for at, place in known.items():
                outcome = done[place]
                results[at] = outcome if isinstance(outcome, PenstockError) else None
        except TimeoutError:
            pass
        except PenstockError as error:
            results.update(dict.fromkeys(known, error))
    return results
