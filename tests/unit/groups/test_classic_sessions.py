"""Sessions in a classic group: what keeps one alive, who cannot lose it, and what follows when one ends."""

from tests.unit.groups.driving import SESSION_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.group_state import EMPTY
from penstock.groups.rebalance_cause import CauseKind


def test_a_member_without_heartbeats_is_removed_and_the_others_rebalance(driver: Driver) -> None:
    ids = driver.stable(2)
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(ids[0]) is ErrorCode.NONE
    driver.advance(1)
    assert driver.heartbeat(ids[0]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(ids[1]) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.group.last_rebalance is not None
    assert ids[1] in driver.group.last_rebalance.reason
    assert driver.group.last_rebalance.kind is CauseKind.TIMED_OUT


def test_heartbeats_are_checked(driver: Driver) -> None:
    ids = driver.stable(1)
    assert driver.heartbeat("nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(ids[0], generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat(ids[0], generation=2) is ErrorCode.ILLEGAL_GENERATION


def test_a_heartbeat_of_the_wrong_generation_does_not_keep_a_session(driver: Driver) -> None:
    ids = driver.stable(1)
    driver.advance(SESSION_MS - 1)
    driver.heartbeat(ids[0], generation=0)
    driver.advance(1)
    assert driver.group.state is EMPTY


def test_who_waits_to_join_cannot_lose_its_session(driver: Driver) -> None:
    driver.join()
    driver.join(session_timeout_ms=1_800_000)
    driver.advance(0)
    driver.sync("m2")
    driver.sync("m1")
    waiting = driver.join("m1")
    driver.advance(3 * SESSION_MS)
    assert waiting.code is None
    assert "m1" in driver.group.members


def test_who_waits_for_its_assignment_cannot_lose_its_session(driver: Driver) -> None:
    driver.join(session_timeout_ms=1_800_000)
    driver.join()
    driver.advance(0)
    waiting = driver.sync("m2")
    driver.advance(3 * SESSION_MS)
    assert waiting.code is None
    driver.sync("m1", assignments={"m2": b"two"})
    assert waiting.value.assignment == b"two"
    # It starts anew with the answer.
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat("m2") is ErrorCode.NONE


def test_who_was_sent_back_to_join_has_a_session_time_out_to_do_so(driver: Driver) -> None:
    driver.join(session_timeout_ms=1_800_000)
    driver.join()
    driver.advance(0)
    waiting = driver.sync("m2")
    driver.advance(3 * SESSION_MS)
    driver.join()
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(SESSION_MS - 1)
    assert "m2" in driver.group.members
    driver.advance(1)
    assert "m2" not in driver.group.members


def test_the_last_member_to_go_leaves_an_empty_group_of_the_next_generation(driver: Driver) -> None:
    driver.stable(1)
    driver.advance(SESSION_MS)
    assert (driver.group.state, driver.group.generation) == (EMPTY, 2)
    saved = driver.records[-1].metadata
    assert (saved.members, saved.protocol, saved.leader, saved.generation) == ((), None, None, 2)
    assert saved.protocol_type == "consumer"
    assert saved.state_ms == driver.now.wall_ms
