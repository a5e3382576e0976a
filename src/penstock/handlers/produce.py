"""Produce: each batch checked, appended and, where acks ask for it, waited for.

Called by server.dispatch for every Produce request; the walk goes on in handlers.one_batch, where one batch is all that
was sent, then in handlers.appending, replication.partition and log.partition_log.
A plain def: everything is appended before it returns, so that the next request of the connection can start at once
and batches stay in order. Only the answer may come later. The exceptions are a batch whose transaction's coordinator
has to be waited for first, and batches of topics that validate by schema: the connection takes nothing more until they
are appended.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from penstock.errors import ErrorCode, PenstockError
from penstock.handlers.answers import Answer, Hangup, LateReply, PendingReply, Reply, made
from penstock.handlers.appending import append_batch, find_topic, refuse
from penstock.handlers.context import HandlerContext, RawRequest, throttle_by_time
from penstock.handlers.one_batch import produce_one
from penstock.handlers.produce_answers import (
    Gathered,
    Waiting,
    answer_later,
    answer_written,
    hinted_endpoints,
    settle,
)
from penstock.handlers.produce_waits import Wait
from penstock.handlers.transactional_produce import AskFirst, ask_first, verify
from penstock.handlers.validated_produce import Admitted, validate_and_append
from penstock.log.partition_log import PartitionLog
from penstock.model import TopicPartition
from penstock.replication.replicas import HostedTopic
from penstock.wire.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopicResult,
    as_request,
    encode_produce_response,
    parse_one,
    parse_produce,
)

LOOP_S_MAX = 1.0  # one request keeps the loop, and with it everybody else, no longer than this and one batch
NOTHING_REFUSED: Mapping[TopicPartition, PenstockError] = {}
NOTHING_ADMITTED: Mapping[TopicPartition, Admitted] = {}
# How a partition's batch is written, and what its answer waits for: a sync, or that its log is settled; a trace puts
# itself around it.
Append = Callable[
    [
        HandlerContext,
        HostedTopic | PenstockError,
        int,
        memoryview | None,
        ProduceRequest,
        int,
        Mapping[TopicPartition, Admitted],
    ],
    tuple[ProducePartitionResult, Wait | PartitionLog | None],
]


def handle_produce(context: HandlerContext, request: RawRequest) -> Answer:
    one = parse_one(request.version, request.view, request.body_offset)
    if one is None:
        produce = parse_produce(request.version, request.view, request.body_offset)
    else:
        answer = produce_one(context, request, one)
        if answer is not None:
            return answer
        produce = as_request(one)
    append_all = _append_all if context.tracer is None else _append_traced
    for name, topic_id, _ in produce.topics:
        topic = find_topic(context, name, topic_id)
        if isinstance(topic, HostedTopic) and topic.config.validates:
            _hold_back(request)
            return asyncio.ensure_future(validate_and_append(context, request, append_all))
    if produce.transactional_id is None:
        return append_all(context, request, produce, NOTHING_REFUSED)
    verdict = verify(context, request.version, produce)
    if not isinstance(verdict, AskFirst):
        return append_all(context, request, produce, verdict)
    _hold_back(request)
    return asyncio.ensure_future(_ask_and_append(context, request, verdict))


def _hold_back(request: RawRequest) -> None:
    # The next frame is read into the same buffer; what waits needs one of its own.
    request.view = memoryview(bytearray(request.view))
    request.connection.holds_back_the_next = True


async def _ask_and_append(context: HandlerContext, request: RawRequest, wanted: AskFirst) -> Reply:
    connection = request.connection
    try:
        answered = await ask_first(context, wanted)
        produce = parse_produce(request.version, request.view, request.body_offset)
        request.started = context.clock.monotonic()  # the wait was nobody's time on the loop
        verdict = verify(context, request.version, produce, answered)
        assert not isinstance(verdict, AskFirst)
        append_all = _append_all if context.tracer is None else _append_traced
        answer = append_all(context, request, produce, verdict)
    finally:
        connection.holds_back_the_next = False
    request.view = memoryview(b"")  # appended: the answer waits without it
    connection.take_more()
    return await made(answer)


def _append_traced(
    context: HandlerContext,
    request: RawRequest,
    produce: ProduceRequest,
    refused: Mapping[TopicPartition, PenstockError],
    admitted: Mapping[TopicPartition, Admitted] = NOTHING_ADMITTED,
) -> Answer:
    assert context.tracer is not None
    trace = context.tracer.produce(request.client_id, request.started, produce)
    if trace is None:
        return _append_all(context, request, produce, refused, admitted)
    answer = _append_all(context, request, produce, refused, admitted, trace.around(_append_and_settle))
    if isinstance(answer, PendingReply):
        answer.add_done_callback(trace.answered_later)
    else:
        trace.answered()
    return answer


def _append_all(
    context: HandlerContext,
    request: RawRequest,
    produce: ProduceRequest,
    refused: Mapping[TopicPartition, PenstockError],
    admitted: Mapping[TopicPartition, Admitted] = NOTHING_ADMITTED,
    append: Append | None = None,
) -> Answer:
    append = append or _append
    acks = produce.acks
    now_ms = context.clock.now_ms()
    results: list[ProduceTopicResult] = []
    # What the answer waits for, and where its outcome belongs: the sync, or just that the batch is written.
    waits: Waiting = []
    gathered: Gathered = []
    failed = False
    for name, topic_id, partitions in produce.topics:
        topic = find_topic(context, name, topic_id)
        key = name if name is not None else topic_id
        assert key is not None
        answers: list[ProducePartitionResult] = []
        for index, records in partitions:
            try:
                if not -1 <= acks <= 1:
                    raise _BadAcks(acks)
                if (results or answers) and context.clock.monotonic() - request.started > LOOP_S_MAX:
                    raise _TooLong
                if refused and isinstance(topic, HostedTopic):
                    refusal = refused.get(TopicPartition(topic.name, index))
                    if refusal is not None:
                        raise refusal
                if topic is None:
                    raise context.replicas.not_here(key, index)
                result, wait = append(context, topic, index, records, produce, now_ms, admitted)
            except PenstockError as error:
                failed = True
                result, wait = refuse(context, topic, key, index, records, error)
            if isinstance(wait, PartitionLog):
                gathered.append((wait, answers, len(answers)))
            elif wait is not None:
                waits.append((wait, answers, len(answers)))
            answers.append(result)
        results.append(ProduceTopicResult(name, topic_id, answers))
    quotas = context.quotas
    throttle_ms = 0 if quotas.produce is None and quotas.request is None else _throttle(context, request)
    if acks == 0:
        # No answer is due, so a lost connection is the only way to tell the producer.
        return Hangup("a batch sent with acks=0 was refused") if failed else None
    if gathered and not waits and not failed:
        version, correlation_id = request.version, request.correlation_id
        return LateReply(partial(answer_written, context, version, correlation_id, results, gathered, throttle_ms))
    if gathered and settle(context, gathered):
        failed = True
    if not waits:
        hints = hinted_endpoints(context, results) if failed else ()
        return encode_produce_response(request.version, request.correlation_id, results, throttle_ms, hints)
    return answer_later(context, request, results, waits, produce.timeout_ms, throttle_ms)


class _BadAcks(PenstockError):
    code = ErrorCode.INVALID_REQUIRED_ACKS

    def __init__(self, acks: int) -> None:
        super().__init__(f"acks is 0, 1 or all (-1), not {acks}")


class _TooLong(PenstockError):
    """Batches of a hundred bytes may unfold to megabytes each; the rest of them is left to the next request."""

    code = ErrorCode.REQUEST_TIMED_OUT

    def __init__(self) -> None:
        super().__init__("nothing was written: the batches before this one took too long to unpack")


def _append(
    context: HandlerContext,
    topic: HostedTopic | PenstockError,
    index: int,
    records: memoryview | None,
    produce: ProduceRequest,
    now_ms: int,
    admitted: Mapping[TopicPartition, Admitted],
) -> tuple[ProducePartitionResult, Wait | PartitionLog | None]:
    if isinstance(topic, PenstockError):
        raise topic
    base_offset, append_time, log_start, wait = append_batch(
        context,
        topic,
        index,
        records,
        produce.acks,
        now_ms,
        has_transaction=produce.transactional_id is not None,
        admitted=admitted.get(TopicPartition(topic.name, index)) if admitted else None,
    )
    return ProducePartitionResult(index, 0, base_offset, append_time, log_start), wait


def _append_and_settle(
    context: HandlerContext,
    topic: HostedTopic | PenstockError,
    index: int,
    records: memoryview | None,
    produce: ProduceRequest,
    now_ms: int,
    admitted: Mapping[TopicPartition, Admitted],
) -> tuple[ProducePartitionResult, Wait | None]:
    """For a trace, which says how long the write took."""
    result, wait = _append(context, topic, index, records, produce, now_ms, admitted)
    if not isinstance(wait, PartitionLog):
        return result, wait
    failure = wait.settle()
    if failure is not None:
        raise failure
    return result, None


def _throttle(context: HandlerContext, request: RawRequest) -> int:
    """Count the request's bytes and the time it took; how long its client has to wait before the next."""
    connection, client_id = request.connection, request.client_id
    throttle_ms = throttle_by_time(context, connection, client_id, request.started)
    quota = context.quotas.produce
    if quota is not None:
        by_bytes = quota.record(connection.principal, client_id, len(request.view), context.clock.monotonic())
        connection.throttle(by_bytes, "produce", context.metrics)
        throttle_ms = max(throttle_ms, by_bytes)
    return throttle_ms
