"""A classic group as a whole: its end when it is deleted, and its beginning after a restart."""

import pytest
from tests.unit.groups.driving import SESSION_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.group_state import DEAD, PREPARING, STABLE
from penstock.groups.member import Leaver


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
