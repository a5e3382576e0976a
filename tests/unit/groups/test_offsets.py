"""When committed offsets expire, and which of them belong to a topic."""

from typing import Any
from uuid import UUID

import pytest

from penstock.groups.classic_group import ClassicGroup
from penstock.groups.group_records import CommittedOffset, GroupMetadata, MemberMetadata, OffsetRecord
from penstock.groups.group_state import COMPLETING, EMPTY, PREPARING, STABLE, GroupState
from penstock.groups.offsets import GroupOffsets, is_of_topic
from penstock.model import NO_TOPIC_ID

FIRST = UUID("8f0f5f62-7a54-4d3e-9c1f-0d3a3b2c1d0e")
SECOND = UUID("1c2d3e4f-7a54-4d3e-9c1f-0d3a3b2c1d0e")
SUBSCRIBED_TO_ORDERS = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"
RETENTION_MS = 1_000


def record(topic: str, partition: int, commit_ms: int = 0, **changes: Any) -> OffsetRecord:
    return OffsetRecord("g", topic, partition, CommittedOffset(1, -1, "", commit_ms)._replace(**changes))


def offsets_of(*records: OffsetRecord) -> GroupOffsets:
    offsets = GroupOffsets()
    for each in records:
        offsets.apply(each)
    return offsets


def group_in(state: GroupState, protocol_type: str = "consumer", state_ms: int = 0) -> ClassicGroup:
    member = MemberMetadata("m", None, "c", "/h", 60_000, 10_000, SUBSCRIBED_TO_ORDERS, b"")
    members = () if state is EMPTY else (member,)
    group = ClassicGroup.restored("g", GroupMetadata(protocol_type, 1, "range", "m", state_ms, members), 0, 10)
    group.state = state
    return group


def expired(offsets: GroupOffsets, group: ClassicGroup, now_ms: int) -> list[tuple[str, int]]:
    return sorted(offsets.expired(group, RETENTION_MS, now_ms))


def test_a_group_that_only_stores_offsets_loses_each_by_its_own_age() -> None:
    offsets = offsets_of(record("orders", 0, 100), record("orders", 1, 101))
    group = ClassicGroup("g")
    assert expired(offsets, group, 1_099) == []
    assert expired(offsets, group, 1_100) == [("orders", 0)]
    assert expired(offsets, group, 1_101) == [("orders", 0), ("orders", 1)]


def test_an_empty_group_keeps_its_offsets_from_the_day_it_became_empty() -> None:
    offsets = offsets_of(record("orders", 0, 100))
    group = group_in(EMPTY, state_ms=5_000)
    assert expired(offsets, group, 5_999) == []
    assert expired(offsets, group, 6_000) == [("orders", 0)]


def test_an_offset_set_by_an_administrator_in_an_empty_group_counts_from_itself() -> None:
    offsets = offsets_of(record("orders", 0, 8_000))
    group = group_in(EMPTY, state_ms=5_000)
    assert expired(offsets, group, 8_999) == []
    assert expired(offsets, group, 9_000) == [("orders", 0)]


def test_a_settled_group_loses_only_what_it_no_longer_subscribes_to() -> None:
    offsets = offsets_of(record("orders", 0), record("payments", 0), record("payments", 1, 500))
    assert expired(offsets, group_in(STABLE), 1_000) == [("payments", 0)]


@pytest.mark.parametrize("state", [PREPARING, COMPLETING])
def test_nothing_expires_while_a_group_rebalances(state: GroupState) -> None:
    assert expired(offsets_of(record("payments", 0)), group_in(state), 10**9) == []


def test_nothing_of_a_living_group_that_is_no_consumers_expires() -> None:
    assert expired(offsets_of(record("payments", 0)), group_in(STABLE, "connect"), 10**9) == []


def test_an_old_clients_own_retention_time_counts_instead_of_ours() -> None:
    offsets = offsets_of(record("orders", 0, 0, expire_ms=50), record("orders", 1, 0, expire_ms=10**9))
    assert expired(offsets, ClassicGroup("g"), 5_000) == [("orders", 0)]
    assert expired(offsets, group_in(PREPARING), 5_000) == []


def test_an_offset_with_a_commit_under_way_does_not_expire() -> None:
    offsets = offsets_of(record("orders", 0))
    fresh = record("orders", 0, 9_999)
    offsets.sent([fresh, fresh])
    offsets.refused([fresh])
    assert expired(offsets, ClassicGroup("g"), 10_000) == []
    offsets.refused([fresh])
    assert expired(offsets, ClassicGroup("g"), 10_000) == [("orders", 0)]


def test_what_is_under_way_counts_as_known_until_it_lands() -> None:
    offsets = GroupOffsets()
    sent = record("orders", 0)
    offsets.sent([sent])
    assert offsets
    assert offsets.known() == {("orders", 0)}
    offsets.apply(sent)
    offsets.apply(sent._replace(committed=None))
    assert not offsets
    assert offsets.known() == set()


def test_deleting_what_is_not_there_is_harmless() -> None:
    offsets = offsets_of(record("orders", 0))
    offsets.apply(OffsetRecord("g", "orders", 7, None))
    offsets.apply(OffsetRecord("g", "payments", 0, None))
    assert offsets.known() == {("orders", 0)}


@pytest.mark.parametrize(
    ("mine", "asked", "expected"),
    [(FIRST, FIRST, True), (FIRST, SECOND, False), (NO_TOPIC_ID, FIRST, True), (FIRST, NO_TOPIC_ID, True)],
)
def test_an_offset_is_of_its_own_topic_or_of_the_name_where_an_id_is_missing(
    mine: UUID, asked: UUID, expected: bool
) -> None:
    committed = CommittedOffset(1, -1, "", 0, topic_id=mine)
    assert is_of_topic(committed, asked) is expected
    offsets = offsets_of(OffsetRecord("g", "orders", 0, committed))
    assert (offsets.get("orders", asked, 0) is not None) is expected
    assert (offsets.of_topic("orders", asked) == [("orders", 0)]) is expected
