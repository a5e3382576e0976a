"""Records of consumer groups: Kafka's layouts byte for byte, and whatever is written is read again."""

from struct import pack
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MalformedFrame
from penstock.groups.consumer_group_records import (
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    PatternRecord,
    ResolvedPattern,
    StandingRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.groups.consumer_member import ClassicProfile, MemberProfile, MemberState, Standing
from penstock.groups.group_records import decode_record, encode_record

TOPIC = UUID(int=7)
NUMBERS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=12)
HELD = st.dictionaries(st.uuids(), st.dictionaries(NUMBERS, NUMBERS, max_size=3), max_size=3)
CLASSIC = st.builds(ClassicProfile, NUMBERS, st.lists(st.tuples(TEXTS, st.binary(max_size=9)), max_size=2).map(tuple))
PROFILES = st.builds(
    MemberProfile,
    instance_id=st.none() | TEXTS,
    rack=st.none() | TEXTS,
    client_id=TEXTS,
    client_host=TEXTS,
    topics=st.frozensets(TEXTS, max_size=3),
    pattern=TEXTS,
    rebalance_timeout_ms=NUMBERS,
    assignor=st.none() | TEXTS,
    classic=st.none() | CLASSIC,
)
RECORDS = st.one_of(
    st.builds(GroupEpochRecord, TEXTS, st.none() | st.builds(GroupEpoch, NUMBERS, LONGS)),
    st.builds(TargetEpochRecord, TEXTS, st.none() | st.builds(TargetEpoch, NUMBERS, LONGS)),
    st.builds(MemberRecord, TEXTS, TEXTS, st.none() | PROFILES),
    st.builds(
        TargetRecord,
        TEXTS,
        TEXTS,
        st.none() | st.dictionaries(st.uuids(), st.frozensets(NUMBERS, max_size=4), max_size=3),
    ),
    st.builds(
        StandingRecord,
        TEXTS,
        TEXTS,
        st.none() | st.builds(Standing, NUMBERS, NUMBERS, st.sampled_from(MemberState), HELD, HELD),
    ),
    st.builds(
        PatternRecord,
        TEXTS,
        TEXTS,
        st.none() | st.builds(ResolvedPattern, st.frozensets(TEXTS, max_size=3), LONGS, LONGS),
    ),
)


@given(RECORDS)
def test_what_is_written_is_read_again(record: Any) -> None:
    assert decode_record(*encode_record(record)) == record


@given(RECORDS, st.data())
def test_a_value_cut_short_is_malformed(record: Any, data: st.DataObject) -> None:
    key, value = encode_record(record)
    if value is None:
        return
    # All but the last byte, which only says that no tagged fields follow.
    cut = value[: data.draw(st.integers(0, len(value) - 2))]
    with pytest.raises(MalformedFrame):
        decode_record(key, cut)


def test_records_have_the_bytes_that_kafka_s_have() -> None:
    group = b"\x00\x01g"
    member = b"\x00\x01m"
    assert encode_record(GroupEpochRecord("g", GroupEpoch(5))) == (
        b"\x00\x03" + group,
        b"\x00\x00" + pack(">i", 5) + b"\x00",
    )
    hashed = b"\x00\x00" + pack(">i", 5) + b"\x01\x00\x08" + pack(">q", 9)
    assert encode_record(GroupEpochRecord("g", GroupEpoch(5, 9)))[1] == hashed
    assert encode_record(TargetEpochRecord("g", None)) == (b"\x00\x06" + group, None)
    profile = MemberProfile(client_id="c", client_host="/h", topics=frozenset({"t"}), rebalance_timeout_ms=1)
    assert encode_record(MemberRecord("g", "m", profile)) == (
        b"\x00\x05" + group + member,
        b"\x00\x00" + b"\x00\x00" + b"\x02c\x03/h" + b"\x02\x02t" + b"\x01" + pack(">i", 1) + b"\x00" + b"\x00",
    )
    assert encode_record(TargetRecord("g", "m", {TOPIC: frozenset({2, 1})})) == (
        b"\x00\x07" + group + member,
        b"\x00\x00" + b"\x02" + TOPIC.bytes + b"\x03" + pack(">ii", 1, 2) + b"\x00" + b"\x00",
    )
    standing = Standing(3, 2, MemberState.UNREVOKED_PARTITIONS, {TOPIC: {1: 3}})
    assert encode_record(StandingRecord("g", "m", standing)) == (
        b"\x00\x08" + group + member,
        b"\x00\x00" + pack(">ii", 3, 2) + b"\x01"
        b"\x02" + TOPIC.bytes + b"\x02" + pack(">i", 1) + b"\x01\x00\x05\x02" + pack(">i", 3) + b"\x01\x00",
    )  # fmt: skip
    assert encode_record(PatternRecord("g", "p", ResolvedPattern(frozenset(), 1, 2))) == (
        b"\x00\x10" + group + b"\x00\x01p",
        b"\x00\x00" + b"\x01" + pack(">qq", 1, 2) + b"\x00",
    )


def test_partitions_without_epochs_count_as_given_in_the_member_s_epoch() -> None:
    value = b"\x00\x00" + pack(">ii", 3, 2) + b"\x00\x02" + TOPIC.bytes + b"\x02" + pack(">i", 1) + b"\x00\x01\x00"
    expected = Standing(3, 2, MemberState.STABLE, {TOPIC: {1: 3}})
    assert decode_record(b"\x00\x08\x00\x01g\x00\x01m", value) == StandingRecord("g", "m", expected)


def test_a_state_of_a_newer_broker_is_known_as_unknown() -> None:
    value = b"\x00\x00" + pack(">ii", 3, 2) + b"\x09\x01\x01\x00"
    record = decode_record(b"\x00\x08\x00\x01g\x00\x01m", value)
    assert isinstance(record, StandingRecord)
    assert record.value is not None
    assert record.value.state is MemberState.UNKNOWN


def test_what_kafka_kept_of_partitions_before_4_1_is_passed_over() -> None:
    assert decode_record(b"\x00\x04\x00\x01g", b"\x00\x00") is None
