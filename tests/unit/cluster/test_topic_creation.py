"""Topics as they are created: names, numbers, where the replicas go, and what is refused."""

import asyncio
from uuid import UUID

import pytest
from tests.unit.cluster.controlling import fresh_image

from penstock.cluster.image import Topic
from penstock.cluster.topic_plan import NewTopic
from penstock.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    PolicyViolation,
    TopicAlreadyExists,
)


async def test_a_created_topic_is_in_the_image_when_the_call_returns(node):
    (made,) = await node.controller.create_topics([NewTopic("orders", 3, configs={"retention.ms": "1000"})])
    topic = node.image.topics["orders"]
    assert made.id == topic.id
    assert len(topic.partitions) == 3
    assert topic.configs == {"retention.ms": "1000"}
    assert {(s.leader, s.leader_epoch, s.isr, s.replicas) for s in topic.partitions} == {(1, 0, (1,), (1,))}
    assert made.mod_revision == topic.mod_revision


async def test_topics_of_one_request_succeed_and_fail_each_on_its_own(node):
    await node.controller.create_topics([NewTopic("there")])
    results = await node.controller.create_topics(
        [
            NewTopic("good"),
            NewTopic("there"),
            NewTopic("no way"),
            NewTopic("zero", 0),
            NewTopic("three", 1, 3),
            NewTopic("typo", configs={"retention.msec": "1"}),
            NewTopic("null", configs={"retention.ms": None}),
            NewTopic("twice"),
            NewTopic("twice"),
            NewTopic("also-good"),
        ]
    )
    assert [type(result) for result in results] == [
        Topic,
        TopicAlreadyExists,
        InvalidTopicName,
        InvalidPartitions,
        InvalidReplicationFactor,
        InvalidConfig,
        InvalidConfig,
        InvalidRequest,
        InvalidRequest,
        Topic,
    ]
    assert sorted(node.image.topics) == ["also-good", "good", "there"]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250, "a\n"])
async def test_names_kafka_refuses_are_refused(node, name):
    (result,) = await node.controller.create_topics([NewTopic(name)])
    assert isinstance(result, InvalidTopicName)


@pytest.mark.parametrize("name", ["...", "x" * 249, "a.b-C_9"])
async def test_names_kafka_allows_are_allowed(node, name):
    (result,) = await node.controller.create_topics([NewTopic(name)])
    assert isinstance(result, Topic)


async def test_names_that_differ_in_dots_and_underscores_only_are_refused(node):
    results = await node.controller.create_topics([NewTopic("a.b"), NewTopic("a_b")])
    assert [type(result) for result in results] == [Topic, InvalidTopicName]
    (later,) = await node.controller.create_topics([NewTopic("a_b")])
    assert isinstance(later, InvalidTopicName)
    at_once = await asyncio.gather(
        node.controller.create_topics([NewTopic("c.d")]), node.controller.create_topics([NewTopic("c_d")])
    )
    assert sorted(type(result).__name__ for (result,) in at_once) == ["InvalidTopicName", "Topic"]


async def test_a_refused_name_does_not_stay_reserved(node):
    await node.controller.create_topics([NewTopic("a.b")], validate_only=True)
    (result,) = await node.controller.create_topics([NewTopic("a_b")])
    assert isinstance(result, Topic)


async def test_validate_only_writes_nothing(node):
    before = (await node.store.range("")).revision
    results = await node.controller.create_topics([NewTopic("a", 2), NewTopic("b c")], validate_only=True)
    assert isinstance(results[0], Topic)
    assert len(results[0].partitions) == 2
    assert isinstance(results[1], InvalidTopicName)
    assert (await node.store.range("")).revision == before


async def test_a_request_for_more_partitions_than_kafka_allows_is_refused(node):
    results = await node.controller.create_topics([NewTopic("a", 9_999), NewTopic("b", 2), NewTopic("c", 2**31 - 1)])
    assert [type(result) for result in results] == [Topic, PolicyViolation, PolicyViolation]


async def test_an_assignment_given_by_the_client_is_taken_or_refused(node):
    given = [
        NewTopic("good", -1, -1, assignment={1: [1], 0: [1]}),
        NewTopic("gap", -1, -1, assignment={0: [1], 2: [1]}),
        NewTopic("none", -1, -1, assignment={}),
        NewTopic("empty", -1, -1, assignment={0: []}),
        NewTopic("double", -1, -1, assignment={0: [1, 1]}),
        NewTopic("stranger", -1, -1, assignment={0: [7]}),
        NewTopic("both", 2, -1, assignment={0: [1]}),
    ]
    results = await node.controller.create_topics(given)
    assert [type(result) for result in results] == [Topic, *[InvalidReplicaAssignment] * 5, InvalidRequest]
    assert len(node.image.topics["good"].partitions) == 2


async def test_partitions_are_spread_over_the_brokers(store, start_node):
    async with start_node(store, node_id=1) as first, start_node(store, node_id=2, directory_id=UUID(int=2)) as second:
        await first.feed.reached(second.membership.broker_epoch)
        for number in range(10):
            await first.controller.create_topics([NewTopic(f"t{number}")])
        leaders = [topic.partitions[0].leader for topic in first.image.topics.values()]
        assert sorted(leaders) == [1] * 5 + [2] * 5


async def test_a_topic_of_three_replicas_needs_two_in_sync_unless_somebody_chose(store, start_node):
    async with (
        start_node(store, node_id=1) as first,
        start_node(store, node_id=2, directory_id=UUID(int=2)),
        start_node(store, node_id=3, directory_id=UUID(int=3), settings={"min.insync.replicas": "1"}) as third,
    ):
        await first.feed.reached(third.membership.broker_epoch)
        own = {"min.insync.replicas": "3"}
        await first.controller.create_topics([NewTopic("a", 1, 3), NewTopic("b", 1, 2), NewTopic("c", 1, 3, own)])
        await third.controller.create_topics([NewTopic("d", 1, 3)])
        made = (await fresh_image(first)).topics
    assert [made[name].configs for name in "abcd"] == [{"min.insync.replicas": "2"}, {}, own, {}]


async def test_new_partitions_go_to_brokers_that_are_to_stay(store, node, start_node):
    async with start_node(store, node_id=2, directory_id=UUID(int=2)) as leaving:
        await leaving.membership.announce_stopping()
        await node.feed.reached(leaving.membership.broker_epoch)
        assert node.image.live == {1}
        await node.controller.create_topics([NewTopic("a", 4)])
        assert {state.replicas for state in node.image.topics["a"].partitions} == {(1,)}
        refused, made = await node.controller.create_topics(
            [NewTopic("b", -1, -1, assignment={0: [2]}), NewTopic("c", -1, -1, assignment={0: [2, 1]})]
        )
        assert isinstance(refused, InvalidReplicaAssignment)
        (state,) = made.partitions
        assert (state.leader, state.isr, state.replicas) == (1, (1,), (2, 1))
