"""Produce by hand: the request parsed into views of the frame, the response packed by struct.

Called by server.dispatch and handlers.produce. Versions 3 to 13; flexible from 9, topics by id in 13.
Invariants:
- Records are never copied: each is a slice of the frame, alive as long as the frame's buffer is.
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
    MALFORMED,
    read_count,
    read_length,
    read_nullable_string,
    read_string,
    read_uuid,
    read_uvarint,
    skip_tags,
    uuid_of,
    write_length,
    write_nullable_string,
    write_uvarint,
)

_API = BY_KEY[ApiKey.PRODUCE]
_FLEXIBLE_FROM = _API.flexible_from
_TOPIC_IDS_FROM = 13
_LOG_START_FROM = 5
_RECORD_ERRORS_FROM = 8
_LEADERS_FROM = 10

_ACKS_TIMEOUT = Struct(">hi")
_NO_LEADER = (-1, -1)


# Plain tuples, since naming their parts costs more than reading them: index and records of a partition; then a topic's
# name below version 13 or its id from there, the other being None, and its partitions.
ProducePartition = tuple[int, memoryview | None]
ProduceTopic = tuple[str | None, UUID | None, list[ProducePartition]]
# acks, timeout_ms, the topic's name and id as above, index and records.
OneBatch = tuple[int, int, str | None, UUID | None, int, memoryview]


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class RecordError(NamedTuple):
    batch_index: int
    message: str | None


class ProducePartitionResult(NamedTuple):
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None  # (node id, leader epoch), with NOT_LEADER_OR_FOLLOWER


class ProduceTopicResult(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: Sequence[ProducePartitionResult]


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


def parse_produce(version: int, view: memoryview, offset: int) -> ProduceRequest:
    """Any request."""
    try:
        return _parse(version, view, offset)
    except MALFORMED as failure:
        raise MalformedFrame("Produce request") from failure


def parse_one(version: int, view: memoryview, offset: int) -> OneBatch | None:
    """One topic, one partition, no transaction, no tagged fields: what a client at full speed sends, in half the time.

    None for anything else, which is then for parse_produce to judge.
    """
    try:
        if version < _FLEXIBLE_FROM:
            return _parse_one(view, offset)
        if version < _TOPIC_IDS_FROM:
            return _parse_one_flexible(view, offset)
        return _parse_one_by_id(view, offset)
    except MALFORMED:  # shorter than the usual shape: a request with no topics is
        return None


def as_request(one: OneBatch) -> ProduceRequest:
    acks, timeout_ms, name, topic_id, partition, records = one
    return ProduceRequest(None, acks, timeout_ms, [(name, topic_id, [(partition, records)])])


_ONE_START = Struct(">hhiih")  # no transaction, acks, timeout, one topic, name's length
_ONE_START_FLEXIBLE = Struct(">BhiBB")
_ONE_START_BY_ID = Struct(">BhiB16sBiB")
_ONE_PARTITION = Struct(">iii")  # one partition, its index, records' length
_ONE_PARTITION_FLEXIBLE = Struct(">BiB")


def _parse_one(view: memoryview, position: int) -> OneBatch | None:
    transaction, acks, timeout_ms, topic_count, name_bytes = _ONE_START.unpack_from(view, position)
    if transaction != -1 or topic_count != 1 or name_bytes < 0:
        return None
    name_end = position + 14 + name_bytes
    partition_count, partition, records_bytes = _ONE_PARTITION.unpack_from(view, name_end)
    start = name_end + 12
    if partition_count != 1 or records_bytes < 0 or start + records_bytes != len(view):
        return None
    name = str(view[position + 14 : name_end], "utf-8")
    return acks, timeout_ms, name, None, partition, view[start:]


def _parse_one_flexible(view: memoryview, position: int) -> OneBatch | None:
    transaction, acks, timeout_ms, topic_count, name_length = _ONE_START_FLEXIBLE.unpack_from(view, position)
    if transaction or topic_count != 2 or not 0 < name_length < 0x80:
        return None
    name_end = position + 8 + name_length
    partition_count, partition, records_length = _ONE_PARTITION_FLEXIBLE.unpack_from(view, name_end)
    records = _last_records(view, name_end + 5, records_length) if partition_count == 2 else None
    if records is None:
        return None
    name = str(view[position + 9 : name_end], "utf-8")
    return acks, timeout_ms, name, None, partition, records


def _parse_one_by_id(view: memoryview, position: int) -> OneBatch | None:
    transaction, acks, timeout_ms, topic_count, raw_id, partition_count, partition, records_length = (
        _ONE_START_BY_ID.unpack_from(view, position)
    )
    if transaction or topic_count != 2 or partition_count != 2:
        return None
    records = _last_records(view, position + 29, records_length)
    if records is None:
        return None
    return acks, timeout_ms, None, uuid_of(raw_id), partition, records


def _last_records(view: memoryview, position: int, length: int) -> memoryview | None:
    """The records whose compact length, starting with the byte `length`, is at `position`, if all that follows
    them are the three empty tagged fields of partition, topic and request."""
    if length < 0x80:
        position += 1
    else:
        length, position = read_uvarint(view, position)
    end = position + length - 1
    if not length or end + 3 != len(view) or view[end] or view[end + 1] or view[end + 2]:
        return None
    return view[position:end]


def _parse(version: int, view: memoryview, position: int) -> ProduceRequest:
    flexible = version >= _FLEXIBLE_FROM
    by_id = version >= _TOPIC_IDS_FROM
    elements_left = _API.request_elements_max
    transactional_id, position = read_nullable_string(view, position, flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, position)
    # The least a topic takes: its name or id, a count, and when flexible one byte of tagged fields.
    topic_bytes_min = 18 if by_id else 3 if flexible else 6
    topic_count, position = read_count(view, position + 6, flexible, topic_bytes_min)
    elements_left -= topic_count
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        name = topic_id = None
        if by_id:
            topic_id, position = read_uuid(view, position)
        else:
            name, position = read_string(view, position, flexible)
        partition_count, position = read_count(view, position, flexible, 6 if flexible else 8)
        elements_left -= partition_count
        if elements_left < 0:
            raise MalformedFrame("more topics and partitions than a request may have")
        partitions: list[ProducePartition] = []
        for _ in range(partition_count):
            partition = I32.unpack_from(view, position)[0]
            records_bytes, position = read_length(view, position + 4, flexible)
            records = None
            if records_bytes >= 0:
                records = view[position : position + records_bytes]
                position += records_bytes
            if flexible:
                position = skip_tags(view, position)
            partitions.append((partition, records))
        if flexible:
            position = skip_tags(view, position)
        topics.append((name, topic_id, partitions))
    if flexible:
        position = skip_tags(view, position)
    # Positions only grow, so this also catches records that ran past the frame. Bytes behind the request are ignored,
    # as Kafka ignores them.
    if position > len(view):
        raise MalformedFrame(f"the Produce request runs {position - len(view)} bytes past the frame")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


# One topic, one partition, no error: nearly every answer. What follows a short topic name, to the frame's end.
_ONE_FLEXIBLE = Struct(">Bihqqq4sib")  # one partition; no record errors, message, tags; topic tags; throttle; tags
_ONE_RECORD_ERRORS = Struct(">iihqqqihi")
_ONE_LOG_START = Struct(">iihqqqi")
_ONE_OLDEST = Struct(">iihqqi")
_HEAD_FLEXIBLE = Struct(">iibBB")  # length, correlation id, tags, one topic, name's length
_HEAD_BY_ID = Struct(">iibB16s")
_HEAD = Struct(">iiih")
_NAME_BYTES_MAX = 126  # one byte of compact length


def encode_one(
    version: int,
    correlation_id: int,
    name: str | None,
    topic_id: UUID | None,
    partition: int,
    base_offset: int,
    append_time_ms: int,
    log_start: int,
    throttle_ms: int = 0,
) -> bytes:
    """The whole frame, with its length, where one batch was sent and written."""
    if version >= _FLEXIBLE_FROM:
        tail = _ONE_FLEXIBLE.pack(
            2, partition, 0, base_offset, append_time_ms, log_start, b"\x01\x00\x00\x00", throttle_ms, 0
        )
        if version >= _TOPIC_IDS_FROM:
            assert topic_id is not None
            return _HEAD_BY_ID.pack(22 + len(tail), correlation_id, 0, 2, topic_id.bytes) + tail
        assert name is not None
        raw = name.encode()
        if len(raw) > _NAME_BYTES_MAX:
            result = ProducePartitionResult(partition, 0, base_offset, append_time_ms, log_start)
            return _encode_any(version, correlation_id, [ProduceTopicResult(name, None, [result])], throttle_ms, ())
        return _HEAD_FLEXIBLE.pack(7 + len(raw) + len(tail), correlation_id, 0, 2, len(raw) + 1) + raw + tail
    assert name is not None
    raw = name.encode()
    if version >= _RECORD_ERRORS_FROM:
        tail = _ONE_RECORD_ERRORS.pack(1, partition, 0, base_offset, append_time_ms, log_start, 0, -1, throttle_ms)
    elif version >= _LOG_START_FROM:
        tail = _ONE_LOG_START.pack(1, partition, 0, base_offset, append_time_ms, log_start, throttle_ms)
    else:
        tail = _ONE_OLDEST.pack(1, partition, 0, base_offset, append_time_ms, throttle_ms)
    return _HEAD.pack(10 + len(raw) + len(tail), correlation_id, 1, len(raw)) + raw + tail


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[ProduceTopicResult],
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The whole frame, with its length, whatever was asked and became of it."""
    if len(topics) == 1 and len(topics[0].partitions) == 1 and not node_endpoints:
        name, topic_id, (result,) = topics[0]
        index, error_code, base_offset, append_time_ms, log_start, record_errors, message, leader = result
        if not error_code and not record_errors and message is None and leader is None:
            return encode_one(
                version, correlation_id, name, topic_id, index, base_offset, append_time_ms, log_start, throttle_ms
            )
    return _encode_any(version, correlation_id, topics, throttle_ms, node_endpoints)


_RESULT = Struct(">ihqqq")
_RESULT_OLDEST = Struct(">ihqq")
_LEADER_TAG = Struct(">BBBiib")  # one tag: number 0, 9 bytes: leader id, leader epoch, no tags


def _encode_any(
    version: int,
    correlation_id: int,
    topics: Sequence[ProduceTopicResult],
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    out = bytearray(4)
    out += I32.pack(correlation_id)
    if flexible:
        out.append(0)
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
        if flexible:
            out.append(0)
    out += I32.pack(throttle_ms)
    if flexible:
        write_endpoints_tag(out, node_endpoints if version >= _LEADERS_FROM else ())
    I32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _write_result(out: bytearray, version: int, flexible: bool, result: ProducePartitionResult) -> None:
    if version >= _LOG_START_FROM:
        out += _RESULT.pack(*result[:5])
    else:
        out += _RESULT_OLDEST.pack(*result[:4])
    if version >= _RECORD_ERRORS_FROM:
        write_length(out, len(result.record_errors), flexible)
        for batch_index, message in result.record_errors:
            out += I32.pack(batch_index)
            write_nullable_string(out, message, flexible)
            if flexible:
                out.append(0)
        write_nullable_string(out, result.error_message, flexible)
    if flexible:
        leader = result.current_leader
        if version >= _LEADERS_FROM and leader is not None and leader != _NO_LEADER:
            out += _LEADER_TAG.pack(1, 0, 9, *leader, 0)
        else:
            out.append(0)


def write_endpoints_tag(out: bytearray, node_endpoints: Sequence[NodeEndpoint]) -> None:
    """The tagged fields that end a Produce or Fetch response: where the leaders it names can be reached."""
    if not node_endpoints:
        out.append(0)
        return
    value = bytearray()
    write_length(value, len(node_endpoints), True)
    for endpoint in node_endpoints:
        value += I32.pack(endpoint.node_id)
        write_nullable_string(value, endpoint.host, True)
        value += I32.pack(endpoint.port)
        write_nullable_string(value, endpoint.rack, True)
        value.append(0)
    out += b"\x01\x00"
    write_uvarint(out, len(value))
    out += value
