"""Groups a coordinator loads from the log: who waits for it, and what one started after another finds."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.groups.asking import SESSION_MS, Make, beats, commit, committed, join, offset, stable, sync

from penstock.errors import ErrorCode, PenstockError, StorageFailed
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.group_state import COMPLETING, EMPTY, STABLE
from penstock.groups.member import Leaver


async def test_requests_wait_until_the_groups_are_loaded(make_coordinator: Make, ledger: Any) -> None:
    before = make_coordinator()
    await before.lead(ledger)
    await stable(before)
    coordinator = make_coordinator()
    loading = asyncio.create_task(coordinator.lead(ledger))
    await asyncio.sleep(0)
    for ask in (lambda: coordinator.find("g"), coordinator.list_groups, lambda: committed(coordinator)):
        with pytest.raises(PenstockError) as failure:
            ask()
        assert failure.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await loading
    assert coordinator.find("g") is not None


async def test_a_partition_that_cannot_be_read_is_not_served(make_coordinator: Make, ledger: Any) -> None:
    async def broken() -> AsyncIterator[Any]:
        raise StorageFailed("unreadable")
        yield

    ledger.read_all = broken
    coordinator = make_coordinator()
    with pytest.raises(StorageFailed):
        await coordinator.lead(ledger)
    with pytest.raises(PenstockError) as failure:
        coordinator.find("g")
    assert failure.value.code is ErrorCode.NOT_COORDINATOR


async def test_leading_anew_in_the_middle_of_a_load_serves_the_second_load(make_coordinator: Make, ledger: Any) -> None:
    before = make_coordinator()
    await before.lead(ledger)
    await stable(before)
    coordinator = make_coordinator()
    first = asyncio.create_task(coordinator.lead(ledger))
    await asyncio.sleep(0)
    await coordinator.lead(ledger)
    await first
    group = coordinator.find("g")
    assert group is not None
    assert group.state is STABLE
    await asyncio.sleep(SESSION_MS / 1000 + 0.01)
    assert group.state is EMPTY


async def test_a_group_goes_on_after_a_restart_as_if_nothing_had_been(
    make_coordinator: Make, coordinator: GroupCoordinator, ledger: Any
) -> None:
    for reply in await stable(coordinator, 2):
        await coordinator.leave("g", [Leaver(reply.member_id, None, "")])
    joined = await stable(coordinator, 3)
    generation = joined[0].generation
    await commit(coordinator, offset(5), by=(joined[0].member_id, None, generation))
    coordinator.close()
    after = make_coordinator()
    await after.lead(ledger)
    group = after.find("g")
    assert group is not None
    assert (group.state, group.generation, group.protocol) == (STABLE, generation, "range")
    for reply in joined:
        assert beats(after, reply) is ErrorCode.NONE
        assert (await sync(after, reply)).assignment == reply.member_id.encode()
    assert committed(after) == 5
    # Sessions run from the load on: silence before it is not held against anybody, silence after it is.
    await asyncio.sleep(SESSION_MS / 1000 + 0.01)
    assert after.groups_by_state() == {"Empty": 1}


async def test_a_rebalance_cut_off_by_a_crash_leaves_the_generation_before(
    make_coordinator: Make, coordinator: GroupCoordinator, ledger: Any
) -> None:
    first, second = await stable(coordinator, 2)
    rejoining = asyncio.create_task(join(coordinator, member_id=first.member_id))
    await asyncio.sleep(0)
    await asyncio.gather(rejoining, join(coordinator, member_id=second.member_id))
    group = coordinator.find("g")
    assert group is not None
    assert (group.state, group.generation) == (COMPLETING, 2)
    after = make_coordinator()
    await after.lead(ledger)
    assert after.heartbeat("g", first.member_id, None, 2) is ErrorCode.ILLEGAL_GENERATION
    assert after.heartbeat("g", first.member_id, None, 1) is ErrorCode.NONE
