"""What the controller does unasked, with three brokers on one real store: deaths, returns, moves, growth."""

import asyncio
import time
from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.cluster.cluster_of_three import make_topic, put_state, settled, three, until

from penstock.cluster import supervisor as supervisor_module
from penstock.cluster.image import NO_LEADER
from penstock.cluster.layout import encode
from penstock.cluster.overrides import ConfigChange, ConfigOp, ConfigResource
from penstock.cluster.partition_writes import check_step
from penstock.cluster.sqlite_store import SqliteStore
from penstock.cluster.store import Ambiguous, Put, Unavailable
from penstock.cluster.supervisor import unbalanced
from penstock.cluster.topic_plan import NewTopic
from penstock.config.setting import Scope
from penstock.errors import NotController
from penstock.model import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC


@pytest.fixture
async def nodes(store, start_node):
    """Nobody supervises by itself: a test says when the controller, which is 1, looks."""
    async with three(store, start_node) as nodes:
        yield nodes


async def kill(nodes, dead: int) -> None:
    """Its lease is over, and everybody has seen it."""
    await nodes[0].store.revoke(nodes[dead - 1].membership.lease_id)
    await until(lambda: all(dead not in node.image.brokers for node in nodes))


def states(node, name="t"):
    return node.image.topics[name].partitions


async def look(node) -> None:
    """Until nothing is left to do: a move may wait for an election."""
    while True:
        before = node.image.revision
        await node.supervisor.look()
        if node.image.revision == before:
            return


# Brokers that go and come


async def test_partitions_of_a_dead_broker_get_new_leaders_and_its_isrs_shrink(nodes):
    topic = await make_topic(nodes, 120)
    await put_state(nodes, topic, 0, leader=2, leader_epoch=1, partition_epoch=1)
    await put_state(nodes, topic, 1, leader=3, leader_epoch=1, partition_epoch=1)
    await look(nodes[0])
    await kill(nodes, 2)
    await look(nodes[0])
    first, second, third = states(nodes[0])[:3]
    assert (first.leader, first.leader_epoch, first.isr) == (1, 2, (1, 3))
    assert (second.leader, second.leader_epoch, second.isr) == (3, 1, (1, 3))
    assert (third.leader, third.leader_epoch, third.isr, third.partition_epoch) == (1, 0, (1, 3), 1)
    assert {state.isr for state in states(nodes[0])} == {(1, 3)}
    before = nodes[0].image.revision
    await nodes[0].supervisor.look()
    assert nodes[0].image.revision == before, "what is right is left alone"


async def test_who_leaves_below_min_insync_may_still_lead(nodes):
    topic = await make_topic(nodes)
    await put_state(nodes, topic, leader=2, isr=(1, 2), leader_epoch=1, partition_epoch=1)
    await kill(nodes, 2)
    await look(nodes[0])
    (state,) = states(nodes[0])
    assert (state.leader, state.isr, state.elr) == (1, (1,), (2,))


async def test_a_partition_whose_last_in_sync_is_gone_waits_for_it(nodes):
    topic = await make_topic(nodes)
    await put_state(nodes, topic, leader=3, isr=(3,), leader_epoch=4, partition_epoch=4)
    await kill(nodes, 3)
    await look(nodes[0])
    (state,) = states(nodes[0])
    assert (state.leader, state.isr, state.leader_epoch) == (NO_LEADER, (3,), 5)
    await nodes[2].membership.join()
    await settled(nodes)
    await look(nodes[0])
    (state,) = states(nodes[0])
    assert (state.leader, state.isr, state.leader_epoch) == (3, (3,), 6)


async def test_an_unclean_election_happens_only_where_the_topic_allows_it(nodes):
    careful = await make_topic(nodes, name="careful")
    careless = await make_topic(nodes, name="careless", unclean_leader_election_enable="true")
    for topic in (careful, careless):
        await put_state(nodes, topic, leader=3, isr=(3,), leader_epoch=1, partition_epoch=1)
    await kill(nodes, 3)
    await look(nodes[0])
    assert states(nodes[0], "careful")[0].leader == NO_LEADER
    (state,) = states(nodes[0], "careless")
    assert (state.leader, state.isr, state.elr) == (1, (1,), ())


async def test_a_broker_that_is_stopping_leads_only_what_nobody_else_can(nodes):
    topic = await make_topic(nodes, 2)
    await put_state(nodes, topic, 0, leader=2, leader_epoch=1, partition_epoch=1)
    await put_state(nodes, topic, 1, leader=2, isr=(2,), leader_epoch=1, partition_epoch=1)
    await nodes[1].membership.announce_stopping()
    await settled(nodes)
    await look(nodes[0])
    assert [state.leader for state in states(nodes[0])] == [1, 2]


async def test_lowering_min_insync_lets_those_go_who_may_lead_no_more(nodes):
    topic = await make_topic(nodes)
    await put_state(nodes, topic, isr=(1,), elr=(2, 3), partition_epoch=1)
    await look(nodes[0])
    assert states(nodes[0])[0].elr == (2, 3)
    lower = [ConfigChange("min.insync.replicas", ConfigOp.SET, "1")]
    await nodes[0].controller.alter_configs(ConfigResource(Scope.TOPIC, "t"), lower)
    await look(nodes[0])
    assert states(nodes[0])[0].elr == ()


async def test_a_topic_made_while_a_broker_died_gets_leaders(nodes):
    (topic,) = await nodes[0].controller.create_topics([NewTopic("t", -1, -1, assignment={0: [3, 1, 2]})])
    await nodes[0].supervisor.look()
    await kill(nodes, 3)
    late = replace(topic.partitions[0], partition_epoch=3)
    layout = nodes[0].image.layout
    result = await nodes[0].store.txn([], [Put(layout.partition(topic.id, 0), value_of(late))])
    await nodes[0].feed.reached(result.revision)
    await look(nodes[0])
    assert (states(nodes[0])[0].leader, states(nodes[0])[0].isr) == (1, (1, 2))


def value_of(state) -> bytes:
    return encode(state.as_json())


# Office


async def test_a_new_controller_looks_at_everything_its_forerunner_left(nodes):
    topic = await make_topic(nodes, 60)
    for index in range(3):
        await put_state(nodes, topic, index, leader=3, leader_epoch=1, partition_epoch=1)
    # The controller dies with another, before it could do anything.
    await kill(nodes, 3)
    await kill(nodes, 1)
    assert await nodes[1].membership.elect()
    await look(nodes[1])
    assert {(state.leader, state.isr, state.elr) for state in states(nodes[1])} == {(2, (2,), (1, 3))}


@pytest.mark.parametrize("writes_before", range(4))
async def test_a_controller_replaced_midway_stops_and_the_next_one_finishes(nodes, monkeypatch, writes_before):
    await make_topic(nodes, 200)
    await kill(nodes, 3)
    real = SqliteStore.txn
    calls = 0

    async def txn(self, compare, then, orelse=()):
        nonlocal calls
        calls += 1
        if calls == writes_before + 1:
            monkeypatch.setattr(SqliteStore, "txn", real)
            await self.revoke(nodes[0].membership.lease_id)
            await until(lambda: nodes[1].image.controller_id == -1)
            assert await nodes[1].membership.elect()
        return await real(self, compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    with pytest.raises(NotController):
        await nodes[0].supervisor.look()
    await until(lambda: 1 not in nodes[1].image.brokers)
    await look(nodes[1])
    assert {(state.leader, state.isr) for state in states(nodes[1])} == {(2, (2,))}


@pytest.mark.parametrize("failure", [Unavailable, Ambiguous])
async def test_a_store_that_fails_is_tried_again(store, start_node, monkeypatch, failure):
    monkeypatch.setattr(supervisor_module, "RETRY_S", 0.01)
    async with three(store, start_node, is_running=True) as nodes:
        await make_topic(nodes, 3)
        real = SqliteStore.txn
        failures = 3

        async def txn(self, compare, then, orelse=()):
            nonlocal failures
            if any(isinstance(put, Put) and "/partitions/" in put.key for put in then) and failures:
                failures -= 1
                raise failure("away")
            return await real(self, compare, then, orelse)

        monkeypatch.setattr(SqliteStore, "txn", txn)
        await nodes[2].membership.close()
        await until(lambda: {state.isr for state in states(nodes[0])} == {(1, 2)})
        assert failures == 0


async def test_the_others_take_over_from_a_controller_that_dies(store, start_node):
    async with three(store, start_node, is_running=True) as nodes:
        await make_topic(nodes, 100)
        assert nodes[0].membership.is_controller
        await store.revoke(nodes[0].membership.lease_id)
        # It finds out by itself and joins again, as a follower of what others lead now.
        await until(lambda: any(node.membership.is_controller for node in nodes[1:]))
        await until(lambda: {state.leader for state in states(nodes[1])} == {2})
        assert {state.leader_epoch for state in states(nodes[1])} == {1}


async def test_a_thousand_partitions_get_new_leaders_when_their_leader_dies(store, start_node, record_property):
    async with three(store, start_node, is_running=True) as nodes:
        await make_topic(nodes, 1000)
        began = time.monotonic()
        await store.revoke(nodes[0].membership.lease_id)
        await until(lambda: all(state.leader == 2 for state in states(nodes[1])))
        record_property("seconds", time.monotonic() - began)
        assert {state.isr for state in states(nodes[1])} <= {(2, 3)}


# Moves


async def test_a_move_ends_when_all_that_are_added_are_in_sync(nodes):
    topic = await make_topic(nodes)
    await put_state(nodes, topic, replicas=(1,), isr=(1,), partition_epoch=1)
    place = (topic.id, 0)
    await nodes[2].partitions.reassign({place: [2, 3]})
    await nodes[0].feed.reached(nodes[2].image.revision)
    await look(nodes[0])
    seen = states(nodes[0])[0]
    assert (seen.replicas, seen.adding, seen.removing) == ((2, 3, 1), (2, 3), (1,))
    epochs = {node.membership.node_id: node.membership.broker_epoch for node in nodes[1:]}
    half = await nodes[0].partitions.change_isr(*place, seen, [1, 2], {2: epochs[2]})
    await nodes[0].feed.reached(half.mod_revision)
    await look(nodes[0])
    assert states(nodes[0])[0] == half
    whole = await nodes[0].partitions.change_isr(*place, half, [1, 2, 3], {3: epochs[3]})
    await nodes[0].feed.reached(whole.mod_revision)
    await look(nodes[0])
    done = states(nodes[0])[0]
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == ((2, 3), (2, 3), 2, 1)
    assert (done.adding, done.removing) == ((), ())
    check_step(whole, done)


async def test_a_copy_that_counts_is_let_go_only_when_enough_others_are_left(nodes):
    topic = await make_topic(nodes)
    await put_state(nodes, topic, isr=(1, 2), partition_epoch=1)
    place = (topic.id, 0)
    outcome = (await nodes[0].partitions.reassign({place: [2, 3]}))[place]
    assert (outcome.replicas, outcome.removing, outcome.isr) == ((2, 3, 1), (1,), (2, 1))
    await look(nodes[0])
    assert states(nodes[0])[0].removing == (1,)
    caught_up = await nodes[0].partitions.change_isr(
        *place, states(nodes[0])[0], [1, 2, 3], {3: nodes[2].membership.broker_epoch}
    )
    await nodes[0].feed.reached(caught_up.mod_revision)
    await look(nodes[0])
    assert (states(nodes[0])[0].replicas, states(nodes[0])[0].leader) == ((2, 3), 2)


# Balance


async def test_leaders_go_back_to_the_first_replica_where_too_many_are_away(nodes, monkeypatch):
    topic = await make_topic(nodes, 20)
    for index in range(2):
        await put_state(nodes, topic, index, leader=2, leader_epoch=1, partition_epoch=1)
    assert unbalanced(nodes[0].image, 10) == []
    await put_state(nodes, topic, 2, leader=2, leader_epoch=1, partition_epoch=1)
    assert unbalanced(nodes[0].image, 10) == [(topic.id, index) for index in range(3)]
    await put_state(nodes, topic, 1, isr=(2, 3), leader=2, leader_epoch=2, partition_epoch=2)
    assert unbalanced(nodes[0].image, 5) == [(topic.id, 0), (topic.id, 2)]
    await look(nodes[0])
    assert [state.leader for state in states(nodes[0])[:4]] == [2, 2, 2, 1], "not before it is time"
    nodes[0].supervisor._balancing.next_at = 0.0
    monkeypatch.setattr(nodes[0].supervisor._config, "leader_imbalance_per_broker_percentage", 5)
    await look(nodes[0])
    assert [state.leader for state in states(nodes[0])[:4]] == [1, 2, 1, 1]


# Internal topics of a cluster that assembles


@pytest.mark.parametrize("name", [GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC])
async def test_an_internal_topic_made_by_the_first_broker_grows_as_others_come(store, start_node, name):
    async with start_node(store, node_id=1, directory_id=UUID(int=1)) as first:
        await first.controller.create_topics([NewTopic(name, 6, 1)])
        await look(first)
        async with (
            start_node(store, node_id=2, directory_id=UUID(int=2)) as second,
            start_node(store, node_id=3, directory_id=UUID(int=3)) as third,
        ):
            nodes = [first, second, third]
            await settled(nodes)
            await look(first)
            assert {len(state.replicas) for state in states(first, name)} == {3}
            assert first.image.topics[name].configs == {}, "not before the replicas are there"
            for index, state in enumerate(states(first, name)):
                epochs = {node: nodes[node - 1].membership.broker_epoch for node in (2, 3)}
                await first.partitions.change_isr(first.image.topics[name].id, index, state, (1, 2, 3), epochs)
            await until(lambda: all(len(state.isr) == 3 for state in states(first, name)))
            await look(first)
            assert {(state.adding, state.removing) for state in states(first, name)} == {((), ())}
            assert sorted(state.replicas[0] for state in states(first, name)) == [1, 1, 2, 2, 3, 3]
            assert first.image.topics[name].configs == {"min.insync.replicas": "2"}
            before = first.image.revision
            await look(first)
            assert first.image.revision == before


async def test_the_controller_removes_what_crashes_left_of_topics(nodes):
    layout = nodes[0].image.layout
    state = (await make_topic(nodes)).partitions[0]
    result = await nodes[0].store.txn([], [Put(layout.partition(UUID(int=9), 0), value_of(state))])
    await nodes[0].feed.reached(result.revision)
    await nodes[0].supervisor.look()
    assert await nodes[0].store.get(layout.partition(UUID(int=9), 0)) is None


async def test_a_broker_that_is_not_the_controller_supervises_nothing(nodes):
    await make_topic(nodes)
    await kill(nodes, 3)
    working = asyncio.create_task(nodes[1].supervisor.run())
    await asyncio.sleep(0)
    assert states(nodes[1])[0].isr == (1, 2, 3)
    nodes[1].supervisor._is_all_due = True
    with pytest.raises(NotController):
        await nodes[1].supervisor.look()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
