"""`__consumer_offsets` deleted under a running broker, as Kafka allows: its groups are gone, new ones are served."""

import asyncio
from typing import Any

import pytest

from penstock.errors import ErrorCode, PenstockError
from penstock.groups.offsets import OffsetToCommit
from penstock.handlers import groups, topics
from penstock.model import GROUP_OFFSETS_TOPIC, NO_TOPIC_ID
from penstock.records.markers import ControlType, Marker
from penstock.wire.apis import ApiKey

NOBODY = ("", None, -1)
TURNS_MAX = 100_000


@pytest.fixture
def settings() -> dict[str, str]:
    return {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


def offset(value: int) -> OffsetToCommit:
    return OffsetToCommit("orders", NO_TOPIC_ID, 0, value, -1, "")


def committed(node: Any) -> int | None:
    found = node.context.groups.committed_offset("g", "orders", NO_TOPIC_ID, 0)
    return None if found is None else found.offset


async def find(node: Any) -> int:
    """Ask for the coordinator, as a client does first, until the groups are loaded."""
    reply = await node.call(
        groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",)
    )
    for _ in range(TURNS_MAX):
        try:
            committed(node)
        except PenstockError:
            await asyncio.sleep(0)
        else:
            return reply.coordinators[0].error_code
    raise AssertionError("the groups were not loaded")


async def delete(node: Any) -> int:
    asked = [{"name": GROUP_OFFSETS_TOPIC, "topic_id": None}]
    reply = await node.call(topics.handle_delete_topics, ApiKey.DELETE_TOPICS, 6, topics=asked, timeout=30_000)
    return reply.responses[0].error_code


def code_of(ask: Any) -> ErrorCode:
    with pytest.raises(PenstockError) as failure:
        ask()
    return failure.value.code


async def test_groups_of_the_deleted_topic_are_no_longer_served(node: Any) -> None:
    await find(node)
    served = node.context.groups
    await served.commit_offsets("g", NOBODY, [offset(1)])
    await served.commit_in_transaction("g", 7, 0, NOBODY, [offset(2)])
    assert await delete(node) == 0
    marker = Marker(ControlType.COMMIT, 0)
    for ask in (
        lambda: committed(node),
        lambda: served.commit_offsets("g", NOBODY, [offset(3)]),
        lambda: served.commit_in_transaction("g", 7, 0, NOBODY, [offset(3)]),
        lambda: served.write_marker(0, marker, 7, 0),
    ):
        assert code_of(ask) is ErrorCode.NOT_COORDINATOR
    assert served.list_groups() == []
    assert list(served.all_committed_offsets()) == []


async def test_who_waits_for_a_commit_when_the_topic_is_deleted_is_told(node: Any) -> None:
    await find(node)
    waiting = asyncio.ensure_future(node.context.groups.commit_offsets("g", NOBODY, [offset(1)]))
    node.context.groups.resign(0)
    with pytest.raises(PenstockError) as failure:
        await waiting
    assert failure.value.code is ErrorCode.NOT_COORDINATOR


async def test_the_next_search_for_a_coordinator_makes_the_topic_anew_and_groups_start_from_nothing(node: Any) -> None:
    for value in (1, 2):
        assert await find(node) == 0
        served = node.context.groups
        assert committed(node) is None
        assert await served.commit_offsets("g", NOBODY, [offset(value)]) == [ErrorCode.NONE]
        await served.commit_in_transaction("g", 7, 0, NOBODY, [offset(value + 10)])
        assert committed(node) == value
        assert await delete(node) == 0
    await find(node)
    # What was pending before is gone with its log; the marker that comes for it ends nothing.
    await node.context.groups.write_marker(0, Marker(ControlType.COMMIT, 0), 7, 0)
    assert committed(node) is None
    assert node.broker._problems() == []


async def test_a_topic_deleted_while_its_groups_are_loaded_leaves_the_broker_in_health(node: Any) -> None:
    await find(node)
    for value in range(50):
        await node.context.groups.commit_offsets("g", NOBODY, [offset(value)])
    await delete(node)
    await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",))
    await delete(node)
    assert await find(node) == 0
    assert committed(node) is None
    assert node.broker._problems() == []
