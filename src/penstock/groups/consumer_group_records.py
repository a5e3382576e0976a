"""Records of consumer groups in `__consumer_offsets`, in Kafka's own formats.

Called by groups.group_records, which knows a record by its key's version, and by groups.consumer_facts.

    key    i16 version, then strings without compact lengths
           3: group                     value: epoch of the group, tag 0: hash of its topics
           4: group                     written by Kafka before 4.1 and of no use to us
           5: group, member             value: what the member says of itself
           6: group                     value: epoch of the target, tag 0: when it was made
           7: group, member             value: the member's part of the target
           8: group, member             value: where the member stands
           16: group, pattern           value: topics it matches
    value  i16 version 0, then compact lengths and tagged fields; no value: the key is deleted
"""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.errors import MalformedFrame
from penstock.groups.assignors import Assignment
from penstock.groups.consumer_member import ClassicProfile, Held, MemberProfile, MemberState, Standing
from penstock.wire.primitives import (
    I16,
    I32,
    I64,
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

EPOCH_KEY, PARTITION_METADATA_KEY, MEMBER_KEY, TARGET_EPOCH_KEY, TARGET_KEY, STANDING_KEY = 3, 4, 5, 6, 7, 8
PATTERN_KEY = 16
CONSUMER_KEYS = (
    EPOCH_KEY, PARTITION_METADATA_KEY, MEMBER_KEY, TARGET_EPOCH_KEY, TARGET_KEY, STANDING_KEY, PATTERN_KEY
)  # fmt: skip
VALUE_VERSION = 0
_HEAD = I16.pack(VALUE_VERSION)
_STATES = {state.value: state for state in MemberState}


class GroupEpoch(NamedTuple):
    epoch: int
    metadata_hash: int = 0  # of the topics subscribed to: another one asks for another target


class GroupEpochRecord(NamedTuple):
    group_id: str
    value: GroupEpoch | None


class MemberRecord(NamedTuple):
    group_id: str
    member_id: str
    value: MemberProfile | None


class TargetEpoch(NamedTuple):
    epoch: int
    made_ms: int = 0


class TargetEpochRecord(NamedTuple):
    group_id: str
    value: TargetEpoch | None


class TargetRecord(NamedTuple):
    group_id: str
    member_id: str
    value: Assignment | None


class StandingRecord(NamedTuple):
    group_id: str
    member_id: str
    value: Standing | None


class ResolvedPattern(NamedTuple):
    topics: frozenset[str]
    version: int  # of the image it was matched against
    resolved_ms: int


class PatternRecord(NamedTuple):
    group_id: str
    pattern: str
    value: ResolvedPattern | None


ConsumerGroupRecord = (
    GroupEpochRecord | MemberRecord | TargetEpochRecord | TargetRecord | StandingRecord | PatternRecord
)


def encode_consumer_record(record: ConsumerGroupRecord) -> tuple[bytes, bytes | None]:
    match record:
        case GroupEpochRecord(group_id, value):
            return _key(EPOCH_KEY, group_id), None if value is None else _encode_epoch(*value)
        case TargetEpochRecord(group_id, value):
            return _key(TARGET_EPOCH_KEY, group_id), None if value is None else _encode_epoch(*value)
        case MemberRecord(group_id, member_id, value):
            return _key(MEMBER_KEY, group_id, member_id), None if value is None else _encode_profile(value)
        case TargetRecord(group_id, member_id, value):
            return _key(TARGET_KEY, group_id, member_id), None if value is None else _encode_target(value)
        case StandingRecord(group_id, member_id, value):
            return _key(STANDING_KEY, group_id, member_id), None if value is None else _encode_standing(value)
        case PatternRecord(group_id, pattern, value):
            return _key(PATTERN_KEY, group_id, pattern), None if value is None else _encode_pattern(value)


def decode_consumer_record(kind: int, key: memoryview, value: bytes | None) -> ConsumerGroupRecord | None:
    """`kind`: the key's version. None for what a newer broker wrote, or an older one for itself."""
    group_id, position = read_string(key, 2, flexible=False)
    view = None if value is None else memoryview(value)
    if kind == PARTITION_METADATA_KEY:
        return None
    if view is not None and (version := I16.unpack_from(view)[0]) != VALUE_VERSION:
        log.warning("a record of group %r has version %d of a newer broker and is skipped", group_id, version)
        return None
    if kind == EPOCH_KEY:
        return GroupEpochRecord(group_id, None if view is None else GroupEpoch(*_decode_epoch(view)))
    if kind == TARGET_EPOCH_KEY:
        return TargetEpochRecord(group_id, None if view is None else TargetEpoch(*_decode_epoch(view)))
    name, _ = read_string(key, position, flexible=False)
    match kind:
        case 5:
            return MemberRecord(group_id, name, None if view is None else _decode_profile(view))
        case 7:
            return TargetRecord(group_id, name, None if view is None else _decode_target(view))
        case 8:
            return StandingRecord(group_id, name, None if view is None else _decode_standing(view))
        case _:
            assert kind == PATTERN_KEY
            return PatternRecord(group_id, name, None if view is None else _decode_pattern(view))


def _key(version: int, *names: str) -> bytes:
    out = bytearray(I16.pack(version))
    for name in names:
        write_nullable_string(out, name, flexible=False)
    return bytes(out)


def _encode_epoch(epoch: int, tagged: int) -> bytes:
    out = bytearray(_HEAD + I32.pack(epoch))
    if tagged == 0:
        out.append(0)
    else:
        out += bytes((1, 0, 8)) + I64.pack(tagged)  # one tagged field, its number, its size
    return bytes(out)


def _decode_epoch(view: memoryview) -> tuple[int, int]:
    (epoch,) = I32.unpack_from(view, 2)
    tagged = 0
    for tag, start, _end in read_tags(view, 6):
        if tag == 0:
            (tagged,) = I64.unpack_from(view, start)
    return epoch, tagged


def _encode_profile(profile: MemberProfile) -> bytes:
    out = bytearray(_HEAD)
    for text in (profile.instance_id, profile.rack, profile.client_id, profile.client_host):
        write_nullable_string(out, text, flexible=True)
    _write_strings(out, profile.topics)
    write_nullable_string(out, profile.pattern, flexible=True)
    out += I32.pack(profile.rebalance_timeout_ms)
    write_nullable_string(out, profile.assignor, flexible=True)
    if profile.classic is None:
        out.append(0)
        return bytes(out)
    classic = bytearray(b"\x01" + I32.pack(profile.classic.session_timeout_ms))
    write_length(classic, len(profile.classic.protocols), flexible=True)
    for name, metadata in profile.classic.protocols:
        write_nullable_string(classic, name, flexible=True)
        write_length(classic, len(metadata), flexible=True)
        classic += metadata
        classic.append(0)
    classic.append(0)
    out += b"\x01\x00"  # one tagged field, its number
    write_uvarint(out, len(classic))
    return bytes(out + classic)


def _decode_profile(view: memoryview) -> MemberProfile:
    instance_id, position = read_nullable_string(view, 2, flexible=True)
    rack, position = read_nullable_string(view, position, flexible=True)
    client_id, position = read_string(view, position, flexible=True)
    client_host, position = read_string(view, position, flexible=True)
    topics, position = _read_strings(view, position)
    pattern, position = read_nullable_string(view, position, flexible=True)
    (rebalance_timeout_ms,) = I32.unpack_from(view, position)
    assignor, position = read_nullable_string(view, position + 4, flexible=True)
    classic = None
    for tag, start, _end in read_tags(view, position):
        if tag == 0 and view[start] == 1:
            classic = _decode_classic(view, start + 1)
    return MemberProfile(
        instance_id=instance_id,
        rack=rack,
        client_id=client_id,
        client_host=client_host,
        topics=topics,
        pattern=pattern or "",
        rebalance_timeout_ms=rebalance_timeout_ms,
        assignor=assignor,
        classic=classic,
    )


def _decode_classic(view: memoryview, position: int) -> ClassicProfile:
    (session_timeout_ms,) = I32.unpack_from(view, position)
    count, position = read_count(view, position + 4, True, 3)
    protocols: list[tuple[str, bytes]] = []
    for _ in range(count):
        name, position = read_string(view, position, flexible=True)
        length, position = read_length(view, position, flexible=True)
        end = position + max(length, 0)
        if end > len(view):
            raise MalformedFrame("bytes run past the record")
        protocols.append((name, bytes(view[position:end])))
        position = skip_tags(view, end)
    return ClassicProfile(session_timeout_ms, tuple(protocols))


def _encode_target(target: Assignment) -> bytes:
    out = bytearray(_HEAD)
    write_length(out, len(target), flexible=True)
    for topic_id in sorted(target):
        out += topic_id.bytes
        _write_numbers(out, sorted(target[topic_id]))
        out.append(0)
    out.append(0)
    return bytes(out)


def _decode_target(view: memoryview) -> Assignment:
    held, _ = _read_held(view, 2, 0)
    return {topic_id: frozenset(partitions) for topic_id, partitions in held.items()}


def _encode_standing(standing: Standing) -> bytes:
    out = bytearray(_HEAD + I32.pack(standing.epoch) + I32.pack(standing.previous_epoch))
    out.append(standing.state)
    _write_held(out, standing.assigned)
    _write_held(out, standing.revoking)
    out.append(0)
    return bytes(out)


def _decode_standing(view: memoryview) -> Standing:
    epoch, previous = I32.unpack_from(view, 2)[0], I32.unpack_from(view, 6)[0]
    known = _STATES.get(view[10], MemberState.UNKNOWN)
    # Without epochs of their own, as older brokers write them, partitions count as given just now.
    assigned, position = _read_held(view, 11, epoch)
    revoking, _ = _read_held(view, position, epoch)
    return Standing(epoch, previous, known, assigned, revoking)


def _write_held(out: bytearray, held: Held) -> None:
    write_length(out, len(held), flexible=True)
    for topic_id in sorted(held):
        partitions = sorted(held[topic_id].items())
        out += topic_id.bytes
        _write_numbers(out, [partition for partition, _ in partitions])
        epochs = bytearray()
        _write_numbers(epochs, [epoch for _, epoch in partitions])
        out += b"\x01\x00"
        write_uvarint(out, len(epochs))
        out += epochs


def _read_held(view: memoryview, position: int, epoch: int) -> tuple[dict[UUID, Mapping[int, int]], int]:
    count, position = read_count(view, position, True, 18)
    held: dict[UUID, Mapping[int, int]] = {}
    for _ in range(count):
        topic_id, position = read_uuid(view, position)
        partitions, position = _read_numbers(view, position)
        epochs = [epoch] * len(partitions)
        for tag, start, end in read_tags(view, position):
            if tag == 0 and view[start] != 0:
                epochs, _ = _read_numbers(view, start)
            position = end
        if len(epochs) != len(partitions):
            raise MalformedFrame(f"{len(partitions)} partitions with {len(epochs)} epochs")
        held[topic_id] = dict(zip(partitions, epochs, strict=True))
    return held, position


def _encode_pattern(resolved: ResolvedPattern) -> bytes:
    out = bytearray(_HEAD)
    _write_strings(out, resolved.topics)
    return bytes(out + I64.pack(resolved.version) + I64.pack(resolved.resolved_ms) + b"\x00")


def _decode_pattern(view: memoryview) -> ResolvedPattern:
    topics, position = _read_strings(view, 2)
    return ResolvedPattern(topics, I64.unpack_from(view, position)[0], I64.unpack_from(view, position + 8)[0])


def _write_strings(out: bytearray, texts: Iterable[str]) -> None:
    in_order = sorted(texts)
    write_length(out, len(in_order), flexible=True)
    for text in in_order:
        write_nullable_string(out, text, flexible=True)


def _read_strings(view: memoryview, position: int) -> tuple[frozenset[str], int]:
    count, position = read_count(view, position, True, 1)
    texts: list[str] = []
    for _ in range(count):
        text, position = read_string(view, position, flexible=True)
        texts.append(text)
    return frozenset(texts), position


def _write_numbers(out: bytearray, numbers: list[int]) -> None:
    write_length(out, len(numbers), flexible=True)
    for number in numbers:
        out += I32.pack(number)


def _read_numbers(view: memoryview, position: int) -> tuple[list[int], int]:
    count, position = read_count(view, position, True, 4)
    return [I32.unpack_from(view, position + 4 * place)[0] for place in range(count)], position + 4 * count
