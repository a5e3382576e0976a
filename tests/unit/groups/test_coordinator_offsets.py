"""Offsets committed to a whole coordinator: when they are seen, whose are taken, and to which topic they belong."""

import asyncio
from typing import Any

from tests.unit.groups.asking import NOBODY, OTHER_TOPIC_ID, TOPIC_ID, commit, committed, join, offset, stable

from penstock.errors import ErrorCode
from penstock.groups.coordinator import GroupCoordinator
from penstock.model import NO_TOPIC_ID
from penstock.records.batch import read_header


async def test_a_commit_is_seen_once_it_is_committed_and_not_before(coordinator: GroupCoordinator, ledger: Any) -> None:
    ledger.held = []
    committing = asyncio.ensure_future(commit(coordinator, offset(5)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(ledger.held) == 1
    assert committed(coordinator) is None
    ledger.release()
    assert await committing == [ErrorCode.NONE]
    assert committed(coordinator) == 5


async def test_commits_of_one_turn_share_a_batch(coordinator: GroupCoordinator, ledger: Any) -> None:
    await asyncio.gather(*(coordinator.commit_offsets(f"g{n}", NOBODY, [offset(n)]) for n in range(10)))
    assert [read_header(batch).record_count for batch in ledger.batches] == [10]


async def test_all_that_was_committed_comes_back(coordinator: GroupCoordinator, clock: Any) -> None:
    await commit(coordinator, offset(5))
    found = coordinator.committed_offset("g", "orders", TOPIC_ID, 0)
    assert found is not None
    assert (found.offset, found.leader_epoch, found.metadata, found.commit_ms) == (5, 1, "note", clock.now_ms())
    assert coordinator.committed_offsets("g") == [("orders", 0, found)]
    assert list(coordinator.all_committed_offsets()) == [("g", "orders", 0, found)]


async def test_metadata_past_the_limit_fails_alone(coordinator: GroupCoordinator) -> None:
    codes = await commit(
        coordinator, offset(1, 0), offset(2, 1, metadata="x" * 4097), offset(3, 2, metadata="x" * 4096)
    )
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert [committed(coordinator, partition) for partition in range(3)] == [1, None, 3]


async def test_a_partition_committed_twice_in_one_request_keeps_the_last(coordinator: GroupCoordinator) -> None:
    assert await commit(coordinator, offset(1), offset(2)) == [ErrorCode.NONE] * 2
    assert committed(coordinator) == 2


async def test_a_commit_of_nothing_is_answered_and_leaves_no_group(coordinator: GroupCoordinator) -> None:
    assert await commit(coordinator) == []
    assert coordinator.find("g") is None


async def test_a_stale_member_cannot_commit(coordinator: GroupCoordinator) -> None:
    first, second = await stable(coordinator, 2)
    member = (second.member_id, None, 1)
    assert await commit(coordinator, offset(1), by=member) == [ErrorCode.NONE]
    rejoining = asyncio.create_task(join(coordinator, member_id=first.member_id))
    await asyncio.sleep(0)
    assert await commit(coordinator, offset(2), by=member) == [ErrorCode.NONE]
    again = asyncio.create_task(join(coordinator, member_id=second.member_id))
    await rejoining
    assert await commit(coordinator, offset(3), by=member) == [ErrorCode.ILLEGAL_GENERATION]
    current = ((await again).member_id, None, 2)
    assert await commit(coordinator, offset(4), by=current) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert committed(coordinator) == 2


async def test_a_topic_made_anew_does_not_inherit_offsets(coordinator: GroupCoordinator) -> None:
    await commit(coordinator, offset(5))
    assert committed(coordinator, topic_id=OTHER_TOPIC_ID) is None
    await commit(coordinator, offset(1, topic_id=OTHER_TOPIC_ID))
    coordinator.topic_deleted("orders", TOPIC_ID)
    await asyncio.sleep(0.01)
    assert committed(coordinator, topic_id=OTHER_TOPIC_ID) == 1


async def test_an_offset_of_unknown_topic_id_is_found_by_name(coordinator: GroupCoordinator) -> None:
    await commit(coordinator, offset(5, topic_id=NO_TOPIC_ID))
    assert committed(coordinator) == 5
