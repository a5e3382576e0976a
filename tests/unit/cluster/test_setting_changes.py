"""Settings and quotas as they change in a real store, seen through the image of the broker that asked."""

import asyncio

import pytest
from tests.unit.cluster.controlling import keys, set_config

from penstock.cluster import setting_changes
from penstock.cluster.image import Topic
from penstock.cluster.overrides import ConfigChange, ConfigOp, ConfigResource
from penstock.cluster.topic_plan import NewTopic
from penstock.config.setting import Scope
from penstock.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition


async def test_settings_that_contradict_each_other_are_refused(node):
    both = {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}
    results = await node.controller.create_topics([NewTopic("a", configs=both), NewTopic("b")])
    assert [type(result) for result in results] == [InvalidConfig, Topic]
    resource = ConfigResource(Scope.TOPIC, "b")
    await node.controller.alter_configs(resource, [set_config("max.compaction.lag.ms", "4")])
    with pytest.raises(InvalidConfig):
        await node.controller.alter_configs(resource, [set_config("min.compaction.lag.ms", "5")])
    assert node.image.topics["b"].configs == {"max.compaction.lag.ms": "4"}


async def test_altered_settings_of_topics_brokers_and_groups_are_in_the_image(node):
    await node.controller.create_topics([NewTopic("a", configs={"segment.ms": "7"})])
    await node.controller.alter_configs(ConfigResource(Scope.TOPIC, "a"), [set_config("retention.ms", "5")])
    assert node.image.topics["a"].configs == {"segment.ms": "7", "retention.ms": "5"}
    await node.controller.alter_configs(ConfigResource(Scope.BROKER, ""), [set_config("log.retention.ms", "5")])
    await node.controller.alter_configs(ConfigResource(Scope.BROKER, "1"), [set_config("log.retention.ms", "6")])
    assert node.image.broker_configs == {"": {"log.retention.ms": "5"}, "1": {"log.retention.ms": "6"}}
    group = ConfigResource(Scope.GROUP, "g/1")
    await node.controller.alter_configs(group, [set_config("consumer.session.timeout.ms", "50000")])
    assert node.image.group_configs == {"g/1": {"consumer.session.timeout.ms": "50000"}}


async def test_settings_taken_away_leave_no_key(node):
    resource = ConfigResource(Scope.BROKER, "")
    await node.controller.alter_configs(resource, [set_config("log.retention.ms", "5")])
    await node.controller.alter_configs(resource, [ConfigChange("log.retention.ms", ConfigOp.DELETE)])
    assert node.image.broker_configs == {}
    assert await keys(node, "configs/") == []


async def test_replaced_settings_are_exactly_those_given(node):
    await node.controller.create_topics([NewTopic("a", configs={"segment.ms": "7", "retention.ms": "5"})])
    await node.controller.replace_configs(ConfigResource(Scope.TOPIC, "a"), {"segment.ms": "8"})
    assert node.image.topics["a"].configs == {"segment.ms": "8"}


async def test_settings_refused_or_only_validated_change_nothing(node):
    await node.controller.create_topics([NewTopic("a")])
    before = node.image.revision
    resource = ConfigResource(Scope.TOPIC, "a")
    await node.controller.alter_configs(resource, [set_config("retention.ms", "5")], validate_only=True)
    await node.controller.replace_configs(resource, {"retention.ms": "5"}, validate_only=True)
    await node.controller.alter_configs(resource, [])
    refused = [
        (resource, [set_config("retention.ms", "many")], InvalidConfig),
        (resource, [set_config("retention.ms", "1"), set_config("no.such", "1")], InvalidConfig),
        (ConfigResource(Scope.TOPIC, "b"), [set_config("retention.ms", "1")], UnknownTopicOrPartition),
        (ConfigResource(Scope.BROKER, "x"), [set_config("log.retention.ms", "1")], InvalidRequest),
        (ConfigResource(Scope.GROUP, ""), [set_config("consumer.session.timeout.ms", "50000")], InvalidRequest),
    ]
    for where, changes, error in refused:
        with pytest.raises(error):
            await node.controller.alter_configs(where, changes)
    assert (await node.store.range("")).revision == before


async def test_two_settings_changed_at_once_both_last(node):
    await node.controller.create_topics([NewTopic("a")])
    resource = ConfigResource(Scope.TOPIC, "a")
    names = ["retention.ms", "segment.ms", "retention.bytes", "flush.ms", "max.message.bytes"]
    await asyncio.gather(*(node.controller.alter_configs(resource, [set_config(name, "100")]) for name in names))
    assert sorted(node.image.topics["a"].configs) == sorted(names)


async def test_settings_that_grow_without_end_are_refused(node, monkeypatch):
    monkeypatch.setattr(setting_changes, "VALUE_BYTES_MAX", 50)
    with pytest.raises(InvalidConfig, match="50 allowed"):
        await node.controller.replace_configs(
            ConfigResource(Scope.BROKER, ""), {"log.retention.ms": "1" * 10, "log.segment.bytes": "2" * 9}
        )


async def test_quotas_are_set_changed_and_taken_away(node):
    entity = frozenset({("user", "eve"), ("client-id", None)})
    change = node.controller.alter_client_quotas
    await change(entity, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 5.5})
    await change(entity, {"producer_byte_rate": None, "request_percentage": 50.0})
    assert node.image.client_quotas == {entity: {"consumer_byte_rate": 5.5, "request_percentage": 50.0}}
    await change(entity, {"consumer_byte_rate": 7.0}, validate_only=True)
    await change(entity, {"consumer_byte_rate": None, "request_percentage": None})
    assert node.image.client_quotas == {}
    await change(entity, {"consumer_byte_rate": None})
