"""Rebalances of a classic group: what starts one, whom it waits for and how long, and who leads afterwards."""

from tests.unit.groups.driving import REBALANCE_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.group_state import COMPLETING, PREPARING, STABLE
from penstock.groups.rebalance_cause import CauseKind


def test_a_follower_that_rejoins_unchanged_is_told_the_current_generation(driver: Driver) -> None:
    ids = driver.stable(2)
    answer = driver.join(ids[1])
    assert (answer.code, answer.value.generation) == (ErrorCode.NONE, 1)
    assert driver.group.state is STABLE


def test_a_follower_with_new_metadata_starts_a_rebalance(driver: Driver) -> None:
    ids = driver.stable(2)
    assert driver.join(ids[1], protocols=(("range", b"other"),)).code is None
    assert driver.group.state is PREPARING


def test_a_follower_with_another_order_of_protocols_starts_a_rebalance(driver: Driver) -> None:
    ids = driver.stable(2, protocols=(("a", b""), ("b", b"")))
    assert driver.join(ids[1], protocols=(("b", b""), ("a", b""))).code is None
    assert driver.group.state is PREPARING


def test_the_leader_that_rejoins_starts_a_rebalance_though_nothing_changed(driver: Driver) -> None:
    ids = driver.stable(2)
    leader = driver.join(ids[0], reason="topics changed")
    assert driver.group.state is PREPARING
    assert driver.group.last_rebalance is not None
    assert "topics changed" in driver.group.last_rebalance.reason
    assert driver.group.last_rebalance.kind is CauseKind.REJOINED
    driver.join(ids[1])
    assert leader.value.generation == 2
    assert driver.group.rebalances == 2


def test_an_empty_group_waits_for_more_members_and_longer_if_they_come() -> None:
    driver = Driver(initial_delay_ms=3_000)
    first = driver.join()
    driver.advance(2_999)
    second = driver.join()
    driver.advance(1)
    assert first.code is None
    driver.advance(2_999)
    assert first.code is None
    driver.advance(1)
    assert (first.value.generation, second.value.generation) == (1, 1)


def test_an_empty_group_waits_no_longer_than_the_rebalance_time_out() -> None:
    driver = Driver(initial_delay_ms=3_000)
    first = driver.join(rebalance_timeout_ms=7_000)
    for _ in range(6):
        driver.advance(1_000)
        driver.join(rebalance_timeout_ms=7_000)
    driver.advance(999)
    assert first.code is None
    driver.advance(1)
    assert first.code is ErrorCode.NONE


def test_a_lone_member_waits_the_delay_once() -> None:
    driver = Driver(initial_delay_ms=3_000)
    first = driver.join()
    driver.advance(3_000)
    assert first.code is ErrorCode.NONE


def test_a_rebalance_ends_as_soon_as_all_have_joined(driver: Driver) -> None:
    ids = driver.stable(2)
    new = driver.join()
    assert (new.code, driver.heartbeat(ids[0])) == (None, ErrorCode.REBALANCE_IN_PROGRESS)
    driver.join(ids[0])
    driver.join(ids[1])
    assert new.value.generation == 2
    assert driver.group.state is COMPLETING


def test_a_rebalance_waits_for_promised_members(driver: Driver) -> None:
    ids = driver.stable(1)
    promised = driver.join(must_know_its_id=True).value.member_id
    leader = driver.join(ids[0])
    assert leader.code is None
    driver.join(promised)
    assert leader.code is ErrorCode.NONE


def test_members_that_do_not_rejoin_in_time_are_removed(driver: Driver) -> None:
    ids = driver.stable(2, session_timeout_ms=1_800_000)
    leader = driver.join(ids[0])
    driver.advance(REBALANCE_MS - 1)
    assert leader.code is None
    driver.advance(1)
    assert leader.value.generation == 2
    assert [member.member_id for member in driver.group.members] == [ids[0]]
    assert driver.heartbeat(ids[1]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_if_the_leader_does_not_rejoin_another_leads(driver: Driver) -> None:
    ids = driver.stable(2, session_timeout_ms=1_800_000)
    follower = driver.join(ids[1], protocols=(("range", b"new"),))
    driver.advance(REBALANCE_MS)
    assert follower.value.leader == ids[1]


def test_a_join_during_the_sync_sends_everyone_back_to_join(driver: Driver) -> None:
    joins = [driver.join(), driver.join()]
    driver.advance(0)
    follower = driver.sync(joins[1].value.member_id)
    driver.join()
    assert follower.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.group.state is PREPARING


def test_a_rebalance_time_out_of_nothing_still_leaves_time_to_sync(driver: Driver) -> None:
    ids = driver.stable(1, rebalance_timeout_ms=0)
    driver.advance(500)
    assert [member.member_id for member in driver.group.members] == ids
