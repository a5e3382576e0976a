"""Joining, dying, coming back, and who is the controller."""

import asyncio
import base64
from uuid import UUID

import pytest
from tests.unit.cluster.cluster_of_three import until

from penstock.clock import Rng
from penstock.cluster import membership as membership_module
from penstock.cluster.layout import Layout
from penstock.cluster.registration import NodeIdInUse, NodeIdTaken, ensure_cluster_id
from penstock.cluster.sqlite_store import SqliteStore, open_sqlite_store
from penstock.cluster.store import Ambiguous, Unavailable
from penstock.errors import NotController, RegistrationLost


async def test_the_cluster_id_is_made_once_and_looks_like_kafkas(store):
    layout = Layout("test")
    ids = await asyncio.gather(*(ensure_cluster_id(store, layout, Rng(seed)) for seed in range(5)))
    assert len(set(ids)) == 1
    assert len(ids[0]) == 22
    assert len(base64.urlsafe_b64decode(ids[0] + "==")) == 16


async def test_a_single_node_is_registered_and_the_controller_when_join_returns(node):
    broker = node.image.brokers[1]
    assert (broker.endpoint.port, broker.rack, broker.epoch) == (9092, None, node.membership.broker_epoch)
    assert node.image.controller_id == 1
    assert node.membership.is_controller
    assert len(node.image.cluster_id) == 22
    (compare,) = node.membership.controller_fence()
    assert (await node.store.txn([compare], [])).ok


async def test_a_clean_stop_leaves_the_cluster_at_once(node):
    await node.membership.close()
    assert await node.store.get(node.image.layout.broker(1)) is None
    assert await node.store.get(node.image.layout.controller) is None
    with pytest.raises(NotController):
        node.membership.controller_fence()
    await node.membership.close()


async def test_a_restart_after_a_crash_takes_its_own_place_over_without_waiting(store, start_node):
    async with start_node(store) as first:
        old_fence = first.membership.controller_fence()
        # No close: as after SIGKILL its lease is still good for seconds, and nobody moves the clock.
        async with start_node(store) as second:
            assert second.membership.is_controller
            assert second.membership.broker_epoch > first.membership.broker_epoch
            assert second.image.brokers[1].epoch == second.membership.broker_epoch
            assert not (await store.txn(old_fence, [])).ok


async def test_another_broker_with_the_same_id_is_refused_while_the_first_lives(store, start_node, boot_time):
    async with start_node(store, ttl_s=0.2) as first:
        with pytest.raises(NodeIdInUse, match=r"node id 1 .*127\.0\.0\.1:9092"):
            async with start_node(store, directory_id=UUID(int=2), ttl_s=0.2):
                pass
        assert (await store.get(first.image.layout.broker(1))).create_revision == first.membership.broker_epoch
        boot_time.advance(9.1)
        async with start_node(store, directory_id=UUID(int=2)) as second:
            assert second.membership.is_controller


async def test_a_broker_on_a_new_disk_waits_for_its_former_life_to_end_and_knows_that_the_disk_is_new(
    store, start_node, boot_time, monkeypatch
):
    monkeypatch.setattr(membership_module, "LOOK_S", 0.01)
    async with start_node(store) as first:
        assert not first.membership.is_new_disk
        real = SqliteStore.get

        async def get(self, key):
            # The second time it looks, the dead one's lease has run out.
            boot_time.advance(5)
            return await real(self, key)

        monkeypatch.setattr(SqliteStore, "get", get)
        async with start_node(store, directory_id=UUID(int=2)) as second:
            assert second.membership.is_new_disk
    monkeypatch.setattr(SqliteStore, "get", real)
    async with start_node(store, directory_id=UUID(int=2)) as third:
        assert not third.membership.is_new_disk


async def test_a_former_life_can_be_ended_before_the_next_begins(store, start_node):
    async with start_node(store) as first, start_node(store, node_id=2, directory_id=UUID(int=2)) as second:
        membership = second.membership
        await membership.end_former_life()
        assert await store.get(first.image.layout.broker(2)) is None
        await membership.join()
        assert (await store.get(first.image.layout.broker(2))).mod_revision == membership.broker_epoch


async def test_a_refused_broker_leaves_no_lease_behind(store, start_node):
    async with start_node(store):
        with pytest.raises(NodeIdInUse):
            async with start_node(store, directory_id=UUID(int=2), ttl_s=0.2):
                pass
        rows = await store._run(lambda: store._file._db.execute("SELECT id FROM leases").fetchall())
        assert len(rows) == 1


async def test_one_of_two_brokers_is_the_controller_and_the_other_follows_when_it_dies(store, start_node):
    async with (
        start_node(store, ttl_s=0.3) as first,
        start_node(store, node_id=2, directory_id=UUID(int=2), ttl_s=0.3) as second,
    ):
        assert first.membership.is_controller
        assert not second.membership.is_controller
        assert not await second.membership.elect()
        running = asyncio.create_task(second.membership.run())
        old_fence = first.membership.controller_fence()
        await first.membership._lease.revoke()
        await until(lambda: second.membership.is_controller and second.image.controller_id == 2)
        assert set(second.image.brokers) == {2}
        assert not (await store.txn(old_fence, [])).ok
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_broker_whose_lease_lapsed_joins_again(store, start_node, boot_time):
    async with start_node(store, ttl_s=0.3) as node:
        first_epoch = node.membership.broker_epoch
        running = asyncio.create_task(node.membership.run())
        boot_time.advance(3600)
        await until(lambda: node.membership.broker_epoch > first_epoch and node.membership.is_controller)
        assert node.image.brokers[1].epoch == node.membership.broker_epoch
        assert (await store.txn(node.membership.controller_fence(), [])).ok
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_broker_that_cannot_reach_the_store_gives_its_office_up_and_comes_back(
    store, start_node, boot_time, monkeypatch
):
    monkeypatch.setattr(membership_module, "REJOIN_S", 0.01)
    async with start_node(store, ttl_s=0.1) as node:
        first_epoch = node.membership.broker_epoch
        running = asyncio.create_task(node.membership.run())

        async def unreachable(self, lease):
            raise Unavailable("away")

        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "renew", unreachable)
            patch.setattr(SqliteStore, "lease", unreachable)
            await until(lambda: not node.membership.is_controller)
            with pytest.raises(NotController):
                node.membership.controller_fence()
        await until(lambda: node.membership.broker_epoch > first_epoch and node.membership.is_controller)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_closing_ends_a_run_instead_of_joining_again(node):
    running = asyncio.create_task(node.membership.run())
    await asyncio.sleep(0)
    await node.membership.close()
    await asyncio.wait_for(running, 10)
    assert await node.store.get(node.image.layout.broker(1)) is None


async def test_a_store_that_is_away_does_not_hinder_a_stop(node, monkeypatch):
    async def unreachable(self, lease):
        raise Unavailable("away")

    monkeypatch.setattr(SqliteStore, "revoke", unreachable)
    await node.membership.close()


async def test_a_broker_that_lost_its_registration_cannot_become_controller_late(node):
    await node.store.revoke(node.membership._lease.id)
    assert await node.store.get(node.image.layout.broker(1)) is None
    node.membership._controller_token = 0
    assert not await node.membership.elect()
    assert await node.store.get(node.image.layout.controller) is None


async def test_the_controller_epoch_rises_with_every_election(store, start_node):
    for expected in (b'{"epoch":1}', b'{"epoch":2}', b'{"epoch":3}'):
        async with start_node(store) as node:
            assert (await store.get(node.image.layout.controller_epoch)).value == expected


async def test_a_node_starts_again_on_its_file_after_a_crash(tmp_path, start_node):
    for _ in range(2):
        store = await open_sqlite_store(tmp_path / "metadata.db")
        async with start_node(store) as node:
            assert node.membership.is_controller
        await store.close()


async def test_a_new_epoch_is_a_new_life_in_the_same_registration(node):
    first = node.membership.broker_epoch
    old_fence = node.membership.registration_fence()
    await node.membership.renew_epoch()
    assert node.membership.broker_epoch > first
    assert node.image.brokers[1].epoch == node.membership.broker_epoch
    assert not (await node.store.txn(old_fence, [])).ok
    assert (await node.store.txn(node.membership.registration_fence(), [])).ok
    assert (await node.store.txn(node.membership.controller_fence(), [])).ok
    await node.membership.close()
    assert await node.store.get(node.image.layout.broker(1)) is None


async def test_a_broker_that_is_stopping_says_so_and_stands_for_no_office(store, start_node):
    async with start_node(store) as first, start_node(store, node_id=2, directory_id=UUID(int=2)) as second:
        await second.membership.announce_stopping()
        await first.feed.reached(second.membership.broker_epoch)
        assert first.image.brokers[2].is_stopping
        assert first.image.live == {1}
        running = asyncio.create_task(second.membership.run())
        await first.membership.close()
        await until(lambda: second.image.controller_id == -1 and 1 not in second.image.brokers)
        await second.membership.renew_epoch()
        assert not second.membership.is_controller
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_new_epoch_of_unknown_outcome_is_found_out(node, lose_next_answer):
    lose_next_answer()
    with pytest.raises(Ambiguous):
        await node.membership.renew_epoch()
    assert (await node.store.txn(node.membership.registration_fence(), [])).ok


async def test_an_election_of_unknown_outcome_is_found_out(store, start_node, monkeypatch):
    async with start_node(store) as first, start_node(store, node_id=2, directory_id=UUID(int=2)) as second:
        real = SqliteStore.txn

        async def txn(self, compare, then, orelse=()):
            monkeypatch.setattr(SqliteStore, "txn", real)
            await self.txn(compare, then, orelse)
            raise Ambiguous("no answer")

        await first.membership.close()
        await until(lambda: second.image.controller_id == -1)
        monkeypatch.setattr(SqliteStore, "txn", txn)
        running = asyncio.create_task(second.membership.run())
        await until(lambda: second.membership.is_controller)
        assert (await store.txn(second.membership.controller_fence(), [])).ok
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_without_a_lease_nothing_is_written_in_this_brokers_name(node):
    node.membership._lease.lost.set()
    with pytest.raises(RegistrationLost):
        node.membership.registration_fence()
    with pytest.raises(RegistrationLost):
        await node.membership.renew_epoch()


async def test_a_broker_that_lapsed_does_not_take_the_place_of_another_that_was_its_node_meanwhile(
    store, start_node, monkeypatch
):
    monkeypatch.setattr(membership_module, "REJOIN_S", 0.01)
    async with start_node(store, ttl_s=0.3) as lapsed:
        await store.revoke(lapsed.membership._lease.id)
        async with start_node(store, directory_id=UUID(int=2)) as other:
            assert other.membership.is_new_disk
            await other.membership.close()
        # Nobody is registered now; but what the cluster counts node 1 in sync for, the other one had.
        with pytest.raises(NodeIdTaken, match="another data directory"):
            await asyncio.wait_for(lapsed.membership.run(), 20)
        assert await store.get(lapsed.image.layout.broker(1)) is None
    async with start_node(store) as restarted:
        assert restarted.membership.is_new_disk, "it says that it lost everything, and may join then"


async def test_what_a_broker_said_it_lost_holds_only_if_nobody_else_was_its_node_since(store, start_node):
    async with start_node(store, directory_id=UUID(int=2)) as node:
        await node.membership.end_former_life()
        async with start_node(store) as other:
            await other.membership.close()
        with pytest.raises(NodeIdTaken):
            await node.membership.join()


async def test_an_attempt_to_join_of_unknown_outcome_does_not_look_like_another_broker(store, start_node, monkeypatch):
    monkeypatch.setattr(membership_module, "REJOIN_S", 0.01)
    real = SqliteStore.txn

    async def txn(self, compare, then, orelse=()):
        result = await real(self, compare, then, orelse)
        if len(compare) == 2 and "/brokers/" in compare[0].key:
            monkeypatch.setattr(SqliteStore, "txn", real)
            raise Ambiguous("no answer")
        return result

    async with start_node(store) as first:
        await first.membership.close()
    monkeypatch.setattr(SqliteStore, "txn", txn)
    async with start_node(store, directory_id=UUID(int=2)) as second:
        assert second.image.brokers[1].directory == str(UUID(int=2))


async def test_who_joins_in_the_very_moment_after_another_was_its_node_is_told(store, start_node, monkeypatch):
    monkeypatch.setattr(membership_module, "REJOIN_S", 0.01)
    real = SqliteStore.txn

    async with start_node(store, directory_id=UUID(int=2)) as node:
        await node.membership.end_former_life()

        async def txn(self, compare, then, orelse=()):
            if "/brokers/" in compare[0].key:
                monkeypatch.setattr(SqliteStore, "txn", real)
                async with start_node(store) as other:
                    await other.membership.close()
            return await real(self, compare, then, orelse)

        monkeypatch.setattr(SqliteStore, "txn", txn)
        with pytest.raises(NodeIdTaken):
            await node.membership.join()
