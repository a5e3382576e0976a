"""What members of a consumer group subscribe to, by name or by pattern, and topics that come, grow and go."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from tests.unit.groups.consuming import World, drop_topic, put_topic, refused, settle

from penstock.errors import ErrorCode


async def test_an_assignor_the_broker_does_not_have_is_refused(world: World) -> None:
    assert await refused(world.client("one", assignor="mine").send()) is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert world.coordinator.find("g") is None


async def test_the_assignor_most_members_want_is_used(world: World) -> None:
    put_topic(world.image, "payments", 4)
    topics = ("orders", "payments")
    clients = [world.client(name, *topics, assignor="range") for name in ("one", "two")]
    clients.append(world.client("three", *topics, assignor="uniform"))
    await settle(*clients)
    assert world.group.assignor(("uniform", "range")) == "range"
    assert [client.partitions() for client in clients[::-1]] == [[2, 2], [3, 3], [0, 0, 1, 1]] or all(
        len(client.partitions()) % 2 == 0 for client in clients
    ), "each has the same partitions of both topics"


async def test_a_pattern_reads_what_it_matches_and_new_topics_too(world: World) -> None:
    one = world.client("one", topics=frozenset(), pattern="ord.*")
    await one.beat()
    assert one.partitions() == [0, 1, 2, 3]
    put_topic(world.image, "ordinary", 1)
    put_topic(world.image, "disorder", 1)
    world.topics_changed()
    await settle(one)
    assert len(one.owned) == 2
    assert world.group.last_rebalance_cause == "its topics changed"
    await one.beat(pattern="")
    await settle(one)
    assert one.owned == {}
    assert world.group.facts.patterns == {}


class TopicsThatCount(dict[str, Any]):
    """How often all names were gone through."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        self.times += 1
        return super().__iter__()


async def test_a_pattern_is_matched_again_only_when_topics_changed(world: World) -> None:
    world.image.topics = topics = TopicsThatCount(world.image.topics)
    clients = [world.client(name, topics=frozenset(), pattern="ord.*") for name in ("one", "two", "three", "four")]
    await clients[0].beat()
    topics.times = 0
    await settle(*clients)
    await clients.pop().leave()
    await settle(*clients)
    assert topics.times == 0
    put_topic(world.image, "ordinary", 1)
    world.topics_changed()
    await clients.pop().leave()
    await clients.pop().leave()
    await settle(*clients)
    assert topics.times == 1
    assert len(clients[0].owned) == 2


async def test_a_pattern_that_is_none_is_refused(world: World) -> None:
    refusal = refused(world.client("one", topics=frozenset(), pattern="(").send())
    assert await refusal is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.coordinator.find("g") is None


async def test_another_subscription_takes_effect_with_the_heartbeat_that_brings_it(world: World) -> None:
    payments = put_topic(world.image, "payments", 2)
    one = world.client("one")
    await settle(one)
    reply = await one.beat(topics=frozenset({"payments"}))
    assert reply.assignment == {}, "first it gives back"
    await one.beat()
    assert one.owned == {payments.id: frozenset({0, 1})}
    assert world.group.last_rebalance_cause == "member one changed its subscription"


async def test_a_member_that_gives_back_gives_up_what_it_no_longer_subscribes_to_as_well(world: World) -> None:
    payments = put_topic(world.image, "payments", 2)
    one, two = world.client("one", "orders", "payments"), world.client("two")
    await settle(one)
    await two.beat()
    held = one.owned
    await one.beat()
    reply = await one.send(owned=held, topics=frozenset({"orders"}))
    assert reply.assignment is not None
    assert payments.id not in reply.assignment
    assert payments.id in world.group.facts.members["one"].standing.revoking
    one.owned = reply.assignment
    await settle(one, two)
    assert sorted(one.partitions() + two.partitions()) == [0, 1, 2, 3]


async def test_partitions_added_are_assigned_with_the_next_heartbeat(world: World) -> None:
    one = world.client("one")
    await settle(one)
    put_topic(world.image, "orders", 6)
    world.topics_changed()
    await one.beat()
    assert one.partitions() == [0, 1, 2, 3, 4, 5]


async def test_topics_that_do_not_concern_a_group_leave_it_alone(world: World, ledger: Any) -> None:
    one = world.client("one")
    await settle(one)
    batches = len(ledger.batches)
    put_topic(world.image, "other", 1)
    world.topics_changed()
    await one.beat()
    assert len(ledger.batches) == batches


async def test_a_topic_deleted_and_made_anew_is_another_topic(world: World) -> None:
    one = world.client("one")
    await settle(one)
    drop_topic(world.image, "orders")
    world.topics_changed()
    await settle(one)
    assert one.owned == {}
    anew = put_topic(world.image, "orders", 1, UUID(int=99))
    world.topics_changed()
    await settle(one)
    assert one.owned == {anew.id: frozenset({0})}


async def test_a_topic_that_comes_later_is_waited_for(world: World) -> None:
    one = world.client("one", "later")
    await one.beat()
    assert one.owned == {}
    put_topic(world.image, "later", 1)
    world.topics_changed()
    await one.beat()
    assert one.partitions() == [0]
