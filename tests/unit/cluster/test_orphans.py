"""What a crash left of a creation is cleaned up; a creation under way is not, or it is refused."""

from uuid import UUID

from tests.unit.cluster.controlling import STATE, fresh_image, keys

from penstock.cluster.image import Topic
from penstock.cluster.orphans import Orphans
from penstock.cluster.sqlite_store import SqliteStore
from penstock.cluster.store import Delete, Put
from penstock.cluster.topic_plan import NewTopic
from penstock.errors import RegistrationLost


async def test_what_a_crash_left_of_a_creation_is_cleaned_up(node):
    layout = node.image.layout
    left = [Put(layout.partition(UUID(int=7), n), STATE) for n in range(120)]
    await node.store.txn([], left[:100])
    last = await node.store.txn([], left[100:])
    await node.feed.reached(last.revision)
    await node.controller.create_topics([NewTopic("whole", 2)])
    assert await Orphans(node.store, node.feed, node.membership).clean() == 120
    assert len(await keys(node, "partitions/")) == 2
    assert await keys(node, "creating/") == []


async def test_a_creation_under_way_is_not_taken_for_what_a_crash_left(store, node, start_node, monkeypatch):
    real = SqliteStore.txn
    async with start_node(store, node_id=2, directory_id=UUID(int=2)) as other:
        orphans = Orphans(node.store, node.feed, node.membership)
        cleaned: list[int] = []

        async def txn(self, compare, then, orelse=()):
            monkeypatch.setattr(SqliteStore, "txn", real)
            result = await self.txn(compare, then, orelse)
            await node.feed.reached(result.revision)
            cleaned.append(await orphans.clean())
            monkeypatch.setattr(SqliteStore, "txn", txn)
            return result

        monkeypatch.setattr(SqliteStore, "txn", txn)
        (made,) = await other.controller.create_topics([NewTopic("large", 450)])
        monkeypatch.setattr(SqliteStore, "txn", real)
    assert isinstance(made, Topic)
    assert cleaned == [0] * 6
    assert (await fresh_image(node)).topics["large"].id == made.id
    assert await keys(node, "creating/") == []


async def test_a_creation_is_refused_once_its_partitions_were_taken_for_what_a_crash_left(
    store, node, start_node, monkeypatch
):
    real = SqliteStore.txn
    async with start_node(store, node_id=2, directory_id=UUID(int=2)) as other:

        async def txn(self, compare, then, orelse=()):
            if any(isinstance(put, Put) and "/topics/" in put.key for put in then):
                # As late as it can be: all but the last transaction is written when the guard goes.
                monkeypatch.setattr(SqliteStore, "txn", real)
                last = await self.txn([], [Delete(f"{node.image.layout.prefix}creating/{guard}") for guard in guards])
                await node.feed.reached(last.revision)
                assert await Orphans(node.store, node.feed, node.membership).clean() == 400
            result = await real(self, compare, then, orelse)
            guards.extend(put.key.rpartition("/")[2] for put in then if "/creating/" in put.key)
            return result

        guards: list[str] = []
        monkeypatch.setattr(SqliteStore, "txn", txn)
        (refused,) = await other.controller.create_topics([NewTopic("large", 450)])
    assert isinstance(refused, RegistrationLost)
    assert await keys(node, "partitions/") == []
    assert "large" not in node.image.topics
