"""Consumer groups whole: a real coordinator and shard on a ledger in memory, in virtual time."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.unit.groups.consuming import SESSION_MS, World, drop_topic, put_topic, refused, settle

from penstock.errors import CoordinatorNotAvailable, ErrorCode, NotEnoughReplicas
from penstock.groups.consumer_member import MemberState
from penstock.groups.group_state import ASSIGNING, EMPTY, RECONCILING, STABLE

# Joining and sharing


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


# Epochs


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


# Going


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


# Static members


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


# What members ask for


@pytest.mark.parametrize("settings", [{"group.consumer.max.size": "2"}])
async def test_a_full_group_takes_nobody_but_its_own(world: World) -> None:
    one, two = world.client("one"), world.client("two", instance_id="right")
    await settle(one, two)
    assert await refused(world.client("three").send()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    await one.beat()
    await two.send(member_epoch=-2)
    await world.client("two again", instance_id="right").beat()


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


# Topics


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


# Offsets


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


# The log


async def test_a_restarted_broker_knows_the_group_as_it_was(world: World) -> None:
    one, two = world.client("one", rack="r1", instance_id="left"), world.client("two", pattern="pay.*")
    put_topic(world.image, "payments", 3)
    await settle(one)
    await two.beat()
    await one.beat()
    known = world.group.facts
    await world.restart()
    loaded = world.group.facts
    for name in ("epoch", "target_epoch", "members", "target", "patterns", "owners", "static_ids", "metadata_hash"):
        assert getattr(loaded, name) == getattr(known, name), name
    epoch = known.epoch
    await settle(one, two)
    assert world.group.facts.epoch == epoch, "nothing has changed, so nothing is assigned anew"
    assert len(one.partitions()) + len(two.partitions()) == 7


async def test_topics_that_changed_while_the_broker_was_away_are_noticed(world: World) -> None:
    one = world.client("one")
    await settle(one)
    put_topic(world.image, "orders", 5)
    await world.restart()
    await one.beat()
    assert one.partitions() == [0, 1, 2, 3, 4]


async def test_sessions_start_anew_with_the_broker(world: World) -> None:
    one = world.client("one")
    await settle(one)
    await asyncio.sleep(SESSION_MS / 1000 - 1)
    await world.restart()
    await asyncio.sleep(SESSION_MS / 1000 - 1)
    await one.beat()
    await asyncio.sleep(SESSION_MS / 1000 + 1)
    assert world.group.state is EMPTY


async def test_what_the_log_refuses_has_not_happened(world: World, ledger: Any) -> None:
    one, two = world.client("one"), world.client("two")
    await settle(one)
    known = world.group.facts
    ledger.refusal = NotEnoughReplicas("one of two")
    results = await asyncio.gather(two.send(), one.send(), return_exceptions=True)
    assert [type(result) for result in results] == [CoordinatorNotAvailable, CoordinatorNotAvailable]
    assert world.group.facts is known
    assert await refused(one.leave()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    ledger.refusal = None
    assert "one" in world.group.facts.members
    await settle(one, two)
    assert sorted(one.partitions() + two.partitions()) == [0, 1, 2, 3]


async def test_a_member_the_log_would_not_let_go_is_put_out_later(world: World, ledger: Any) -> None:
    one = world.client("one")
    await settle(one)
    ledger.refusal = NotEnoughReplicas("one of two")
    await asyncio.sleep(SESSION_MS / 1000 + 9.5)
    assert "one" in world.group.facts.members
    ledger.refusal = None
    await asyncio.sleep(2)
    assert world.group.state is EMPTY


async def test_a_group_whose_first_member_the_log_refuses_is_not_kept(world: World, ledger: Any) -> None:
    ledger.refusal = NotEnoughReplicas("one of two")
    await refused(world.client("one").send())
    assert world.coordinator.find("g") is None


async def test_no_answer_leaves_before_what_it_rests_on_is_committed(world: World, ledger: Any) -> None:
    one = world.client("one")
    ledger.held = []
    first = asyncio.ensure_future(one.send())
    await asyncio.sleep(0.01)
    again = asyncio.ensure_future(one.send())
    await asyncio.sleep(0.01)
    assert len(ledger.batches) == 1, "the second changed nothing"
    assert not first.done()
    assert not again.done()
    ledger.release()
    assert (await first).assignment == (await again).assignment


async def test_a_commit_the_log_takes_too_long_for_is_told_so(world: World, ledger: Any) -> None:
    one = world.client("one")
    ledger.held = []
    first = asyncio.ensure_future(one.send())
    await asyncio.sleep(6)
    assert await refused(first) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await refused(one.send()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    ledger.release()
    await asyncio.sleep(0)
    assert (await one.beat()).member_epoch == 1


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
