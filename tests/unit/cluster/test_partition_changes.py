"""What a broker changes of partitions itself: its ISRs, its leadership when it stops, its past when it starts."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.cluster.cluster_of_three import make_topic, put_state, settled, three, until

from penstock.cluster import membership
from penstock.cluster.image import NO_LEADER, partition_state
from penstock.cluster.layout import encode
from penstock.cluster.partition_changes import ElectionMode, PartitionMoved
from penstock.cluster.partition_writes import check_step
from penstock.cluster.sqlite_store import SqliteStore
from penstock.cluster.store import Ambiguous, Delete, Put, Unavailable
from penstock.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    IneligibleReplica,
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    RegistrationLost,
    UnknownTopicOrPartition,
)


async def stored(node, topic, index=0):
    return partition_state(await node.store.get(node.image.layout.partition(topic.id, index)))


@pytest.fixture
async def nodes(store, start_node):
    async with three(store, start_node) as nodes:
        yield nodes


# ISR changes of a leader


async def test_a_leader_drops_and_adds_by_compare_and_swap(nodes):
    topic = await make_topic(nodes)
    leader = nodes[0].partitions
    first = topic.partitions[0]
    shrunk = await leader.change_isr(topic.id, 0, first, [1, 2], {})
    assert (shrunk.isr, shrunk.elr, shrunk.partition_epoch, shrunk.leader_epoch) == ((1, 2), (), 1, 0)
    assert shrunk == await stored(nodes[0], topic)
    alone = await leader.change_isr(topic.id, 0, shrunk, [1], {})
    assert (alone.isr, alone.elr) == ((1,), (2,))
    epochs = {3: nodes[2].membership.broker_epoch}
    back = await leader.change_isr(topic.id, 0, alone, [3, 1], epochs)
    assert (back.isr, back.elr) == ((1, 3), ())
    check_step(alone, back)


async def test_a_change_of_what_somebody_else_changed_is_refused_and_says_what_is_there(nodes):
    topic = await make_topic(nodes)
    seen = topic.partitions[0]
    actual = await put_state(nodes, topic, leader=2, leader_epoch=1, partition_epoch=1)
    with pytest.raises(PartitionMoved) as moved:
        await nodes[0].partitions.change_isr(topic.id, 0, seen, [1], {})
    assert moved.value.actual == actual
    layout = nodes[0].image.layout
    await nodes[0].store.txn([], [Delete(layout.topic("t")), Delete(layout.partition(topic.id, 0))])
    with pytest.raises(PartitionMoved) as moved:
        await nodes[0].partitions.change_isr(topic.id, 0, seen, [1], {})
    assert moved.value.actual is None


async def test_a_topic_unknown_here_has_no_isr_to_change(nodes):
    topic = await make_topic(nodes)
    with pytest.raises(PartitionMoved):
        await nodes[0].partitions.change_isr(UUID(int=5), 0, topic.partitions[0], [1], {})


async def test_of_two_changes_at_once_one_wins(nodes):
    topic = await make_topic(nodes)
    seen = topic.partitions[0]
    outcomes = await asyncio.gather(
        *(nodes[0].partitions.change_isr(topic.id, 0, seen, isr, {}) for isr in ([1, 2], [1, 3])),
        return_exceptions=True,
    )
    (won,) = [each for each in outcomes if not isinstance(each, Exception)]
    (lost,) = [each for each in outcomes if isinstance(each, PartitionMoved)]
    assert lost.actual == won == await stored(nodes[0], topic)


async def test_a_broker_in_another_life_than_the_one_that_caught_up_is_not_added(nodes):
    topic = await make_topic(nodes)
    seen = await put_state(nodes, topic, isr=(1, 2), partition_epoch=1)
    epoch = nodes[2].membership.broker_epoch
    await nodes[2].membership.renew_epoch()
    await settled(nodes)
    with pytest.raises(IneligibleReplica) as refused:
        await nodes[0].partitions.change_isr(topic.id, 0, seen, [1, 2, 3], {3: epoch})
    assert refused.value.node_id == 3
    assert await stored(nodes[0], topic) == seen


async def test_a_broker_whose_image_lags_does_not_add_one_that_died(nodes, monkeypatch):
    topic = await make_topic(nodes)
    seen = await put_state(nodes, topic, isr=(1, 2), partition_epoch=1)
    epoch = nodes[2].membership.broker_epoch
    real = SqliteStore.txn

    async def txn(self, compare, then, orelse=()):
        monkeypatch.setattr(SqliteStore, "txn", real)
        # After the look at the image, before the store has the change.
        await self.revoke(nodes[2].membership.lease_id)
        return await self.txn(compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    with pytest.raises(IneligibleReplica):
        await nodes[0].partitions.change_isr(topic.id, 0, seen, [1, 2, 3], {3: epoch})


async def test_a_leader_that_asks_again_hears_that_one_was_added_though_it_is_gone_by_now(nodes, monkeypatch):
    topic = await make_topic(nodes)
    seen = await put_state(nodes, topic, isr=(1, 2), partition_epoch=1)
    epochs = {3: nodes[2].membership.broker_epoch}
    real = SqliteStore.txn

    async def txn(self, compare, then, orelse=()):
        monkeypatch.setattr(SqliteStore, "txn", real)
        # An attempt before, whose answer was lost.
        assert (await self.txn(compare, then, orelse)).ok
        await self.revoke(nodes[2].membership.lease_id)
        return await self.txn(compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    with pytest.raises(PartitionMoved) as moved:
        await nodes[0].partitions.change_isr(topic.id, 0, seen, [1, 2, 3], epochs)
    assert moved.value.actual.isr == (1, 2, 3)


async def test_a_broker_that_is_stopping_is_not_added(nodes):
    topic = await make_topic(nodes)
    seen = await put_state(nodes, topic, isr=(1, 2), partition_epoch=1)
    await nodes[2].membership.announce_stopping()
    await settled(nodes)
    with pytest.raises(IneligibleReplica):
        await nodes[0].partitions.change_isr(topic.id, 0, seen, [1, 2, 3], {3: nodes[2].membership.broker_epoch})


async def test_a_leader_taken_for_gone_changes_nothing(nodes):
    topic = await make_topic(nodes)
    await nodes[0].store.revoke(nodes[0].membership.lease_id)
    with pytest.raises(RegistrationLost):
        await nodes[0].partitions.change_isr(topic.id, 0, topic.partitions[0], [1], {})
    assert await stored(nodes[1], topic) == topic.partitions[0]


@pytest.mark.parametrize("is_applied", [True, False])
async def test_a_change_of_unknown_outcome_is_read_again(nodes, lose_next_answer, is_applied):
    topic = await make_topic(nodes)
    seen = topic.partitions[0]
    lose_next_answer(is_applied=is_applied)
    change = nodes[0].partitions.change_isr
    if is_applied:
        written = await change(topic.id, 0, seen, [1, 2], {})
        assert written == await stored(nodes[0], topic)
    else:
        # It may yet come to pass; asked again, one of the two is refused.
        with pytest.raises(Ambiguous):
            await change(topic.id, 0, seen, [1, 2], {})
        assert (await change(topic.id, 0, seen, [1, 2], {})).isr == (1, 2)


async def test_a_change_of_unknown_outcome_that_another_overtook_is_told(nodes, monkeypatch):
    topic = await make_topic(nodes)
    real = SqliteStore.txn

    async def txn(self, compare, then, orelse=()):
        monkeypatch.setattr(SqliteStore, "txn", real)
        await put_state(nodes, topic, leader=2, leader_epoch=1, partition_epoch=1)
        raise Ambiguous("no answer")

    monkeypatch.setattr(SqliteStore, "txn", txn)
    with pytest.raises(PartitionMoved) as moved:
        await nodes[0].partitions.change_isr(topic.id, 0, topic.partitions[0], [1, 2], {})
    assert moved.value.actual.leader == 2


# Stopping


async def test_a_broker_that_stops_hands_over_what_it_leads_and_leaves_the_isrs(nodes):
    topic = await make_topic(nodes, 120)
    await put_state(nodes, topic, 1, leader=2, leader_epoch=1, partition_epoch=1)
    await put_state(nodes, topic, 2, isr=(1,), elr=(2,), partition_epoch=1)
    await put_state(nodes, topic, 3, isr=(1, 2), partition_epoch=1)
    stopping = nodes[0]
    await stopping.membership.announce_stopping()
    stayed = await stopping.partitions.hand_over([(topic.id, n) for n in range(120)])
    assert stayed == [(topic.id, 2)]
    states = stopping.image.topics["t"].partitions
    assert {(s.leader, s.isr, s.elr, s.leader_epoch) for s in (states[0], *states[4:])} == {(2, (2, 3), (), 1)}
    assert (states[1].leader, states[1].leader_epoch, states[1].isr) == (2, 1, (2, 3))
    assert (states[3].leader, states[3].isr, states[3].elr) == (2, (2,), (1,))


async def test_a_hand_over_meets_changes_of_others_and_goes_on_with_what_is_there(nodes, monkeypatch):
    topic = await make_topic(nodes, 3)
    real = SqliteStore.txn

    async def txn(self, compare, then, orelse=()):
        monkeypatch.setattr(SqliteStore, "txn", real)
        layout = nodes[0].image.layout
        late = replace(topic.partitions[1], isr=(1, 3), partition_epoch=1)
        await self.txn([], [Put(layout.partition(topic.id, 1), encode(late.as_json()))])
        await self.txn([], [Delete(layout.broker(2))])
        return await self.txn(compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    assert await nodes[0].partitions.hand_over([(topic.id, n) for n in range(3)]) == []
    states = nodes[0].image.topics["t"].partitions
    assert [state.leader for state in states] == [3, 3, 3]
    assert states[1].isr == (3,)


async def test_nobody_hands_over_to_one_that_died_a_moment_ago(nodes, monkeypatch):
    topic = await make_topic(nodes, 2)
    real = SqliteStore.txn

    async def txn(self, compare, then, orelse=()):
        monkeypatch.setattr(SqliteStore, "txn", real)
        await self.revoke(nodes[1].membership.lease_id)
        return await self.txn(compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    assert await nodes[0].partitions.hand_over([(topic.id, 0), (topic.id, 1)]) == []
    assert [state.leader for state in nodes[0].image.topics["t"].partitions] == [3, 3]


async def test_a_heir_that_began_a_new_life_meanwhile_is_asked_for_anew(nodes, monkeypatch):
    topic = await make_topic(nodes, 2)
    real = SqliteStore.txn

    async def txn(self, compare, then, orelse=()):
        monkeypatch.setattr(SqliteStore, "txn", real)
        await nodes[1].membership.renew_epoch()
        return await self.txn(compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    assert await nodes[0].partitions.hand_over([(topic.id, 0), (topic.id, 1)]) == []
    assert [state.leader for state in nodes[0].image.topics["t"].partitions] == [2, 2]


async def test_a_store_that_is_away_leaves_leaders_where_they_are(nodes, monkeypatch):
    topic = await make_topic(nodes)

    async def txn(self, compare, then, orelse=()):
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "txn", txn)
        assert await nodes[0].partitions.hand_over([(topic.id, 0)]) == [(topic.id, 0)]


# Starting


async def test_a_broker_back_from_an_unclean_stop_leaves_where_others_can_lead(nodes):
    topic = await make_topic(nodes, 4)
    await put_state(nodes, topic, 1, isr=(2, 3), leader=2, leader_epoch=1, partition_epoch=1)
    await put_state(nodes, topic, 2, isr=(1,), partition_epoch=1)
    await put_state(nodes, topic, 3, isr=(1,), partition_epoch=1)
    await nodes[0].membership.end_former_life()
    await nodes[0].partitions.leave(
        {(topic.id, 0): True, (topic.id, 1): True, (topic.id, 2): True, (topic.id, 3): False}
    )
    states = nodes[0].image.topics["t"].partitions
    assert [(s.leader, s.leader_epoch, s.isr, s.elr) for s in states] == [
        (NO_LEADER, 1, (2, 3), ()),
        (2, 1, (2, 3), ()),
        (1, 1, (1,), ()),
        (NO_LEADER, 1, (), ()),
    ]


async def test_leaving_is_refused_once_somebody_is_registered_under_the_id(nodes):
    topic = await make_topic(nodes)
    with pytest.raises(RegistrationLost):
        await nodes[0].partitions.leave({(topic.id, 0): True})
    assert await stored(nodes[0], topic) == topic.partitions[0]


async def test_a_broker_does_not_start_believing_it_has_left_when_the_store_did_not_say_so(nodes, monkeypatch):
    topic = await make_topic(nodes)
    await nodes[0].membership.end_former_life()

    async def txn(self, compare, then, orelse=()):
        raise Ambiguous("no answer")

    monkeypatch.setattr(membership, "PERSIST_S", 0.0)
    monkeypatch.setattr(SqliteStore, "txn", txn)
    with pytest.raises(Ambiguous):
        await nodes[0].partitions.leave({(topic.id, 0): True})


async def test_a_store_that_comes_back_in_time_does_not_keep_a_broker_from_starting(nodes, monkeypatch):
    monkeypatch.setattr(membership, "REJOIN_S", 0.01)
    topic = await make_topic(nodes)
    await nodes[0].membership.end_former_life()
    real = SqliteStore.txn
    failures = [Unavailable("away"), Ambiguous("no answer"), Unavailable("away")]

    async def txn(self, compare, then, orelse=()):
        if failures:
            raise failures.pop()
        return await real(self, compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    await nodes[0].partitions.leave({(topic.id, 0): True})
    failures.extend([Unavailable("away"), Ambiguous("no answer")])
    await nodes[0].membership.join()
    assert (await stored(nodes[0], topic)).isr == (2, 3)
    assert nodes[0].image.brokers[1].epoch == nodes[0].membership.broker_epoch


# Elections that clients ask for


async def test_the_preferred_replica_leads_when_asked_for(nodes):
    topic = await make_topic(nodes, 3)
    await put_state(nodes, topic, 0, leader=2, leader_epoch=1, partition_epoch=1)
    await put_state(nodes, topic, 1, leader=2, leader_epoch=1, partition_epoch=1, isr=(2, 3))
    places = [(topic.id, 0), (topic.id, 1), (topic.id, 2), (topic.id, 3)]
    outcomes = await nodes[2].partitions.elect(places, ElectionMode.PREFERRED)
    assert (outcomes[places[0]].leader, outcomes[places[0]].leader_epoch) == (1, 2)
    assert [type(outcomes[place]) for place in places[1:]] == [
        PreferredLeaderNotAvailable,
        ElectionNotNeeded,
        UnknownTopicOrPartition,
    ]


async def test_an_unclean_election_is_for_what_has_no_leader(nodes):
    topic = await make_topic(nodes, 3)
    await put_state(nodes, topic, 0, leader=NO_LEADER, isr=(), leader_epoch=1, partition_epoch=1)
    await put_state(nodes, topic, 2, leader=NO_LEADER, isr=(9,), replicas=(9,), leader_epoch=1, partition_epoch=1)
    places = [(topic.id, n) for n in range(3)]
    outcomes = await nodes[1].partitions.elect(places, ElectionMode.UNCLEAN)
    assert (outcomes[places[0]].leader, outcomes[places[0]].isr) == (1, (1,))
    assert isinstance(outcomes[places[1]], ElectionNotNeeded)
    assert isinstance(outcomes[places[2]], EligibleLeadersNotAvailable)


async def test_an_unclean_election_does_not_pass_over_one_who_is_back_but_not_in_the_image_yet(nodes, monkeypatch):
    topic = await make_topic(nodes)
    await put_state(nodes, topic, isr=(1,), partition_epoch=1)
    await nodes[0].membership.close()
    await until(lambda: 1 not in nodes[1].image.brokers)
    real = SqliteStore.txn

    async def txn(self, compare, then, orelse=()):
        monkeypatch.setattr(SqliteStore, "txn", real)
        await nodes[0].membership.join()
        return await self.txn(compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    (outcome,) = (await nodes[1].partitions.elect([(topic.id, 0)], ElectionMode.UNCLEAN)).values()
    assert isinstance(outcome, ElectionNotNeeded)
    assert (await stored(nodes[1], topic)).leader == 1


# Reassignments


async def test_a_reassignment_is_begun_replaced_taken_back_and_listed(nodes):
    topic = await make_topic(nodes)
    place = (topic.id, 0)
    ask = nodes[1].partitions
    await put_state(nodes, topic, replicas=(1,), isr=(1,), partition_epoch=1)
    begun = (await ask.reassign({place: [2, 1]}))[place]
    assert (begun.replicas, begun.adding, begun.removing, begun.isr) == ((2, 1), (2,), (), (1,))
    begun = (await ask.reassign({place: [3]}))[place]
    assert (begun.replicas, begun.adding, begun.removing) == ((3, 1), (3,), (1,))
    assert [(topic.name, index) for topic, index, _ in ask.running_reassignments()] == [("t", 0)]
    back = (await ask.reassign({place: None}))[place]
    assert (back.replicas, back.adding, back.removing, back.leader) == ((1,), (), (), 1)
    assert ask.running_reassignments() == []
    assert isinstance((await ask.reassign({place: None}))[place], NoReassignmentInProgress)


async def test_replicas_that_are_there_already_need_no_move(nodes):
    topic = await make_topic(nodes)
    place = (topic.id, 0)
    turned = (await nodes[0].partitions.reassign({place: [3, 1, 2]}))[place]
    assert (turned.replicas, turned.leader, turned.leader_epoch, turned.adding) == ((3, 1, 2), 1, 0, ())
    assert (await nodes[0].partitions.reassign({place: [3, 1, 2]}))[place] is None
    fewer = (await nodes[0].partitions.reassign({place: [2, 3]}))[place]
    assert (fewer.replicas, fewer.isr, fewer.leader, fewer.leader_epoch, fewer.removing) == ((2, 3), (2, 3), 2, 1, ())


@pytest.mark.parametrize("target", [[], [1, 1], [1, 7]])
async def test_a_senseless_target_is_refused(nodes, target):
    topic = await make_topic(nodes)
    outcomes = await nodes[0].partitions.reassign({(topic.id, 0): target})
    assert isinstance(outcomes[topic.id, 0], InvalidReplicaAssignment)
    assert await stored(nodes[0], topic) == topic.partitions[0]
