"""Fetch: batches as they lie in the log, at once if there are enough, else when they come or time is up.

Called by server.dispatch for every Fetch request; the walk goes on in replication.partition and log.partition_log.
What is in the page cache is read on the loop without waiting; only what is not takes the road through an I/O thread.
"""

import asyncio
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.errors import CorruptMessage, ErrorCode, OffsetOutOfRange, PenstockError
from penstock.handlers.context import Answer, Buffer, HandlerContext, RawRequest, Reply, throttle_by_time
from penstock.handlers.delivery import count_bytes, count_records
from penstock.handlers.fetch_sessions import FetchPlan, SessionRefused, Wanted
from penstock.model import Offset
from penstock.replication.partition import Partition
from penstock.replication.replicas import HostedTopic
from penstock.replication.waiting import FetchWait
from penstock.wire.fetch import (
    FetchPartitionResult,
    FetchRequest,
    FetchTopicResult,
    encode_fetch_response,
    parse_fetch,
)

TOPIC_IDS_FROM = 13
READ_COMMITTED = 1
STUCK_BYTES_MAX = 64 << 20
_NOTHING = memoryview(b"")


@dataclass(slots=True)
class _Found:
    """What one pass over the partitions gave."""

    results: list[tuple[Wanted, FetchPartitionResult]]
    size: int
    has_error: bool
    # Partitions whose data is not in memory: they have to be read on an I/O thread.
    missed: list["_Missed"]
    partitions: list[Partition]


class _Missed(NamedTuple):
    slot: int
    wanted: Wanted
    partition: Partition
    size_max: int
    at_least_one: bool


def handle_fetch(context: HandlerContext, request: RawRequest) -> Answer:
    fetch = parse_fetch(request.version, request.view, request.body_offset)
    try:
        plan = context.fetch_sessions.plan(fetch, request.version >= TOPIC_IDS_FROM)
    except SessionRefused as error:
        return encode_fetch_response(request.version, request.correlation_id, 0, error.code, 0, [])
    count_records(context, request, fetch)
    found = _read(context, request, fetch, plan)
    request.throttle_ms = throttle_by_time(context, request.connection, request.client_id, request.started)
    if found.missed or _should_wait(fetch, plan, found):
        request.connection.is_fetching = True
        request.view = _NOTHING  # the receive buffer must not live as long as the wait
        return asyncio.ensure_future(_wait_and_read(context, request, fetch, plan, found))
    return _encode(context, request, plan, found)


def _should_wait(fetch: FetchRequest, plan: FetchPlan, found: _Found) -> bool:
    if found.size >= fetch.min_bytes or found.has_error or fetch.max_wait_ms <= 0:
        return False
    # A fetch about nothing opens or keeps a session: there is nothing it could wait for.
    return bool(plan.wanted)


async def _wait_and_read(
    context: HandlerContext, request: RawRequest, fetch: FetchRequest, plan: FetchPlan, found: _Found
) -> Reply:
    try:
        if not found.missed:
            found.results.clear()  # read anew after the wait; too little to send is still too much to keep
            await _wait(fetch, found)
            found = _read(context, request, fetch, plan)
        for missed in found.missed:
            found.results[missed.slot] = (missed.wanted, await _read_from_disk(context, fetch, missed))
        return _encode(context, request, plan, found)
    finally:
        request.connection.is_fetching = False


async def _wait(fetch: FetchRequest, found: _Found) -> None:
    wait = FetchWait(fetch.min_bytes - found.size, found.partitions)
    timer = asyncio.get_running_loop().call_later(fetch.max_wait_ms / 1000, wait.end)
    try:
        await wait.done
    finally:
        timer.cancel()
        wait.end()


def _read(context: HandlerContext, request: RawRequest, fetch: FetchRequest, plan: FetchPlan) -> _Found:
    """One pass over all partitions, in the order of the session, within the byte limits of the request."""
    found = _Found([], 0, False, [], [])
    left = min(fetch.max_bytes, context.config.fetch_max_bytes, _allowed_bytes(context, request))
    for wanted in plan.wanted:
        ask = wanted.ask
        try:
            partition = _find(context, wanted.topic, ask.partition)
            partition.check_epoch(ask.current_leader_epoch)
            found.partitions.append(partition)
            size_max = max(0, min(ask.partition_max_bytes, left))
            # One batch for the whole answer, however little is asked for; else a large batch could never be read.
            at_least_one = found.size == 0 and not found.missed
            records = _records(partition, fetch, ask.fetch_offset, size_max, at_least_one=at_least_one)
            if records is None:
                found.missed.append(_Missed(len(found.results), wanted, partition, size_max, at_least_one))
                left -= size_max
                records = b""
            size = len(records)
            left = max(0, left - size)
            found.size += size
            result = _result(partition, fetch, ask.partition, records)
        except PenstockError as error:
            found.has_error = True
            result = _refusal(ask.partition, error)
            context.metrics.request_errors.child("Fetch", ErrorCode(result.error_code).name).value += 1
        found.results.append((wanted, result))
    return found


def _topic(context: HandlerContext, topic: str | UUID) -> HostedTopic | None:
    return context.replicas.topics.get(topic) if isinstance(topic, str) else context.replicas.topics_by_id.get(topic)


def _find(context: HandlerContext, topic: str | UUID, index: int) -> Partition:
    if isinstance(topic, str):
        return context.replicas.find(topic, index)
    return context.replicas.find_by_id(topic, index)


def _records(
    partition: Partition,
    fetch: FetchRequest,
    offset: int,
    size_max: int,
    *,
    at_least_one: bool,
    cached_only: bool = True,
) -> memoryview | None:
    end = partition.last_stable_offset if fetch.isolation_level == READ_COMMITTED else partition.high_watermark
    if size_max <= 0 and not at_least_one:
        # Nothing is left to give, but what is wrong with the question is told all the same.
        log = partition.log
        if not log.log_start <= offset <= log.next_offset:
            raise OffsetOutOfRange(offset, log.log_start, log.next_offset)
        return _NOTHING
    return partition.log.read(Offset(offset), size_max, end, at_least_one=at_least_one, cached_only=cached_only)


async def _read_from_disk(context: HandlerContext, fetch: FetchRequest, missed: _Missed) -> FetchPartitionResult:
    _, wanted, partition, size_max, at_least_one = missed
    ask = wanted.ask

    def read() -> memoryview | None:
        return _records(partition, fetch, ask.fetch_offset, size_max, at_least_one=at_least_one, cached_only=False)

    try:
        records = await context.disk.run(read)
        # The log may have moved on meanwhile; offsets told to the client are read now, after the wait.
        return _result(partition, fetch, ask.partition, records if records is not None else b"")
    except PenstockError as error:
        return _refusal(ask.partition, error)
    except OSError as error:
        return _refusal(ask.partition, CorruptMessage(f"{partition.at}: {error}"))


def _result(partition: Partition, fetch: FetchRequest, index: int, records: Buffer) -> FetchPartitionResult:
    return FetchPartitionResult(
        index,
        0,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.log_start,
        () if fetch.isolation_level == READ_COMMITTED else None,
        -1,
        records,
    )


def _refusal(index: int, error: PenstockError) -> FetchPartitionResult:
    code = error.code
    if code is ErrorCode.CORRUPT_MESSAGE:
        code = ErrorCode.KAFKA_STORAGE_ERROR  # damage on our disk is not the consumer's fault
    if isinstance(error, OffsetOutOfRange):
        return FetchPartitionResult(index, code, error.end, -1, error.start)
    return FetchPartitionResult(index, code, -1)


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


def _encode(context: HandlerContext, request: RawRequest, plan: FetchPlan, found: _Found) -> Reply:
    session = plan.session
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
        if has_data:
            topic = _topic(context, wanted.topic)
            if topic is not None:
                count_bytes(context, topic, result)
        is_news = has_data or result.error_code != 0
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
    answer = [
        FetchTopicResult(topic, None, results) if isinstance(topic, str) else FetchTopicResult(None, topic, results)
        for topic, results in topics.items()
    ]
    session_id = session.id if session is not None else 0
    throttle_ms = request.throttle_ms
    return encode_fetch_response(request.version, request.correlation_id, throttle_ms, 0, session_id, answer)
