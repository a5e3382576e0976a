"""Topics that coordinators keep their state in: made when first needed, and led again whenever they are made again."""

from typing import Any

import pytest
from tests.unit.handlers.transacting import SETTINGS, producer, until

from penstock.handlers import groups
from penstock.handlers.topics import handle_delete_topics
from penstock.model import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from penstock.wire.apis import ApiKey


@pytest.fixture
def settings() -> dict[str, str]:
    return SETTINGS


async def delete(node: Any, topic: str) -> None:
    answer = await node.call(
        handle_delete_topics, ApiKey.DELETE_TOPICS, 6, topics=[{"name": topic, "topic_id": None}], timeout=30_000
    )
    assert [found.error_code for found in answer.responses] == [0]


async def test_transactions_are_served_again_after_their_topic_was_deleted(node: Any) -> None:
    one = await producer(node)
    await delete(node, TRANSACTION_STATE_TOPIC)
    assert await one.init() == "NOT_COORDINATOR"
    again = await producer(node)
    # Nothing is known of the one before but its producer id, which nobody gets twice.
    assert again.producer_id > one.producer_id


async def test_groups_are_served_again_after_their_topic_was_deleted(node: Any) -> None:
    async def code() -> int:
        answer = await node.call(groups.handle_describe_groups, ApiKey.DESCRIBE_GROUPS, 0, groups=["g"])
        return answer.groups[0].error_code

    async def is_served() -> bool:
        return await code() == 0

    for _ in range(2):
        await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, 0, key="g")
        await until(is_served)
        await delete(node, GROUP_OFFSETS_TOPIC)
        assert await code() == 16  # NOT_COORDINATOR
