"""A consumer group and its log: what a restart finds, what a refusal undoes, which answers wait for the commit."""

import asyncio
from typing import Any

from tests.unit.groups.consuming import SESSION_MS, World, put_topic, refused, settle

from penstock.errors import CoordinatorNotAvailable, ErrorCode, NotEnoughReplicas
from penstock.groups.group_state import EMPTY


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
