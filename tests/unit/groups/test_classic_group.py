"""The rules of one classic group, driven as the coordinator drives it: decisions are committed at once unless held."""

from typing import Any

import pytest

from penstock.coordination import Decision, Now
from penstock.errors import ErrorCode
from penstock.groups.classic_group import NEW_MEMBER_JOIN_TIMEOUT_MS, ClassicGroup
from penstock.groups.classic_refusals import PENDING_MEMBERS_MAX
from penstock.groups.group_state import COMPLETING, DEAD, EMPTY, PREPARING, STABLE
from penstock.groups.member import JoinReply, JoinRequest, Leaver, SyncReply, SyncRequest
from penstock.groups.rebalance_cause import CauseKind

SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (("range", b"range-metadata"),)


class Answer:
    """A waiter that keeps what it was told."""

    def __init__(self) -> None:
        self.value: Any = None

    def done(self) -> bool:
        return self.value is not None

    def set_result(self, result: Any, /) -> None:
        assert self.value is None
        self.value = result

    def set_exception(self, exception: Any, /) -> None:
        raise AssertionError(exception)

    @property
    def code(self) -> ErrorCode | None:
        return None if self.value is None else self.value.code


class Driver:
    """Time, a group, and the log its records go to."""

    def __init__(self, initial_delay_ms: int = 0, size_max: int = 1000) -> None:
        self.group = ClassicGroup("g", initial_delay_ms, size_max)
        self.steady_ms = 1_000
        self.records: list[Any] = []
        self.held: list[Decision[Any]] | None = None
        self._ids = 0

    @property
    def now(self) -> Now:
        return Now(1_700_000_000_000 + self.steady_ms, self.steady_ms)

    def carry_out(self, step: Decision[Any]) -> None:
        if step.records and self.held is not None:
            self.held.append(step)
            return
        self.commit(step)

    def commit(self, step: Decision[Any]) -> None:
        replies = []
        for record in step.records:
            self.records.append(record)
            replies += self.group.committed(record.metadata, self.now)
        for waiter, reply in [*replies, *step.replies]:
            waiter.set_result(reply)

    def refuse(self, step: Decision[Any], code: ErrorCode) -> None:
        assert step.undo is not None
        for waiter, reply in step.undo(code):
            waiter.set_result(reply)

    def join(self, member_id: str = "", **changes: Any) -> Answer:
        self._ids += 1
        fields: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "reason": "",
            "new_member_id": f"m{self._ids}",
            "must_know_its_id": False,
        }
        answer = Answer()
        self.carry_out(self.group.join(JoinRequest(**{**fields, **changes}), answer, self.now))
        return answer

    def sync(self, member_id: str, generation: int | None = None, **changes: Any) -> Answer:
        fields: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "generation": self.group.generation if generation is None else generation,
            "protocol_type": None,
            "protocol": None,
            "assignments": {},
        }
        answer = Answer()
        self.carry_out(self.group.sync(SyncRequest(**{**fields, **changes}), answer, self.now))
        return answer

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance_id, generation, self.now)

    def leave(self, *leavers: Leaver) -> list[ErrorCode]:
        step, codes = self.group.leave(leavers, self.now)
        self.carry_out(step)
        return codes

    def check_commit(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        return self.group.check_commit(member_id, instance_id, generation, self.now)

    def advance(self, ms: int) -> None:
        """Let time pass, doing what falls due when it falls due."""
        end = self.steady_ms + ms
        while (deadline := self.group.next_deadline_ms()) is not None and deadline <= end:
            self.steady_ms = max(self.steady_ms, deadline)
            self.carry_out(self.group.tick(self.now))
        self.steady_ms = end

    def stable(self, members: int, **changes: Any) -> list[str]:
        """A stable group of so many members, the first of them its leader."""
        joins = [self.join(**changes) for _ in range(members)]
        self.advance(0)
        ids = [join.value.member_id for join in joins]
        followers = [self.sync(member_id) for member_id in ids[1:]]
        leader = self.sync(ids[0], assignments={member_id: member_id.encode() for member_id in ids})
        assert all(answer.code is ErrorCode.NONE for answer in [*followers, leader])
        assert self.group.state is STABLE
        return ids


@pytest.fixture
def driver() -> Driver:
    return Driver()


# Joining


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


# The initial delay


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


# Rebalancing


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


# The assignment


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


# Sessions


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


# Leaving


def test_members_leave_in_a_batch_and_each_is_answered(driver: Driver) -> None:
    ids = driver.stable(3)
    codes = driver.leave(Leaver(ids[1], None, "done"), Leaver("nobody", None, ""), Leaver(ids[1], None, ""))
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert driver.group.state is PREPARING
    assert driver.group.last_rebalance is not None
    assert "done" in driver.group.last_rebalance.reason
    assert driver.group.last_rebalance.kind is CauseKind.LEFT


def test_a_leaver_that_waits_to_join_is_told_that_it_is_gone(driver: Driver) -> None:
    ids = driver.stable(2)
    waiting = driver.join(ids[0])
    driver.leave(Leaver(ids[0], None, ""))
    assert waiting.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_promised_member_can_leave(driver: Driver) -> None:
    ids = driver.stable(1)
    promised = driver.join(must_know_its_id=True).value.member_id
    leader = driver.join(ids[0])
    assert driver.leave(Leaver(promised, None, "")) == [ErrorCode.NONE]
    assert leader.code is ErrorCode.NONE


def test_an_administrator_removes_a_static_member_by_its_instance(driver: Driver) -> None:
    driver.stable(1, instance_id="i")
    assert driver.leave(Leaver("", "other", "")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert driver.leave(Leaver("", None, "")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert driver.leave(Leaver("", "i", "")) == [ErrorCode.NONE]
    assert driver.group.state is EMPTY


def test_the_reason_of_a_rebalance_is_kept_short(driver: Driver) -> None:
    ids = driver.stable(2)
    driver.leave(Leaver(ids[1], None, "x" * 30_000))
    assert driver.group.last_rebalance is not None
    assert len(driver.group.last_rebalance.reason) == 1_000


# Static members


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


# Commits


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


# The end, and the beginning after a restart


def test_a_group_being_deleted_refuses_everything(driver: Driver) -> None:
    driver.group.delete()
    assert driver.group.state is DEAD
    assert driver.join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.sync("m1").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat("m1") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.check_commit("", -1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.leave(Leaver("m1", None, "")) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    driver.group.deletion_refused()
    assert driver.join().code is None


def test_only_an_empty_group_can_be_deleted(driver: Driver) -> None:
    driver.stable(1)
    with pytest.raises(KeyError):
        driver.group.delete()


def test_a_restored_group_goes_on_where_it_was_and_sessions_start_anew(driver: Driver) -> None:
    ids = driver.stable(2)
    again = Driver()
    again.steady_ms = 5_000_000
    again.group = ClassicGroup.restored("g", driver.records[-1].metadata, 0, 1000)
    again.carry_out(again.group.resume(again.now))
    assert (again.group.state, again.group.generation) == (STABLE, 1)
    assert again.group.members.leader == ids[0]
    assert again.sync(ids[1]).value.assignment == ids[1].encode()
    again.advance(SESSION_MS - 1)
    assert again.heartbeat(ids[0]) is ErrorCode.NONE
    again.advance(1)
    assert again.heartbeat(ids[1]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restored_group_over_its_limit_rebalances(driver: Driver) -> None:
    driver.stable(3)
    group = ClassicGroup.restored("g", driver.records[-1].metadata, 0, 2)
    group.resume(driver.now)
    assert group.state is PREPARING


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
