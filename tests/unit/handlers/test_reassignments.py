"""handlers.reassignments: partitions moved from broker to broker, and what is on its way.

The brokers beside the one under test are registered and do nothing else, so what is moved to them never arrives.
"""

from typing import Any

import pytest
from tests.unit.handlers.named_brokers import create, register

from penstock.errors import ErrorCode
from penstock.handlers.reassignments import handle_alter_partition_reassignments, handle_list_partition_reassignments
from penstock.wire.apis import ApiKey

ALTER, LIST = ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS

Targets = dict[str, list[tuple[int, list[int] | None]]]


@pytest.fixture
async def cluster(node: Any) -> Any:
    """The node, with brokers 2 and 3 in name only."""
    await register(node, 2, 3)
    return node


async def alter(node: Any, targets: Targets, version: int = 1, **more: Any) -> dict[str, ErrorCode]:
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "replicas": replicas} for index, replicas in rows]}
        for name, rows in targets.items()
    ]
    answer = await node.call(
        handle_alter_partition_reassignments, ALTER, version, topics=topics, **{"timeout": 10_000, **more}
    )
    assert answer.error_code == 0
    found: dict[str, ErrorCode] = {}
    for topic in answer.responses:
        for one in topic.partitions:
            assert (one.error_message is None) == (one.error_code == 0)
            found[f"{topic.name}-{one.partition_index}"] = ErrorCode(one.error_code)
    return found


async def running(node: Any, asked: dict[str, list[int]] | None = None) -> dict[str, tuple[Any, ...]]:
    topics = None if asked is None else [{"name": name, "partition_indexes": rows} for name, rows in asked.items()]
    answer = await node.call(handle_list_partition_reassignments, LIST, 0, topics=topics, timeout=10_000)
    assert answer.error_code == 0
    return {
        f"{topic.name}-{one.partition_index}": (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in answer.topics
        for one in topic.partitions
    }


def state(node: Any, name: str, index: int = 0) -> Any:
    return node.context.image.topics[name].partitions[index]


@pytest.mark.parametrize("version", [0, 1])
async def test_a_move_is_under_way_until_the_new_replicas_are_in_sync(cluster: Any, version: int) -> None:
    await create(cluster, "orders", (1,))
    assert await alter(cluster, {"orders": [(0, [2, 3])]}, version) == {"orders-0": ErrorCode.NONE}
    assert await running(cluster) == {"orders-0": ((2, 3, 1), (2, 3), (1,))}
    assert (state(cluster, "orders").leader, state(cluster, "orders").isr) == (1, (1,))


async def test_a_move_that_is_taken_back_leaves_the_partition_where_it_was(cluster: Any) -> None:
    await create(cluster, "orders", (1,))
    await alter(cluster, {"orders": [(0, [2])]})
    assert await alter(cluster, {"orders": [(0, None)]}) == {"orders-0": ErrorCode.NONE}
    assert await running(cluster) == {}
    assert state(cluster, "orders").replicas == (1,)


async def test_what_is_not_being_moved_cannot_be_taken_back(cluster: Any) -> None:
    await create(cluster, "orders", (1,))
    assert await alter(cluster, {"orders": [(0, None)]}) == {"orders-0": ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}


async def test_a_move_to_where_it_is_already_is_done_at_once(cluster: Any) -> None:
    await create(cluster, "orders", (1, 2))
    assert await alter(cluster, {"orders": [(0, [2, 1])]}) == {"orders-0": ErrorCode.NONE}
    assert await running(cluster) == {}
    assert state(cluster, "orders").replicas == (2, 1)


@pytest.mark.parametrize("replicas", [[], [2, 2], [9], [-1], [2**31 - 1]])
async def test_replicas_that_cannot_be_are_refused(cluster: Any, replicas: list[int]) -> None:
    await create(cluster, "orders", (1,))
    before = state(cluster, "orders")
    assert await alter(cluster, {"orders": [(0, replicas)]}) == {"orders-0": ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert state(cluster, "orders") == before


async def test_a_request_that_forbids_it_does_not_change_the_number_of_replicas(cluster: Any) -> None:
    await create(cluster, "orders", (1,), (1,))
    asked: Targets = {"orders": [(0, [2, 3]), (1, [2])]}
    assert await alter(cluster, asked, allow_replication_factor_change=False) == {
        "orders-0": ErrorCode.INVALID_REPLICATION_FACTOR,
        "orders-1": ErrorCode.NONE,
    }
    # A move that is under way counts with the replicas the partition had before.
    again: Targets = {"orders": [(1, [3])]}
    assert await alter(cluster, again, allow_replication_factor_change=False) == {"orders-1": ErrorCode.NONE}
    assert await running(cluster) == {"orders-1": ((3, 1), (3,), (1,))}


async def test_what_is_not_there_is_told_and_the_others_are_moved_all_the_same(cluster: Any) -> None:
    await create(cluster, "orders", (1,))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await alter(cluster, {"orders": [(0, [2]), (1, [2]), (-1, [2])], "bills": [(0, [2])]}) == {
        "orders-0": ErrorCode.NONE,
        "orders-1": unknown,
        "orders--1": unknown,
        "bills-0": unknown,
    }


async def test_a_partition_named_twice_is_moved_to_neither_place(cluster: Any) -> None:
    await create(cluster, "orders", (1,), (1,))
    assert await alter(cluster, {"orders": [(0, [2]), (0, [3]), (1, [2])]}) == {
        "orders-0": ErrorCode.INVALID_REQUEST,
        "orders-1": ErrorCode.NONE,
    }
    assert state(cluster, "orders").replicas == (1,)


async def test_an_empty_request_is_answered_with_nothing(cluster: Any) -> None:
    assert await alter(cluster, {}) == {}
    assert await alter(cluster, {"orders": []}) == {}
    assert await running(cluster, {}) == {}


async def test_the_list_can_be_asked_for_some_partitions_only(cluster: Any) -> None:
    await create(cluster, "orders", (1,), (1,), (1,))
    await alter(cluster, {"orders": [(0, [2]), (1, [2])]})
    assert (await running(cluster, {"orders": [1, 1, 2, 7, -1], "bills": [0]})).keys() == {"orders-1"}
    assert (await running(cluster)).keys() == {"orders-0", "orders-1"}
