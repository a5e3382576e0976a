"""Topics that get more partitions, also while they are changed or deleted."""

import asyncio

import pytest
from tests.unit.cluster.controlling import fresh_image, keys, set_config

from penstock.cluster.image import Topic
from penstock.cluster.overrides import ConfigResource
from penstock.cluster.topic_plan import NewTopic
from penstock.config.setting import Scope
from penstock.errors import InvalidPartitions, InvalidReplicaAssignment, PolicyViolation, UnknownTopicOrPartition


async def test_added_partitions_are_in_the_image_when_the_call_returns(node):
    await node.controller.create_topics([NewTopic("a", 2)])
    before = node.image.topics["a"]
    grown = await node.controller.create_partitions("a", 205)
    assert len(node.image.topics["a"].partitions) == len(grown.partitions) == 205
    assert node.image.topics["a"].partitions[:2] == before.partitions
    assert node.image.topics["a"].id == before.id


async def test_growth_that_is_none_or_too_much_is_refused(node):
    await node.controller.create_topics([NewTopic("a", 2)])
    for total in (2, 1, -1):
        with pytest.raises(InvalidPartitions):
            await node.controller.create_partitions("a", total)
    with pytest.raises(PolicyViolation):
        await node.controller.create_partitions("a", 2**31 - 1)
    with pytest.raises(UnknownTopicOrPartition):
        await node.controller.create_partitions("b", 3)
    for assignment in ([], [[1], [1]], [[9]], [[1, 1]]):
        with pytest.raises(InvalidReplicaAssignment):
            await node.controller.create_partitions("a", 3, assignment)
    await node.controller.create_partitions("a", 3, [[1]], validate_only=True)
    assert len(node.image.topics["a"].partitions) == 2


async def test_growth_and_a_change_of_settings_at_once_both_last(node):
    await node.controller.create_topics([NewTopic("a")])
    resource = ConfigResource(Scope.TOPIC, "a")
    await asyncio.gather(
        node.controller.create_partitions("a", 300),
        *(node.controller.alter_configs(resource, [set_config("retention.ms", str(n))]) for n in range(1, 6)),
        node.controller.alter_configs(resource, [set_config("segment.ms", "99")]),
    )
    topic = (await fresh_image(node)).topics["a"]
    assert len(topic.partitions) == 300
    assert topic.configs["segment.ms"] == "99"


async def test_a_topic_deleted_while_it_grows_leaves_nothing(node):
    await node.controller.create_topics([NewTopic("a")])
    grown, deleted = await asyncio.gather(
        node.controller.create_partitions("a", 1000), node.controller.delete_topics(["a"]), return_exceptions=True
    )
    assert isinstance(deleted[0], Topic)
    assert isinstance(grown, UnknownTopicOrPartition)
    assert await keys(node, "partitions/") == []
