"""The sync of a classic group: what the leader assigned reaches every member, once it is stored and not before."""

from tests.unit.groups.driving import REBALANCE_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.group_state import COMPLETING, PREPARING, STABLE
from penstock.groups.member import SyncReply


def test_every_member_gets_what_the_leader_assigned_to_it(driver: Driver) -> None:
    joins = [driver.join() for _ in range(3)]
    driver.advance(0)
    early = driver.sync("m2")
    assert early.code is None
    leader = driver.sync("m1", assignments={"m1": b"one", "m2": b"two", "stranger": b"x"})
    assert leader.value == SyncReply(ErrorCode.NONE, "consumer", "range", b"one")
    assert early.value.assignment == b"two"
    late = driver.sync("m3")
    assert late.value.assignment == b""
    assert all(join.code is ErrorCode.NONE for join in joins)


def test_nobody_sees_an_assignment_before_it_is_committed(driver: Driver) -> None:
    driver.join()
    driver.advance(0)
    driver.held = []
    leader = driver.sync("m1", assignments={"m1": b"one"})
    assert (leader.code, driver.group.state) == (None, COMPLETING)
    driver.commit(driver.held.pop())
    assert (leader.value.assignment, driver.group.state) == (b"one", STABLE)


def test_a_leader_that_assigns_twice_is_held_to_the_first(driver: Driver) -> None:
    driver.join()
    driver.advance(0)
    driver.held = []
    first = driver.sync("m1", assignments={"m1": b"one"})
    second = driver.sync("m1", assignments={"m1": b"two"})
    assert first.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(driver.held) == 1
    driver.commit(driver.held.pop())
    assert second.value.assignment == b"one"


def test_an_assignment_that_cannot_be_stored_sends_everyone_back_to_join(driver: Driver) -> None:
    driver.join()
    driver.join()
    driver.advance(0)
    follower = driver.sync("m2")
    driver.held = []
    leader = driver.sync("m1", assignments={"m1": b"one"})
    driver.refuse(driver.held.pop(), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert leader.code is follower.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.group.state is PREPARING


def test_an_assignment_committed_after_the_next_rebalance_began_changes_nothing(driver: Driver) -> None:
    driver.join()
    driver.advance(0)
    driver.held = []
    leader = driver.sync("m1", assignments={"m1": b"one"})
    driver.join()
    assert leader.code is ErrorCode.REBALANCE_IN_PROGRESS
    driver.commit(driver.held.pop())
    assert driver.group.state is PREPARING
    again = driver.join("m1")
    assert again.value.generation == 2
    assert driver.group.state is COMPLETING


def test_sync_is_refused_to_who_does_not_belong(driver: Driver) -> None:
    driver.join()
    driver.advance(0)
    assert driver.sync("nobody").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.sync("m1", generation=0).code is ErrorCode.ILLEGAL_GENERATION
    assert driver.sync("m1", generation=2).code is ErrorCode.ILLEGAL_GENERATION
    assert driver.sync("m1", protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync("m1", protocol="sticky").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync("m1", protocol_type="consumer", protocol="range").code is ErrorCode.NONE


def test_sync_during_the_join_phase_is_told_to_rejoin(driver: Driver) -> None:
    ids = driver.stable(1)
    driver.join()
    assert driver.sync(ids[0]).code is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_vanish_between_join_and_sync_are_removed(driver: Driver) -> None:
    for _ in range(3):
        driver.join(session_timeout_ms=1_800_000)
    driver.advance(0)
    follower = driver.sync("m3")
    driver.advance(REBALANCE_MS - 1)
    assert follower.code is None
    driver.advance(1)
    assert follower.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert [member.member_id for member in driver.group.members] == ["m3"]


def test_a_follower_that_never_syncs_is_removed_from_a_stable_group_too(driver: Driver) -> None:
    for _ in range(2):
        driver.join(session_timeout_ms=1_800_000)
    driver.advance(0)
    driver.sync("m1")
    assert driver.group.state is STABLE
    driver.advance(REBALANCE_MS)
    assert driver.group.state is PREPARING
    assert [member.member_id for member in driver.group.members] == ["m1"]


def test_an_assignment_of_the_generation_before_is_not_taken_for_the_one_awaited(driver: Driver) -> None:
    driver.join()
    driver.advance(0)
    driver.held = []
    driver.sync("m1", assignments={"m1": b"old"})
    driver.join()
    driver.join("m1")
    leader = driver.sync("m1", assignments={"m1": b"new"})
    before, awaited = driver.held
    driver.commit(before)
    assert (leader.code, driver.group.state) == (None, COMPLETING)
    driver.commit(awaited)
    assert leader.value.assignment == b"new"
