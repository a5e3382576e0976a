"""Static members of a classic group: they keep their place while away, and who takes over fences the one before."""

from tests.unit.groups.driving import REBALANCE_MS, SESSION_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.group_state import EMPTY, PREPARING, STABLE
from penstock.groups.member import Leaver


def test_a_static_member_keeps_its_place_while_it_does_not_rejoin(driver: Driver) -> None:
    static = driver.join(instance_id="i", session_timeout_ms=1_800_000)
    other = driver.join()
    driver.advance(0)
    driver.sync(other.value.member_id)
    driver.sync(static.value.member_id)
    assert driver.group.state is STABLE
    leader = driver.join(other.value.member_id, protocols=(("range", b"new"),))
    driver.advance(REBALANCE_MS)
    # The group goes on without it, led by who is there, and counts it among its members.
    assert leader.value.leader == other.value.member_id
    assert {member.instance_id for member in leader.value.members} == {"i", None}
    driver.sync(other.value.member_id)
    assert driver.group.state is STABLE
    driver.heartbeat(other.value.member_id)
    driver.advance(SESSION_MS // 2)
    assert len(driver.group.members) == 2


def test_if_only_absent_static_members_are_left_the_group_waits_for_them(driver: Driver) -> None:
    static = driver.join(instance_id="i", session_timeout_ms=1_800_000)
    other = driver.join()
    driver.advance(0)
    driver.sync(static.value.member_id, assignments={})
    driver.sync(other.value.member_id)
    driver.leave(Leaver(other.value.member_id, None, ""))
    driver.advance(REBALANCE_MS)
    assert driver.group.state is PREPARING
    driver.advance(1_800_000)
    assert driver.group.state is EMPTY


def test_an_absent_static_member_owes_no_sync_to_a_generation_it_did_not_join(driver: Driver) -> None:
    driver.join(session_timeout_ms=1_800_000)
    driver.join(instance_id="i", session_timeout_ms=1_800_000)
    driver.advance(0)
    driver.sync("m1")
    # m2 never synced; the next generation comes about without it.
    driver.join("m1", protocols=(("range", b"new"),), session_timeout_ms=1_800_000)
    driver.advance(REBALANCE_MS)
    driver.sync("m1")
    driver.advance(2 * REBALANCE_MS)
    assert driver.group.state is STABLE
    assert "m2" in driver.group.members


def test_a_static_member_that_comes_back_before_it_synced_owes_the_sync(driver: Driver) -> None:
    driver.join(session_timeout_ms=1_800_000)
    driver.join(instance_id="i", session_timeout_ms=1_800_000)
    driver.advance(0)
    driver.sync("m1")
    driver.join(instance_id="i", session_timeout_ms=1_800_000)
    driver.advance(REBALANCE_MS)
    assert [member.member_id for member in driver.group.members] == ["m1"]


def test_a_static_member_that_comes_back_takes_over_without_a_rebalance(driver: Driver) -> None:
    ids = driver.stable(1, instance_id="i")
    back = driver.join(instance_id="i")
    assert back.code is ErrorCode.NONE
    assert (back.value.member_id, back.value.generation) == ("m2", 1)
    assert back.value.skip_assignment
    assert [member.member_id for member in back.value.members] == ["m2"]
    assert driver.sync("m2", instance_id="i").value.assignment == ids[0].encode()
    assert driver.group.rebalances == 1


def test_an_older_client_that_comes_back_as_leader_is_kept_from_assigning(driver: Driver) -> None:
    ids = driver.stable(1, instance_id="i")
    back = driver.join(instance_id="i", may_skip_assignment=False)
    assert back.value.leader == ids[0] != back.value.member_id
    assert (back.value.skip_assignment, back.value.members) == (False, ())
    assert driver.group.members.leader == back.value.member_id


def test_a_replaced_static_member_is_fenced_wherever_it_knocks(driver: Driver) -> None:
    (old,) = driver.stable(1, instance_id="i")
    driver.join(instance_id="i")
    driver.join(instance_id="i")
    for fenced in (old, "m2"):
        assert driver.heartbeat(fenced, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
        assert driver.check_commit(fenced, 1, "i") is ErrorCode.FENCED_INSTANCE_ID
        assert driver.sync(fenced, instance_id="i").code is ErrorCode.FENCED_INSTANCE_ID
        assert driver.join(fenced, instance_id="i").code is ErrorCode.FENCED_INSTANCE_ID
        assert driver.leave(Leaver(fenced, "i", "")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert driver.heartbeat("m3", instance_id="i") is ErrorCode.NONE
    assert driver.heartbeat("m3", instance_id="other") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_takeover_is_answered_only_once_it_is_stored_and_undone_if_it_cannot_be(driver: Driver) -> None:
    (old,) = driver.stable(1, instance_id="i")
    driver.held = []
    back = driver.join(instance_id="i")
    assert back.code is None
    driver.refuse(driver.held.pop(), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert back.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat(old, instance_id="i") is ErrorCode.NONE
    assert driver.group.members.leader == old


def test_two_takeovers_under_way_at_once_are_both_in_the_last_record(driver: Driver) -> None:
    first = driver.join(instance_id="a")
    driver.join(instance_id="b")
    driver.advance(0)
    driver.sync("m2", instance_id="b")
    driver.sync("m1", instance_id="a", assignments={"m1": b"1", "m2": b"2"})
    driver.held = []
    driver.join(instance_id="a")
    driver.join(instance_id="b")
    earlier, later = driver.held
    assert [member.member_id for member in later.records[0].metadata.members] == ["m3", "m4"]
    driver.commit(earlier)
    driver.commit(later)
    assert [member.member_id for member in driver.group.members] == ["m3", "m4"]
    assert first.code is ErrorCode.NONE


def test_a_static_member_that_left_can_come_again_as_a_new_one(driver: Driver) -> None:
    driver.stable(1, instance_id="i")
    driver.leave(Leaver("", "i", ""))
    assert driver.heartbeat("m1", instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    again = driver.join(instance_id="i")
    driver.advance(0)
    assert (again.code, again.value.generation) == (ErrorCode.NONE, 3)


def test_who_leads_in_place_of_an_absent_member_goes_on_when_that_one_is_back(driver: Driver) -> None:
    driver.join(instance_id="i", session_timeout_ms=1_800_000)
    driver.join()
    driver.advance(0)
    driver.sync("m2")
    driver.sync("m1", instance_id="i")
    driver.join("m2", protocols=(("range", b"new"),))
    driver.advance(REBALANCE_MS)
    assert driver.group.members.leader == "m2"
    driver.join("m2", protocols=(("range", b"newer"),))
    back = driver.join("m1", instance_id="i", protocols=(("range", b"newer"),))
    assert back.value.leader == "m2"


def test_a_static_member_that_changes_the_vote_starts_a_rebalance(driver: Driver) -> None:
    driver.stable(1, instance_id="i", protocols=(("a", b""), ("b", b"")))
    back = driver.join(instance_id="i", protocols=(("b", b""),))
    assert (back.value.generation, back.value.protocol) == (2, "b")


def test_a_static_member_that_comes_back_during_the_sync_starts_a_rebalance(driver: Driver) -> None:
    driver.join(instance_id="i")
    driver.join()
    driver.advance(0)
    waiting = driver.sync("m2")
    driver.join(instance_id="i")
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.group.state is PREPARING


def test_a_static_member_that_comes_back_while_waiting_fences_the_one_that_waits(driver: Driver) -> None:
    driver.stable(2)
    waiting = driver.join(instance_id="i")
    driver.join(instance_id="i")
    assert waiting.code is ErrorCode.FENCED_INSTANCE_ID
    assert len(driver.group.members) == 3
