"""Topics, settings, quotas and ids as they change in a real store, seen through the image of the broker that asked."""

import asyncio
from uuid import UUID

import pytest

from penstock.clock import Rng
from penstock.cluster import setting_changes
from penstock.cluster.controller import Controller
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.orphans import Orphans
from penstock.cluster.overrides import ConfigChange, ConfigOp, ConfigResource
from penstock.cluster.sqlite_store import SqliteStore
from penstock.cluster.store import Ambiguous, Delete, Put, Unavailable
from penstock.cluster.topic_plan import NewTopic
from penstock.config import BrokerConfig
from penstock.config.setting import Scope
from penstock.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    PolicyViolation,
    RegistrationLost,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

STATE = b'{"leader":1,"leader_epoch":0,"isr":[1],"replicas":[1],"partition_epoch":0}'


async def keys(node, family: str) -> list[str]:
    prefix = f"{node.image.layout.prefix}{family}"
    return [item.key.removeprefix(prefix) for item in (await node.store.range(prefix)).items]


async def fresh_image(node) -> ClusterImage:
    image = ClusterImage(node.image.layout)
    image.load(await node.store.range(image.layout.prefix))
    return image


def set_config(name: str, value: str) -> ConfigChange:
    return ConfigChange(name, ConfigOp.SET, value)


# Topics


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


async def test_one_of_two_racing_creations_of_a_name_wins(node):
    results = await asyncio.gather(*(node.controller.create_topics([NewTopic("t", 150)]) for _ in range(4)))
    kinds = sorted(type(result).__name__ for (result,) in results)
    assert kinds == ["Topic"] + ["TopicAlreadyExists"] * 3
    winner = next(result for (result,) in results if isinstance(result, Topic))
    assert node.image.topics["t"].id == winner.id
    assert {key.split("/")[0] for key in await keys(node, "partitions/")} == {winner.id.hex}


async def test_a_topic_another_broker_just_created_does_not_take_its_batch_down(node, monkeypatch):
    real = SqliteStore.txn
    layout = node.image.layout
    foreign = [
        Put(layout.partition(UUID(int=9), 0), STATE),
        Put(layout.topic("b"), b'{"id":"%s","partitions":1,"configs":{}}' % UUID(int=9).hex.encode()),
    ]

    async def txn(self, compare, then, orelse=()):
        # After the plan was made, before the transaction arrives: no image could have known.
        monkeypatch.setattr(SqliteStore, "txn", real)
        await self.txn([], foreign)
        return await self.txn(compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    results = await node.controller.create_topics([NewTopic("a"), NewTopic("b"), NewTopic("c")])
    assert [type(result) for result in results] == [Topic, TopicAlreadyExists, Topic]


async def test_validate_only_writes_nothing(node):
    before = (await node.store.range("")).revision
    results = await node.controller.create_topics([NewTopic("a", 2), NewTopic("b c")], validate_only=True)
    assert isinstance(results[0], Topic)
    assert len(results[0].partitions) == 2
    assert isinstance(results[1], InvalidTopicName)
    assert (await node.store.range("")).revision == before


async def test_no_reader_ever_sees_part_of_a_large_topic(node):
    seen: list[int] = []

    async def look() -> None:
        while True:
            image = await fresh_image(node)
            if "large" in image.topics:
                seen.append(len(image.topics["large"].partitions))
                return

    async with asyncio.timeout(30):
        await asyncio.gather(look(), node.controller.create_topics([NewTopic("large", 950)]))
    assert seen == [950]
    assert len(node.image.topics["large"].partitions) == 950


@pytest.mark.parametrize("count", [1, 98, 99, 100, 101, 199, 200, 201])
async def test_every_number_of_partitions_fits_its_transactions(node, count):
    (made,) = await node.controller.create_topics([NewTopic("t", count)])
    assert isinstance(made, Topic)
    assert len((await fresh_image(node)).topics["t"].partitions) == count


async def test_many_topics_share_few_transactions(node):
    before = node.image.revision
    results = await node.controller.create_topics([NewTopic(f"t-{n}") for n in range(1000)])
    assert all(isinstance(result, Topic) for result in results)
    assert [result.name for result in results] == [f"t-{n}" for n in range(1000)]
    assert node.image.revision - before == 20


async def test_large_settings_of_many_topics_are_spread_over_transactions(node, monkeypatch):
    name, value = "leader.replication.throttled.replicas", ",".join(f"{n}:1" for n in range(15_000))
    monkeypatch.setattr("penstock.cluster.topic_plan.validate_change", lambda *arguments: None)
    results = await node.controller.create_topics([NewTopic(f"t-{n}", configs={name: value}) for n in range(20)])
    assert all(isinstance(result, Topic) for result in results)
    (result,) = await node.controller.create_topics([NewTopic("huge", configs={name: value * 5})])
    assert isinstance(result, InvalidConfig)


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


async def test_settings_that_contradict_each_other_are_refused(node):
    both = {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}
    results = await node.controller.create_topics([NewTopic("a", configs=both), NewTopic("b")])
    assert [type(result) for result in results] == [InvalidConfig, Topic]
    resource = ConfigResource(Scope.TOPIC, "b")
    await node.controller.alter_configs(resource, [set_config("max.compaction.lag.ms", "4")])
    with pytest.raises(InvalidConfig):
        await node.controller.alter_configs(resource, [set_config("min.compaction.lag.ms", "5")])
    assert node.image.topics["b"].configs == {"max.compaction.lag.ms": "4"}


async def test_partitions_are_spread_over_the_brokers(store, start_node):
    async with start_node(store, node_id=1) as first, start_node(store, node_id=2, directory_id=UUID(int=2)) as second:
        await first.feed.reached(second.membership.broker_epoch)
        for number in range(10):
            await first.controller.create_topics([NewTopic(f"t{number}")])
        leaders = [topic.partitions[0].leader for topic in first.image.topics.values()]
        assert sorted(leaders) == [1] * 5 + [2] * 5


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


async def test_what_a_crash_left_of_a_creation_is_cleaned_up(node):
    layout = node.image.layout
    left = [Put(layout.partition(UUID(int=7), n), STATE) for n in range(120)]
    await node.store.txn([], left[:100])
    last = await node.store.txn([], left[100:])
    await node.feed.reached(last.revision)
    await node.controller.create_topics([NewTopic("whole", 2)])
    assert await Orphans(node.store, node.feed, node.membership).clean() == 120
    assert len(await keys(node, "partitions/")) == 2
    assert await keys(node, "creating/") == []


async def test_a_creation_under_way_is_not_taken_for_what_a_crash_left(store, node, start_node, monkeypatch):
    real = SqliteStore.txn
    async with start_node(store, node_id=2, directory_id=UUID(int=2)) as other:
        orphans = Orphans(node.store, node.feed, node.membership)
        cleaned: list[int] = []

        async def txn(self, compare, then, orelse=()):
            monkeypatch.setattr(SqliteStore, "txn", real)
            result = await self.txn(compare, then, orelse)
            await node.feed.reached(result.revision)
            cleaned.append(await orphans.clean())
            monkeypatch.setattr(SqliteStore, "txn", txn)
            return result

        monkeypatch.setattr(SqliteStore, "txn", txn)
        (made,) = await other.controller.create_topics([NewTopic("large", 450)])
        monkeypatch.setattr(SqliteStore, "txn", real)
    assert isinstance(made, Topic)
    assert cleaned == [0] * 6
    assert (await fresh_image(node)).topics["large"].id == made.id
    assert await keys(node, "creating/") == []


async def test_a_creation_is_refused_once_its_partitions_were_taken_for_what_a_crash_left(
    store, node, start_node, monkeypatch
):
    real = SqliteStore.txn
    async with start_node(store, node_id=2, directory_id=UUID(int=2)) as other:

        async def txn(self, compare, then, orelse=()):
            if any(isinstance(put, Put) and "/topics/" in put.key for put in then):
                # As late as it can be: all but the last transaction is written when the guard goes.
                monkeypatch.setattr(SqliteStore, "txn", real)
                last = await self.txn([], [Delete(f"{node.image.layout.prefix}creating/{guard}") for guard in guards])
                await node.feed.reached(last.revision)
                assert await Orphans(node.store, node.feed, node.membership).clean() == 400
            result = await real(self, compare, then, orelse)
            guards.extend(put.key.rpartition("/")[2] for put in then if "/creating/" in put.key)
            return result

        guards: list[str] = []
        monkeypatch.setattr(SqliteStore, "txn", txn)
        (refused,) = await other.controller.create_topics([NewTopic("large", 450)])
    assert isinstance(refused, RegistrationLost)
    assert await keys(node, "partitions/") == []
    assert "large" not in node.image.topics


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


async def test_a_failing_store_fails_the_topics_it_could_not_take_and_no_others(node, monkeypatch):
    real = SqliteStore.txn
    calls = 0

    async def txn(self, compare, then, orelse=()):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Unavailable("the disk is full")
        return await real(self, compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    results = await node.controller.create_topics([NewTopic(f"t-{n}") for n in range(120)])
    failed = [number for number, result in enumerate(results) if isinstance(result, Unavailable)]
    assert failed == list(range(50, 100))
    assert len(node.image.topics) == 70


# Partitions


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


# Settings and quotas


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


# Producer ids and the fence


async def test_producer_ids_are_never_given_twice_not_even_to_brokers_at_once(store, node, start_node):
    async with start_node(store, node_id=2, directory_id=UUID(int=2)) as other:
        blocks = await asyncio.gather(
            *(each.controller.allocate_producer_id_block() for each in (node, other) for _ in range(5))
        )
    given = sorted(block.start for block in blocks)
    assert given == [n * 1000 for n in range(10)]
    assert {len(block) for block in blocks} == {1000}


async def test_any_broker_serves_its_clients(store, node, start_node):
    async with start_node(store, node_id=2, directory_id=UUID(int=2)) as second:
        assert not second.membership.is_controller
        (made,) = await second.controller.create_topics([NewTopic("x", 250)])
        assert isinstance(made, Topic)
        await second.controller.create_partitions("x", 251)
        await second.controller.alter_configs(ConfigResource(Scope.TOPIC, "x"), [set_config("retention.ms", "5")])
        (gone,) = await second.controller.delete_topics(["x"])
        assert isinstance(gone, Topic)


async def test_a_broker_taken_for_gone_changes_nothing(node):
    await node.controller.create_topics([NewTopic("a")])
    layout = node.image.layout
    registration = await node.store.get(layout.broker(1))
    await node.store.txn([], [Delete(layout.broker(1))])
    # Even when it is registered again, what it decided in its former life is refused.
    last = await node.store.txn([], [Put(layout.broker(1), registration.value)])
    await node.feed.reached(last.revision)
    (refused,) = await node.controller.create_topics([NewTopic("b")])
    assert isinstance(refused, RegistrationLost)
    (refused,) = await node.controller.create_topics([NewTopic("large", 250)])
    assert isinstance(refused, RegistrationLost)
    (refused,) = await node.controller.delete_topics(["a"])
    assert isinstance(refused, RegistrationLost)
    for change in (
        node.controller.create_partitions("a", 2),
        node.controller.alter_configs(ConfigResource(Scope.TOPIC, "a"), [set_config("retention.ms", "5")]),
        node.controller.alter_client_quotas(frozenset({("ip", None)}), {"connection_creation_rate": 1.0}),
    ):
        with pytest.raises(RegistrationLost):
            await change
    assert (await node.store.range("")).revision == last.revision


async def test_a_creation_whose_outcome_is_unknown_says_so_and_is_not_tried_again(node, monkeypatch):
    real = SqliteStore.txn

    async def txn(self, compare, then, orelse=()):
        monkeypatch.setattr(SqliteStore, "txn", real)
        await self.txn(compare, then, orelse)
        raise Ambiguous("no answer")

    monkeypatch.setattr(SqliteStore, "txn", txn)
    (result,) = await node.controller.create_topics([NewTopic("a")])
    assert isinstance(result, Ambiguous)
    again = Controller(node.store, node.feed, Rng(9), node.membership, BrokerConfig())
    (again,) = await again.create_topics([NewTopic("a")])
    assert isinstance(again, TopicAlreadyExists)
