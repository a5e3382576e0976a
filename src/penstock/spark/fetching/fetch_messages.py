"""Fetch as a consumer sees it, of one partition: versions 4 to 17, so that Kafka 0.11 to 4.x are understood.

Called by fetching.partition_fetcher. The request is written and the reply read by struct; records are left untouched.
Up to 12 a topic has a name; from 13 its id, so that a topic made anew under the same name is not taken for it.
Laws:
- Records are a part of the very frame that came.
- Every length and count is checked against the bytes that are there before anything is built from it.
"""

from struct import Struct
from typing import NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, MalformedFrame
from penstock.wire.primitives import (
    I16,
    I32,
    I64,
    MALFORMED,
    read_count,
    read_length,
    read_string,
    read_uuid,
    skip_tags,
    write_length,
    write_nullable_string,
)

VERSION_MIN, VERSION_MAX = 4, 17
NAMED_VERSION_MAX = 12
_LOG_START_FROM = 5
_SESSIONS_FROM = 7
_LEADER_EPOCH_FROM = 9
_RACK_FROM = 11
_FLEXIBLE_FROM = 12
_TOPIC_IDS_FROM = 13
_NO_REPLICA_FROM = 15

_START = Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_NO_SESSION = Struct(">ii").pack(0, -1)
_RESULT = Struct(">ihqq")  # partition, error, high watermark, last stable offset
_ABORTED = Struct(">qq")


class Asked(NamedTuple):
    """Of the partition `partition` of a topic that has an id, a name, or both."""

    topic: str
    topic_id: UUID | None
    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int
    max_wait_ms: int
    is_committed: bool


class Answered(NamedTuple):
    """`is_there` is False where a broker left the partition out: it does so while it throttles us."""

    throttle_ms: int
    error_code: int
    is_there: bool = False
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    records: memoryview = memoryview(b"")
    preferred_replica: int = -1


def is_flexible(version: int) -> bool:
    return version >= _FLEXIBLE_FROM


def encode_fetch(version: int, asked: Asked) -> bytes:
    flexible = is_flexible(version)
    out = bytearray()
    if version < _NO_REPLICA_FROM:
        out += I32.pack(-1)
    out += _START.pack(asked.max_wait_ms, 1, asked.max_bytes, asked.is_committed)
    if version >= _SESSIONS_FROM:
        out += _NO_SESSION
    write_length(out, 1, flexible)
    if version >= _TOPIC_IDS_FROM:
        assert asked.topic_id is not None
        out += asked.topic_id.bytes
    else:
        write_nullable_string(out, asked.topic, flexible)
    write_length(out, 1, flexible)
    out += I32.pack(asked.partition)
    if version >= _LEADER_EPOCH_FROM:
        out += I32.pack(asked.leader_epoch)
    out += I64.pack(asked.offset)
    if flexible:
        out += I32.pack(-1)  # the epoch of what was fetched last: replicas say it
    if version >= _LOG_START_FROM:
        out += I64.pack(-1)
    out += I32.pack(asked.max_bytes)
    if flexible:
        out += b"\x00\x00"  # no tagged fields of the partition, none of the topic
    if version >= _SESSIONS_FROM:
        write_length(out, 0, flexible)
    if version >= _RACK_FROM:
        write_nullable_string(out, "", flexible)
    if flexible:
        out.append(0)
    return bytes(out)


def parse_fetch(version: int, asked: Asked, body: memoryview) -> Answered:
    """What the reply, behind its header, says of the partition asked for."""
    try:
        return _parse(version, asked, body)
    except MALFORMED as failure:
        raise MalformedFrame("Fetch response") from failure


def _parse(version: int, asked: Asked, view: memoryview) -> Answered:
    flexible = is_flexible(version)
    throttle_ms = I32.unpack_from(view)[0]
    position = 4
    if version >= _SESSIONS_FROM:
        error = I16.unpack_from(view, position)[0]
        position += 6
        if error != ErrorCode.NONE:
            return Answered(throttle_ms, error)
    topic_count, position = read_count(view, position, flexible, 3)
    for _ in range(topic_count):
        if version >= _TOPIC_IDS_FROM:
            topic, position = read_uuid(view, position)
            is_asked = topic == asked.topic_id
        else:
            topic, position = read_string(view, position, flexible)
            is_asked = topic == asked.topic
        count, position = read_count(view, position, flexible, _RESULT.size)
        for _ in range(count):
            partition, answered, position = _parse_partition(version, throttle_ms, view, position)
            if is_asked and partition == asked.partition:
                return answered
        if flexible:
            position = skip_tags(view, position)
    return Answered(throttle_ms, ErrorCode.NONE)


def _parse_partition(version: int, throttle_ms: int, view: memoryview, position: int) -> tuple[int, Answered, int]:
    flexible = is_flexible(version)
    partition, error, high_watermark, last_stable = _RESULT.unpack_from(view, position)
    position += _RESULT.size
    log_start = -1
    if version >= _LOG_START_FROM:
        log_start = I64.unpack_from(view, position)[0]
        position += 8
    count, position = read_length(view, position, flexible)
    if count * _ABORTED.size > len(view) - position:
        raise MalformedFrame(f"{count} aborted transactions claimed, {len(view) - position} bytes left")
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        producer_id, first_offset = _ABORTED.unpack_from(view, position)
        aborted.append((producer_id, first_offset))
        position += _ABORTED.size
        if flexible:
            position = skip_tags(view, position)
    preferred_replica = -1
    if version >= _RACK_FROM:
        preferred_replica = I32.unpack_from(view, position)[0]
        position += 4
    size, position = read_length(view, position, flexible)
    end = position + max(size, 0)
    if end > len(view):
        raise MalformedFrame(f"records of {size} bytes run past the frame")
    records = view[position:end]
    position = skip_tags(view, end) if flexible else end
    answered = Answered(
        throttle_ms, error, True, high_watermark, last_stable, log_start, tuple(aborted), records, preferred_replica
    )
    return partition, answered, position
