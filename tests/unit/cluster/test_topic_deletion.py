"""Topics as they are deleted: with all their partitions, and never another topic of the same name."""

from uuid import UUID

from tests.unit.cluster.controlling import fresh_image, keys, set_config

from penstock.cluster.image import Topic
from penstock.cluster.overrides import ConfigResource
from penstock.cluster.topic_plan import NewTopic
from penstock.config.setting import Scope
from penstock.errors import InvalidRequest, UnknownTopicId, UnknownTopicOrPartition


async def test_a_deleted_topic_is_gone_with_its_partitions(node):
    await node.controller.create_topics([NewTopic("a", 250), NewTopic("b")])
    by_id = node.image.topics["b"].id
    results = await node.controller.delete_topics(["a", by_id, "missing", UUID(int=4)])
    assert [type(result) for result in results] == [Topic, Topic, UnknownTopicOrPartition, UnknownTopicId]
    assert node.image.topics == {}
    assert await keys(node, "topics/") == await keys(node, "partitions/") == []


async def test_a_topic_named_twice_in_a_deletion_is_not_deleted(node):
    await node.controller.create_topics([NewTopic("a")])
    results = await node.controller.delete_topics(["a", node.image.topics["a"].id])
    assert [type(result) for result in results] == [InvalidRequest, InvalidRequest]
    assert "a" in node.image.topics


async def test_deleting_what_was_made_again_meanwhile_spares_the_new_topic(node, monkeypatch):
    await node.controller.create_topics([NewTopic("a"), NewTopic("b")])
    old = node.image.topics["a"]
    await node.controller.delete_topics(["a"])
    await node.controller.create_topics([NewTopic("a")])
    new = node.image.topics["a"]
    monkeypatch.setitem(node.image.topics, "a", old)
    results = await node.controller.delete_topics(["a", "b"])
    assert [type(result) for result in results] == [UnknownTopicOrPartition, Topic]
    assert (await fresh_image(node)).topics["a"].id == new.id


async def test_a_topic_keeps_being_deletable_after_its_settings_changed(node):
    await node.controller.create_topics([NewTopic("a")])
    await node.controller.alter_configs(ConfigResource(Scope.TOPIC, "a"), [set_config("retention.ms", "5")])
    (result,) = await node.controller.delete_topics(["a"])
    assert isinstance(result, Topic)
