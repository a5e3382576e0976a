"""Fetch: batches as they lie in the log, at once if there are enough, else when they come or time is up.

Called by server.dispatch for every Fetch request; the walk goes on in replication.partition and log.partition_log.
What is in the page cache is read on the loop without waiting; only what is not takes the road through an I/O thread.
Consumers are given what is committed, by the leader or by a follower near them; followers what is written
(handlers.replica_fetch).
"""

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from penstock.errors import CorruptMessage, ErrorCode, OffsetNotAvailable, OffsetOutOfRange, PenstockError
from penstock.handlers.answers import Answer, Reply
from penstock.handlers.context import HandlerContext, RawRequest, throttle_by_time
from penstock.handlers.delivery import count_bytes, count_records
from penstock.handlers.fetch_sessions import FetchPlan, SessionRefused, Wanted
from penstock.handlers.leader_hints import endpoints_of, leader_hint
from penstock.handlers.replica_fetch import admit_replica, count_given, diverging_result, held_back_s
from penstock.handlers.replica_selection import nearer_replica, redirection
from penstock.log.partition_log import PartitionLog
from penstock.model import Offset, TopicPartition
from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from penstock.replication.partition import Partition
from penstock.replication.replicas import HostedTopic
from penstock.replication.waiting import FetchWait
from penstock.wire.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopicResult,
    encode_fetch_response,
    parse_fetch,
)
from penstock.wire.produce import NodeEndpoint

TOPIC_IDS_FROM = 13
FOLLOWER_READS_FROM = 11
READ_COMMITTED = 1
STUCK_BYTES_MAX = 64 << 20
_NOTHING = memoryview(b"")
_STEP = Struct(">qi11xi")  # base offset, batch length, last offset delta


@dataclass(slots=True)
class _Found:
    """What one pass over the partitions gave."""

    results: list[tuple[Wanted, FetchPartitionResult]]
    size: int
    has_error: bool
    # Partitions whose data is not in memory: they have to be read on an I/O thread.
    missed: list["_Missed"]
    partitions: list[Partition]  # which have more to give when something is appended
    # The soonest that a partition kept from a follower by the throttle may be read.
    held_back_s: float = math.inf
    # Partitions that lack what a consumer asks for, unless somebody else leads them by now.
    unsure: list["_Unsure"] = field(default_factory=list["_Unsure"])


class _Unsure(NamedTuple):
    slot: int
    wanted: Wanted
    refusal: asyncio.Future[None]


class _Missed(NamedTuple):
    slot: int
    wanted: Wanted
    partition: Partition
    log: PartitionLog  # which the bounds are of: the partition may get another while this one is read
    bounds: "_Bounds"
    size_max: int
    at_least_one: bool


class _Bounds(NamedTuple):
    """How far a partition may be read, asked once: a read that compared with a later answer would see too much."""

    high_watermark: Offset
    last_stable_offset: Offset
    end: Offset  # one of the two; for a replica the end of the log
    is_committed: bool


def handle_fetch(context: HandlerContext, request: RawRequest) -> Answer:
    fetch = parse_fetch(request.version, request.view, request.body_offset)
    try:
        plan = context.fetch_sessions.plan(fetch, request.version >= TOPIC_IDS_FROM)
    except SessionRefused as error:
        return encode_fetch_response(request.version, request.correlation_id, 0, error.code, 0, [])
    if fetch.replica_id < 0:
        count_records(context, request, fetch)
    found = _read(context, request, fetch, plan, is_first=True)
    request.throttle_ms = throttle_by_time(context, request.connection, request.client_id, request.started)
    if found.missed or found.unsure or _should_wait(fetch, plan, found):
        request.connection.holds_back_the_next = True
        request.view = _NOTHING  # the receive buffer must not live as long as the wait
        # Made before anything else can be appended, which it would else not hear of.
        wait = None if found.missed or found.unsure else _begin_wait(fetch, found)
        answer = asyncio.ensure_future(_wait_and_read(context, request, fetch, plan, found, wait))
        if wait is not None:
            answer.add_done_callback(lambda _: wait.end())
        return answer
    return _encode(context, request, plan, found, fetch.replica_id)


def _should_wait(fetch: FetchRequest, plan: FetchPlan, found: _Found) -> bool:
    if found.size >= fetch.min_bytes or found.has_error or fetch.max_wait_ms <= 0:
        return False
    # A fetch about nothing opens or keeps a session: there is nothing it could wait for.
    return bool(plan.wanted)


async def _wait_and_read(
    context: HandlerContext,
    request: RawRequest,
    fetch: FetchRequest,
    plan: FetchPlan,
    found: _Found,
    wait: FetchWait | None,
) -> Reply:
    try:
        if wait is not None:
            found.results.clear()  # read anew after the wait; too little to send is still too much to keep
            wait_s = min(fetch.max_wait_ms / 1000, found.held_back_s)
            timer = asyncio.get_running_loop().call_later(wait_s, wait.end)
            try:
                await wait.done
            finally:
                timer.cancel()
            found = _read(context, request, fetch, plan, is_first=False)
        for missed in found.missed:
            found.results[missed.slot] = (missed.wanted, await _read_from_disk(context, missed))
        for slot, wanted, refusal in found.unsure:
            try:
                await refusal
            except PenstockError as error:
                found.results[slot] = (wanted, _told(context, wanted, error))
        return _encode(context, request, plan, found, fetch.replica_id)
    finally:
        request.connection.holds_back_the_next = False


def _begin_wait(fetch: FetchRequest, found: _Found) -> FetchWait:
    if fetch.replica_id >= 0:
        return FetchWait(fetch.min_bytes - found.size, [partition.replicating for partition in found.partitions])
    is_committed = fetch.isolation_level == READ_COMMITTED
    return FetchWait(fetch.min_bytes - found.size, found.partitions, is_committed=is_committed)


def _read(
    context: HandlerContext, request: RawRequest, fetch: FetchRequest, plan: FetchPlan, *, is_first: bool
) -> _Found:
    """One pass over all partitions, in the order of the session, within the byte limits of the request."""
    found = _Found([], 0, False, [], [])
    is_replica = fetch.replica_id >= 0
    is_committed = fetch.isolation_level == READ_COMMITTED and not is_replica
    left = min(fetch.max_bytes, context.config.fetch_max_bytes)
    if not is_replica:
        left = min(left, _allowed_bytes(context, request))
    for wanted in plan.wanted:
        ask = wanted.ask
        try:
            partition = _find(context, wanted.topic, ask.partition, request.version)
            partition.check_epoch(ask.current_leader_epoch)
            if not partition.is_leader and ask.fetch_offset > partition.log.next_offset:
                raise OffsetNotAvailable(f"{partition.at}: offset {ask.fetch_offset} has not come here yet")
            if is_replica:
                if is_first and (parting := admit_replica(context, partition, fetch, ask)) is not None:
                    found.has_error = True  # to be answered at once
                    found.results.append((wanted, diverging_result(ask.partition, parting)))
                    continue
                if plan.is_incremental and _is_quiet(partition, wanted):
                    found.partitions.append(partition)
                    continue
            elif fetch.rack_id and (nearer := nearer_replica(context, partition, fetch.rack_id, ask.fetch_offset)):
                found.has_error = True
                found.results.append((wanted, redirection(partition, ask.partition, nearer)))
                continue
            size_max = max(0, min(ask.partition_max_bytes, left))
            # One batch for the whole answer, however little is asked for; else a large batch could never be read.
            at_least_one = found.size == 0 and not found.missed
            held_s = held_back_s(context, partition, fetch.replica_id) if is_replica else 0.0
            if held_s > 0:
                # Nor would an append to it be worth an answer.
                size_max, at_least_one, found.held_back_s = 0, False, min(found.held_back_s, held_s)
            else:
                found.partitions.append(partition)
            committed, stable = partition.high_watermark, partition.last_stable_offset
            end = partition.log.next_offset if is_replica else stable if is_committed else committed
            bounds = _Bounds(committed, stable, end, is_committed)
            try:
                records = _records(partition.log, bounds, ask.fetch_offset, size_max, at_least_one=at_least_one)
            except OffsetOutOfRange as refusal:
                if is_replica or partition.is_sole or not partition.is_leader:
                    raise
                # Consumers take it for final, and begin anew at one end of the log.
                sure = context.final_refusals.make_sure(context, partition, refusal)
                found.unsure.append(_Unsure(len(found.results), wanted, sure))
                found.has_error = True
                found.results.append((wanted, _refusal(ask.partition, refusal)))  # until we are sure
                continue
            if records is None:
                slot, log = len(found.results), partition.log
                found.missed.append(_Missed(slot, wanted, partition, log, bounds, size_max, at_least_one))
                left -= size_max
                records = _NOTHING
            size = len(records)
            left = max(0, left - size)
            found.size += size
            result = _result(partition, bounds, ask, records)
        except PenstockError as error:
            found.has_error = True
            result = _told(context, wanted, error)
        found.results.append((wanted, result))
    return found


def _is_quiet(partition: Partition, wanted: Wanted) -> bool:
    """Whether a follower would be told nothing that it does not know: so it is with most of a thousand partitions."""
    log = partition.log
    return (
        wanted.ask.fetch_offset == log.next_offset
        and wanted.high_watermark == partition.high_watermark
        and wanted.log_start == log.log_start
        and log.failure is None
    )


def _topic(context: HandlerContext, topic: str | UUID) -> HostedTopic | None:
    return context.replicas.topics.get(topic) if isinstance(topic, str) else context.replicas.topics_by_id.get(topic)


def _find(context: HandlerContext, topic: str | UUID, index: int, version: int) -> Partition:
    hosted = _topic(context, topic)
    if hosted is None:
        raise context.replicas.not_here(topic, index)
    partition = context.replicas.replica_of(hosted, index)
    # Consumers that know of preferred replicas may read from a follower; others would miss a new leader for ever.
    if not partition.is_leader and version < FOLLOWER_READS_FROM:
        raise partition.not_leader()
    return partition


def _records(
    log: PartitionLog,
    bounds: _Bounds,
    offset: int,
    size_max: int,
    *,
    at_least_one: bool,
    cached_only: bool = True,
) -> memoryview | None:
    if size_max <= 0 and not at_least_one:
        # Nothing is left to give, but what is wrong with the question is told all the same.
        if not log.log_start <= offset <= log.next_offset:
            raise OffsetOutOfRange(offset, log.log_start, log.next_offset)
        return _NOTHING
    return log.read(Offset(offset), size_max, bounds.end, at_least_one=at_least_one, cached_only=cached_only)


async def _read_from_disk(context: HandlerContext, missed: _Missed) -> FetchPartitionResult:
    _, wanted, partition, log, bounds, size_max, at_least_one = missed
    ask = wanted.ask

    def read() -> memoryview | None:
        return _records(log, bounds, ask.fetch_offset, size_max, at_least_one=at_least_one, cached_only=False)

    try:
        records = await context.disk.run(read)
        if partition.log is not log:
            # Cut since, by another's leadership. What is true of it now is no answer to what was asked before.
            raise partition.not_leader()
        return _result(partition, bounds, ask, records if records is not None else _NOTHING)
    except PenstockError as error:
        return _refusal(ask.partition, error)
    except OSError as error:
        return _refusal(ask.partition, CorruptMessage(f"{partition.at}: {error}"))


def _result(partition: Partition, bounds: _Bounds, ask: FetchPartition, records: memoryview) -> FetchPartitionResult:
    return FetchPartitionResult(
        ask.partition,
        0,
        bounds.high_watermark,
        bounds.last_stable_offset,
        partition.log.log_start,
        _aborted(partition, Offset(ask.fetch_offset), records) if bounds.is_committed else None,
        -1,
        records,
    )


def _aborted(partition: Partition, start: Offset, records: memoryview) -> Sequence[AbortedTransaction]:
    """The aborted transactions that reach into these batches, in the order in which they begin."""
    log = partition.log
    if not records or not log.aborted.reach(start):
        return ()
    aborted = log.aborted_transactions(start, _end_of_batches(records))
    aborted.sort(key=lambda transaction: transaction.first_offset)
    return [AbortedTransaction(transaction.producer_id, transaction.first_offset) for transaction in aborted]


def _end_of_batches(records: memoryview) -> Offset:
    """The offset after the last whole batch; the reader does not see one that is cut short."""
    at, end, size = 0, 0, len(records)
    while size - at >= HEADER_BYTES:
        base_offset, batch_length, last_delta = _STEP.unpack_from(records, at)
        at += batch_length + LOG_OVERHEAD_BYTES
        if at <= size:
            end = base_offset + last_delta + 1
    return Offset(end)


def _told(context: HandlerContext, wanted: Wanted, error: PenstockError) -> FetchPartitionResult:
    """The refusal, counted, with who leads instead where that is the matter."""
    index = wanted.ask.partition
    result = _refusal(index, error, leader_hint(context, wanted.topic, index, error))
    context.metrics.request_errors.child("Fetch", ErrorCode(result.error_code).name).value += 1
    return result


def _refusal(index: int, error: PenstockError, leader: tuple[int, int] | None = None) -> FetchPartitionResult:
    code = error.code
    if code is ErrorCode.CORRUPT_MESSAGE:
        code = ErrorCode.KAFKA_STORAGE_ERROR  # damage on our disk is not the consumer's fault
    if isinstance(error, OffsetOutOfRange):
        return FetchPartitionResult(index, code, error.end, -1, error.start)
    return FetchPartitionResult(index, code, -1, current_leader=leader)


def _allowed_bytes(context: HandlerContext, request: RawRequest) -> int:
    """The most a client may be given at once: no more than its quota ever allows, nor than there is memory for."""
    # A hundred consumers that fall behind would else hold a hundred answers of fetch.max.bytes.
    room = max(0, STUCK_BYTES_MAX - request.connection.outbox.stuck_bytes)
    quota = context.quotas.fetch
    if quota is None:
        return room
    return int(min(quota.amount_max(request.connection.principal, request.client_id), room))


def _throttle(context: HandlerContext, request: RawRequest, size: int) -> int:
    """Count the bytes of an answer; if they are too many, how long the client waits before it gets any."""
    quota = context.quotas.fetch
    if quota is None:
        return 0
    connection, now = request.connection, context.clock.monotonic()
    throttle_ms = quota.record(connection.principal, request.client_id, size, now)
    if throttle_ms > 0:
        quota.unrecord(connection.principal, request.client_id, size, now)
        connection.throttle(throttle_ms, "fetch", context.metrics)
    return throttle_ms


def _encode(context: HandlerContext, request: RawRequest, plan: FetchPlan, found: _Found, replica_id: int) -> Reply:
    session, is_replica = plan.session, replica_id >= 0
    throttle_ms = 0
    if not is_replica:
        throttle_ms = _throttle(context, request, sum(len(result.records) for _, result in found.results))
    if throttle_ms > 0:
        # Kafka's way: nothing now, and a session that takes no notice of this round. One that would begin with it
        # does not: the client takes an empty first answer for none and opens another.
        if session is not None and not plan.is_incremental:
            context.fetch_sessions.end(session)
            session = None
        session_id = session.id if session is not None else 0
        throttle_ms = max(throttle_ms, request.throttle_ms)
        return encode_fetch_response(request.version, request.correlation_id, throttle_ms, 0, session_id, [])
    topics: dict[str | UUID, list[FetchPartitionResult]] = {}
    gave: list[Wanted] = []
    for wanted, result in found.results:
        has_data = len(result.records) > 0
        topic = _topic(context, wanted.topic) if has_data else None
        if topic is not None:
            if is_replica:
                count_given(context, topic, result, replica_id)
            else:
                count_bytes(context, topic, result)
                if request.connection.client_traffic is not None:
                    request.connection.client_traffic.fetch_bytes.value += len(result.records)
        is_news = has_data or result.error_code != 0 or result.diverging_epoch is not None
        is_news |= result.preferred_read_replica >= 0
        if session is not None:
            is_news |= wanted.high_watermark != result.high_watermark or wanted.log_start != result.log_start_offset
            # After an error, what comes next is news whatever it is.
            is_well = result.error_code == 0
            wanted.high_watermark = result.high_watermark if is_well else -1
            wanted.log_start = result.log_start_offset if is_well else -1
            if has_data:
                gave.append(wanted)
        if is_news or not plan.is_incremental:
            topics.setdefault(wanted.topic, []).append(result)
    if session is not None:
        context.fetch_sessions.served(session, gave)
    if context.tracer is not None and not is_replica:
        context.tracer.fetched(request.client_id, request.started, list(_given(context, found)))
    answer = [
        FetchTopicResult(topic, None, results) if isinstance(topic, str) else FetchTopicResult(None, topic, results)
        for topic, results in topics.items()
    ]
    session_id = session.id if session is not None else 0
    throttle_ms = request.throttle_ms
    return encode_fetch_response(
        request.version, request.correlation_id, throttle_ms, 0, session_id, answer, _hinted_endpoints(context, found)
    )


def _given(context: HandlerContext, found: _Found) -> Iterator[tuple[TopicPartition, FetchPartitionResult]]:
    """The partitions with records in the answer, by name."""
    for wanted, result in found.results:
        topic = _topic(context, wanted.topic) if len(result.records) > 0 else None
        if topic is not None:
            yield TopicPartition(topic.name, result.partition), result


def _hinted_endpoints(context: HandlerContext, found: _Found) -> list[NodeEndpoint]:
    """Where the leaders are that were named instead of data (KIP-951)."""
    if not found.has_error:
        return []
    return endpoints_of(context, (result.current_leader for _, result in found.results))
