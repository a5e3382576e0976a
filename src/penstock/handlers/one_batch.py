"""The usual Produce request, one batch for one partition and no transaction, on a short road.

Called by handlers.produce first, for requests that wire.produce.parse_one could read. What becomes of the batch is
decided by the same functions as for any request (handlers.appending); only the lists and loops for many topics and
partitions are left out, which cost a request of one small message as much as its append. Whatever is not usual takes
the general road: None is given back then, and nothing has been done.
"""

from uuid import UUID

from penstock.errors import PenstockError
from penstock.handlers.answers import Answer, LateReply, PendingReply
from penstock.handlers.appending import append_batch, refuse
from penstock.handlers.context import HandlerContext, RawRequest
from penstock.handlers.produce_answers import NotInTime, answer_later, counted_refusal, hinted_endpoints
from penstock.log.partition_log import PartitionLog
from penstock.model import INTERNAL_TOPICS
from penstock.replication.partition import ACKS_ALL
from penstock.replication.replicas import HostedTopic
from penstock.wire.produce import OneBatch, ProduceTopicResult, encode_one, encode_produce_response

ACKS_LEADER = 1


def produce_one(context: HandlerContext, request: RawRequest, one: OneBatch) -> Answer:
    acks, timeout_ms, name, topic_id, index, records = one
    replicas, quotas = context.replicas, context.quotas
    if topic_id is not None:
        topic = replicas.topics_by_id.get(topic_id)
    else:
        assert name is not None
        topic = replicas.topics.get(name)
    if (
        topic is None
        or (acks != ACKS_LEADER and acks != ACKS_ALL)
        or topic.name in INTERNAL_TOPICS
        or topic.config.validates
        or context.tracer is not None
        or quotas.produce is not None
        or quotas.request is not None
    ):
        return None
    version, correlation_id = request.version, request.correlation_id
    try:
        now_ms = context.clock.now_ms()
        base_offset, append_time, log_start, wait = append_batch(context, topic, index, records, acks, now_ms)
    except PenstockError as error:
        return _refused(context, request, topic, one, error)
    frame = encode_one(version, correlation_id, name, topic_id, index, base_offset, append_time, log_start)
    if wait is None:
        return frame
    # Kept until the answer is due: no view of the request, since the next one is received into the same buffer.
    if isinstance(wait, PartitionLog):
        log = wait

        def answer_written() -> bytes:
            """At the end of the turn, when the first of those who gathered in a log has it written for all."""
            failure = log.settle()
            if failure is not None:
                return _failed(context, version, correlation_id, name, topic_id, index, failure)
            return frame

        return LateReply(answer_written)
    safe = wait

    def answer_safe() -> bytes:
        # Not safe in time: written all the same, so the outcome is unknown and a retry is safe.
        failure = safe.exception() if safe.done() else NotInTime(timeout_ms)
        if failure is not None:
            return _failed(context, version, correlation_id, name, topic_id, index, failure)
        return frame

    reply = PendingReply(answer_safe, 1, request.started + max(timeout_ms, 1) / 1000)
    context.produce_waits.add(safe, reply)
    return reply


def _failed(
    context: HandlerContext,
    version: int,
    correlation_id: int,
    name: str | None,
    topic_id: UUID | None,
    index: int,
    failure: BaseException,
) -> bytes:
    result = ProduceTopicResult(name, topic_id, [counted_refusal(context, index, failure)])
    return encode_produce_response(version, correlation_id, [result], 0)


def _refused(
    context: HandlerContext, request: RawRequest, topic: HostedTopic, one: OneBatch, error: PenstockError
) -> Answer:
    _, timeout_ms, name, topic_id, index, records = one
    key = topic_id if topic_id is not None else topic.name
    result, sure = refuse(context, topic, key, index, records, error)
    answers = [result]
    results = [ProduceTopicResult(name, topic_id, answers)]
    if sure is not None:
        return answer_later(context, request, results, [(sure, answers, 0)], timeout_ms, 0)
    hints = hinted_endpoints(context, results)
    return encode_produce_response(request.version, request.correlation_id, results, 0, hints)
