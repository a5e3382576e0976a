"""What every metadata store must do: watches."""

import asyncio

import pytest
from tests.unit.cluster.store_backends import take

from penstock.cluster.store import Change, Compacted, Delete, Put, Unavailable


async def test_a_watch_delivers_whole_revisions_in_order_from_the_one_asked_for(client):
    await client.txn([], [Put("/w/a", b"0")])
    second = await client.txn([], [Put("/w/a", b"1"), Put("/w/b", b"1"), Put("/x", b"1")])
    third = await client.txn([], [Delete("/w/a"), Put("/w/c", b"2")])
    await client.txn([], [Put("/x", b"2")])
    fifth = await client.txn([], [Put("/w/b", b"3")])
    seen = await take(client.watch("/w/", second.revision), 3)
    assert [revision.number for revision in seen] == [second.revision, third.revision, fifth.revision]
    assert [change.key for change in seen[0].changes] == ["/w/a", "/w/b"]
    assert seen[1].changes[0] == Change("/w/a", None)
    assert seen[2].changes[0].item == await client.get("/w/b")


async def test_a_watch_wakes_for_what_is_written_while_it_waits(client):
    revision = (await client.range("")).revision
    taking = asyncio.create_task(take(client.watch("/w/", revision + 1), 2))
    await client.txn([], [Put("/w/1", b"")])
    await client.txn([], [Put("/w/2", b"")])
    assert [change.key for seen in await taking for change in seen.changes] == ["/w/1", "/w/2"]


async def test_a_watch_may_begin_in_the_future(client):
    revision = (await client.range("")).revision
    taking = asyncio.create_task(take(client.watch("/w/", revision + 2), 1))
    await client.txn([], [Put("/w/1", b"")])
    await client.txn([], [Put("/w/2", b"")])
    assert [seen.number for seen in await taking] == [revision + 2]


async def test_a_watch_brings_a_long_past_without_a_gap(client):
    start = (await client.range("")).revision
    for number in range(600):
        await client.txn([], [Put(f"/{'w' if number % 2 else 'x'}", b"%d" % number)])
    seen = await take(client.watch("/w", start + 1), 300)
    assert [int(revision.changes[0].item.value) for revision in seen] == list(range(1, 600, 2))


async def test_watching_what_was_compacted_says_so(client, store_factory):
    first = await client.txn([], [Put("/a", b"1")])
    await client.txn([], [Put("/a", b"2")])
    third = await client.txn([], [Put("/a", b"3")])
    await store_factory.compact(third.revision)
    with pytest.raises(Compacted) as caught:
        await take(client.watch("/", first.revision), 1)
    assert caught.value.revision == third.revision
    # What a watcher does then: the range is whole, and a watch from behind it works.
    snapshot = await client.range("/")
    assert [item.value for item in snapshot.items] == [b"3"]
    taking = asyncio.create_task(take(client.watch("/", snapshot.revision + 1), 1))
    await client.txn([], [Put("/b", b"4")])
    assert (await taking)[0].changes[0].key == "/b"


async def test_a_closed_store_refuses_and_ends_its_watches(client):
    written = await client.txn([], [Put("/a", b"")])
    watch = client.watch("/", written.revision)
    await anext(watch)
    taking = asyncio.ensure_future(anext(watch))
    await client.get("/a")
    await client.get("/a")
    await client.close()
    with pytest.raises(Unavailable):
        await taking
    with pytest.raises(Unavailable):
        await client.get("/a")
    await client.close()
