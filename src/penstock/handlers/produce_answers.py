"""Answers to Produce: what a partition's result says, and the answers that wait for a write or a sync.

Called by handlers.produce, handlers.one_batch and handlers.appending.
"""

from functools import partial

from penstock.errors import ErrorCode, PenstockError
from penstock.handlers.answers import PendingReply
from penstock.handlers.context import HandlerContext, RawRequest
from penstock.handlers.leader_hints import endpoints_of
from penstock.handlers.produce_waits import Wait
from penstock.log.partition_log import PartitionLog
from penstock.validation.rules import RecordsRefused
from penstock.wire.produce import (
    NodeEndpoint,
    ProducePartitionResult,
    ProduceTopicResult,
    RecordError,
    encode_produce_response,
)

# What an answer waits for, and the place of the result it decides: the write that a log owes, or a sync.
Gathered = list[tuple[PartitionLog, list[ProducePartitionResult], int]]
Waiting = list[tuple[Wait, list[ProducePartitionResult], int]]


class NotInTime(PenstockError):
    code = ErrorCode.REQUEST_TIMED_OUT

    def __init__(self, timeout_ms: int) -> None:
        super().__init__(f"the batch is written but was not safe after {timeout_ms} ms")


def refusal(index: int, error: PenstockError, leader: tuple[int, int] | None = None) -> ProducePartitionResult:
    faults = error.faults if isinstance(error, RecordsRefused) else ()
    record_errors = [RecordError(fault.batch_index, fault.reason) for fault in faults]
    return ProducePartitionResult(
        index, error.code, -1, record_errors=record_errors, error_message=str(error), current_leader=leader
    )


def counted_refusal(
    context: HandlerContext, index: int, error: BaseException, leader: tuple[int, int] | None = None
) -> ProducePartitionResult:
    """A refusal that is told now."""
    assert isinstance(error, PenstockError)
    context.metrics.request_errors.child("Produce", error.code.name).value += 1
    return refusal(index, error, leader)


def hinted_endpoints(context: HandlerContext, results: list[ProduceTopicResult]) -> list[NodeEndpoint]:
    return endpoints_of(context, (result.current_leader for topic in results for result in topic.partitions))


def settle(context: HandlerContext, gathered: Gathered) -> bool:
    """Have the batches written, and their results say so where that failed: true then."""
    failed = False
    for log, answers, slot in gathered:
        error = log.settle()
        if error is not None:
            failed = True
            answers[slot] = counted_refusal(context, answers[slot].partition, error)
    return failed


def answer_written(
    context: HandlerContext,
    version: int,
    correlation_id: int,
    results: list[ProduceTopicResult],
    gathered: Gathered,
    throttle_ms: int,
) -> bytes:
    """At the end of the turn, when the first of those who gathered in a log has it written for all of them."""
    settle(context, gathered)
    return encode_produce_response(version, correlation_id, results, throttle_ms)


def answer_later(
    context: HandlerContext,
    request: RawRequest,
    results: list[ProduceTopicResult],
    waits: Waiting,
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
    waits: Waiting,
    timeout_ms: int,
    throttle_ms: int,
) -> bytes:
    failed = False
    for wait, answers, slot in waits:
        # Not safe in time: written all the same, so the outcome is unknown and a retry is safe.
        error = wait.exception() if wait.done() else NotInTime(timeout_ms)
        if error is not None:
            failed = True
            answers[slot] = counted_refusal(context, answers[slot].partition, error)
    hints = hinted_endpoints(context, results) if failed else ()
    return encode_produce_response(version, correlation_id, results, throttle_ms, hints)
