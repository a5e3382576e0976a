"""What ends by itself in a coordinator: groups that nobody came back to, offsets past their retention time."""

import asyncio
from typing import Any

import pytest
from tests.unit.groups.asking import (
    DAY_S,
    NOBODY,
    SESSION_MS,
    Make,
    beats,
    commit,
    committed,
    join,
    offset,
    stable,
    sync,
)

from penstock.errors import ErrorCode, NotLeaderOrFollower, PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.member import Leaver


async def test_a_group_nobody_came_back_to_is_forgotten(coordinator: GroupCoordinator) -> None:
    reply = await join(coordinator, must_know_its_id=True)
    assert reply.code is ErrorCode.MEMBER_ID_REQUIRED
    assert coordinator.find("g") is not None
    await asyncio.sleep(SESSION_MS / 1000 + 0.01)
    assert coordinator.find("g") is None


async def test_a_refused_first_member_leaves_no_group_behind(coordinator: GroupCoordinator) -> None:
    reply = await join(coordinator, protocols=())
    assert reply.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.find("g") is None


async def test_a_group_that_had_a_generation_is_not_forgotten_with_its_last_member(
    coordinator: GroupCoordinator,
) -> None:
    (joined,) = await stable(coordinator)
    await coordinator.leave("g", [Leaver(joined.member_id, None, "")])
    assert (await join(coordinator)).generation == 3


async def test_a_group_goes_on_counting_while_the_record_that_it_is_empty_is_under_way(
    coordinator: GroupCoordinator, ledger: Any
) -> None:
    (joined,) = await stable(coordinator)
    ledger.held = []
    leaving = asyncio.create_task(coordinator.leave("g", [Leaver(joined.member_id, None, "")]))
    await asyncio.sleep(0)
    assert (await join(coordinator)).generation == 3
    ledger.release()
    assert await leaving == [ErrorCode.NONE]


async def test_a_group_without_offsets_lives_as_long_as_its_members(coordinator: GroupCoordinator) -> None:
    joined = await join(coordinator, session_timeout_ms=1_800_000)
    await sync(coordinator, joined)
    await asyncio.sleep(1_300)
    assert beats(coordinator, joined) is ErrorCode.NONE


async def test_a_group_is_not_swept_away_from_under_a_member_about_to_join(coordinator: GroupCoordinator) -> None:
    (joined,) = await stable(coordinator)
    await coordinator.leave("g", [Leaver(joined.member_id, None, "")])
    await asyncio.sleep(599)
    promised = await join(coordinator, must_know_its_id=True)
    await asyncio.sleep(2)
    assert (await join(coordinator, member_id=promised.member_id)).code is ErrorCode.NONE


async def test_offsets_outlive_the_last_member_by_the_retention_time(coordinator: GroupCoordinator) -> None:
    joined = await join(coordinator, session_timeout_ms=1_800_000)
    await sync(coordinator, joined)
    await commit(coordinator, offset(5), by=(joined.member_id, None, 1))
    for _ in range(9 * DAY_S // 1_000):
        await asyncio.sleep(1_000)
        assert beats(coordinator, joined) is ErrorCode.NONE
    await coordinator.leave("g", [Leaver(joined.member_id, None, "")])
    await asyncio.sleep(7 * DAY_S - 601)
    assert committed(coordinator) == 5
    await asyncio.sleep(1300)
    assert committed(coordinator) is None
    assert coordinator.find("g") is None


async def test_offsets_of_a_group_without_members_expire_by_commit(coordinator: GroupCoordinator) -> None:
    await commit(coordinator, offset(1, 0), offset(1, 1))
    await asyncio.sleep(6 * DAY_S)
    await commit(coordinator, offset(2, 1))
    await asyncio.sleep(2 * DAY_S)
    assert (committed(coordinator, 0), committed(coordinator, 1)) == (None, 2)


async def test_a_commit_the_log_refused_does_not_keep_the_one_before_for_ever(
    coordinator: GroupCoordinator, ledger: Any
) -> None:
    await commit(coordinator, offset(1))
    ledger.refusal = NotLeaderOrFollower("not now")
    with pytest.raises(PenstockError):
        await commit(coordinator, offset(2))
    ledger.refusal = None
    assert committed(coordinator) == 1
    await asyncio.sleep(7 * DAY_S + 1)
    assert committed(coordinator) is None


async def test_an_old_client_says_itself_how_long_its_offset_is_kept(coordinator: GroupCoordinator) -> None:
    await coordinator.commit_offsets("g", NOBODY, [offset(1)], retention_ms=700_000)
    await asyncio.sleep(601)
    assert committed(coordinator) == 1
    await asyncio.sleep(600)
    assert committed(coordinator) is None


async def test_nothing_expires_right_after_a_load(make_coordinator: Make, ledger: Any) -> None:
    before = make_coordinator()
    await before.lead(ledger)
    (joined,) = await stable(before)
    await commit(before, offset(5), by=(joined.member_id, None, 1))
    before.close()
    await asyncio.sleep(30 * DAY_S)
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    # Its member may be there still; if not, the group becomes empty now, and retention runs from now.
    await asyncio.sleep(6 * DAY_S)
    assert committed(coordinator) == 5
    await asyncio.sleep(2 * DAY_S)
    assert committed(coordinator) is None


async def test_many_groups_are_swept_a_part_each_turn(
    coordinator: GroupCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.groups.coordinator.SWEEP_GROUPS_PER_TURN", 3)
    await asyncio.gather(*(coordinator.commit_offsets(f"g{n}", NOBODY, [offset(n)]) for n in range(10)))
    await asyncio.sleep(7 * DAY_S + 1)
    assert coordinator.groups_by_state() == {}
