"""Offsets of a partition: ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

Called by server.dispatch. Offsets by time are looked up on an I/O thread (log.times); all else is in memory.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from penstock.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidRequest,
    InvalidTopicName,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PenstockError,
    PolicyViolation,
    RequestTimedOut,
    StorageFailed,
    UnsupportedVersion,
)
from penstock.handlers.context import HandlerContext, Request
from penstock.log.times import Found, first_at, look, newest_timestamp
from penstock.model import INTERNAL_TOPICS, NO_EPOCH, LeaderEpoch, Offset
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)

Body = Mapping[str, Any]

READ_COMMITTED = 1
NO_OFFSET = Offset(-1)
NO_TIMESTAMP = -1
TO_HIGH_WATERMARK = -1
OFFSET_NOT_AVAILABLE_FROM = 5


class Special(IntEnum):
    """Timestamps of ListOffsets that stand for something else."""

    LATEST = -1
    EARLIEST = -2
    NEWEST_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


# The version each came with: an older client that sends one means something we do not know.
_SPECIAL_FROM: dict[int, int] = {
    Special.LATEST: 1,
    Special.EARLIEST: 1,
    Special.NEWEST_TIMESTAMP: 7,
    Special.EARLIEST_LOCAL: 8,
    Special.LATEST_TIERED: 9,
    Special.EARLIEST_PENDING_UPLOAD: 11,
}

_NOTHING = Found(NO_OFFSET, NO_TIMESTAMP, NO_EPOCH)


async def handle_list_offsets(context: HandlerContext, request: Request) -> Body:
    body = request.body
    is_committed = getattr(body, "isolation_level", 0) == READ_COMMITTED
    times = Counter((topic.name, asked.partition_index) for topic in body.topics for asked in topic.partitions)
    topics: list[Body] = []
    for topic in body.topics:
        partitions: list[Body] = []
        for asked in topic.partitions:
            index: int = asked.partition_index
            try:
                if times[topic.name, index] > 1:
                    raise InvalidRequest(f"partition {index} of {topic.name!r} is named twice in one request")
                _check_timestamp(asked.timestamp, request.version)
                partition = context.replicas.find(topic.name, index)
                partition.check_epoch(getattr(asked, "current_leader_epoch", NO_EPOCH))
                found = await _list_offset(context, partition, asked.timestamp, is_committed=is_committed)
                partitions.append({
                    "partition_index": index,
                    "timestamp": found.timestamp,
                    "offset": found.offset,
                    "leader_epoch": found.leader_epoch,
                })  # fmt: skip
            except PenstockError as error:
                code = _code(error)
                if code is ErrorCode.OFFSET_NOT_AVAILABLE and request.version < OFFSET_NOT_AVAILABLE_FROM:
                    code = ErrorCode.LEADER_NOT_AVAILABLE
                partitions.append({"partition_index": index, "error_code": code})
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _SPECIAL_FROM.get(timestamp, version + 1):
        raise UnsupportedVersion(f"timestamp {timestamp} has no meaning in ListOffsets v{version}")


async def _list_offset(context: HandlerContext, partition: Partition, timestamp: int, *, is_committed: bool) -> Found:
    log = partition.log
    if not partition.is_settled and timestamp not in (Special.EARLIEST, Special.EARLIEST_LOCAL):
        # What is committed may lie above what we know of it: a consumer told too low an end would go back (R10, G5).
        raise OffsetNotAvailable(f"{partition.at}: how far it is committed is not known yet")
    end = partition.last_stable_offset if is_committed else partition.high_watermark
    match timestamp:
        case Special.LATEST:
            return Found(end, NO_TIMESTAMP, partition.leader_epoch)
        case Special.EARLIEST | Special.EARLIEST_LOCAL:
            epoch = log.epochs.epoch_at(log.log_start)
            # A log nothing was ever written to knows no epochs; what is written next gets the leader's.
            return Found(log.log_start, NO_TIMESTAMP, epoch if epoch != NO_EPOCH else partition.leader_epoch)
        case Special.LATEST_TIERED | Special.EARLIEST_PENDING_UPLOAD:
            return _NOTHING  # nothing is tiered here
        case Special.NEWEST_TIMESTAMP:
            newest = await _on_disk(context, partition, newest_timestamp, look(log, end))
            return _NOTHING if newest is None else await _first_at(context, partition, newest, end)
        case _:
            return await _first_at(context, partition, timestamp, end)


async def _first_at(context: HandlerContext, partition: Partition, timestamp: int, end: Offset) -> Found:
    log = partition.log
    while True:
        found = await _on_disk(context, partition, first_at, look(log, end, timestamp), timestamp)
        # The start may have passed what was found meanwhile; then there is a later record to tell, or none.
        if found is None or found.offset >= log.log_start:
            return found or _NOTHING


async def _on_disk(context: HandlerContext, partition: Partition, search: Any, *arguments: Any) -> Any:
    try:
        return await context.disk.run(search, *arguments)
    except OSError as error:
        raise StorageFailed(f"{partition.at}: {error}") from error
    except CorruptMessage as error:
        logger.error("%s: %s", partition.at, error)
        raise StorageFailed(f"{partition.at}: {error}") from error


def handle_offset_for_leader_epoch(context: HandlerContext, request: Request) -> Body:
    """Where an epoch ends in this log: by it a client sees whether what it read is still there (KIP-320)."""
    topics: list[Body] = []
    for topic in request.body.topics:
        partitions: list[Body] = []
        for asked in topic.partitions:
            try:
                partition = context.replicas.find(topic.topic, asked.partition)
                partition.check_epoch(asked.current_leader_epoch)
                epoch, end = _epoch_end(partition, asked.leader_epoch)
                partitions.append({"partition": asked.partition, "leader_epoch": epoch, "end_offset": end})
            except PenstockError as error:
                partitions.append({"partition": asked.partition, "error_code": _code(error)})
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


def _epoch_end(partition: Partition, asked: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
    log = partition.log
    if asked < 0 or asked > partition.leader_epoch:
        return NO_EPOCH, NO_OFFSET
    if asked == partition.leader_epoch:
        # It ends where the log ends, also while it has written nothing and the log does not know of it.
        return asked, log.next_offset
    epoch, end = log.epochs.end_of(asked, log.next_offset)
    if epoch == NO_EPOCH:
        # Older than all that is left. "Unknown" would make consumers reset; that it ended before the start is true.
        return asked, log.log_start
    return epoch, end


async def handle_delete_records(context: HandlerContext, request: Request) -> Body:
    """Move the log starts up. Answered when the new starts are on stable storage (TRAPS L9)."""
    body = request.body
    deadline = asyncio.get_running_loop().time() + body.timeout.total_seconds()
    outcomes: list[tuple[str, int, Partition | PenstockError]] = []
    for topic in body.topics:
        for asked in topic.partitions:
            try:
                outcome = _cut(context, topic.name, asked.partition_index, asked.offset)
            except PenstockError as error:
                outcome = error
            outcomes.append((topic.name, asked.partition_index, outcome))
    cut = {outcome.at: outcome for _, _, outcome in outcomes if isinstance(outcome, Partition)}
    failures = await _make_durable(context, list(cut.values()), deadline) if cut else {}
    answers: dict[str, list[Body]] = {topic.name: [] for topic in body.topics}
    for name, index, outcome in outcomes:
        failed = outcome if isinstance(outcome, PenstockError) else failures.get(outcome)
        low_watermark = outcome.log.log_start if isinstance(outcome, Partition) and failed is None else NO_OFFSET
        code = ErrorCode.NONE if failed is None else _code(failed)
        answers[name].append({"partition_index": index, "low_watermark": low_watermark, "error_code": code})
    for partition in cut.values():
        if partition not in failures:
            await _drop_segments(context, partition)
    return {"topics": [{"name": name, "partitions": partitions} for name, partitions in answers.items()]}


def _cut(context: HandlerContext, name: str, index: int, asked: int) -> Partition:
    if name in INTERNAL_TOPICS:
        raise InvalidTopicName(f"{name!r} is the broker's own: its records are not deleted by hand")
    partition = context.replicas.find(name, index)
    log = partition.log
    if log.failure is not None:
        raise log.failure
    if log.config.compact and not log.config.delete:
        raise PolicyViolation(f"cleanup.policy of {name!r} is compact: it keeps the last record of every key")
    offset = partition.high_watermark if asked == TO_HIGH_WATERMARK else Offset(asked)
    if not 0 <= offset <= partition.high_watermark:
        raise OffsetOutOfRange(offset, log.log_start, partition.high_watermark)
    if offset > log.log_start:
        log.advance_start(offset)
    return partition


async def _make_durable(
    context: HandlerContext, partitions: list[Partition], deadline: float
) -> dict[Partition, PenstockError]:
    """Put the log starts on stable storage; gives the partitions for which that failed, and why."""
    failures: dict[Partition, PenstockError] = {}
    # A start beyond the durable end would come back lower after a power cut, and its offsets be given out twice.
    waits = {
        partition: partition.log.sync.wait_for(partition.log.next_offset)
        for partition in partitions
        if partition.log.durable_offset < partition.log.log_start
    }
    try:
        async with asyncio.timeout_at(deadline):
            for partition, wait in waits.items():
                try:
                    await asyncio.shield(wait)
                except PenstockError as error:
                    failures[partition] = error
            await context.replicas.logs.save_points()
            for partition in partitions:
                # Replicas hear of it with their next fetch; one that led without it would bring the records back.
                if partition in failures:
                    continue
                try:
                    if (wait := partition.started(partition.log.log_start)) is not None:
                        await asyncio.shield(wait)
                except PenstockError as error:
                    failures[partition] = error
    except TimeoutError:
        late = RequestTimedOut("the new log start was not on stable storage, or not with all replicas, in time")
        failures = {partition: failures.get(partition, late) for partition in partitions}
    except OSError as error:
        logger.error("the log starts could not be written: %s", error)
        failed = StorageFailed(f"the log starts could not be written: {error}")
        failures = {partition: failures.get(partition, failed) for partition in partitions}
    return failures


async def _drop_segments(context: HandlerContext, partition: Partition) -> None:
    try:
        await context.replicas.logs.drop_segments_before_start(partition.log)
    except OSError as error:
        # The records are deleted all the same; the files go with the next round of housekeeping.
        logger.warning("%s: segments below the log start could not be removed yet: %s", partition.at, error)


def _code(error: PenstockError) -> ErrorCode:
    logger.debug("%s", error)
    return error.code
