"""Fetch as the one who asks sees it: the request written by struct, the response parsed, records untouched.

Called by replication's followers, which speak versions 15 to 18: topics by id, and a replica that says who it is.
The other side of this talk is wire.fetch.
Invariants:
- Records are never copied: each partition's are a part of the very frame that came.
- Every length and count is checked against the bytes that are there before anything is built from it.
- Aborted transactions are passed over: a replica takes the markers themselves.
"""

from struct import Struct
from typing import NamedTuple
from uuid import UUID

from penstock.errors import MalformedFrame
from penstock.wire.apis import ApiKey
from penstock.wire.fetch import (
    HIGH_WATERMARK_UNSUPPORTED,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopicResult,
)
from penstock.wire.frame import request_frame
from penstock.wire.primitives import (
    I32,
    MALFORMED,
    read_count,
    read_length,
    read_tags,
    read_uuid,
    skip_tags,
    write_length,
    write_nullable_string,
    write_uvarint,
)

VERSION_MIN, VERSION_MAX = 15, 18
_DIRECTORY_FROM = 17
_HIGH_WATERMARK_FROM = 18

_START = Struct(">iiibii")  # max wait, min bytes, max bytes, isolation level, session id, session epoch
_PARTITION = Struct(">iiqiqi")
_REPLICA_STATE_TAG = Struct(">BBiqb")  # number 1, 13 bytes: replica id, broker epoch, no tags
_HIGH_WATERMARK_TAG = Struct(">BBq")  # number 1, 8 bytes

_HEAD = Struct(">ihi")  # throttle, error code, session id
_RESULT = Struct(">ihqqq")
_DIVERGING = Struct(">iq")
_LEADER = Struct(">ii")
_ABORTED_BYTES = 16
# The least a topic takes: id, count, tags; a partition: what is fixed, two lengths, preferred replica, tags.
_TOPIC_BYTES_MIN = 18
_PARTITION_BYTES_MIN = _RESULT.size + 7


class FetchResponse(NamedTuple):
    throttle_ms: int
    error_code: int
    session_id: int
    topics: list[FetchTopicResult]


def encode_fetch_request(version: int, correlation_id: int, client_id: str | None, request: FetchRequest) -> bytes:
    """The whole frame, with its length."""
    assert VERSION_MIN <= version <= VERSION_MAX
    out = bytearray(
        _START.pack(
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
            request.session_id,
            request.session_epoch,
        )
    )
    write_length(out, len(request.topics), True)
    for _, topic_id, partitions in request.topics:
        _write_topic_id(out, topic_id)
        write_length(out, len(partitions), True)
        for partition in partitions:
            out += _PARTITION.pack(*partition[:6])
            _write_partition_tags(out, version, partition)
        out.append(0)
    write_length(out, len(request.forgotten_topics), True)
    for _, topic_id, indexes in request.forgotten_topics:
        _write_topic_id(out, topic_id)
        write_length(out, len(indexes), True)
        out += Struct(f">{len(indexes)}i").pack(*indexes)
        out.append(0)
    write_nullable_string(out, request.rack_id, True)
    _write_request_tags(out, request)
    return request_frame(ApiKey.FETCH, version, correlation_id, client_id, bytes(out))


def parse_fetch_response(version: int, frame: memoryview) -> FetchResponse:
    """A frame without its length, from the correlation id on."""
    assert VERSION_MIN <= version <= VERSION_MAX
    try:
        return _parse(frame)
    except MALFORMED as failure:
        raise MalformedFrame("Fetch response") from failure


def _write_topic_id(out: bytearray, topic_id: UUID | None) -> None:
    assert topic_id is not None
    out += topic_id.bytes


def _write_partition_tags(out: bytearray, version: int, partition: FetchPartition) -> None:
    directory_id = partition.replica_directory_id if version >= _DIRECTORY_FROM else None
    has_high_watermark = version >= _HIGH_WATERMARK_FROM and partition.high_watermark != HIGH_WATERMARK_UNSUPPORTED
    out.append((directory_id is not None) + has_high_watermark)
    if directory_id is not None:
        out += b"\x00\x10"
        out += directory_id.bytes
    if has_high_watermark:
        out += _HIGH_WATERMARK_TAG.pack(1, 8, partition.high_watermark)


def _write_request_tags(out: bytearray, request: FetchRequest) -> None:
    is_replica = request.replica_id >= 0
    out.append((request.cluster_id is not None) + is_replica)
    if request.cluster_id is not None:
        value = bytearray()
        write_nullable_string(value, request.cluster_id, True)
        out.append(0)
        write_uvarint(out, len(value))
        out += value
    if is_replica:
        out += _REPLICA_STATE_TAG.pack(1, 13, request.replica_id, request.replica_epoch, 0)


def _parse(view: memoryview) -> FetchResponse:
    position = skip_tags(view, 4)  # behind the correlation id
    throttle_ms, error_code, session_id = _HEAD.unpack_from(view, position)
    topic_count, position = read_count(view, position + _HEAD.size, True, _TOPIC_BYTES_MIN)
    topics: list[FetchTopicResult] = []
    for _ in range(topic_count):
        topic_id, position = read_uuid(view, position)
        count, position = read_count(view, position, True, _PARTITION_BYTES_MIN)
        partitions: list[FetchPartitionResult] = []
        for _ in range(count):
            result, position = _parse_result(view, position)
            partitions.append(result)
        position = skip_tags(view, position)
        topics.append(FetchTopicResult(None, topic_id, partitions))
    # Where other leaders can be reached is in the image already; bytes behind it are ignored, as Kafka ignores them.
    skip_tags(view, position)
    return FetchResponse(throttle_ms, error_code, session_id, topics)


def _parse_result(view: memoryview, position: int) -> tuple[FetchPartitionResult, int]:
    index, error_code, high_watermark, last_stable_offset, log_start = _RESULT.unpack_from(view, position)
    position = _skip_aborted(view, position + _RESULT.size)
    preferred_replica = I32.unpack_from(view, position)[0]
    size, position = read_length(view, position + 4, True)
    end = position + max(size, 0)
    if end > len(view):
        raise MalformedFrame(f"records of {size} bytes run past the frame")
    records = view[position:end]
    diverging, leader, position = _parse_result_tags(view, end)
    result = FetchPartitionResult(
        index,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start,
        None,
        preferred_replica,
        records,
        diverging,
        leader,
    )
    return result, position


def _skip_aborted(view: memoryview, position: int) -> int:
    count, position = read_length(view, position, True)
    if count > 0 and count * (_ABORTED_BYTES + 1) > len(view) - position:
        raise MalformedFrame(f"{count} aborted transactions claimed, {len(view) - position} bytes left")
    for _ in range(count):
        position = skip_tags(view, position + _ABORTED_BYTES)
    return position


def _parse_result_tags(view: memoryview, position: int) -> tuple[tuple[int, int] | None, tuple[int, int] | None, int]:
    if view[position] == 0:
        return None, None, position + 1
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    for tag, start, end in read_tags(view, position):
        position = end
        if tag == 0:
            epoch, end_offset = _DIVERGING.unpack_from(view[:end], start)
            _require_end(skip_tags(view[:end], start + _DIVERGING.size), end)
            # Kafka's layout has -1 for nothing, and may write it out.
            diverging = (epoch, end_offset) if epoch >= 0 else None
        elif tag == 1:
            node_id, leader_epoch = _LEADER.unpack_from(view[:end], start)
            _require_end(skip_tags(view[:end], start + _LEADER.size), end)
            leader = (node_id, leader_epoch) if leader_epoch >= 0 else None
    return diverging, leader, position


def _require_end(position: int, end: int) -> None:
    if position != end:
        raise MalformedFrame(f"{end - position} bytes too many in a tagged field of the Fetch response")
