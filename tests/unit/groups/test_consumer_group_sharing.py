"""How members of a consumer group share partitions: given back before they are given on, told until they are held."""

import asyncio
from typing import Any

from tests.unit.groups.consuming import World, settle

from penstock.groups.consumer_member import MemberState
from penstock.groups.group_state import ASSIGNING, EMPTY, RECONCILING, STABLE


async def test_the_first_member_has_all_partitions_with_the_answer_to_its_first_heartbeat(world: World) -> None:
    one = world.client("one")
    reply = await one.beat()
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("one", 1, 5_000)
    assert one.partitions() == [0, 1, 2, 3]
    assert world.group.state is STABLE


async def test_a_member_gets_a_partition_only_when_the_one_before_it_has_given_it_back(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    await one.beat()
    await two.beat()
    assert (two.epoch, two.partitions()) == (2, [])
    held = one.owned
    told = await one.beat()
    assert (one.epoch, len(one.partitions())) == (1, 2), "it stays in its epoch until it has given back"
    await one.send(owned=held)
    await two.beat()
    assert two.partitions() == []
    assert told.assignment == one.owned
    await one.beat()
    assert one.epoch == 2
    await two.beat()
    assert sorted(one.partitions() + two.partitions()) == [0, 1, 2, 3]
    assert world.group.state is STABLE


async def test_a_member_that_does_not_say_what_it_holds_still_holds_it(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    await settle(one)
    await two.beat()
    await one.beat()
    for _ in range(3):
        await one.send(owned=None)
    assert world.group.facts.members["one"].standing.state is MemberState.UNREVOKED_PARTITIONS
    await two.beat()
    assert two.partitions() == []


async def test_states_follow_from_epochs(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    await settle(one, two)
    await two.leave()
    assert world.group.state is ASSIGNING
    three = world.client("three")
    await three.beat()
    assert world.group.state is RECONCILING
    await settle(one, three)
    assert world.group.state is STABLE
    await one.leave()
    await three.leave()
    assert world.group.state is EMPTY


async def test_a_heartbeat_without_news_writes_nothing_and_says_nothing(world: World, ledger: Any) -> None:
    one = world.client("one")
    await settle(one)
    batches = len(ledger.batches)
    reply = await one.send(owned=None)
    assert reply.assignment is None
    assert len(ledger.batches) == batches


async def test_a_full_heartbeat_is_told_its_assignment_though_it_is_no_news(world: World) -> None:
    one = world.client("one")
    await settle(one)
    reply = await one.send(**one.said)
    assert reply.assignment == one.owned


async def test_members_that_join_in_one_turn_share_without_a_second_round(world: World) -> None:
    clients = [world.client(name) for name in ("one", "two", "three", "four")]
    await asyncio.gather(*(client.beat() for client in clients))
    assert world.group.facts.epoch == 4
    await settle(*clients)
    assert sorted(client.partitions() for client in clients) == [[0], [1], [2], [3]]


async def test_a_member_that_joins_again_under_its_id_is_told_where_it_stands(world: World) -> None:
    """Its first answer was lost, or it was fenced and has given everything up."""
    one = world.client("one")
    await one.beat()
    again = await one.send(member_epoch=0, owned={}, **one.said)
    assert (again.member_epoch, again.assignment) == (1, one.owned)
    assert world.group.facts.epoch == 1


async def test_a_member_is_told_its_assignment_until_it_says_that_it_holds_it(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    await settle(one)
    await two.beat()
    await one.beat()
    await one.beat()
    news = await two.send()
    assert news.assignment is not None
    assert len(news.assignment) == 1
    assert (await two.send(owned=None)).assignment == news.assignment, "the answer before may have gone nowhere"
    await two.beat()
    await two.beat()
    assert (await two.send(owned=None)).assignment is None
