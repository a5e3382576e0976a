"""Offsets of a consumer group: which epochs may commit and ask for them, and when they go with the group."""

import asyncio

import pytest
from tests.unit.groups.consuming import World, put_topic, settle

from penstock.errors import ErrorCode
from penstock.groups.consumer_member import MemberState


async def test_commits_pass_with_the_member_s_epoch_and_not_with_another(world: World) -> None:
    one = world.client("one")
    await settle(one)
    assert await world.commit(one) is ErrorCode.NONE
    assert await world.commit(one, epoch=2) is ErrorCode.STALE_MEMBER_EPOCH
    assert await world.commit(world.client("two"), epoch=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await world.commit(world.client(""), epoch=-1) is ErrorCode.UNKNOWN_MEMBER_ID
    await one.leave()
    assert await world.commit(world.client(""), epoch=-1) is ErrorCode.NONE, "an administrator may, once it is empty"


async def test_an_older_epoch_commits_what_the_member_held_then_and_holds_now_and_nothing_else(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    await settle(one)
    await two.beat()
    held = one.partitions()
    await one.beat()
    kept, given = one.partitions(), sorted(set(held) - set(one.partitions()))
    assert await world.commit(one, partition=given[0]) is ErrorCode.NONE, "until it has given back"
    await one.beat()
    await two.beat()
    assert one.epoch == two.epoch == 2
    assert await world.commit(one, epoch=1, partition=kept[0]) is ErrorCode.NONE
    assert await world.commit(one, epoch=1, partition=given[0]) is ErrorCode.STALE_MEMBER_EPOCH
    assert await world.commit(two, epoch=1, partition=given[0]) is ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("one", 1, ErrorCode.NONE),
        ("one", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("one", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("two", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_a_member_that_asks_for_offsets_says_its_epoch(
    world: World, member_id: str | None, epoch: int, code: ErrorCode
) -> None:
    await world.client("one").beat()
    assert world.coordinator.check_fetch("g", member_id, epoch) is code


async def test_who_gave_a_partition_back_cannot_commit_it_though_it_has_more_to_give_back(world: World) -> None:
    put_topic(world.image, "orders", 6)
    one, two, three = world.client("one"), world.client("two"), world.client("three")
    await settle(one)
    await two.beat()
    all_of_it = one.owned
    await one.beat()  # told to give back what two is to have
    half = one.owned
    ((topic_id, before),) = all_of_it.items()
    given_back = min(before - half[topic_id])
    await three.beat()  # takes more of it
    reply = await one.send(owned=half)
    assert world.group.facts.members["one"].standing.state is MemberState.UNREVOKED_PARTITIONS
    assert await world.commit(one, partition=given_back) is ErrorCode.STALE_MEMBER_EPOCH
    assert await world.commit(one, partition=min(half[topic_id])) is ErrorCode.NONE
    assert reply.member_epoch == one.epoch + 1
    one.epoch = reply.member_epoch
    await settle(one, two, three)
    assert sorted(one.partitions() + two.partitions() + three.partitions()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "settings", [{"offsets.retention.minutes": "10", "offsets.retention.check.interval.ms": "60000"}]
)
async def test_offsets_of_an_empty_consumer_group_are_kept_from_the_day_it_emptied(world: World) -> None:
    one = world.client("one")
    await settle(one)
    assert await world.commit(one) is ErrorCode.NONE
    for _ in range(30):
        await asyncio.sleep(30)
        await one.send()
    assert world.coordinator.committed_offsets("g")
    await one.leave()
    await asyncio.sleep(8 * 60)
    assert world.coordinator.committed_offsets("g")
    await asyncio.sleep(4 * 60)
    assert world.coordinator.find("g") is None
    await world.restart()
    assert world.coordinator.find("g") is None, "nothing of it is left in the log"


async def test_only_a_group_without_members_can_be_deleted(world: World) -> None:
    one = world.client("one")
    await settle(one)
    assert await world.coordinator.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
    await one.leave()
    assert await world.coordinator.delete_group("g") is ErrorCode.NONE
    assert world.coordinator.find("g") is None
    await world.restart()
    assert world.coordinator.find("g") is None
