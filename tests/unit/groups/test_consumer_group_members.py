"""Who is a member of a consumer group: epochs that are fenced, sessions that end, static members that come back."""

import asyncio

import pytest
from tests.unit.groups.consuming import SESSION_MS, World, put_topic, refused, settle

from penstock.errors import ErrorCode
from penstock.groups.group_state import EMPTY, STABLE


async def test_an_epoch_ahead_of_the_coordinator_is_fenced(world: World) -> None:
    one = world.client("one")
    await one.beat()
    assert await refused(one.send(member_epoch=2)) is ErrorCode.FENCED_MEMBER_EPOCH


async def test_the_epoch_before_is_let_pass_if_the_member_holds_no_more_than_it_should(world: World) -> None:
    one = world.client("one")
    await settle(one)
    put_topic(world.image, "orders", 6)
    world.topics_changed()
    lost = await one.send()
    assert lost.member_epoch == 2
    assert (await one.send()).member_epoch == 2
    orders = world.image.topics["orders"].id
    too_much = {orders: frozenset({0, 9})}
    assert await refused(one.send(owned=too_much)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert await refused(one.send(owned=None)) is ErrorCode.FENCED_MEMBER_EPOCH


async def test_an_epoch_older_than_that_is_fenced(world: World) -> None:
    one = world.client("one")
    await settle(one)
    for partitions in (5, 6):
        put_topic(world.image, "orders", partitions)
        world.topics_changed()
        await one.beat()
    assert one.epoch == 3
    assert await refused(one.send(member_epoch=1)) is ErrorCode.FENCED_MEMBER_EPOCH


async def test_strangers_are_unknown(world: World) -> None:
    one = world.client("one")
    assert await refused(one.send(member_epoch=1)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert await refused(one.leave()) is ErrorCode.GROUP_ID_NOT_FOUND
    await one.beat()
    two = world.client("two")
    assert await refused(two.send(member_epoch=1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await refused(two.leave()) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_what_a_leaver_had_is_given_to_those_who_stay(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    await settle(one, two)
    reply = await two.leave()
    assert (reply.member_id, reply.member_epoch) == ("two", -1)
    assert world.group.last_rebalance_cause == "member two left"
    await one.beat()
    assert one.partitions() == [0, 1, 2, 3]


async def test_a_silent_member_is_out_after_its_session(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    await settle(one, two)
    for _ in range(10):
        await asyncio.sleep(SESSION_MS / 10_000 - 0.1)
        await one.beat()
    assert "two" in world.group.facts.members
    await asyncio.sleep(2)
    await one.beat()
    assert "two" not in world.group.facts.members
    assert world.group.last_rebalance_cause == "no heartbeat in time from two"
    assert one.partitions() == [0, 1, 2, 3]
    assert await refused(two.send()) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_who_does_not_give_back_in_time_is_out(world: World) -> None:
    one, two = world.client("one", rebalance_timeout_ms=10_000), world.client("two")
    await settle(one)
    await two.beat()
    held = one.owned
    for _ in range(10):
        assert "one" in world.group.facts.members
        await one.send(owned=held)
        await asyncio.sleep(1)
    await asyncio.sleep(0.5)
    assert "one" not in world.group.facts.members
    assert world.group.last_rebalance_cause == "partitions not given back in time by one"
    await two.beat()
    assert two.partitions() == [0, 1, 2, 3]
    assert await refused(one.send(owned=held)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_that_comes_back_finds_its_partitions_and_disturbs_nobody(world: World) -> None:
    one, two = world.client("one", instance_id="left"), world.client("two", instance_id="right")
    await settle(one, two)
    before, epoch = one.partitions(), world.group.facts.epoch
    assert (await one.send(member_epoch=-2)).member_epoch == -2
    back = world.client("one again", instance_id="left")
    await back.beat()
    assert back.partitions() == before
    assert back.epoch == epoch == world.group.facts.epoch
    assert world.group.state is STABLE
    assert await refused(one.send()) is ErrorCode.FENCED_INSTANCE_ID
    assert await world.commit(one, partition=before[0]) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_instance_whose_member_has_not_left_is_not_given_away(world: World) -> None:
    one = world.client("one", instance_id="left")
    await one.beat()
    other = world.client("other", instance_id="left")
    assert await refused(other.send()) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert (await one.send(member_epoch=0, owned={}, **one.said)).member_epoch == 1, "but to itself it is"


async def test_a_static_member_that_does_not_come_back_is_out_after_its_session(world: World) -> None:
    one, two = world.client("one", instance_id="left"), world.client("two")
    await settle(one, two)
    await one.send(member_epoch=-2)
    for _ in range(int(SESSION_MS / 1000) + 1):
        await asyncio.sleep(1)
        await two.beat()
    assert two.partitions() == [0, 1, 2, 3]


async def test_instances_nobody_knows_and_those_of_others_are_told_apart(world: World) -> None:
    one = world.client("one", instance_id="left")
    await one.beat()
    assert await refused(one.send(instance_id="elsewhere")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await refused(world.client("two").send(member_epoch=-2, instance_id="left")) is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("settings", [{"group.consumer.max.size": "2"}])
async def test_a_full_group_takes_nobody_but_its_own(world: World) -> None:
    one, two = world.client("one"), world.client("two", instance_id="right")
    await settle(one, two)
    assert await refused(world.client("three").send()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    await one.beat()
    await two.send(member_epoch=-2)
    await world.client("two again", instance_id="right").beat()


@pytest.mark.parametrize("settings", [{"group.consumer.min.session.timeout.ms": "1000"}])
async def test_a_group_has_settings_of_its_own(world: World, settings: dict[str, str]) -> None:
    del settings
    world.image.group_configs["g"] = {
        "consumer.session.timeout.ms": "10000",
        "consumer.heartbeat.interval.ms": "6000",
    }
    one = world.client("one")
    await one.beat()
    assert one.interval_ms == 6_000
    await asyncio.sleep(11)
    assert world.group.state is EMPTY
