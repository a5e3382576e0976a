"""ConsumerGroupHeartbeat over the wire, and the commits and fetches of its members, in a running broker."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode
from penstock.handlers import consumer_groups, group_offsets, groups, topics
from penstock.wire.apis import ApiKey

VERSIONS = (0, 1)


@pytest.fixture
def settings() -> dict[str, str]:
    return {"offsets.topic.num.partitions": "1"}


@pytest.fixture
async def served(node: Any) -> Any:
    """The broker once it serves groups, with a topic of two partitions."""
    topic = {"name": "orders", "num_partitions": 2, "replication_factor": 1}
    await node.call(topics.handle_create_topics, ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=5_000)
    await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, 0, key="g")
    for _ in range(10_000):
        reply = await node.call(groups.handle_describe_groups, ApiKey.DESCRIBE_GROUPS, 0, groups=["g"])
        if reply.groups[0].error_code == 0:
            return node
        await asyncio.sleep(0)
    raise AssertionError("the groups were not loaded")


async def beat(node: Any, version: int = 1, **changes: Any) -> Any:
    body = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
        **changes,
    }
    handler = consumer_groups.handle_consumer_group_heartbeat
    return await node.call(handler, ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **body)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_joins_reports_and_leaves(served: Any, version: int) -> None:
    joined = await beat(served, version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.NONE, "m", 1)
    (given,) = joined.assignment.topic_partitions
    assert given.topic_id == served.context.image.topics["orders"].id
    assert given.partitions == (0, 1)
    owned = [{"topic_id": given.topic_id, "partitions": [0, 1]}]
    quiet = {"rebalance_timeout": -1, "subscribed_topic_names": None}
    steady = await beat(served, version, member_epoch=1, topic_partitions=owned, **quiet)
    assert (steady.error_code, steady.assignment) == (ErrorCode.NONE, None)
    left = await beat(served, version, member_epoch=-1, topic_partitions=None, **quiet)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)


async def test_before_version_1_the_broker_makes_a_member_s_id(served: Any) -> None:
    joined = await beat(served, 0, member_id="")
    assert joined.error_code == ErrorCode.NONE
    assert joined.member_id


@pytest.mark.parametrize(
    "changes",
    [
        {"member_id": ""},
        {"group_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout": -1},
        {"topic_partitions": None},
        {"topic_partitions": [{"topic_id": UUID(int=1), "partitions": [0]}]},
        {"subscribed_topic_names": None},
        {"member_epoch": -2},
        {"member_epoch": -3},
        {"subscribed_topic_names": ["x" * 30_000] * 40},
    ],
)
async def test_a_heartbeat_that_cannot_be_meant_so_is_an_invalid_request(served: Any, changes: dict[str, Any]) -> None:
    refused = await beat(served, **changes)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
async def test_what_the_group_has_against_it_is_said(served: Any, changes: dict[str, Any], code: ErrorCode) -> None:
    refused = await beat(served, **changes)
    assert refused.error_code == code
    assert refused.error_message


async def test_a_pattern_subscribes_from_version_1_on(served: Any) -> None:
    joined = await beat(served, subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    assert joined.assignment.topic_partitions[0].partitions == (0, 1)


async def commit(node: Any, version: int, epoch: int, member_id: str = "m") -> int:
    named: dict[str, Any] = {"name": "orders"}
    if version >= 10:
        named = {"topic_id": node.context.image.topics["orders"].id}
    partition: dict[str, Any] = {"partition_index": 0, "committed_offset": 3}
    body: dict[str, Any] = {"group_id": "g", "member_id": member_id, "generation_id_or_member_epoch": epoch}
    body["topics"] = [{**named, "partitions": [partition]}]
    reply = await node.call(group_offsets.handle_offset_commit, ApiKey.OFFSET_COMMIT, version, **body)
    return reply.topics[0].partitions[0].error_code


async def test_members_commit_with_their_epoch_and_from_version_9_on(served: Any) -> None:
    await beat(served)
    assert await commit(served, 8, 1) == ErrorCode.UNSUPPORTED_VERSION
    for version in (9, 10):
        assert await commit(served, version, 1) == ErrorCode.NONE
        assert await commit(served, version, 2) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(served, version, 1, "other") == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [9, 10])
async def test_members_fetch_offsets_with_their_epoch(served: Any, version: int) -> None:
    await beat(served)
    await commit(served, 9, 1)

    async def fetch(**said: Any) -> Any:
        asked = {"group_id": "g", "topics": None, **said}
        handler = group_offsets.handle_offset_fetch
        reply = await served.call(handler, ApiKey.OFFSET_FETCH, version, groups=[asked], require_stable=True)
        return reply.groups[0]

    assert (await fetch(member_id="m", member_epoch=1)).topics[0].partitions[0].committed_offset == 3
    assert (await fetch()).error_code == ErrorCode.NONE, "an administrator says nothing of itself"
    stale = await fetch(member_id="m", member_epoch=0)
    assert (stale.error_code, stale.topics) == (ErrorCode.STALE_MEMBER_EPOCH, ())
    assert (await fetch(member_id="other", member_epoch=1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_topics_made_and_deleted_reach_the_groups_that_read_them(served: Any) -> None:
    await beat(served, subscribed_topic_names=["orders", "later"])
    topic = {"name": "later", "num_partitions": 1, "replication_factor": 1}
    await served.call(topics.handle_create_topics, ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=5_000)
    quiet: dict[str, Any] = {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
    reply = await beat(served, member_epoch=1, **quiet)
    assert (reply.member_epoch, len(reply.assignment.topic_partitions)) == (2, 2)
