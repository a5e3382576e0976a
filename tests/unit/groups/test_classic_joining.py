"""Who may join a classic group: ids that are promised first, refusals, limits, and what a join is answered."""

from typing import Any

import pytest
from tests.unit.groups.driving import SESSION_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.classic_group import NEW_MEMBER_JOIN_TIMEOUT_MS
from penstock.groups.classic_refusals import PENDING_MEMBERS_MAX
from penstock.groups.group_state import COMPLETING, EMPTY, STABLE
from penstock.groups.member import JoinReply


def test_a_dynamic_member_without_an_id_is_given_one_and_told_to_come_again(driver: Driver) -> None:
    first = driver.join(must_know_its_id=True)
    assert first.value == JoinReply(ErrorCode.MEMBER_ID_REQUIRED, "m1")
    assert driver.group.state is EMPTY
    second = driver.join("m1", must_know_its_id=True)
    driver.advance(0)
    assert second.value.code is ErrorCode.NONE
    assert second.value.member_id == second.value.leader == "m1"


def test_a_promised_id_is_taken_back_after_the_session_time_out(driver: Driver) -> None:
    driver.join(must_know_its_id=True)
    driver.advance(SESSION_MS - 1)
    assert driver.group.has_pending_members
    driver.advance(1)
    assert not driver.group.has_pending_members
    assert driver.join("m1").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_promised_ids_of_one_group_are_limited(driver: Driver) -> None:
    for _ in range(PENDING_MEMBERS_MAX):
        driver.join(must_know_its_id=True)
    assert driver.join(must_know_its_id=True).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.join("m1").code is None


def test_a_promised_id_cannot_be_used_by_a_static_member(driver: Driver) -> None:
    driver.join(must_know_its_id=True)
    assert driver.join("m1", instance_id="i").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unknown_member_id_cannot_join(driver: Driver) -> None:
    driver.stable(1)
    assert driver.join("nobody").code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol_type": ""},
        {"protocols": ()},
        {"protocol_type": "connect"},
        {"protocols": (("sticky", b""),)},
    ],
)
def test_a_member_with_nothing_in_common_is_turned_away(driver: Driver, wrong: dict[str, Any]) -> None:
    driver.stable(1)
    assert driver.join(**wrong).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.group.state is STABLE


def test_an_empty_protocol_list_does_not_start_a_group(driver: Driver) -> None:
    assert driver.join(protocols=()).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.group.state is EMPTY


def test_only_the_leader_is_told_who_the_members_are(driver: Driver) -> None:
    joins = [driver.join(protocols=(("range", name),)) for name in (b"a", b"b")]
    driver.advance(0)
    leader, follower = (join.value for join in joins)
    assert [(member.member_id, member.metadata) for member in leader.members] == [("m1", b"a"), ("m2", b"b")]
    assert follower.members == ()
    assert leader.leader == follower.leader == "m1"
    assert leader.generation == follower.generation == 1


def test_the_protocol_is_voted_for_among_those_all_support(driver: Driver) -> None:
    joins = [
        driver.join(protocols=tuple((name, b"") for name in names))
        for names in (("a", "b", "c"), ("b", "c"), ("c", "b", "d"), ("c", "b"))
    ]
    driver.advance(0)
    # "a" and "d" are not everybody's; "b" is the first choice of two, "c" of two: what was voted for first wins.
    assert {join.value.protocol for join in joins} == {"b"}


def test_a_protocol_named_twice_counts_once(driver: Driver) -> None:
    driver.join(protocols=(("a", b"1"), ("a", b"2"), ("b", b"")))
    join = driver.join(protocols=(("b", b""),))
    driver.advance(0)
    assert join.value.protocol == "b"


def test_a_group_takes_no_more_members_than_its_limit() -> None:
    driver = Driver(size_max=2)
    ids = driver.stable(2)
    assert driver.join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.join(ids[1]).code is ErrorCode.NONE


def test_while_a_group_over_its_limit_rebalances_the_last_to_rejoin_are_removed() -> None:
    driver = Driver(size_max=3)
    ids = driver.stable(3)
    driver.group.size_max = 2
    for answer in (driver.join(ids[0]), driver.join(ids[1])):
        assert answer.code is None
    assert driver.join(ids[2]).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.group.state is COMPLETING
    assert [member.member_id for member in driver.group.members] == ids[:2]


def test_a_lost_join_reply_can_be_asked_for_again_before_the_assignment(driver: Driver) -> None:
    first = driver.join()
    driver.advance(0)
    again = driver.join("m1")
    assert again.value == first.value
    assert again.value.members


def test_who_joins_again_while_waiting_supersedes_the_first_request(driver: Driver) -> None:
    ids = driver.stable(2)
    first = driver.join(ids[0])
    second = driver.join(ids[0])
    assert first.code is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(ids[1])
    assert second.code is ErrorCode.NONE


def test_a_new_member_that_was_never_answered_is_dropped_after_five_minutes(driver: Driver) -> None:
    ids = driver.stable(1, rebalance_timeout_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS, session_timeout_ms=1_800_000)
    new = driver.join()
    driver.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert new.code is None
    driver.advance(1)
    assert new.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert [member.member_id for member in driver.group.members] == ids
