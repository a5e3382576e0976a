"""Groups and offsets that are deleted: by request, or with their topic; what is in use stays."""

import asyncio
from typing import Any

import pytest
from tests.unit.groups.asking import NOBODY, OTHER_TOPIC_ID, TOPIC_ID, Make, commit, committed, join, offset, stable

from penstock.errors import ErrorCode, NotLeaderOrFollower, PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.member import Leaver
from penstock.records.batch import read_header


async def test_offsets_go_with_their_topic(make_coordinator: Make, coordinator: GroupCoordinator, ledger: Any) -> None:
    await commit(coordinator, offset(5), offset(6, topic="payments", topic_id=OTHER_TOPIC_ID))
    await coordinator.commit_offsets("other", NOBODY, [offset(7)])
    coordinator.topic_deleted("orders", TOPIC_ID)
    await asyncio.sleep(0.01)
    for each in (coordinator, make_coordinator()):
        if each is not coordinator:
            await each.lead(ledger)
        assert [topic for topic, _, _ in each.committed_offsets("g")] == ["payments"]
        assert each.find("other") is None


async def test_offsets_are_deleted_unless_a_member_uses_the_topic(coordinator: GroupCoordinator, ledger: Any) -> None:
    await commit(coordinator, offset(5), offset(6, topic="payments"))
    await stable(coordinator)
    reply = await coordinator.delete_offsets("g", [("orders", 0), ("payments", 0), ("payments", 9)])
    assert reply == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE])
    # One tombstone: what was never there needs none.
    assert read_header(ledger.batches[-1]).record_count == 1
    assert [topic for topic, _, _ in coordinator.committed_offsets("g")] == ["orders"]


async def test_offsets_of_a_living_group_that_is_no_consumers_cannot_be_deleted(coordinator: GroupCoordinator) -> None:
    await join(coordinator, protocol_type="connect")
    assert await coordinator.delete_offsets("g", [("orders", 0)]) == (ErrorCode.NON_EMPTY_GROUP, [])


async def test_an_empty_group_is_deleted_with_all_its_offsets(
    make_coordinator: Make, coordinator: GroupCoordinator, ledger: Any
) -> None:
    (joined,) = await stable(coordinator)
    await commit(coordinator, offset(5), by=(joined.member_id, None, 1))
    assert await coordinator.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
    await coordinator.leave("g", [Leaver(joined.member_id, None, "")])
    assert await coordinator.delete_group("g") is ErrorCode.NONE
    after = make_coordinator()
    await after.lead(ledger)
    for each in (coordinator, after):
        assert each.find("g") is None
        assert each.committed_offsets("g") == []


async def test_a_deletion_takes_commits_with_it_that_are_still_under_way(
    make_coordinator: Make, coordinator: GroupCoordinator, ledger: Any
) -> None:
    await commit(coordinator, offset(1, 0))
    ledger.held = []
    committing = asyncio.ensure_future(commit(coordinator, offset(2, 1)))
    await asyncio.sleep(0)
    deleting = asyncio.create_task(coordinator.delete_group("g"))
    await asyncio.sleep(0)
    assert (await join(coordinator)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    ledger.release()
    assert (await committing, await deleting) == ([ErrorCode.NONE], ErrorCode.NONE)
    after = make_coordinator()
    await after.lead(ledger)
    for each in (coordinator, after):
        assert each.find("g") is None
        assert each.committed_offsets("g") == []


async def test_a_deletion_the_log_refuses_leaves_the_group_as_it_was(
    coordinator: GroupCoordinator, ledger: Any
) -> None:
    await commit(coordinator, offset(1))
    ledger.refusal = NotLeaderOrFollower("not now")
    with pytest.raises(PenstockError):
        await coordinator.delete_group("g")
    ledger.refusal = None
    assert committed(coordinator) == 1
    assert await coordinator.delete_group("g") is ErrorCode.NONE
