"""Members of classic groups in a whole coordinator: they join, sync, beat and fall silent, in virtual time."""

import asyncio
from typing import Any

import pytest
from tests.unit.groups.asking import SESSION_MS, beats, join, stable, sync

from penstock.errors import ErrorCode
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.group_state import EMPTY


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
async def test_a_session_time_out_out_of_bounds_is_refused(
    coordinator: GroupCoordinator, session_timeout_ms: int
) -> None:
    reply = await join(coordinator, session_timeout_ms=session_timeout_ms)
    assert reply.code is ErrorCode.INVALID_SESSION_TIMEOUT


async def test_members_join_sync_and_heartbeat(coordinator: GroupCoordinator) -> None:
    joined = await stable(coordinator, 3)
    assert {reply.generation for reply in joined} == {1}
    assert len({reply.leader for reply in joined}) == 1
    assert all(beats(coordinator, reply) is ErrorCode.NONE for reply in joined)


async def test_a_member_id_begins_with_the_name_of_the_client_or_the_instance(coordinator: GroupCoordinator) -> None:
    assert coordinator.new_member_id("my-client", None).startswith("my-client-")
    assert coordinator.new_member_id("my-client", "instance").startswith("instance-")
    assert len(coordinator.new_member_id("x" * 30_000, None)) < 300


async def test_a_member_falls_silent_and_the_other_is_told_to_rejoin(coordinator: GroupCoordinator) -> None:
    alive, silent = await stable(coordinator, 2)
    for _ in range(9):
        await asyncio.sleep(1)
        assert beats(coordinator, alive) is ErrorCode.NONE
    await asyncio.sleep(1.01)
    assert beats(coordinator, alive) is ErrorCode.REBALANCE_IN_PROGRESS
    assert beats(coordinator, silent) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_all_members_fall_silent_and_the_group_is_empty(coordinator: GroupCoordinator) -> None:
    await stable(coordinator, 2)
    await asyncio.sleep(SESSION_MS / 1000 + 0.01)
    group = coordinator.find("g")
    assert group is not None
    assert group.state is EMPTY
    assert coordinator.groups_by_state() == {"Empty": 1}


async def test_a_slow_member_holds_a_rebalance_up_no_longer_than_its_time_out(coordinator: GroupCoordinator) -> None:
    first, second = await stable(coordinator, 2)
    rejoining = asyncio.create_task(join(coordinator, member_id=first.member_id, rebalance_timeout_ms=60_000))
    for _ in range(59):
        await asyncio.sleep(1)
        coordinator.heartbeat("g", second.member_id, None, 1)
    assert not rejoining.done()
    await asyncio.sleep(1.01)
    reply = await rejoining
    assert (reply.generation, len(reply.members)) == (2, 1)


async def test_the_session_of_a_lone_member_runs_from_its_assignment_on(
    coordinator: GroupCoordinator, ledger: Any
) -> None:
    joined = await join(coordinator)
    ledger.held = []
    syncing = asyncio.create_task(sync(coordinator, joined))
    await asyncio.sleep(2)
    ledger.release()
    await syncing
    await asyncio.sleep(SESSION_MS / 1000 + 0.01)
    # Nobody but the timer set when the record was committed could have seen to this.
    assert coordinator.groups_by_state() == {"Empty": 1}


async def test_a_client_that_hung_up_while_it_waited_disturbs_nobody(coordinator: GroupCoordinator) -> None:
    (first,) = await stable(coordinator)
    waiting = asyncio.create_task(join(coordinator))
    await asyncio.sleep(0)
    waiting.cancel()
    again = await join(coordinator, member_id=first.member_id)
    assert len(again.members) == 2


async def test_a_deadline_that_comes_before_all_others_is_kept(coordinator: GroupCoordinator) -> None:
    first, second = await asyncio.gather(*(join(coordinator, session_timeout_ms=1_800_000) for _ in range(2)))
    await asyncio.gather(sync(coordinator, first), sync(coordinator, second))
    await asyncio.sleep(100)
    rejoining = asyncio.create_task(join(coordinator, member_id=first.member_id))
    await asyncio.sleep(61)
    assert rejoining.done()


async def test_huge_metadata_is_refused(coordinator: GroupCoordinator) -> None:
    reply = await join(coordinator, protocols=(("range", b"x" * 600_000), ("sticky", b"x" * 600_000)))
    assert reply.code is ErrorCode.INVALID_REQUEST
