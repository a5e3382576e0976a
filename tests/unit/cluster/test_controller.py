"""Which broker may change the cluster: any that is registered, several at once, and none that was taken for gone."""

import asyncio
from uuid import UUID

import pytest
from tests.unit.cluster.controlling import set_config

from penstock.cluster.image import Topic
from penstock.cluster.overrides import ConfigResource
from penstock.cluster.store import Delete, Put
from penstock.cluster.topic_plan import NewTopic
from penstock.config.setting import Scope
from penstock.errors import RegistrationLost


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
