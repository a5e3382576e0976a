"""Produce: each batch checked, appended and, where acks ask for it, waited for.

Called by server.dispatch for every Produce request; the walk goes on in replication.partition and log.partition_log.
A plain def: everything is appended before it returns, so that the next request of the connection can start at once
and batches stay in order. Only the answer may come later. The exceptions are a batch whose transaction's coordinator
has to be waited for first, and batches of topics that validate by schema: the connection takes nothing more until they
are appended.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

from penstock.errors import (
    ErrorCode,
    InvalidRecord,
    InvalidTopicName,
    PenstockError,
    UnsupportedCompressionType,
)
from penstock.handlers.answers import Answer, Hangup, LateReply, PendingReply, Reply, made
from penstock.handlers.context import HandlerContext, RawRequest, throttle_by_time
from penstock.handlers.final_refusals import FINAL
from penstock.handlers.leader_hints import endpoints_of, leader_hint
from penstock.handlers.produce_waits import Wait
from penstock.handlers.transactional_produce import AskFirst, ask_first, verify
from penstock.handlers.validated_produce import Admitted, validate_and_append
from penstock.log.intake import admit
from penstock.log.partition_log import PartitionLog
from penstock.model import INTERNAL_TOPICS, TopicPartition
from penstock.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    read_header,
)
from penstock.records.compression import Codec
from penstock.replication.partition import Partition
from penstock.replication.replicas import HostedTopic
from penstock.validation.rules import RecordsRefused
from penstock.wire.produce import (
    NodeEndpoint,
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopicResult,
    RecordError,
    encode_produce_response,
    parse_produce,
)

ACKS_ALL = -1
COMPRESSION_MAX = max(Codec).value
LOOP_S_MAX = 1.0  # one request keeps the loop, and with it everybody else, no longer than this and one batch
NOTHING_REFUSED: Mapping[TopicPartition, PenstockError] = {}
NOTHING_ADMITTED: Mapping[TopicPartition, Admitted] = {}
# Refused for now, and nothing was written: the client sends the batch again, to us or to who leads then.
PASSING = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT})
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
    produce = parse_produce(request.version, request.view, request.body_offset)
    append_all = _append_all if context.tracer is None else _append_traced
    for name, topic_id, _ in produce.topics:
        # Not by _find(): the call alone would cost every request more than this look does.
        if name is not None:
            topic = context.replicas.topics.get(name)
        else:
            assert topic_id is not None
            topic = context.replicas.topics_by_id.get(topic_id)
        if topic is not None and topic.config.validates:
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
    waits: list[tuple[Wait, list[ProducePartitionResult], int]] = []
    gathered: Gathered = []
    failed = False
    for name, topic_id, partitions in produce.topics:
        topic = _find(context, name, topic_id)
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
                if isinstance(wait, PartitionLog):
                    gathered.append((wait, answers, len(answers)))
                elif wait is not None:
                    waits.append((wait, answers, len(answers)))
            except PenstockError as error:
                failed = True
                if error.code in PASSING and records is not None:
                    _note_refused(topic, index, records)
                led = _led(topic, index) if error.code in FINAL else None
                if led is not None:
                    result = _refusal(index, error)
                    waits.append((context.final_refusals.make_sure(context, led, error), answers, len(answers)))
                else:
                    result = _refusal(index, error, leader_hint(context, key, index, error))
                    context.metrics.request_errors.child("Produce", error.code.name).value += 1
            answers.append(result)
        results.append(ProduceTopicResult(name, topic_id, answers))
    quotas = context.quotas
    throttle_ms = 0 if quotas.produce is None and quotas.request is None else _throttle(context, request)
    if acks == 0:
        # No answer is due, so a lost connection is the only way to tell the producer.
        return Hangup("a batch sent with acks=0 was refused") if failed else None
    if gathered and not waits and not failed:
        version, correlation_id = request.version, request.correlation_id
        return LateReply(partial(_answer_written, context, version, correlation_id, results, gathered, throttle_ms))
    if gathered and _settle(context, gathered):
        failed = True
    if not waits:
        hints = _hinted_endpoints(context, results) if failed else ()
        return encode_produce_response(request.version, request.correlation_id, results, throttle_ms, hints)
    return _answer_later(context, request, results, waits, produce.timeout_ms, throttle_ms)


def _hinted_endpoints(context: HandlerContext, results: list[ProduceTopicResult]) -> list[NodeEndpoint]:
    return endpoints_of(context, (result.current_leader for topic in results for result in topic.partitions))


class _NoTransaction(PenstockError):
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    def __init__(self) -> None:
        super().__init__("a batch of a transaction in a request that does not say of which")


class _BadAcks(PenstockError):
    code = ErrorCode.INVALID_REQUIRED_ACKS

    def __init__(self, acks: int) -> None:
        super().__init__(f"acks is 0, 1 or all (-1), not {acks}")


class _NotInTime(PenstockError):
    code = ErrorCode.REQUEST_TIMED_OUT

    def __init__(self, timeout_ms: int) -> None:
        super().__init__(f"the batch is written but was not safe after {timeout_ms} ms")


class _TooLong(PenstockError):
    """Batches of a hundred bytes may unfold to megabytes each; the rest of them is left to the next request."""

    code = ErrorCode.REQUEST_TIMED_OUT

    def __init__(self) -> None:
        super().__init__("nothing was written: the batches before this one took too long to unpack")


def _find(context: HandlerContext, name: str | None, topic_id: UUID | None) -> HostedTopic | PenstockError | None:
    """None if the topic is not here; in the cluster it may be."""
    if name is not None:
        topic = context.replicas.topics.get(name)
    else:
        assert topic_id is not None
        topic = context.replicas.topics_by_id.get(topic_id)
    if topic is not None and topic.name in INTERNAL_TOPICS:
        # Read back as the state of groups and transactions: only their coordinators write there.
        return InvalidTopicName(f"{topic.name} is written by brokers alone")
    return topic


def _led(topic: HostedTopic | PenstockError | None, index: int) -> Partition | None:
    partition = topic.partitions.get(index) if isinstance(topic, HostedTopic) else None
    return partition if partition is not None and partition.is_leader else None


def _note_refused(topic: HostedTopic | PenstockError | None, index: int, records: memoryview) -> None:
    partition = topic.partitions.get(index) if isinstance(topic, HostedTopic) else None
    if partition is not None and len(records) >= HEADER_BYTES:
        header = read_header(records)
        if header.producer_id >= 0 and header.base_sequence >= 0:
            partition.note_refused(header)


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
    partition = context.replicas.partition_of(topic, index)
    if records is None:
        raise InvalidRecord("a partition without records")
    acks = produce.acks
    if acks == ACKS_ALL:
        partition.check_in_sync()
    config = topic.config
    given = admitted.get(TopicPartition(topic.name, index)) if admitted else None
    batch, header = admit(records, config, now_ms) if given is None else given
    attributes = header.attributes
    if attributes & COMPRESSION_MASK > COMPRESSION_MAX:
        raise UnsupportedCompressionType(f"compression {header.compression} is none of Kafka's")
    if attributes & TRANSACTIONAL_MASK:
        if produce.transactional_id is None:
            raise _NoTransaction
        if header.producer_id < 0:
            raise InvalidRecord("a batch of a transaction needs a producer id")
    # Not with acks=0: that a batch was not written can only be told now, by hanging up.
    appended = partition.append(batch, header, now_ms, may_gather=acks != 0)
    if not appended.is_duplicate:
        traffic = topic.traffic
        traffic.messages_in.value += header.record_count
        traffic.batches_in.value += 1
        traffic.bytes_in.value += len(batch)
    # Asked also for acks=0: flush.messages and flush.ms hold whatever the producer wants to hear.
    wait = partition.safe(appended, acks)
    append_time = header.max_timestamp if attributes & TIMESTAMP_TYPE_MASK else -1
    log = partition.log
    if wait is None and log.gathering.batches:
        wait = log
    return ProducePartitionResult(index, 0, appended.base_offset, append_time, log.log_start), wait


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


def _refusal(index: int, error: PenstockError, leader: tuple[int, int] | None = None) -> ProducePartitionResult:
    faults = error.faults if isinstance(error, RecordsRefused) else ()
    record_errors = [RecordError(fault.batch_index, fault.reason) for fault in faults]
    return ProducePartitionResult(
        index, error.code, -1, record_errors=record_errors, error_message=str(error), current_leader=leader
    )


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


Gathered = list[tuple[PartitionLog, list[ProducePartitionResult], int]]


def _settle(context: HandlerContext, gathered: Gathered) -> bool:
    """Have the batches written, and their results say so where that failed: true then."""
    failed = False
    for log, answers, slot in gathered:
        error = log.settle()
        if error is not None:
            failed = True
            answers[slot] = _refusal(answers[slot].partition, error)
            context.metrics.request_errors.child("Produce", error.code.name).value += 1
    return failed


def _answer_written(
    context: HandlerContext,
    version: int,
    correlation_id: int,
    results: list[ProduceTopicResult],
    gathered: Gathered,
    throttle_ms: int,
) -> bytes:
    """At the end of the turn, when the first of those who gathered in a log has it written for all of them."""
    _settle(context, gathered)
    return encode_produce_response(version, correlation_id, results, throttle_ms)


def _answer_later(
    context: HandlerContext,
    request: RawRequest,
    results: list[ProduceTopicResult],
    waits: list[tuple[Wait, list[ProducePartitionResult], int]],
    timeout_ms: int,
    throttle_ms: int,
) -> PendingReply:
    # Not the request itself: the answer must not keep a view of the receive buffer.
    version, correlation_id = request.version, request.correlation_id
    make = partial(_answer_safe, context, version, correlation_id, results, waits, timeout_ms, throttle_ms)
    reply = PendingReply(make, len(waits), request.started + max(timeout_ms, 1) / 1000)
    for wait, _, _ in waits:
        context.produce_waits.add(wait, reply)
    return reply


def _answer_safe(
    context: HandlerContext,
    version: int,
    correlation_id: int,
    results: list[ProduceTopicResult],
    waits: list[tuple[Wait, list[ProducePartitionResult], int]],
    timeout_ms: int,
    throttle_ms: int,
) -> bytes:
    failed = False
    for wait, answers, slot in waits:
        # Not safe in time: written all the same, so the outcome is unknown and a retry is safe.
        error = wait.exception() if wait.done() else _NotInTime(timeout_ms)
        if error is not None:
            assert isinstance(error, PenstockError)
            failed = True
            answers[slot] = _refusal(answers[slot].partition, error)
            context.metrics.request_errors.child("Produce", error.code.name).value += 1
    hints = _hinted_endpoints(context, results) if failed else ()
    return encode_produce_response(version, correlation_id, results, throttle_ms, hints)
