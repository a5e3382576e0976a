"""Records of `__consumer_offsets`, byte by byte as Kafka writes them."""

import logging
from struct import pack
from uuid import UUID

import pytest

from penstock.errors import MalformedFrame
from penstock.groups.group_records import (
    CommittedOffset,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    OffsetRecord,
    decode_record,
    encode_record,
)

TOPIC_ID = UUID("8f0f5f62-7a54-4d3e-9c1f-0d3a3b2c1d0e")
MEMBER = MemberMetadata("m-1", "instance", "client", "/10.0.0.1", 300_000, 45_000, b"subscription", b"assignment")
GROUP = GroupMetadata("consumer", 7, "range", "m-1", 1_700_000_000_000, (MEMBER, MEMBER._replace(instance_id=None)))


def text(value: str) -> bytes:
    return pack(">h", len(value)) + value.encode()


def test_an_offset_is_written_as_version_4_with_its_topic_id_as_tagged_field_0() -> None:
    committed = CommittedOffset(42, 5, "note", 1_700_000_000_000, topic_id=TOPIC_ID)
    key, value = encode_record(OffsetRecord("g", "orders", 3, committed))
    assert key == b"\x00\x01" + text("g") + text("orders") + pack(">i", 3)
    head = pack(">hqi", 4, 42, 5) + b"\x05note" + pack(">q", 1_700_000_000_000)
    assert value == head + b"\x01\x00\x10" + TOPIC_ID.bytes
    assert decode_record(key, value) == OffsetRecord("g", "orders", 3, committed)


def test_an_offset_without_a_topic_id_has_no_tagged_field() -> None:
    committed = CommittedOffset(42, -1, "", 1)
    key, value = encode_record(OffsetRecord("g", "orders", 3, committed))
    assert value == pack(">hqi", 4, 42, -1) + b"\x01" + pack(">q", 1) + b"\x00"
    assert decode_record(key, value) == OffsetRecord("g", "orders", 3, committed)


def test_an_offset_with_its_own_time_of_expiry_is_written_as_version_1() -> None:
    committed = CommittedOffset(42, -1, "note", 1_000, expire_ms=2_000)
    key, value = encode_record(OffsetRecord("g", "orders", 3, committed))
    assert value == pack(">hq", 1, 42) + text("note") + pack(">qq", 1_000, 2_000)
    assert decode_record(key, value) == OffsetRecord("g", "orders", 3, committed)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (pack(">hq", 0, 42) + text("m") + pack(">q", 9), CommittedOffset(42, -1, "m", 9)),
        (pack(">hq", 2, 42) + text("m") + pack(">q", 9), CommittedOffset(42, -1, "m", 9)),
        (pack(">hqi", 3, 42, 6) + text("m") + pack(">q", 9), CommittedOffset(42, 6, "m", 9)),
        (pack(">hqi", 4, 42, 6) + b"\x02m" + pack(">q", 9) + b"\x01\x07\x02ab", CommittedOffset(42, 6, "m", 9)),
    ],
)
@pytest.mark.parametrize("key_version", [0, 1])
def test_offsets_of_older_brokers_and_with_newer_tags_are_read(
    value: bytes, expected: CommittedOffset, key_version: int
) -> None:
    key = pack(">h", key_version) + text("g") + text("t") + pack(">i", 0)
    assert decode_record(key, value) == OffsetRecord("g", "t", 0, expected)


def test_a_group_comes_back_as_it_was_written() -> None:
    key, value = encode_record(GroupRecord("g", GROUP))
    assert key == b"\x00\x02" + text("g")
    assert value is not None
    assert value[:2] == b"\x00\x04"
    assert decode_record(key, value) == GroupRecord("g", GROUP)


def test_an_empty_group_has_neither_protocol_nor_leader() -> None:
    empty = GroupMetadata("consumer", 8, None, None, 5, ())
    assert decode_record(*encode_record(GroupRecord("g", empty))) == GroupRecord("g", empty)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_groups_of_older_brokers_are_read(version: int) -> None:
    value = pack(">h", version) + text("consumer") + pack(">i", 7) + text("range") + text("m-1")
    value += pack(">q", 99) if version >= 2 else b""
    value += pack(">i", 1) + text("m-1")
    value += text("instance") if version >= 3 else b""
    value += text("client") + text("/10.0.0.1")
    value += pack(">i", 300_000) if version >= 1 else b""
    value += pack(">i", 45_000) + pack(">i", 3) + b"sub" + pack(">i", 2) + b"as"
    read = decode_record(b"\x00\x02" + text("g"), value)
    assert isinstance(read, GroupRecord)
    assert read.metadata is not None
    assert read.metadata.state_ms == (99 if version >= 2 else -1)
    (member,) = read.metadata.members
    assert member.instance_id == ("instance" if version >= 3 else None)
    assert member.rebalance_timeout_ms == (300_000 if version >= 1 else 45_000)
    assert (member.subscription, member.assignment) == (b"sub", b"as")


def test_a_key_without_a_value_is_a_deletion() -> None:
    assert decode_record(*encode_record(OffsetRecord("g", "t", 1, None))) == OffsetRecord("g", "t", 1, None)
    assert decode_record(*encode_record(GroupRecord("g", None))) == GroupRecord("g", None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (pack(">h", 3) + text("g"), pack(">h", 1)),
        (pack(">h", 21), None),
        (pack(">h", -1), b""),
        (b"\x00\x01" + text("g") + text("t") + pack(">i", 0), pack(">h", 5)),
        (b"\x00\x02" + text("g"), pack(">h", 5)),
    ],
)
def test_what_a_newer_broker_wrote_is_skipped_with_a_line_in_the_log(
    key: bytes, value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert decode_record(key, value) is None
    assert "skipped" in caplog.text


@pytest.mark.parametrize("cut", range(0, 120, 7))
def test_a_record_cut_short_is_malformed(cut: int) -> None:
    key, value = encode_record(GroupRecord("g", GROUP))
    assert value is not None
    with pytest.raises(MalformedFrame):
        decode_record(key, value[:cut])
    offset_key, offset_value = encode_record(OffsetRecord("g", "t", 1, CommittedOffset(1, 1, "metadata", 1)))
    assert offset_value is not None
    with pytest.raises(MalformedFrame):
        decode_record(offset_key, offset_value[: min(cut, len(offset_value) - 1)])
    with pytest.raises(MalformedFrame):
        decode_record(offset_key[: min(cut, len(offset_key) - 1)], offset_value)


def test_a_count_of_members_that_lies_is_malformed() -> None:
    value = pack(">h", 3) + text("consumer") + pack(">i", 7) + text("range") + text("m") + pack(">q", 1)
    with pytest.raises(MalformedFrame):
        decode_record(b"\x00\x02" + text("g"), value + pack(">i", 2**31 - 1))
