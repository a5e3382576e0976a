"""Three brokers that die, pause, stop, lead and move partitions at once, on one real store: what its history shows.

Every node runs what a broker runs of this: feed, membership, supervisor, and a leader that takes followers back.
"""

import asyncio
import contextlib
import random
from uuid import UUID

import pytest
from tests.unit.cluster.cluster_of_three import make_topic, three, until

from penstock.cluster import membership as membership_module
from penstock.cluster import supervisor as supervisor_module
from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import ClusterImage, ImageChanges, PartitionState
from penstock.cluster.partition_changes import ElectionMode
from penstock.cluster.partition_writes import check_step
from penstock.cluster.sqlite_store import SqliteStore
from penstock.cluster.store import Ambiguous, Unavailable
from penstock.errors import PenstockError, RegistrationLost

PARTITIONS = 12
STEPS = 40


class History:
    """Every state that every partition ever had."""

    def __init__(self, store, layout) -> None:
        self.image = ClusterImage(layout)
        self.feed = ImageFeed(store, self.image, self._took)
        self.leaders: dict[tuple[UUID, int, int], int] = {}
        self.last: dict[tuple[UUID, int], PartitionState] = {}
        self.changes = 0

    def _took(self, changes: ImageChanges) -> None:
        for topic in changes.topics_created:
            self.last.update(((topic.id, index), state) for index, state in enumerate(topic.partitions))
        for topic, index in changes.partitions_changed:
            state, place = topic.partitions[index], (topic.id, index)
            check_step(self.last[place], state)
            if state.leader >= 0:
                assert self.leaders.setdefault((*place, state.leader_epoch), state.leader) == state.leader
                is_clean = state.leader in {*self.last[place].isr, *self.last[place].elr}
                assert is_clean, (self.last[place], state)
            self.last[place] = state
            self.changes += 1


async def lead(node) -> None:
    """Take back whoever is there; a leader of the real thing waits until it has caught up."""
    me = node.membership.node_id
    while True:
        await asyncio.sleep(0.002)
        for topic in list(node.image.topics.values()):
            for index, state in enumerate(topic.partitions):
                absent = [n for n in state.replicas if n not in state.isr and n in node.image.live]
                if state.leader == me and absent:
                    epochs = {n: node.image.brokers[n].epoch for n in absent if n in node.image.brokers}
                    with contextlib.suppress(PenstockError):
                        await node.partitions.change_isr(topic.id, index, state, (*state.isr, *epochs), epochs)


async def disturb(nodes, topic, chance: random.Random) -> None:
    node = chance.choice(nodes)
    place = (topic.id, chance.randrange(PARTITIONS))
    state = node.image.partition(*place)
    with contextlib.suppress(PenstockError):
        match chance.randrange(7):
            case 0 | 1:
                await node.store.revoke(node.membership.lease_id)
            case 2:
                await node.membership.renew_epoch()
            case 3:
                await node.partitions.hand_over([(topic.id, index) for index in range(PARTITIONS)])
            case 4:
                await node.partitions.elect([place], ElectionMode.PREFERRED)
            case 5:
                target = chance.sample([1, 2, 3], chance.randint(1, 3))
                await node.partitions.reassign({place: chance.choice([target, None])})
            case _ if state.leader == node.membership.node_id:
                await node.partitions.change_isr(*place, state, [state.leader], {})


def flaky(chance: random.Random):
    real = SqliteStore.txn

    async def txn(self, compare, then, orelse=()):
        match chance.randrange(30):
            case 0:
                raise Unavailable("away")
            case 1:
                raise Ambiguous("not applied")
            case 2:
                await real(self, compare, then, orelse)
                raise Ambiguous("applied")
            case _:
                return await real(self, compare, then, orelse)

    return txn


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_at_once_the_rules_hold_and_peace_returns(store, start_node, monkeypatch, seed):
    monkeypatch.setattr(membership_module, "REJOIN_S", 0.01)
    monkeypatch.setattr(supervisor_module, "RETRY_S", 0.01)
    chance = random.Random(seed)
    async with three(store, start_node, ttl_s=0.3, is_running=True) as nodes:
        history = History(store, nodes[0].image.layout)
        await history.feed.load()
        watching = asyncio.create_task(history.feed.run())
        topic = await make_topic(nodes, PARTITIONS)
        leading = [asyncio.create_task(lead(node)) for node in nodes]
        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "txn", flaky(chance))
            for _ in range(STEPS):
                await disturb(nodes, topic, chance)
                await asyncio.sleep(chance.random() * 0.01)

        def is_peace() -> bool:
            states = history.image.topics["t"].partitions
            is_ruled = any(node.membership.is_controller for node in nodes)
            return (
                is_ruled
                and len(history.image.live) == 3
                and all(
                    state.leader in state.isr
                    and set(state.isr) == set(state.replicas)
                    and not (state.elr or state.adding)
                    for state in states
                )
            )

        try:
            await until(is_peace)
        finally:
            for task in (watching, *leading):
                task.cancel()
            results = await asyncio.gather(watching, *leading, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results), results
        assert history.changes > STEPS / 4


@pytest.mark.parametrize("call", range(8))
async def test_a_lease_lost_at_any_step_of_joining_ends_in_one_registration(store, start_node, monkeypatch, call):
    monkeypatch.setattr(membership_module, "REJOIN_S", 0.01)
    async with three(store, start_node, ttl_s=0.3, is_running=True) as nodes:
        node = nodes[1]
        calls = 0
        granted: list[int] = []
        real = {name: getattr(SqliteStore, name) for name in ("txn", "get", "lease")}

        async def lose(self) -> None:
            nonlocal calls
            calls += 1
            if calls == call + 1 and granted:
                await self.revoke(granted[-1])

        async def txn(self, compare, then, orelse=()):
            await lose(self)
            return await real["txn"](self, compare, then, orelse)

        async def get(self, key):
            await lose(self)
            return await real["get"](self, key)

        async def lease(self, ttl_s):
            given = await real["lease"](self, ttl_s)
            granted.append(given.id)
            await lose(self)
            return given

        first = node.membership.broker_epoch
        for double in (txn, get, lease):
            monkeypatch.setattr(SqliteStore, double.__name__, double)
        await store.revoke(node.membership.lease_id)
        await until(lambda: node.membership.broker_epoch > first)
        monkeypatch.undo()

        def is_in() -> bool:
            seen = nodes[0].image.brokers.get(2)
            return seen is not None and seen.epoch == node.membership.broker_epoch and is_registered(node)

        # Of a lease lost after all was written nobody has heard at first.
        async with asyncio.timeout(20):
            await until(is_in)
            while not (await store.txn(node.membership.registration_fence(), [])).ok:
                await until(is_in)


def is_registered(node) -> bool:
    try:
        return bool(node.membership.registration_fence())
    except RegistrationLost:
        return False
