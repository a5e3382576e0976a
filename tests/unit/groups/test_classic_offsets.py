"""Whose commits a classic group lets pass, and which topics its members use, whose offsets are then kept."""

from tests.unit.groups.driving import SESSION_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.group_state import PREPARING


def test_commits_are_taken_from_members_of_the_current_generation(driver: Driver) -> None:
    ids = driver.stable(1)
    assert driver.check_commit(ids[0], 1) is ErrorCode.NONE
    assert driver.check_commit(ids[0], 0) is ErrorCode.ILLEGAL_GENERATION
    assert driver.check_commit(ids[0], 2) is ErrorCode.ILLEGAL_GENERATION
    assert driver.check_commit("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.check_commit(ids[0], -1) is ErrorCode.ILLEGAL_GENERATION


def test_a_client_that_is_no_member_commits_only_while_the_group_is_empty(driver: Driver) -> None:
    assert driver.check_commit("", -1) is ErrorCode.NONE
    driver.stable(1)
    assert driver.check_commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(SESSION_MS)
    assert driver.check_commit("", -1) is ErrorCode.NONE
    assert driver.check_commit("m1", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_may_commit_what_it_read_before_it_rejoins(driver: Driver) -> None:
    ids = driver.stable(2)
    driver.join()
    assert driver.group.state is PREPARING
    assert driver.check_commit(ids[0], 1) is ErrorCode.NONE


def test_no_commit_is_taken_between_the_join_and_the_assignment(driver: Driver) -> None:
    driver.join()
    driver.advance(0)
    assert driver.check_commit("m1", 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_waits_for_its_first_generation_cannot_commit_to_the_one_before(driver: Driver) -> None:
    driver.stable(1)
    driver.join()
    assert driver.check_commit("m2", 1) is ErrorCode.ILLEGAL_GENERATION


def test_a_commit_keeps_the_session_alive(driver: Driver) -> None:
    ids = driver.stable(1)
    driver.advance(SESSION_MS - 1)
    driver.check_commit(ids[0], 1)
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(ids[0]) is ErrorCode.NONE


def test_offsets_of_topics_in_use_are_known_from_the_members_subscriptions(driver: Driver) -> None:
    subscription = b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x06orders" + b"\xff\xff\xff\xff"
    driver.stable(1, protocols=(("range", subscription),))
    assert driver.group.is_subscribed_to("orders")
    assert not driver.group.is_subscribed_to("payments")


def test_metadata_that_cannot_be_read_counts_as_a_subscription_to_everything(driver: Driver) -> None:
    driver.stable(1)
    assert driver.group.is_subscribed_to("anything")


def test_groups_of_other_protocols_subscribe_to_nothing(driver: Driver) -> None:
    driver.stable(1, protocol_type="connect")
    assert not driver.group.is_subscribed_to("anything")
