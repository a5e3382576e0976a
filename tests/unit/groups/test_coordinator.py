"""The coordinator whole: real shards on a ledger in memory, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, MessageTooLarge, NotLeaderOrFollower, PenstockError, StorageFailed
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.group_state import COMPLETING, EMPTY, PREPARING, STABLE
from penstock.groups.member import JoinReply, JoinRequest, Leaver, SyncReply, SyncRequest
from penstock.groups.offsets import OffsetToCommit
from penstock.model import NO_TOPIC_ID
from penstock.records.batch import read_header

SESSION_MS = 10_000
TOPIC_ID = UUID("8f0f5f62-7a54-4d3e-9c1f-0d3a3b2c1d0e")
OTHER_TOPIC_ID = UUID("1c2d3e4f-7a54-4d3e-9c1f-0d3a3b2c1d0e")
NOBODY = ("", None, -1)
DAY_S = 86_400

Make = Callable[[], GroupCoordinator]


def join_request(coordinator: GroupCoordinator, **changes: Any) -> JoinRequest:
    fields: dict[str, Any] = {
        "member_id": "",
        "instance_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (("range", b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"),),
        "reason": "",
        "new_member_id": coordinator.new_member_id("client", changes.get("instance_id")),
        "must_know_its_id": False,
    }
    return JoinRequest(**{**fields, **changes})


async def join(coordinator: GroupCoordinator, group_id: str = "g", **changes: Any) -> JoinReply:
    return await coordinator.join(group_id, join_request(coordinator, **changes))


async def sync(
    coordinator: GroupCoordinator, joined: JoinReply, assignments: dict[str, bytes] | None = None, group_id: str = "g"
) -> SyncReply:
    return await coordinator.sync(
        group_id,
        SyncRequest(
            member_id=joined.member_id,
            instance_id=None,
            generation=joined.generation,
            protocol_type="consumer",
            protocol="range",
            assignments=assignments or {},
        ),
    )


async def stable(coordinator: GroupCoordinator, members: int = 1, group_id: str = "g") -> list[JoinReply]:
    joined = await asyncio.gather(*(join(coordinator, group_id) for _ in range(members)))
    assignments = {reply.member_id: reply.member_id.encode() for reply in joined}
    synced = await asyncio.gather(*(sync(coordinator, reply, assignments, group_id) for reply in joined))
    assert [reply.assignment for reply in synced] == list(assignments.values())
    return joined


def offset(value: int, partition: int = 0, topic: str = "orders", **changes: Any) -> OffsetToCommit:
    return OffsetToCommit(topic, TOPIC_ID, partition, value, 1, "note")._replace(**changes)


async def commit(coordinator: GroupCoordinator, *offsets: OffsetToCommit, by: Any = NOBODY) -> list[ErrorCode]:
    return await coordinator.commit_offsets("g", by, offsets)


def committed(coordinator: GroupCoordinator, partition: int = 0, topic_id: UUID = TOPIC_ID) -> int | None:
    found = coordinator.committed_offset("g", "orders", topic_id, partition)
    return None if found is None else found.offset


def beats(coordinator: GroupCoordinator, joined: JoinReply) -> ErrorCode:
    return coordinator.heartbeat("g", joined.member_id, None, joined.generation)


# Where a group is kept


@pytest.mark.parametrize(
    ("group_id", "partition"),
    # Hashes as Java documents and people quote them; the last is the one int that has no absolute value.
    [
        ("", 0),
        ("a", 97 % 50),
        ("hello", 99162322 % 50),
        ("The quick brown fox jumps over the lazy dog", 609428141 % 50),
        ("\N{GRINNING FACE}", (0xD83D * 31 + 0xDE00) % 50),
        ("polygenelubricants", 0),
    ],
)
def test_a_group_is_kept_where_kafka_would_keep_it(make_coordinator: Make, group_id: str, partition: int) -> None:
    coordinator = make_coordinator()
    coordinator.partition_count = 50
    assert coordinator.partition_of(group_id) == partition


async def test_a_group_that_is_led_elsewhere_is_refused(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    with pytest.raises(PenstockError) as failure:
        await join(coordinator)
    assert failure.value.code is ErrorCode.NOT_COORDINATOR


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


async def test_a_group_without_a_name_is_no_group(coordinator: GroupCoordinator) -> None:
    async def heartbeat() -> ErrorCode:
        return coordinator.heartbeat("", "m", None, 1)

    calls = [join(coordinator, ""), heartbeat(), coordinator.leave("", []), coordinator.delete_offsets("", [])]
    for call in calls:
        with pytest.raises(PenstockError) as failure:
            await call
        assert failure.value.code is ErrorCode.INVALID_GROUP_ID


async def test_offsets_may_be_kept_under_no_name(coordinator: GroupCoordinator) -> None:
    assert await coordinator.commit_offsets("", NOBODY, [offset(5)]) == [ErrorCode.NONE]
    found = coordinator.committed_offset("", "orders", TOPIC_ID, 0)
    assert found is not None


# Members


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


async def test_a_deadline_that_comes_before_all_others_is_kept(coordinator: GroupCoordinator) -> None:
    first, second = await asyncio.gather(*(join(coordinator, session_timeout_ms=1_800_000) for _ in range(2)))
    await asyncio.gather(sync(coordinator, first), sync(coordinator, second))
    await asyncio.sleep(100)
    rejoining = asyncio.create_task(join(coordinator, member_id=first.member_id))
    await asyncio.sleep(61)
    assert rejoining.done()


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


async def test_huge_metadata_is_refused(coordinator: GroupCoordinator) -> None:
    reply = await join(coordinator, protocols=(("range", b"x" * 600_000), ("sticky", b"x" * 600_000)))
    assert reply.code is ErrorCode.INVALID_REQUEST


async def test_the_number_of_groups_is_limited(coordinator: GroupCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.groups.group_shard.GROUPS_MAX", 2)
    await stable(coordinator, group_id="a")
    await coordinator.commit_offsets("b", NOBODY, [offset(1)])
    assert (await join(coordinator, "c")).code is ErrorCode.POLICY_VIOLATION
    assert await coordinator.commit_offsets("c", NOBODY, [offset(1)]) == [ErrorCode.POLICY_VIOLATION]
    assert await coordinator.commit_offsets("b", NOBODY, [offset(2)]) == [ErrorCode.NONE]


async def test_requests_to_an_unknown_group_are_refused(coordinator: GroupCoordinator) -> None:
    nobody = JoinReply(ErrorCode.NONE, "m", 1)
    assert (await join(coordinator, member_id="m")).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await sync(coordinator, nobody)).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert beats(coordinator, nobody) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await coordinator.leave("g", [Leaver("m", None, "")]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await commit(coordinator, offset(1), by=("m", None, 1)) == [ErrorCode.ILLEGAL_GENERATION]
    assert await coordinator.delete_group("g") is ErrorCode.GROUP_ID_NOT_FOUND
    assert await coordinator.delete_offsets("g", [("orders", 0)]) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert coordinator.groups_by_state() == {}


# Failures of the log


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


async def test_leading_anew_tells_those_who_waited_before(coordinator: GroupCoordinator, ledger: Any) -> None:
    await stable(coordinator)
    joining = asyncio.create_task(join(coordinator))
    await asyncio.sleep(0)
    await coordinator.lead(ledger)
    with pytest.raises(PenstockError) as failure:
        await joining
    assert failure.value.code is ErrorCode.NOT_COORDINATOR


# Offsets


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


# The end of groups and offsets


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


# After a restart


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


async def test_many_groups_are_swept_a_part_each_turn(
    coordinator: GroupCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.groups.coordinator.SWEEP_GROUPS_PER_TURN", 3)
    await asyncio.gather(*(coordinator.commit_offsets(f"g{n}", NOBODY, [offset(n)]) for n in range(10)))
    await asyncio.sleep(7 * DAY_S + 1)
    assert coordinator.groups_by_state() == {}
