"""The image follows the store through compaction and trouble, and whoever waits for a revision gets it."""

import asyncio

import pytest

from penstock.cluster import feed as feed_module
from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import ClusterImage
from penstock.cluster.layout import Layout, encode
from penstock.cluster.store import Ambiguous, Put, Unavailable

LAYOUT = Layout("test")


def put_config(value: str) -> Put:
    return Put(LAYOUT.config("broker", ""), encode({"x": value}))


async def test_reached_returns_when_the_image_and_its_listener_have_the_revision(store):
    told = []
    feed = ImageFeed(store, ClusterImage(LAYOUT), lambda changes: told.append(changes.revision))
    await feed.load()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(feed.run())
        for number in range(5):
            result = await store.txn([], [put_config(str(number))])
            await feed.reached(result.revision)
            assert feed.image.broker_configs[""] == {"x": str(number)}
            assert told[-1] == result.revision
        following.cancel()


async def test_reached_gives_up_at_its_deadline_and_says_that_the_write_is_done(store):
    feed = ImageFeed(store, ClusterImage(LAYOUT), lambda changes: None)
    await feed.load()
    with pytest.raises(Ambiguous, match="revision 7 is written"):
        await feed.reached(7, deadline_s=0.01)
    assert feed._waiters == []


async def test_a_feed_that_fell_behind_the_history_loads_again(store):
    told = []
    feed = ImageFeed(store, ClusterImage(LAYOUT), told.append)
    await feed.load()
    await store.txn([], [put_config("1")])
    last = await store.txn([], [put_config("2")])
    await store.compact(last.revision)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(feed.run())
        await feed.reached(last.revision)
        assert feed.image.broker_configs[""] == {"x": "2"}
        assert len(told) == 1
        after = await store.txn([], [put_config("3")])
        await feed.reached(after.revision)
        following.cancel()


async def test_a_store_that_is_away_for_a_while_loses_no_change(store, monkeypatch):
    monkeypatch.setattr(feed_module, "RETRY_S", 0.01)
    feed = ImageFeed(store, ClusterImage(LAYOUT), lambda changes: None)
    await feed.load()
    real = store.watch
    failures = iter([Unavailable("away"), Ambiguous("away")])

    def watch(prefix, from_revision):
        if (failure := next(failures, None)) is not None:
            raise failure
        return real(prefix, from_revision)

    monkeypatch.setattr(store, "watch", watch)
    result = await store.txn([], [put_config("1")])
    async with asyncio.TaskGroup() as group:
        following = group.create_task(feed.run())
        await feed.reached(result.revision)
        following.cancel()
    assert next(failures, None) is None


async def test_changes_outside_the_cluster_do_not_reach_the_image(store):
    feed = ImageFeed(store, ClusterImage(LAYOUT), lambda changes: None)
    await feed.load()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(feed.run())
        await store.txn([], [Put("/penstock/another/topics/x", b"no JSON")])
        result = await store.txn([], [put_config("1")])
        await feed.reached(result.revision)
        following.cancel()
    assert feed.image.topics == {}
