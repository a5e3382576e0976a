"""Offsets committed inside transactions, in a whole coordinator: who may, what is seen when, what a restart finds."""

import asyncio
from typing import Any

import pytest
from tests.unit.groups.asking import (
    DAY_S,
    NOBODY,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    Make,
    commit,
    committed,
    join,
    offset,
    stable,
    sync,
)
from tests.unit.groups.consuming import World, settle

from penstock.config import BrokerConfig
from penstock.coordination import Now
from penstock.errors import ErrorCode, InvalidProducerEpoch, PenstockError, StorageFailed
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.group_shard import GroupShard
from penstock.groups.group_state import COMPLETING, PREPARING
from penstock.groups.member import Leaver
from penstock.groups.offsets import OffsetToCommit
from penstock.records.batch import read_header
from penstock.records.markers import ControlType, Marker

PRODUCER, OTHER_PRODUCER, EPOCH = 7, 8, 0
COMMIT, ABORT = Marker(ControlType.COMMIT, 0), Marker(ControlType.ABORT, 0)


async def send(
    coordinator: GroupCoordinator,
    *offsets: OffsetToCommit,
    by: Any = NOBODY,
    producer_id: int = PRODUCER,
    group_id: str = "g",
) -> list[ErrorCode]:
    return await coordinator.commit_in_transaction(group_id, producer_id, EPOCH, by, offsets)


async def end(coordinator: GroupCoordinator, marker: Marker = COMMIT, producer_id: int = PRODUCER) -> None:
    await coordinator.write_marker(0, marker, producer_id, EPOCH)


def is_unstable(coordinator: GroupCoordinator, partition: int = 0) -> bool:
    return coordinator.is_unstable("g", "orders", partition)


class Unheard:
    """A waiter that nobody answers."""

    def done(self) -> bool:
        return False

    def set_result(self, result: Any, /) -> None:
        raise AssertionError(result)

    def set_exception(self, exception: PenstockError, /) -> None:
        raise exception


async def reloaded(make_coordinator: Make, ledger: Any) -> GroupCoordinator:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    return coordinator


# What is seen, and when


async def test_offsets_are_seen_all_at_once_when_the_marker_is_committed(
    coordinator: GroupCoordinator, ledger: Any
) -> None:
    await commit(coordinator, offset(1), offset(1, partition=1))
    assert await send(coordinator, offset(5), offset(6, partition=1)) == [ErrorCode.NONE] * 2
    assert [committed(coordinator, 0), committed(coordinator, 1)] == [1, 1]
    ledger.held = []
    ending = asyncio.ensure_future(end(coordinator))
    await asyncio.sleep(0)
    assert [committed(coordinator, 0), is_unstable(coordinator)] == [1, True]
    ledger.release()
    await ending
    assert [committed(coordinator, 0), committed(coordinator, 1)] == [5, 6]
    assert not is_unstable(coordinator)


async def test_offsets_of_an_aborted_transaction_are_never_seen(coordinator: GroupCoordinator) -> None:
    await commit(coordinator, offset(1))
    await send(coordinator, offset(5))
    await end(coordinator, ABORT)
    assert [committed(coordinator), is_unstable(coordinator)] == [1, False]


async def test_a_marker_ends_the_transaction_of_its_own_producer_only(coordinator: GroupCoordinator) -> None:
    await send(coordinator, offset(5))
    await send(coordinator, offset(6), producer_id=OTHER_PRODUCER)
    await end(coordinator, ABORT, OTHER_PRODUCER)
    assert [committed(coordinator), is_unstable(coordinator)] == [None, True]
    await end(coordinator)
    assert committed(coordinator) == 5


async def test_one_transaction_may_commit_for_several_groups(coordinator: GroupCoordinator) -> None:
    await send(coordinator, offset(5))
    await send(coordinator, offset(9), group_id="h")
    await end(coordinator)
    found = coordinator.committed_offset("h", "orders", TOPIC_ID, 0)
    assert (committed(coordinator), found and found.offset) == (5, 9)


async def test_a_partition_is_unstable_as_soon_as_the_commit_is_on_its_way(
    coordinator: GroupCoordinator, ledger: Any
) -> None:
    ledger.held = []
    sending = asyncio.ensure_future(send(coordinator, offset(5)))
    await asyncio.sleep(0)
    assert is_unstable(coordinator)
    assert not sending.done()
    ledger.release()
    assert await sending == [ErrorCode.NONE]


async def test_a_marker_that_ends_nothing_is_written_all_the_same(coordinator: GroupCoordinator, ledger: Any) -> None:
    await end(coordinator)
    assert read_header(ledger.batches[-1]).is_control
    assert coordinator.list_groups() == []


async def test_notes_too_long_are_refused_one_by_one(make_coordinator: Make, ledger: Any, settings: Any) -> None:
    settings["offset.metadata.max.bytes"] = "4"
    coordinator = await reloaded(make_coordinator, ledger)
    codes = await send(coordinator, offset(5), offset(6, partition=1, metadata="too long"))
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert [is_unstable(coordinator, 0), is_unstable(coordinator, 1)] == [True, False]
    coordinator.close()


# Where it cannot be


async def test_who_does_not_lead_or_has_not_loaded_the_group_says_so(make_coordinator: Make, ledger: Any) -> None:
    coordinator = make_coordinator()
    for ask in (lambda: send(coordinator, offset(5)), lambda: end(coordinator)):
        with pytest.raises(PenstockError) as failure:
            await ask()
        assert failure.value.code is ErrorCode.NOT_COORDINATOR
    for _ in range(5):
        await ledger.append_marker(COMMIT, PRODUCER, EPOCH)
    loading = asyncio.ensure_future(coordinator.lead(ledger))
    await asyncio.sleep(0)
    for ask in (lambda: send(coordinator, offset(5)), lambda: end(coordinator)):
        with pytest.raises(PenstockError) as failure:
            await ask()
        assert failure.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await loading
    coordinator.close()


async def test_a_transaction_needs_a_group_with_a_name(coordinator: GroupCoordinator) -> None:
    with pytest.raises(PenstockError) as failure:
        await send(coordinator, offset(5), group_id="")
    assert failure.value.code is ErrorCode.INVALID_GROUP_ID


async def test_a_commit_that_the_log_refuses_leaves_nothing_pending(coordinator: GroupCoordinator, ledger: Any) -> None:
    ledger.refusal = InvalidProducerEpoch("a zombie")
    with pytest.raises(InvalidProducerEpoch):
        await send(coordinator, offset(5))
    assert not is_unstable(coordinator)
    ledger.refusal = None
    await end(coordinator)
    assert committed(coordinator) is None
    assert coordinator.list_groups() == []


@pytest.mark.parametrize("is_transactional", [False, True])
def test_refused_commits_of_groups_unheard_of_are_not_remembered(is_transactional: bool) -> None:
    shard = GroupShard(BrokerConfig({}), lambda _: None)
    step = shard.commit("g", NOBODY, [offset(5)], -1, Unheard(), Now(0, 0), is_transactional=is_transactional)
    assert shard._offsets
    assert step.undo is not None
    step.undo(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert not shard._offsets


async def test_a_partition_lost_after_the_append_is_no_longer_answered_for(
    coordinator: GroupCoordinator, ledger: Any, make_coordinator: Make
) -> None:
    ledger.held = []
    sending = asyncio.ensure_future(send(coordinator, offset(5)))
    await asyncio.sleep(0)
    ledger.held[0].set_exception(StorageFailed("fsync"))
    with pytest.raises(PenstockError) as failure:
        await sending
    assert failure.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(PenstockError):
        is_unstable(coordinator)
    # It was written after all, and is pending for whoever leads next.
    ledger.held = None
    after = await reloaded(make_coordinator, ledger)
    assert is_unstable(after)
    after.close()


# Who may commit (KIP-447)


async def test_a_member_commits_in_its_own_generation_only(coordinator: GroupCoordinator) -> None:
    (member,) = await stable(coordinator)
    for by, code in [
        ((member.member_id, None, member.generation), ErrorCode.NONE),
        ((member.member_id, None, member.generation + 1), ErrorCode.ILLEGAL_GENERATION),
        ((member.member_id, None, member.generation - 1), ErrorCode.ILLEGAL_GENERATION),
        ((member.member_id, None, -1), ErrorCode.ILLEGAL_GENERATION),
        (("stranger", None, member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
        (("", None, member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
        ((member.member_id, "nobody's", member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
        # A client from before KIP-447 does not say who it is.
        (NOBODY, ErrorCode.NONE),
    ]:
        assert await send(coordinator, offset(5), by=by) == [code], by


async def test_a_static_member_that_was_replaced_is_fenced(coordinator: GroupCoordinator) -> None:
    first = await join(coordinator, instance_id="i")
    await sync(coordinator, first, {first.member_id: b""})
    second = await join(coordinator, instance_id="i")
    by = (first.member_id, "i", first.generation)
    assert await send(coordinator, offset(5), by=by) == [ErrorCode.FENCED_INSTANCE_ID]
    by = (second.member_id, "i", second.generation)
    assert await send(coordinator, offset(5), by=by) == [ErrorCode.NONE]


async def test_a_generation_of_no_group_is_illegal_and_no_generation_is_not(coordinator: GroupCoordinator) -> None:
    assert await send(coordinator, offset(5), by=("m", None, 3)) == [ErrorCode.ILLEGAL_GENERATION]
    assert coordinator.list_groups() == []
    assert await send(coordinator, offset(5), by=("m", None, -1)) == [ErrorCode.NONE]


async def test_a_transaction_may_commit_while_its_group_rebalances(coordinator: GroupCoordinator) -> None:
    (member,) = await stable(coordinator)
    by = (member.member_id, None, member.generation)
    newcomer = asyncio.ensure_future(join(coordinator))
    await asyncio.sleep(0)
    group = coordinator.find("g")
    assert group is not None
    assert group.state is PREPARING
    assert await send(coordinator, offset(5), by=by) == [ErrorCode.NONE]
    again = await join(coordinator, member_id=member.member_id)
    await newcomer
    assert group.state is COMPLETING
    assert await send(coordinator, offset(6), by=by) == [ErrorCode.ILLEGAL_GENERATION]
    assert await send(coordinator, offset(6), by=(again.member_id, None, again.generation)) == [ErrorCode.NONE]


async def test_a_commit_in_a_transaction_does_not_keep_a_silent_member_in_the_group(
    coordinator: GroupCoordinator,
) -> None:
    (member,) = await stable(coordinator)
    by = (member.member_id, None, member.generation)
    await asyncio.sleep(9)
    assert await send(coordinator, offset(5), by=by) == [ErrorCode.NONE]
    await asyncio.sleep(2)
    assert await send(coordinator, offset(6), by=by) == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_a_member_of_a_consumer_group_commits_in_its_own_epoch_only(clock: Any, ledger: Any) -> None:
    world = World(clock, ledger, {})
    await world.start()
    member = world.client("m")
    await settle(member)
    for by, code in [
        (("m", None, member.epoch), ErrorCode.NONE),
        (("m", None, member.epoch + 1), ErrorCode.STALE_MEMBER_EPOCH),
        (("stranger", None, member.epoch), ErrorCode.UNKNOWN_MEMBER_ID),
        (NOBODY, ErrorCode.NONE),
    ]:
        assert await send(world.coordinator, offset(5), by=by) == [code], by
    await world.restart()
    assert is_unstable(world.coordinator)
    await end(world.coordinator)
    assert committed(world.coordinator) == 5
    world.coordinator.close()


async def test_an_empty_consumer_group_is_deleted_with_its_pending_offsets(clock: Any, ledger: Any) -> None:
    world = World(clock, ledger, {})
    await world.start()
    member = world.client("m")
    await settle(member)
    await send(world.coordinator, offset(5), by=("m", None, member.epoch))
    assert await world.coordinator.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
    await member.leave()
    assert await world.coordinator.delete_group("g") is ErrorCode.NONE
    await end(world.coordinator)
    assert committed(world.coordinator) is None
    await world.restart()
    assert world.coordinator.list_groups() == []
    world.coordinator.close()


# How long a group with pending offsets lasts


async def test_a_group_lasts_as_long_as_its_pending_offsets(coordinator: GroupCoordinator) -> None:
    await send(coordinator, offset(5))
    assert [group.group_id for group in coordinator.list_groups()] == ["g"]
    await asyncio.sleep(30 * DAY_S)
    assert is_unstable(coordinator)
    await end(coordinator, ABORT)
    assert coordinator.list_groups() == []


async def test_members_may_leave_a_group_with_pending_offsets(coordinator: GroupCoordinator) -> None:
    (member,) = await stable(coordinator)
    await send(coordinator, offset(5), by=(member.member_id, None, member.generation))
    await coordinator.leave("g", [Leaver(member.member_id, None, "")])
    await asyncio.sleep(30 * DAY_S)
    await end(coordinator)
    assert committed(coordinator) == 5


async def test_a_consumer_group_without_members_lasts_as_long_as_its_pending_offsets(clock: Any, ledger: Any) -> None:
    world = World(clock, ledger, {})
    await world.start()
    member = world.client("m")
    await settle(member)
    await send(world.coordinator, offset(5), by=("m", None, member.epoch))
    await member.leave()
    await asyncio.sleep(30 * DAY_S)
    await end(world.coordinator)
    assert committed(world.coordinator) == 5
    await asyncio.sleep(30 * DAY_S)
    assert committed(world.coordinator) is None
    assert world.coordinator.list_groups() == []
    world.coordinator.close()


async def test_a_committed_offset_does_not_expire_under_an_open_transaction(coordinator: GroupCoordinator) -> None:
    await commit(coordinator, offset(1))
    await send(coordinator, offset(5))
    await asyncio.sleep(30 * DAY_S)
    assert committed(coordinator) == 1
    await end(coordinator, ABORT)
    await asyncio.sleep(DAY_S)
    assert committed(coordinator) is None
    assert coordinator.list_groups() == []


async def test_deleting_a_group_drops_its_pending_offsets(
    coordinator: GroupCoordinator, ledger: Any, make_coordinator: Make
) -> None:
    await commit(coordinator, offset(1, partition=1))
    await send(coordinator, offset(5))
    assert await coordinator.delete_group("g") is ErrorCode.NONE
    assert not is_unstable(coordinator)
    await end(coordinator)
    for each in (coordinator, await reloaded(make_coordinator, ledger)):
        assert [committed(each, 0), committed(each, 1)] == [None, None]
        assert each.list_groups() == []
        each.close()


async def test_deleting_an_offset_drops_what_is_pending_for_it(coordinator: GroupCoordinator) -> None:
    await send(coordinator, offset(5), offset(6, partition=1))
    assert await coordinator.delete_offsets("g", [("orders", 0)]) == (ErrorCode.NONE, [ErrorCode.NONE])
    assert [is_unstable(coordinator, 0), is_unstable(coordinator, 1)] == [False, True]
    await end(coordinator)
    assert [committed(coordinator, 0), committed(coordinator, 1)] == [None, 6]


async def test_a_deleted_topic_takes_its_pending_offsets_with_it(coordinator: GroupCoordinator) -> None:
    await send(coordinator, offset(5), offset(6, partition=1, topic_id=OTHER_TOPIC_ID))
    coordinator.topic_deleted("orders", TOPIC_ID)
    await asyncio.sleep(0)
    await end(coordinator)
    assert committed(coordinator, 0) is None
    assert committed(coordinator, 1, OTHER_TOPIC_ID) == 6


# What a restart finds


@pytest.mark.parametrize(("marker", "expected"), [(COMMIT, 5), (ABORT, 1), (None, 1)])
async def test_a_restart_finds_transactions_as_they_were(
    coordinator: GroupCoordinator, ledger: Any, make_coordinator: Make, marker: Marker | None, expected: int
) -> None:
    await commit(coordinator, offset(1))
    await send(coordinator, offset(5))
    await commit(coordinator, offset(2, partition=1))
    if marker is not None:
        await end(coordinator, marker)
    after = await reloaded(make_coordinator, ledger)
    assert [committed(after, 0), committed(after, 1)] == [expected, 2]
    assert is_unstable(after) is (marker is None)
    await end(after)
    assert committed(after) == (5 if marker is None else expected)
    after.close()


async def test_a_group_known_by_a_pending_offset_alone_survives_a_restart(
    coordinator: GroupCoordinator, ledger: Any, make_coordinator: Make
) -> None:
    await send(coordinator, offset(5))
    after = await reloaded(make_coordinator, ledger)
    assert [group.group_id for group in after.list_groups()] == ["g"]
    await end(after, ABORT)
    for each in (after, await reloaded(make_coordinator, ledger)):
        assert each.list_groups() == []
        each.close()


async def test_a_later_commit_outlives_an_earlier_transaction_also_after_a_restart(
    coordinator: GroupCoordinator, ledger: Any, make_coordinator: Make
) -> None:
    await send(coordinator, offset(5))
    await commit(coordinator, offset(9))
    await end(coordinator)
    for each in (coordinator, await reloaded(make_coordinator, ledger)):
        assert committed(each) == 9
        each.close()
