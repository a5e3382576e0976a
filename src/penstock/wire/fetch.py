"""Fetch by hand: the request parsed by struct, the response as buffers to write in order, records untouched.

Called by server.dispatch, handlers.fetch and replication. Versions 4 to 18; flexible from 12, topics by id from 13.
Invariants:
- Records are never copied: the response holds the very buffers it was given.
- Every length and count is checked against the bytes that are there before anything is built from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from penstock.errors import MalformedFrame
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.primitives import (
    I32,
    I64,
    MALFORMED,
    read_count,
    read_nullable_string,
    read_string,
    read_tags,
    read_uuid,
    skip_tags,
    write_length,
    write_nullable_string,
)
from penstock.wire.produce import NodeEndpoint, write_endpoints_tag

Buffer = bytes | bytearray | memoryview

_API = BY_KEY[ApiKey.FETCH]
_LOG_START_FROM = 5
_SESSIONS_FROM = 7
_LEADER_EPOCH_FROM = 9
_RACK_FROM = 11
_FLEXIBLE_FROM = _API.flexible_from
_TOPIC_IDS_FROM = 13
_REPLICA_STATE_FROM = 15
_ENDPOINTS_FROM = 16
_DIRECTORY_FROM = 17
_HIGH_WATERMARK_FROM = 18

HIGH_WATERMARK_UNSUPPORTED = 2**63 - 1


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: UUID | None = None
    high_watermark: int = HIGH_WATERMARK_UNSUPPORTED


class FetchTopic(NamedTuple):
    """Named by `name` below version 13, by `topic_id` from there; the other is None."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: list[int]


@dataclass(slots=True)
class FetchRequest:
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics: list[ForgottenTopic]
    rack_id: str
    replica_epoch: int = -1
    cluster_id: str | None = None


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class FetchPartitionResult(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    records: Buffer | list[Buffer] | tuple[Buffer, ...] = b""
    diverging_epoch: tuple[int, int] | None = None  # (epoch, end offset)
    current_leader: tuple[int, int] | None = None  # (node id, leader epoch)


class FetchTopicResult(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchPartitionResult]


def parse_fetch(version: int, view: memoryview, offset: int) -> FetchRequest:
    try:
        return _parse(version, view, offset)
    except MALFORMED as failure:
        raise MalformedFrame("Fetch request") from failure


_START = Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_SESSION = Struct(">ii")
_REPLICA_STATE = Struct(">iq")

_PARTITION = Struct(">iiqiqi")
_PARTITION_BEFORE_LAST_EPOCH = Struct(">iiqqi")
_PARTITION_BEFORE_EPOCH = Struct(">iqqi")
_PARTITION_OLDEST = Struct(">iqi")


def _parse(version: int, view: memoryview, position: int) -> FetchRequest:
    flexible = version >= _FLEXIBLE_FROM
    replica_id = replica_epoch = -1
    if version < _REPLICA_STATE_FROM:
        replica_id = I32.unpack_from(view, position)[0]
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _START.unpack_from(view, position)
    position += 13
    session_id, session_epoch = 0, -1
    if version >= _SESSIONS_FROM:
        session_id, session_epoch = _SESSION.unpack_from(view, position)
        position += 8
    topics, elements_left, position = _parse_topics(version, view, position)
    forgotten: list[ForgottenTopic] = []
    if version >= _SESSIONS_FROM:
        forgotten, position = _parse_forgotten(version, view, position, elements_left)
    rack_id = ""
    if version >= _RACK_FROM:
        rack_id, position = read_string(view, position, flexible)
    cluster_id = None
    if flexible:
        for tag, start, end in read_tags(view, position):
            position = end
            if tag == 0:
                cluster_id, stop = read_nullable_string(view[:end], start, True)
                _require_end(stop, end)
            elif tag == 1 and version >= _REPLICA_STATE_FROM:
                replica_id, replica_epoch = _REPLICA_STATE.unpack_from(view[:end], start)
                _require_end(skip_tags(view[:end], start + 12), end)
    # Positions only grow, so this also catches an array that ran past the frame. Bytes behind the request are ignored,
    # as Kafka ignores them.
    if position > len(view):
        raise MalformedFrame(f"the Fetch request runs {position - len(view)} bytes past the frame")
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        replica_epoch,
        cluster_id,
    )


def _parse_topics(version: int, view: memoryview, position: int) -> tuple[list[FetchTopic], int, int]:
    flexible = version >= _FLEXIBLE_FROM
    elements_left = _API.request_elements_max
    # The least a topic or partition takes; the last byte of each, when flexible, is its tagged fields.
    topic_bytes_min = 18 if version >= _TOPIC_IDS_FROM else 3 if flexible else 6
    partition_bytes_min = 33 if flexible else 16
    topic_count, position = read_count(view, position, flexible, topic_bytes_min)
    elements_left -= topic_count
    topics: list[FetchTopic] = []
    for _ in range(topic_count):
        name, topic_id, position = _parse_topic_key(version, view, position)
        count, position = read_count(view, position, flexible, partition_bytes_min)
        elements_left -= count
        if elements_left < 0:
            raise MalformedFrame("more topics and partitions than a request may have")
        if flexible:
            partitions, position = _parse_partitions_flexible(version, view, position, count)
            position = skip_tags(view, position)
        else:
            partitions, position = _parse_partitions(version, view, position, count)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, elements_left, position


def _parse_topic_key(version: int, view: memoryview, position: int) -> tuple[str | None, UUID | None, int]:
    if version >= _TOPIC_IDS_FROM:
        topic_id, position = read_uuid(view, position)
        return None, topic_id, position
    name, position = read_string(view, position, version >= _FLEXIBLE_FROM)
    return name, None, position


def _parse_partitions(version: int, view: memoryview, position: int, count: int) -> tuple[list[FetchPartition], int]:
    if version >= _LEADER_EPOCH_FROM:
        layout = _PARTITION_BEFORE_LAST_EPOCH
    elif version >= _LOG_START_FROM:
        layout = _PARTITION_BEFORE_EPOCH
    else:
        layout = _PARTITION_OLDEST
    end = position + count * layout.size
    rows = layout.iter_unpack(view[position:end])
    if version >= _LEADER_EPOCH_FROM:
        partitions = [FetchPartition(index, epoch, at, -1, start, size) for index, epoch, at, start, size in rows]
    elif version >= _LOG_START_FROM:
        partitions = [FetchPartition(index, -1, at, -1, start, size) for index, at, start, size in rows]
    else:
        partitions = [FetchPartition(index, -1, at, -1, -1, size) for index, at, size in rows]
    return partitions, end


def _parse_partitions_flexible(
    version: int, view: memoryview, position: int, count: int
) -> tuple[list[FetchPartition], int]:
    partitions: list[FetchPartition] = []
    for _ in range(count):
        partition = FetchPartition(*_PARTITION.unpack_from(view, position))
        position += 32
        if view[position] == 0:
            position += 1
        else:
            for tag, start, end in read_tags(view, position):
                position = end
                if tag == 0 and version >= _DIRECTORY_FROM:
                    directory_id, stop = read_uuid(view, start)
                    _require_end(stop, end)
                    partition = partition._replace(replica_directory_id=directory_id)
                elif tag == 1 and version >= _HIGH_WATERMARK_FROM:
                    _require_end(start + 8, end)
                    partition = partition._replace(high_watermark=I64.unpack_from(view, start)[0])
        partitions.append(partition)
    return partitions, position


def _parse_forgotten(
    version: int, view: memoryview, position: int, elements_left: int
) -> tuple[list[ForgottenTopic], int]:
    flexible = version >= _FLEXIBLE_FROM
    topic_bytes_min = 18 if version >= _TOPIC_IDS_FROM else 3 if flexible else 6
    topic_count, position = read_count(view, position, flexible, topic_bytes_min)
    elements_left -= topic_count
    forgotten: list[ForgottenTopic] = []
    for _ in range(topic_count):
        name, topic_id, position = _parse_topic_key(version, view, position)
        count, position = read_count(view, position, flexible, 4)
        elements_left -= count
        if elements_left < 0:
            raise MalformedFrame("more topics and partitions than a request may have")
        partitions = list(Struct(f">{count}i").unpack_from(view, position))
        position += 4 * count
        if flexible:
            position = skip_tags(view, position)
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return forgotten, position


def _require_end(position: int, end: int) -> None:
    if position != end:
        raise MalformedFrame(f"{end - position} bytes too many in the Fetch request")


_RESULT = Struct(">ihqqq")
_RESULT_OLDEST = Struct(">ihqq")
_ABORTED = Struct(">qq")
_SESSION_RESULT = Struct(">ihi")  # throttle, error code, session id
_DIVERGING_TAG = Struct(">BBiqb")  # number 0, 13 bytes: epoch, end offset, no tags
_LEADER_TAG = Struct(">BBiib")  # number 1, 9 bytes: leader id, leader epoch, no tags


def encode_fetch_response(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[FetchTopicResult],
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """The whole frame, with its length, as buffers to be written in order."""
    flexible = version >= _FLEXIBLE_FROM
    head = out = bytearray(4)
    buffers: list[Buffer] = [head]
    out += I32.pack(correlation_id)
    if flexible:
        out.append(0)
    if version >= _SESSIONS_FROM:
        out += _SESSION_RESULT.pack(throttle_ms, error_code, session_id)
    else:
        out += I32.pack(throttle_ms)
    write_length(out, len(topics), flexible)
    for topic in topics:
        if version >= _TOPIC_IDS_FROM:
            assert topic.topic_id is not None
            out += topic.topic_id.bytes
        else:
            assert topic.name is not None
            write_nullable_string(out, topic.name, flexible)
        write_length(out, len(topic.partitions), flexible)
        for result in topic.partitions:
            _write_result(out, version, flexible, result)
            records = result.records
            pieces = records if isinstance(records, (list, tuple)) else (records,)
            records_bytes = sum(map(len, pieces))
            write_length(out, records_bytes, flexible)
            if records_bytes:
                buffers.extend(pieces)
                out = bytearray()
                buffers.append(out)
            if flexible:
                _write_result_tags(out, result)
        if flexible:
            out.append(0)
    if flexible:
        write_endpoints_tag(out, node_endpoints if version >= _ENDPOINTS_FROM else ())
    if not out:
        buffers.pop()
    I32.pack_into(head, 0, sum(map(len, buffers)) - 4)
    return buffers


def _write_result(out: bytearray, version: int, flexible: bool, result: FetchPartitionResult) -> None:
    """All of a partition up to its records."""
    if version >= _LOG_START_FROM:
        out += _RESULT.pack(*result[:5])
    else:
        out += _RESULT_OLDEST.pack(*result[:4])
    aborted = result.aborted_transactions
    if aborted is None:
        write_length(out, -1, flexible)
    else:
        write_length(out, len(aborted), flexible)
        for transaction in aborted:
            out += _ABORTED.pack(*transaction)
            if flexible:
                out.append(0)
    if version >= _RACK_FROM:
        out += I32.pack(result.preferred_read_replica)


def _write_result_tags(out: bytearray, result: FetchPartitionResult) -> None:
    diverging, leader = result.diverging_epoch, result.current_leader
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        out += _DIVERGING_TAG.pack(0, 13, *diverging, 0)
    if leader is not None:
        out += _LEADER_TAG.pack(1, 9, *leader, 0)
