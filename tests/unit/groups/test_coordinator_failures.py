"""A log that refuses, stalls or breaks, and a partition that is lost: what those who wait for it are told."""

import asyncio
from typing import Any

import pytest
from tests.unit.groups.asking import beats, commit, committed, join, offset, stable, sync

from penstock.errors import ErrorCode, MessageTooLarge, PenstockError, StorageFailed
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.group_state import EMPTY, PREPARING


async def test_an_assignment_the_log_refuses_sends_the_members_back_and_time_goes_on(
    coordinator: GroupCoordinator, ledger: Any
) -> None:
    joined = await join(coordinator)
    ledger.refusal = MessageTooLarge("too large")
    assert (await sync(coordinator, joined)).code is ErrorCode.MESSAGE_TOO_LARGE
    group = coordinator.find("g")
    assert group is not None
    assert group.state is PREPARING
    ledger.refusal = None
    await asyncio.sleep(60.01)
    assert group.state is EMPTY


async def test_waiting_for_a_commit_that_does_not_come_costs_one_timer(
    coordinator: GroupCoordinator, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.held = []
    with pytest.raises(PenstockError) as failure:
        await commit(coordinator, offset(1))
    assert failure.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    monkeypatch.setattr("penstock.coordination.shard.call_at", None)
    await asyncio.sleep(100)
    ledger.release()
    await asyncio.sleep(0.01)
    assert committed(coordinator) == 1


async def test_losing_the_partition_tells_everyone_who_waits(coordinator: GroupCoordinator, ledger: Any) -> None:
    (first,) = await stable(coordinator)
    joining = asyncio.create_task(join(coordinator))
    await asyncio.sleep(0)
    ledger.held = []
    committing = asyncio.ensure_future(commit(coordinator, offset(1), by=(first.member_id, None, 1)))
    await asyncio.sleep(0)
    coordinator.resign(0)
    for waiting in (joining, committing):
        with pytest.raises(PenstockError) as failure:
            await waiting
        assert failure.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(PenstockError):
        beats(coordinator, first)


async def test_a_failed_fsync_takes_the_partition_out_of_service(coordinator: GroupCoordinator, ledger: Any) -> None:
    (first,) = await stable(coordinator)
    joining = asyncio.create_task(join(coordinator))
    await asyncio.sleep(0)
    ledger.held = []
    committing = asyncio.ensure_future(commit(coordinator, offset(1), by=(first.member_id, None, 1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ledger.held[0].set_exception(StorageFailed("fsync"))
    for waiting in (joining, committing):
        with pytest.raises(PenstockError) as failure:
            await waiting
        assert failure.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(PenstockError):
        coordinator.find("g")


async def test_leading_anew_tells_those_who_waited_before(coordinator: GroupCoordinator, ledger: Any) -> None:
    await stable(coordinator)
    joining = asyncio.create_task(join(coordinator))
    await asyncio.sleep(0)
    await coordinator.lead(ledger)
    with pytest.raises(PenstockError) as failure:
        await joining
    assert failure.value.code is ErrorCode.NOT_COORDINATOR
