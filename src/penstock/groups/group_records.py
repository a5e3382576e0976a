"""Records of `__consumer_offsets` in Kafka's own formats, so that tools that read the topic can read ours.

Called by groups.group_shard, groups.classic_group and groups.offsets; the formats are in no wire schema, hence by hand.

    key    i16 version | 0, 1: group, topic, i32 partition | 2: group | 3 and up: see groups.consumer_group_records
    value  i16 version | offset: up to version 4 | group: up to version 4 | none: the key is deleted

Version 4 of either value is the first with compact strings and tagged fields; tag 0 of an offset is its topic's id.
A key or value of a later version comes from a newer broker: it is kept in the log and skipped here.
"""

import logging
from functools import lru_cache
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from penstock.errors import MalformedFrame
from penstock.groups.consumer_group_records import (
    CONSUMER_KEYS,
    ConsumerGroupRecord,
    decode_consumer_record,
    encode_consumer_record,
)
from penstock.model import NO_TOPIC_ID
from penstock.wire.primitives import (
    I16,
    I32,
    I64,
    MALFORMED,
    read_count,
    read_length,
    read_nullable_string,
    read_string,
    read_tags,
    read_uuid,
    skip_tags,
    write_length,
    write_nullable_string,
    write_uvarint,
)

log = logging.getLogger(__name__)

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
VALUE_VERSION = 4
EXPIRING_OFFSET_VALUE_VERSION = 1  # the only version with a time of expiry
TOPIC_ID_TAG = 0
MEMBER_BYTES_MIN = 15

_OFFSET_HEAD = Struct(">hqi")
_TOPIC_ID_TAGGED = bytes((1, TOPIC_ID_TAG, 16))  # one tagged field, its number, its size


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1  # asked for by clients older than KIP-211 only; -1: by the group's retention
    topic_id: UUID = NO_TOPIC_ID


class OffsetRecord(NamedTuple):
    """A committed offset, or with None its deletion."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


class MemberMetadata(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A generation whose members know their assignment, or a group without members."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[MemberMetadata, ...]


class GroupRecord(NamedTuple):
    """A group's generation, or with None the group's deletion."""

    group_id: str
    metadata: GroupMetadata | None


CoordinatorRecord = OffsetRecord | GroupRecord | ConsumerGroupRecord


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    if isinstance(record, OffsetRecord):
        key = _offset_key(record.group_id, record.topic, record.partition)
        return key, None if record.committed is None else _encode_offset(record.committed)
    if not isinstance(record, GroupRecord):
        return encode_consumer_record(record)
    out = bytearray(I16.pack(GROUP_KEY_VERSION))
    write_nullable_string(out, record.group_id, flexible=False)
    return bytes(out), None if record.metadata is None else _encode_group(record.metadata)


def decode_record(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """None for what a newer broker wrote. Raises MalformedFrame."""
    try:
        view = memoryview(key)
        (version,) = I16.unpack_from(view)
        if version in CONSUMER_KEYS:
            return decode_consumer_record(version, view, value)
        if version not in (0, OFFSET_KEY_VERSION, GROUP_KEY_VERSION):
            log.warning("a record with a key of unknown version %d was skipped", version)
            return None
        group_id, position = read_string(view, 2, flexible=False)
        if version == GROUP_KEY_VERSION:
            metadata = None if value is None else _decode_group(memoryview(value), group_id)
            return None if metadata is None and value is not None else GroupRecord(group_id, metadata)
        topic, position = read_string(view, position, flexible=False)
        (partition,) = I32.unpack_from(view, position)
        committed = None if value is None else _decode_offset(memoryview(value), group_id)
        return None if committed is None and value is not None else OffsetRecord(group_id, topic, partition, committed)
    except MALFORMED as error:
        raise MalformedFrame(f"a record of a group cannot be read: {error}") from error


# A consumer commits the same few partitions for hours; their keys are half of what a commit costs to encode.
@lru_cache(maxsize=16_384)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    out = bytearray(I16.pack(OFFSET_KEY_VERSION))
    write_nullable_string(out, group_id, flexible=False)
    write_nullable_string(out, topic, flexible=False)
    out += I32.pack(partition)
    return bytes(out)


def _encode_offset(committed: CommittedOffset) -> bytes:
    if committed.expire_ms >= 0:
        old = bytearray(I16.pack(EXPIRING_OFFSET_VALUE_VERSION) + I64.pack(committed.offset))
        write_nullable_string(old, committed.metadata, flexible=False)
        return bytes(old + I64.pack(committed.commit_ms) + I64.pack(committed.expire_ms))
    out = bytearray(_OFFSET_HEAD.pack(VALUE_VERSION, committed.offset, committed.leader_epoch))
    write_nullable_string(out, committed.metadata, flexible=True)
    out += I64.pack(committed.commit_ms)
    if committed.topic_id.int == 0:
        out.append(0)
    else:
        out += _TOPIC_ID_TAGGED
        out += committed.topic_id.bytes
    return bytes(out)


def _decode_offset(view: memoryview, group_id: str) -> CommittedOffset | None:
    (version,) = I16.unpack_from(view)
    if not _is_known(version, "an offset", group_id):
        return None
    flexible = version >= 4
    (offset,) = I64.unpack_from(view, 2)
    position = 10
    leader_epoch, expire_ms, topic_id = -1, -1, NO_TOPIC_ID
    if version >= 3:
        (leader_epoch,) = I32.unpack_from(view, position)
        position += 4
    metadata, position = read_string(view, position, flexible)
    (commit_ms,) = I64.unpack_from(view, position)
    position += 8
    if version == EXPIRING_OFFSET_VALUE_VERSION:
        (expire_ms,) = I64.unpack_from(view, position)
    if flexible:
        for tag, start, _end in read_tags(view, position):
            if tag == TOPIC_ID_TAG:
                topic_id, _ = read_uuid(view, start)
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id)


def _encode_group(metadata: GroupMetadata) -> bytes:
    out = bytearray(I16.pack(VALUE_VERSION))
    write_nullable_string(out, metadata.protocol_type, flexible=True)
    out += I32.pack(metadata.generation)
    write_nullable_string(out, metadata.protocol, flexible=True)
    write_nullable_string(out, metadata.leader, flexible=True)
    out += I64.pack(metadata.state_ms)
    write_length(out, len(metadata.members), flexible=True)
    for member in metadata.members:
        write_nullable_string(out, member.member_id, flexible=True)
        write_nullable_string(out, member.instance_id, flexible=True)
        write_nullable_string(out, member.client_id, flexible=True)
        write_nullable_string(out, member.client_host, flexible=True)
        out += I32.pack(member.rebalance_timeout_ms)
        out += I32.pack(member.session_timeout_ms)
        for blob in (member.subscription, member.assignment):
            write_length(out, len(blob), flexible=True)
            out += blob
        write_uvarint(out, 0)
    write_uvarint(out, 0)
    return bytes(out)


def _decode_group(view: memoryview, group_id: str) -> GroupMetadata | None:
    (version,) = I16.unpack_from(view)
    if not _is_known(version, "a group", group_id):
        return None
    flexible = version >= 4
    protocol_type, position = read_string(view, 2, flexible)
    (generation,) = I32.unpack_from(view, position)
    protocol, position = read_nullable_string(view, position + 4, flexible)
    leader, position = read_nullable_string(view, position, flexible)
    state_ms = -1
    if version >= 2:
        (state_ms,) = I64.unpack_from(view, position)
        position += 8
    count, position = read_count(view, position, flexible, MEMBER_BYTES_MIN)
    members: list[MemberMetadata] = []
    for _ in range(count):
        member, position = _decode_member(view, position, version)
        members.append(member)
    return GroupMetadata(protocol_type, generation, protocol, leader, state_ms, tuple(members))


def _decode_member(view: memoryview, position: int, version: int) -> tuple[MemberMetadata, int]:
    flexible = version >= 4
    member_id, position = read_string(view, position, flexible)
    instance_id = None
    if version >= 3:
        instance_id, position = read_nullable_string(view, position, flexible)
    client_id, position = read_string(view, position, flexible)
    client_host, position = read_string(view, position, flexible)
    rebalance_timeout_ms = -1
    if version >= 1:
        (rebalance_timeout_ms,) = I32.unpack_from(view, position)
        position += 4
    (session_timeout_ms,) = I32.unpack_from(view, position)
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = session_timeout_ms
    subscription, position = _read_bytes(view, position + 4, flexible)
    assignment, position = _read_bytes(view, position, flexible)
    if flexible:
        position = skip_tags(view, position)
    timeouts = (rebalance_timeout_ms, session_timeout_ms)
    return MemberMetadata(member_id, instance_id, client_id, client_host, *timeouts, subscription, assignment), position


def _read_bytes(view: memoryview, position: int, flexible: bool) -> tuple[bytes, int]:
    length, position = read_length(view, position, flexible)
    end = position + max(length, 0)
    if end > len(view):
        raise MalformedFrame("bytes run past the record")
    return bytes(view[position:end]), end


def _is_known(version: int, what: str, group_id: str) -> bool:
    if 0 <= version <= VALUE_VERSION:
        return True
    log.warning("%s of group %r was written in version %d by a newer broker and is skipped", what, group_id, version)
    return False
