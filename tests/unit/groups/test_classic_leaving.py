"""Members that leave a classic group, or are made to: what each leaver is told, and what the others learn."""

from tests.unit.groups.driving import Driver

from penstock.errors import ErrorCode
from penstock.groups.group_state import EMPTY, PREPARING
from penstock.groups.member import Leaver
from penstock.groups.rebalance_cause import CauseKind


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
