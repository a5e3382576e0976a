"""A real etcd of three members that are killed, stopped, robbed of their majority: every outcome told is true."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.cluster import etcd_client
from penstock.cluster.etcd_store import EtcdStore
from penstock.cluster.open_store import open_store
from penstock.cluster.store import (
    Ambiguous,
    Compacted,
    Delete,
    Get,
    Put,
    Revision,
    StoreUnusable,
    Unavailable,
    keep_alive,
    modified_at,
)
from penstock.testing.etcd import EtcdCluster, etcd_binary
from penstock.testing.fault_proxy import CLIENTS, STORE, Door, FaultProxy

WRITERS = 4
SESSION_S = 6.0


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    if etcd_binary() is None:
        pytest.skip("no etcd on this machine (Debian: apt-get install etcd-server)")
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
def etcd(members: EtcdCluster) -> Iterator[EtcdCluster]:
    """All three of them well, before and after."""
    yield members
    for member in members.members:
        if members.is_running(member):
            members.resume(member)
        else:
            members.restart(member, wait=False)
    members.wait_until_healthy(members.members)


@pytest.fixture
async def store(etcd: EtcdCluster) -> AsyncIterator[EtcdStore]:
    store = await open_store(etcd.url, Path())
    assert isinstance(store, EtcdStore)
    yield store
    await store.close()


def endpoint_in_use(etcd: EtcdCluster, store: EtcdStore) -> int:
    return [str(endpoint) for endpoint in etcd.endpoints].index(store._client._current.name)


@dataclass
class Load:
    """Compare-and-swaps of several writers on one key, each with a value of its own, and what each was told."""

    store: EtcdStore
    acknowledged: set[bytes] = field(default_factory=set)
    unknown: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: int = 0

    async def until(self, more: int) -> None:
        """Return when that many more were acknowledged."""
        self.wanted = len(self.acknowledged) + more
        self.enough.clear()
        async with asyncio.timeout(60):
            await self.enough.wait()

    async def write(self, writer: int) -> None:
        for number in itertools.count():
            value = b"%d/%d" % (writer, number)
            try:
                present = await self.store.get("/c")
                seen = modified_at("/c", present.mod_revision if present else 0)
                result = await self.store.txn([seen], [Put("/c", value), Put(f"/c/{writer}", value)], [Get("/c")])
                (self.acknowledged if result.ok else self.refused).add(value)
            except Ambiguous:
                self.unknown.add(value)
            except Unavailable:
                self.refused.add(value)
            if len(self.acknowledged) >= self.wanted:
                self.enough.set()


@dataclass
class Watcher:
    """Follows a watch in the background."""

    watch: AsyncIterator[Revision]
    seen: list[Revision] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        async for revision in self.watch:
            self.seen.append(revision)
            self.more.set()

    async def reach(self, revision: int) -> None:
        async with asyncio.timeout(30):
            while not self.seen or self.seen[-1].number < revision:
                self.more.clear()
                await self.more.wait()


async def history(store: EtcdStore, start: int) -> list[Revision]:
    """All of it, from a watch that met no fault."""
    last = await store.txn([], [Put("/c/end", b"")])
    found: list[Revision] = []
    async with asyncio.timeout(20):
        async for revision in store.watch("/c", start):
            if revision.number == last.revision:
                return found
            found.append(revision)
    raise AssertionError("a watch does not end")


@pytest.mark.parametrize("fault", [EtcdCluster.kill, EtcdCluster.pause], ids=["killed", "stopped"])
@pytest.mark.parametrize("victim", ["endpoint", "leader"])
async def test_under_load_every_outcome_told_is_true_and_a_watch_misses_nothing(etcd, store, fault, victim):
    start = (await store.range("/c")).revision + 1
    load = Load(store)
    watcher = Watcher(store.watch("/c", start))
    watching = asyncio.create_task(watcher.run())
    writing = [asyncio.create_task(load.write(writer)) for writer in range(WRITERS)]
    await load.until(50)
    place = endpoint_in_use(etcd, store) if victim == "endpoint" else etcd.leader()
    was_in_use = place == endpoint_in_use(etcd, store)
    fault(etcd, place)
    await load.until(100)
    if was_in_use:
        assert endpoint_in_use(etcd, store) != place, "the fault took effect"
    for task in writing:
        task.cancel()
    await asyncio.gather(*writing, return_exceptions=True)
    told = await history(store, start)
    values = [change.item.value for revision in told for change in revision.changes if change.key == "/c"]
    assert len(set(values)) == len(values)
    assert load.acknowledged <= set(values)
    assert not load.refused & set(values), "what was refused was not done"
    assert all(len(revision.changes) == 2 for revision in told)
    await watcher.reach(told[-1].number)
    assert watcher.seen[: len(told)] == told
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_without_a_majority_nothing_is_promised_and_all_goes_on_after_it(etcd, store):
    store._client.operation_s = 1.5
    first = await store.txn([], [Put("/q", b"1")])
    watcher = Watcher(store.watch("/q", first.revision))
    watching = asyncio.create_task(watcher.run())
    kept = endpoint_in_use(etcd, store)
    for member in etcd.members:
        if member != kept:
            etcd.kill(member)
    with pytest.raises((Unavailable, Ambiguous)):
        await store.txn([], [Put("/q", b"lost?")])
    with pytest.raises(Unavailable):
        await store.get("/q")
    with pytest.raises((Unavailable, Ambiguous)):
        await store.lease(10)
    # By now the last member knows that it has no leader, and says so before it takes anything.
    with pytest.raises(Unavailable, match="no leader"):
        await store.txn([], [Put("/q", b"never")])
    for member in etcd.members:
        if member != kept:
            etcd.restart(member, wait=False)
    await asyncio.to_thread(etcd.wait_until_healthy, etcd.members)
    last = await store.txn([], [Put("/q", b"2")])
    await watcher.reach(last.revision)
    told: list[int] = []
    async for revision in store.watch("/q", first.revision):
        told.append(revision.number)
        if revision.number == last.revision:
            break
    assert [revision.number for revision in watcher.seen] == told
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_session_outlives_the_member_that_hangs_under_it(etcd, store):
    lease = await store.lease(SESSION_S)
    await store.txn([], [Put("/session", b"", lease.id)])
    living = asyncio.create_task(keep_alive(lease))
    etcd.pause(endpoint_in_use(etcd, store))
    # Longer than it would live without a renewal elsewhere.
    await asyncio.sleep(SESSION_S + 2)
    assert not lease.lost.is_set()
    assert (await store.get("/session")).lease == lease.id
    living.cancel()
    await asyncio.gather(living, return_exceptions=True)
    await lease.revoke()


async def test_a_watch_that_is_alone_leaves_a_member_that_hangs(etcd, store):
    first = await store.txn([], [Put("/alone", b"")])
    watch = store.watch("/alone", first.revision)
    await anext(watch)
    waiting = asyncio.ensure_future(anext(watch))
    hung = endpoint_in_use(etcd, store)
    etcd.pause(hung)
    other = await open_store(f"etcd://{etcd.endpoints[(hung + 1) % 3]}", Path())
    written = await other.txn([], [Put("/alone", b"1")])
    # Nobody else uses the connection: only its own pings can find out.
    assert (await asyncio.wait_for(waiting, 30)).number == written.revision
    await watch.aclose()
    await other.close()


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    proxy = FaultProxy()
    yield proxy
    proxy.close()


async def test_a_change_whose_answer_was_lost_is_ambiguous_and_not_sent_again(etcd, proxy, monkeypatch):
    monkeypatch.setattr(etcd_client, "WRITE_S", 0.5)
    door = Door(STORE, lambda _: CLIENTS)
    door.server = etcd.endpoints[0]
    proxy.open_door(door, "127.0.0.1")
    store = await open_store(f"etcd://{door.address},{etcd.endpoints[1]}", Path())
    before = await store.txn([], [Put("/once", b"0")])
    assert proxy.cut(STORE, CLIENTS) > 0
    with pytest.raises(Ambiguous):
        await store.txn([modified_at("/once", before.revision)], [Put("/once", b"1")])
    present = await store.get("/once")
    assert (present.value, present.version) == (b"1", 2), "it was done, though nobody said so"
    # What only reads, or may be repeated, does not trouble its caller with that.
    await (await store.lease(10)).revoke()
    await store.close()


async def test_a_live_watch_is_not_harmed_by_compaction_and_one_that_comes_late_is_told(etcd, store):
    start = (await store.txn([], [Put("/k", b"0")])).revision
    live = store.watch("/k", start)
    await anext(live)
    for number in range(20):
        last = await store.txn([], [Put("/k", b"%d" % number)])
    await store.compact(last.revision)
    after = await store.txn([], [Put("/k", b"after")])
    told = [(await asyncio.wait_for(anext(live), 20)).number for _ in range(21)]
    assert told == list(range(start + 1, after.revision + 1))
    with pytest.raises(Compacted) as caught:
        await anext(store.watch("/k", start))
    assert caught.value.revision == last.revision
    await live.aclose()


async def test_a_watch_from_the_very_revision_of_a_compaction_is_told_that_it_is_gone(store):
    # etcd would begin there, and leave out what that revision deleted.
    await store.txn([], [Put("/t/1", b""), Put("/t/2", b"")])
    torn = await store.txn([], [Delete("/t/1"), Put("/t/2", b"new")])
    await store.txn([], [Put("/t/3", b"")])
    await store.compact(torn.revision)
    with pytest.raises(Compacted):
        await anext(store.watch("/t/", torn.revision))
    assert (await anext(store.watch("/t/", torn.revision + 1))).number == torn.revision + 1


async def test_a_large_past_comes_in_whole_revisions_though_etcd_cuts_it(store):
    value = bytes(10_000)
    written = [(await store.txn([], [Put(f"/large/{key:03}", value) for key in range(128)])).revision for _ in range(6)]
    watch = store.watch("/large/", written[0])
    told = [await asyncio.wait_for(anext(watch), 20) for _ in written]
    assert [revision.number for revision in told] == written
    assert {len(revision.changes) for revision in told} == {128}
    await watch.aclose()


async def test_an_answer_older_than_what_is_known_is_not_taken(store):
    store._client.operation_s = 0.5
    store._client._revision += 1_000_000
    with pytest.raises(Unavailable, match="older than"):
        await store.get("/a")


async def test_an_etcd_nobody_can_reach_is_named_with_what_each_endpoint_said(etcd, unused_tcp_port_factory):
    ports = [unused_tcp_port_factory() for _ in range(2)]
    with pytest.raises(StoreUnusable) as caught:
        await open_store(f"etcd://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}", Path(), connect_timeout_s=0.3)
    for port in ports:
        assert f"127.0.0.1:{port}: " in str(caught.value)
    assert "Connection refused" in str(caught.value)


async def test_an_etcd_that_hangs_is_given_up_and_one_member_that_serves_is_found(etcd):
    etcd.pause(0)
    store = await open_store(etcd.url, Path())
    assert (await store.range("/nothing/")).items == ()
    await store.close()
    with pytest.raises(StoreUnusable, match=str(etcd.endpoints[0])):
        await open_store(f"etcd://{etcd.endpoints[0]}", Path(), connect_timeout_s=0.1)


async def test_endpoints_of_two_clusters_are_not_mixed(etcd, tmp_path):
    with EtcdCluster(tmp_path / "other", members=1) as other:
        store = await open_store(f"{other.url},{etcd.endpoints[0]}", Path())
        store._client.operation_s = 1.0
        await store.txn([], [Put("/mine", b"")])
        other.kill(0)
        with pytest.raises(Unavailable, match="another etcd cluster"):
            await store.get("/mine")
        await store.close()
