"""Offsets of groups over the wire, by name and by id, in a running broker."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from penstock.errors import ErrorCode, MessageTooLarge
from penstock.groups.offsets import OffsetToCommit
from penstock.handlers import group_offsets, groups
from penstock.wire.apis import BY_KEY, ApiKey

COMMIT, FETCH, DELETE = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE


def versions(api_key: ApiKey) -> list[int]:
    api = BY_KEY[api_key]
    return list(range(api.low, api.high + 1))


@pytest.fixture
def settings() -> dict[str, str]:
    return {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
async def served(node: Any) -> Any:
    """The broker once it serves groups, with a topic of two partitions."""
    await node.create("orders", 2)
    await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, 0, key="g")
    for _ in range(10_000):
        if (await fetch(node, 8)).groups[0].error_code == 0:
            return node
        await asyncio.sleep(0)
    raise AssertionError("the groups were not loaded")


def named(node: Any, version: int, topic: str = "orders") -> dict[str, Any]:
    return {"topic_id": node.context.image.topics[topic].id} if version >= 10 else {"name": topic}


async def commit(
    node: Any, version: int, *offsets: tuple[int, int], topic: dict[str, Any] | None = None, **changes: Any
) -> Any:
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": "note"}
        | ({"committed_leader_epoch": 4} if version >= 6 else {})
        for index, offset in offsets
    ]
    body: dict[str, Any] = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{**(topic or named(node, version)), "partitions": partitions}],
    }
    return await node.call(group_offsets.handle_offset_commit, COMMIT, version, **{**body, **changes})


def codes(reply: Any) -> list[int]:
    return [partition.error_code for topic in reply.topics for partition in topic.partitions]


async def fetch(node: Any, version: int, topics: Any = None, **changes: Any) -> Any:
    group: dict[str, Any] = {"group_id": "g", "topics": topics}
    body: dict[str, Any] = {"groups": [group]} if version >= 8 else group
    return await node.call(group_offsets.handle_offset_fetch, FETCH, version, **{**body, **changes})


def fetched(reply: Any, version: int) -> dict[int, int]:
    answer = reply.groups[0] if version >= 8 else reply
    return {partition.partition_index: partition.committed_offset for t in answer.topics for partition in t.partitions}


@pytest.mark.parametrize("version", versions(COMMIT))
async def test_offsets_are_committed_in_every_version(served: Any, version: int) -> None:
    reply = await commit(served, version, (0, 10), (1, 11))
    assert codes(reply) == [0, 0]
    found = {index: committed for _, index, committed in served.context.groups.committed_offsets("g")}
    assert [found[index].offset for index in (0, 1)] == [10, 11]
    assert found[0].leader_epoch == (4 if version >= 6 else -1)
    assert found[0].metadata == "note"
    assert found[0].topic_id == served.context.image.topics["orders"].id


async def test_an_old_client_may_limit_how_long_an_offset_is_kept(served: Any) -> None:
    await commit(served, 4, (0, 10), retention_time=60_000)
    await commit(served, 4, (1, 10), retention_time=-1)
    found = {index: committed for _, index, committed in served.context.groups.committed_offsets("g")}
    assert found[0].expire_ms == found[0].commit_ms + 60_000
    assert found[1].expire_ms == -1


@pytest.mark.parametrize("version", [9, 10])
async def test_unknown_topics_and_partitions_fail_alone(served: Any, version: int) -> None:
    reply = await commit(served, version, (0, 10), (2, 11), (-1, 12), (0, 13))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(reply) == [0, unknown, unknown, 0]
    nowhere = {"topic_id": uuid4()} if version >= 10 else {"name": "nowhere"}
    reply = await commit(served, version, (0, 10), topic=nowhere)
    assert codes(reply) == [ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else unknown]
    assert [committed.offset for _, _, committed in served.context.groups.committed_offsets("g")] == [13]


async def test_the_topic_id_of_nothing_is_unknown(served: Any) -> None:
    reply = await commit(served, 10, (0, 10), topic={"topic_id": None})
    assert codes(reply) == [ErrorCode.UNKNOWN_TOPIC_ID]


async def test_a_commit_of_nothing_is_answered(served: Any) -> None:
    assert (await commit(served, 9, topics=[])).topics == ()
    assert codes(await commit(served, 9)) == []


async def test_a_stranger_cannot_commit_to_a_generation(served: Any) -> None:
    reply = await commit(served, 9, (0, 1), member_id="m", generation_id_or_member_epoch=3)
    assert codes(reply) == [ErrorCode.ILLEGAL_GENERATION]


async def test_a_broker_that_does_not_lead_the_group_says_so_for_each_partition(node: Any) -> None:
    await node.create("orders", 2)
    assert codes(await commit(node, 9, (0, 1), (1, 1))) == [ErrorCode.NOT_COORDINATOR] * 2
    reply = await fetch(node, 8, [{"name": "orders", "partition_indexes": [0]}])
    assert (reply.groups[0].error_code, reply.groups[0].topics) == (ErrorCode.NOT_COORDINATOR, ())
    reply = await fetch(node, 7, [{"name": "orders", "partition_indexes": [0]}])
    assert (reply.error_code, reply.topics) == (ErrorCode.NOT_COORDINATOR, ())
    reply = await fetch(node, 1, [{"name": "orders", "partition_indexes": [0, 1]}])
    assert codes(reply) == [ErrorCode.NOT_COORDINATOR] * 2
    reply = await node.call(group_offsets.handle_offset_delete, DELETE, group_id="g", topics=[])
    assert reply.error_code == ErrorCode.NOT_COORDINATOR


async def test_a_commit_too_large_for_the_log_is_called_so(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise MessageTooLarge("too large")

    monkeypatch.setattr("penstock.replication.ledger.PartitionLedger.append", refuse)
    assert codes(await commit(served, 9, (0, 1))) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]


@pytest.mark.parametrize("version", versions(FETCH))
async def test_offsets_are_fetched_in_every_version(served: Any, version: int) -> None:
    await commit(served, 9, (0, 10))
    asked = [{**named(served, version), "partition_indexes": [0, 1]}]
    reply = await fetch(served, version, asked)
    assert fetched(reply, version) == {0: 10, 1: -1}
    answer = reply.groups[0] if version >= 8 else reply
    (topic,) = answer.topics
    assert (topic.partitions[0].metadata, topic.partitions[1].metadata) == ("note", "")
    if version >= 5:
        assert [partition.committed_leader_epoch for partition in topic.partitions] == [4, -1]
    assert topic.topic_id == asked[0]["topic_id"] if version >= 10 else topic.name == "orders"


@pytest.mark.parametrize("version", [version for version in versions(FETCH) if version >= 2])
async def test_all_offsets_of_a_group_are_fetched(served: Any, version: int) -> None:
    await commit(served, 9, (0, 10), (1, 11))
    assert fetched(await fetch(served, version, None), version) == {0: 10, 1: 11}
    assert fetched(await fetch(served, version, []), version) == {}


@pytest.mark.parametrize("version", versions(FETCH))
async def test_an_offset_that_a_transaction_may_change_is_withheld_from_those_who_ask_for_stable_ones(
    served: Any, version: int
) -> None:
    await commit(served, 9, (0, 10))
    topic_id = served.context.image.topics["orders"].id
    pending = [OffsetToCommit("orders", topic_id, index, 20, -1, "") for index in (0, 1)]
    await served.context.groups.commit_in_transaction("g", 7, 0, ("", None, -1), pending)
    asked = [{**named(served, version), "partition_indexes": (0, 1)}]
    assert fetched(await fetch(served, version, asked), version) == {0: 10, 1: -1}
    if version < 7:
        return
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    for topics, expected in ((asked, {0: unstable, 1: unstable}), (None, {0: unstable})):
        reply = await fetch(served, version, topics, require_stable=True)
        answer = reply.groups[0] if version >= 8 else reply
        found = {partition.partition_index: partition.error_code for partition in answer.topics[0].partitions}
        assert found == expected
        assert set(fetched(reply, version).values()) == {-1}


async def test_several_groups_are_fetched_at_once(served: Any) -> None:
    await commit(served, 9, (0, 10))
    await commit(served, 9, (0, 20), group_id="h")
    asked = [{"group_id": name, "topics": None} for name in ("g", "h", "nobody")]
    reply = await served.call(group_offsets.handle_offset_fetch, FETCH, 9, groups=asked, require_stable=True)
    assert [group.group_id for group in reply.groups] == ["g", "h", "nobody"]
    assert [[t.partitions[0].committed_offset for t in group.topics] for group in reply.groups] == [[10], [20], []]


async def test_an_unknown_topic_has_no_offset_by_name_and_an_error_by_id(served: Any) -> None:
    assert fetched(await fetch(served, 9, [{"name": "nowhere", "partition_indexes": [0]}]), 9) == {0: -1}
    reply = await fetch(served, 10, [{"topic_id": uuid4(), "partition_indexes": [0]}])
    (partition,) = reply.groups[0].topics[0].partitions
    assert (partition.committed_offset, partition.error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_a_topic_made_anew_starts_without_the_offsets_of_the_old_one(served: Any) -> None:
    await commit(served, 9, (0, 10))
    context = served.context
    await context.controller.delete_topics([context.image.topics["orders"].id])
    await served.create("orders", 2)
    for version in (9, 10):
        asked = [{**named(served, version), "partition_indexes": [0]}]
        assert fetched(await fetch(served, version, asked), version) == {0: -1}
        assert fetched(await fetch(served, version, None), version) == {}
    await commit(served, 9, (0, 3))
    assert fetched(await fetch(served, 9, None), 9) == {0: 3}


async def test_offsets_are_deleted_and_each_is_answered(served: Any) -> None:
    await commit(served, 9, (0, 10), (1, 11))
    asked = [
        {"name": "orders", "partitions": [{"partition_index": 0}, {"partition_index": 7}]},
        {"name": "nowhere", "partitions": [{"partition_index": 0}]},
    ]
    reply = await served.call(group_offsets.handle_offset_delete, DELETE, group_id="g", topics=asked)
    assert reply.error_code == 0
    assert codes(reply) == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert fetched(await fetch(served, 9, None), 9) == {1: 11}


@pytest.mark.parametrize(
    ("group_id", "code"), [("nobody", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)]
)
async def test_offsets_of_no_group_cannot_be_deleted(served: Any, group_id: str, code: ErrorCode) -> None:
    asked = [{"name": "orders", "partitions": [{"partition_index": 0}]}]
    reply = await served.call(group_offsets.handle_offset_delete, DELETE, group_id=group_id, topics=asked)
    assert (reply.error_code, reply.topics) == (code, ())
