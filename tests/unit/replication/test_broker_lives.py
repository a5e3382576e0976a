"""One life of a broker after another: what it may bring along, what it must leave, and when it has to end."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.replication.cluster import SETTINGS, Cluster, running_cluster

from penstock.broker import Broker
from penstock.cluster import membership as membership_module
from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import PartitionState, partition_state
from penstock.cluster.layout import decode, encode
from penstock.cluster.membership import Membership
from penstock.cluster.sqlite_store import SqliteStore
from penstock.cluster.store import Ambiguous, Delete, Put, Unavailable
from penstock.config import BrokerConfig
from penstock.errors import CorruptMessage, ErrorCode, IneligibleReplica
from penstock.replication import in_sync as in_sync_module
from penstock.replication import joining as joining_module
from penstock.replication.followers import Followers

NODES = (1, 2, 3)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    # No lease runs out by itself here: who is gone is said by the tests.
    async with running_cluster(tmp_path, *NODES, broker_session_timeout_ms="20000") as cluster:
        yield cluster


def new_broker(cluster: Cluster, node: int, **settings: str) -> Broker:
    static = {
        **SETTINGS,
        **cluster.settings,
        "node.id": str(node),
        "log.dirs": str(cluster.root / f"broker-{node}"),
        "penstock.metadata": f"sqlite:{cluster.root / 'metadata.db'}",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    return Broker(BrokerConfig(static))


async def out_of_sync(cluster: Cluster, name: str) -> tuple[int, int]:
    """The leader, and a follower that lags and is in sync no more."""
    leader = await cluster.leader(name)
    follower = next(node for node in NODES if node != leader)
    await cluster.stop_fetching(follower)
    await cluster.send(leader, name, "that the follower has not", acks=1)
    await cluster.in_sync(name, *(node for node in NODES if node != follower))
    return leader, follower


async def stored_state(cluster: Cluster, node: int, name: str) -> Any:
    broker = cluster.brokers[node]
    item = await broker._store.get(broker.image.layout.partition(broker.image.topics[name].id, 0))
    assert item is not None
    return partition_state(item)


def is_put(then: Any, family: str) -> bool:
    return any(isinstance(each, Put) and f"/{family}/" in each.key for each in then)


# Its past


async def test_nobody_brings_a_former_life_back_into_sync_behind_the_back_of_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("orders")
    leader, follower = await out_of_sync(cluster, "orders")
    led, changes = cluster.replica(leader, "orders"), cluster.brokers[leader]._changes
    epoch = cluster.brokers[leader].image.brokers[follower].epoch
    await cluster.crash(follower)
    broker = new_broker(cluster, follower)
    load, txn, watch = ImageFeed.load, SqliteStore.txn, SqliteStore.watch
    is_registered = asyncio.Event()
    in_sync_when_registered: list[tuple[int, ...]] = []

    async def load_and_then_be_added(self: ImageFeed) -> Any:
        loaded = await load(self)
        assert led.state is not None
        # A leader that has tried for long to write down what it knew of the life that is over.
        with contextlib.suppress(IneligibleReplica):
            await changes.change_isr(led.topic_id, 0, led.state, NODES, {follower: epoch})
        return loaded

    async def lagging_watch(self: SqliteStore, prefix: str, from_revision: int) -> Any:
        if self is broker._store:
            await is_registered.wait()
        async for revision in watch(self, prefix, from_revision):
            yield revision

    async def watched_txn(self: SqliteStore, compare: Any, then: Any, orelse: Any = ()) -> Any:
        if self is getattr(broker, "_store", None) and is_put(then, "brokers"):
            in_sync_when_registered.append((await stored_state(cluster, leader, "orders")).isr)
            is_registered.set()
        return await txn(self, compare, then, orelse)

    monkeypatch.setattr(ImageFeed, "load", load_and_then_be_added)
    monkeypatch.setattr(SqliteStore, "watch", lagging_watch)
    monkeypatch.setattr(SqliteStore, "txn", watched_txn)
    await broker.start()
    cluster.brokers[follower] = broker
    assert [follower in isr for isr in in_sync_when_registered] == [False]


async def test_a_damaged_log_stays_where_it_is_until_the_broker_has_left_the_in_sync_set(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("orders")
    first = await cluster.leader("orders")
    follower = next(node for node in NODES if node != first)
    for number in range(20):
        await cluster.send(first, "orders", f"value-{number}" * 50)
    await cluster.brokers[follower].logs.checkpoint()
    await cluster.crash(follower)
    directory = tmp_path / f"broker-{follower}"
    segment = next((directory / "orders-0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    # Something an open log checks: without the mark of a clean stop all is read.
    (directory / "orders-0" / "leader-epoch-checkpoint").unlink()
    txn = SqliteStore.txn
    broker = new_broker(cluster, follower)

    async def away_for_partitions(self: SqliteStore, compare: Any, then: Any, orelse: Any = ()) -> Any:
        # For the controller too, which would else put out of sync whoever is gone.
        if is_put(then, "partitions"):
            raise Unavailable("away")
        return await txn(self, compare, then, orelse)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "txn", away_for_partitions)
        patch.setattr(membership_module, "PERSIST_S", 0.0)
        with pytest.raises(Unavailable):
            await broker.start()
    await broker.crash()
    assert not list(directory.glob("*-damaged")), "an empty log would pass for a whole one at the next start"
    await cluster.start(follower)
    await cluster.in_sync("orders", *NODES)
    assert cluster.values(follower, "orders", 20) == cluster.values(first, "orders", 20)
    assert list(directory.glob("*-damaged"))


async def test_a_log_opened_for_a_topic_is_not_that_of_the_next_topic_of_its_name(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("orders", replicas=1)
    only = await cluster.leader("orders")
    other = cluster.brokers[next(node for node in NODES if node != only)]
    await cluster.send(only, "orders", "of the topic that was")
    await cluster.stop(only)
    broker = new_broker(cluster, only)
    join, layout, anew = Membership.join, other.image.layout, other.rng.uuid()

    async def make_anew_and_join(self: Membership) -> None:
        """When it has opened its logs, and before it hosts them."""
        if self.node_id == only:
            await other._store.txn([], [Delete(layout.topic("orders"))])
            state = PartitionState(leader=only, leader_epoch=0, isr=(only,), replicas=(only,))
            topic = {"id": anew.hex, "partitions": 1, "configs": {}}
            puts = [Put(layout.partition(anew, 0), encode(state.as_json())), Put(layout.topic("orders"), encode(topic))]
            await other._store.txn([], puts)
            await cluster.until(lambda: anew in broker.image.topics_by_id)
        await join(self)

    monkeypatch.setattr(Membership, "join", make_anew_and_join)
    await broker.start()
    cluster.brokers[only] = broker
    await cluster.until(lambda: cluster.leader_of("orders") == only)
    assert cluster.values(only, "orders") == []


async def test_a_disk_put_back_from_a_copy_is_not_taken_for_what_it_became_since(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    older, other = (node for node in NODES if node != leader)
    first = leader
    await cluster.send(leader, "orders", "in the copy")
    await cluster.stop(older)
    directory, copy = tmp_path / f"broker-{older}", tmp_path / "copy"
    await asyncio.to_thread(shutil.copytree, directory, copy)
    await cluster.start(older)
    await cluster.in_sync("orders", *NODES)
    leader = await cluster.leader("orders")
    assert (await cluster.send(leader, "orders", "after it")).error_code == ErrorCode.NONE
    await cluster.crash(*NODES)
    await asyncio.to_thread(shutil.rmtree, directory)
    copy.rename(directory)
    for node in (older, first, other):
        await cluster.start(node)
    leader = await cluster.leader("orders")
    await cluster.in_sync("orders", *NODES)
    assert cluster.values(leader, "orders", 2) == ["in the copy", "after it"]


async def test_a_start_that_finds_no_store_leaves_a_clean_stop_clean(cluster: Cluster) -> None:
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    await cluster.send(leader, "orders", "value")
    await cluster.stop(leader)

    async def away() -> Any:
        raise Unavailable("away")

    broker = new_broker(cluster, leader)
    broker._open_store = away
    with pytest.raises(Unavailable):
        await broker.start()
    broker._claim.close()
    await cluster.start(leader)
    assert cluster.brokers[leader].logs.was_clean


# Its replicas


async def test_a_replica_made_anew_is_in_no_in_sync_set_by_what_the_damaged_one_had(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    follower = next(node for node in NODES if node != leader)
    for number in range(20):
        await cluster.send(leader, "orders", f"value-{number}")
    broker = cluster.brokers[follower]
    renew, set_aside = broker._membership.renew_epoch, broker.logs.set_damaged_aside
    in_sync_when_set_aside: list[tuple[int, ...]] = []

    async def be_added_and_renew() -> None:
        # A fetch that was on its way when the replica left.
        led = cluster.replica(leader, "orders")
        await cluster.until(lambda: led.state is not None and follower not in led.state.isr)
        cluster.brokers[leader]._in_sync.add(led, follower)
        await cluster.in_sync("orders", *NODES)
        await renew()

    async def noted_set_aside(at: Any) -> None:
        in_sync_when_set_aside.append((await stored_state(cluster, leader, "orders")).isr)
        await set_aside(at)

    monkeypatch.setattr(broker._membership, "renew_epoch", be_added_and_renew)
    monkeypatch.setattr(broker.logs, "set_damaged_aside", noted_set_aside)
    cluster.replica(follower, "orders").log.tell_damage(CorruptMessage("no batch at byte 7"))
    await cluster.until(lambda: broker.metrics.replicas_rebuilt.value == 1)
    assert [follower in isr for isr in in_sync_when_set_aside] == [False]
    await cluster.in_sync("orders", *NODES)
    assert cluster.values(follower, "orders", 20) == cluster.values(leader, "orders", 20)


async def test_a_store_that_is_away_for_a_moment_does_not_leave_a_damaged_replica_in_use(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    follower = next(node for node in NODES if node != leader)
    await cluster.send(leader, "orders", "value")
    broker = cluster.brokers[follower]
    renew = broker._membership.renew_epoch
    failures = [Unavailable("away"), Ambiguous("no answer")]

    async def failing_renew() -> None:
        if failures:
            raise failures.pop()
        await renew()

    monkeypatch.setattr(broker._membership, "renew_epoch", failing_renew)
    cluster.replica(follower, "orders").log.tell_damage(CorruptMessage("no batch at byte 7"))
    await cluster.until(lambda: broker.metrics.replicas_rebuilt.value == 1)
    await cluster.in_sync("orders", *NODES)


# Its word on who is in sync


async def test_one_that_may_have_been_added_counts_until_the_store_has_said_otherwise(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_sync_module, "RETRY_S", 0.01)
    await cluster.create("orders")
    leader, follower = await out_of_sync(cluster, "orders")
    broker, partition = cluster.brokers[leader], cluster.replica(leader, "orders")
    membership = broker._membership
    txn, get = SqliteStore.txn, SqliteStore.get
    held: list[tuple[Any, Any, Any]] = []
    retries = 0
    is_away = True

    async def held_up(self: SqliteStore, compare: Any, then: Any, orelse: Any = ()) -> Any:
        if self is broker._store and is_away:
            if is_put(then, "partitions"):
                held.append((compare, then, orelse))
                raise Ambiguous("on its way")
            raise Unavailable("away")
        return await txn(self, compare, then, orelse)

    async def away(self: SqliteStore, key: str) -> Any:
        if self is broker._store and is_away:
            raise Unavailable("away")
        return await get(self, key)

    def fence() -> Any:
        nonlocal retries
        retries += 1
        return type(membership).registration_fence(membership)

    monkeypatch.setattr(SqliteStore, "txn", held_up)
    monkeypatch.setattr(SqliteStore, "get", away)
    monkeypatch.setattr(membership, "registration_fence", fence)
    progress = partition.progress
    assert progress is not None
    progress.followers[follower].broker_epoch = broker.image.brokers[follower].epoch
    broker._in_sync.add(partition, follower)
    await cluster.until(lambda: bool(held))
    # It could not renew its lease in time; the store has it still, and takes what was on its way.
    assert membership._lease is not None
    membership._lease.lost.set()
    seen = retries
    await cluster.until(lambda: retries > seen + 2 or partition not in broker._in_sync._changing)
    answer = await cluster.send(leader, "orders", "not on the one that may be in sync", timeout_ms=300)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (await txn(broker._store, *held[0])).ok
    is_away = False


# Its end


async def test_nothing_is_fetched_any_more_once_a_broker_stops(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    follower = next(node for node in NODES if node != leader)
    partition = cluster.replica(follower, "orders")
    broker = cluster.brokers.pop(follower)
    close = Followers.close

    async def meanwhile_another_leads(self: Followers) -> None:
        await close(self)
        # As a change of the image that comes while the last fetchers end.
        state = partition.state
        assert state is not None
        partition.state = None
        broker.replicas.take(partition, state)

    monkeypatch.setattr(Followers, "close", meanwhile_another_leads)
    followers = broker.replicas.followers
    assert followers is not None
    await broker.stop()
    assert not followers._fetchers
    await close(followers)


async def test_a_store_that_does_not_answer_keeps_a_broker_from_stopping_for_a_moment_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining_module, "HAND_OVER_S", 0.05, raising=False)
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    broker = cluster.brokers.pop(leader)
    txn = SqliteStore.txn

    async def silent(self: SqliteStore, compare: Any, then: Any, orelse: Any = ()) -> Any:
        if self is broker._store and is_put(then, "partitions"):
            await asyncio.Event().wait()
        return await txn(self, compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", silent)
    async with asyncio.timeout(20):
        await broker.stop()
    assert (cluster.root / f"broker-{leader}" / "clean-stop.json").exists()


async def test_a_broker_leads_nothing_once_another_data_directory_is_its_node(cluster: Cluster) -> None:
    await cluster.create("orders", replicas=1)
    only = await cluster.leader("orders")
    broker, partition = cluster.brokers[only], cluster.replica(only, "orders")
    store, layout = broker._store, broker.image.layout
    # As after a long pause: it has not noticed yet that its lease ran out, and somebody else has its id.
    present = await store.get(layout.broker(only))
    assert present is not None
    other = encode({**decode(present.value), "directory": str(broker.rng.uuid())})
    await store.txn([], [Put(layout.broker(only), other), Put(layout.storage(only), other)])
    await broker.has_given_up.wait()
    assert not partition.is_leader
    answer = await cluster.send(only, "orders", "for the other one")
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    state = partition.state
    assert state is not None
    # Nor does it lead in an epoch that is given to the other one.
    led = encode({**state.as_json(), "leader_epoch": state.leader_epoch + 1})
    written = await store.txn([], [Put(layout.partition(partition.topic_id, 0), led)])
    await cluster.until(lambda: broker.image.revision >= written.revision)
    broker.replicas.take(partition, state)  # as whoever was at work on its log does when that is done
    assert not partition.is_leader
    async with asyncio.timeout(20):
        await cluster.stop(only)


async def test_a_broker_that_no_longer_hears_of_changes_gives_up_what_it_leads(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    broker = cluster.brokers[leader]

    def fail() -> None:
        raise OSError(30, "read-only file system")

    monkeypatch.setattr(broker.groups, "topics_changed", fail)
    cluster.brokers[leader] = cluster.brokers.pop(leader)  # another one is asked to create the topic
    await cluster.create("more")
    await broker.has_given_up.wait()
    await cluster.stop(leader)
    assert await cluster.leader("orders") != leader
