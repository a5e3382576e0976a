"""Which groups a whole coordinator answers for: kept where Kafka would keep them, named, known, and not too many."""

import pytest
from tests.unit.groups.asking import NOBODY, TOPIC_ID, Make, beats, commit, join, offset, stable, sync

from penstock.errors import ErrorCode, PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.member import JoinReply, Leaver


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
