"""Creations of topics as transactions of the store: seen whole or not at all, however large, in a race or a failure."""

import asyncio
from uuid import UUID

import pytest
from tests.unit.cluster.controlling import STATE, fresh_image, keys

from penstock.clock import Rng
from penstock.cluster.controller import Controller
from penstock.cluster.image import Topic
from penstock.cluster.sqlite_store import SqliteStore
from penstock.cluster.store import Ambiguous, Put, Unavailable
from penstock.cluster.topic_plan import NewTopic
from penstock.config import BrokerConfig
from penstock.errors import InvalidConfig, TopicAlreadyExists


async def test_one_of_two_racing_creations_of_a_name_wins(node):
    results = await asyncio.gather(*(node.controller.create_topics([NewTopic("t", 150)]) for _ in range(4)))
    kinds = sorted(type(result).__name__ for (result,) in results)
    assert kinds == ["Topic"] + ["TopicAlreadyExists"] * 3
    winner = next(result for (result,) in results if isinstance(result, Topic))
    assert node.image.topics["t"].id == winner.id
    assert {key.split("/")[0] for key in await keys(node, "partitions/")} == {winner.id.hex}


async def test_a_topic_another_broker_just_created_does_not_take_its_batch_down(node, monkeypatch):
    real = SqliteStore.txn
    layout = node.image.layout
    foreign = [
        Put(layout.partition(UUID(int=9), 0), STATE),
        Put(layout.topic("b"), b'{"id":"%s","partitions":1,"configs":{}}' % UUID(int=9).hex.encode()),
    ]

    async def txn(self, compare, then, orelse=()):
        # After the plan was made, before the transaction arrives: no image could have known.
        monkeypatch.setattr(SqliteStore, "txn", real)
        await self.txn([], foreign)
        return await self.txn(compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    results = await node.controller.create_topics([NewTopic("a"), NewTopic("b"), NewTopic("c")])
    assert [type(result) for result in results] == [Topic, TopicAlreadyExists, Topic]


async def test_no_reader_ever_sees_part_of_a_large_topic(node):
    seen: list[int] = []

    async def look() -> None:
        while True:
            image = await fresh_image(node)
            if "large" in image.topics:
                seen.append(len(image.topics["large"].partitions))
                return

    async with asyncio.timeout(30):
        await asyncio.gather(look(), node.controller.create_topics([NewTopic("large", 950)]))
    assert seen == [950]
    assert len(node.image.topics["large"].partitions) == 950


@pytest.mark.parametrize("count", [1, 98, 99, 100, 101, 199, 200, 201])
async def test_every_number_of_partitions_fits_its_transactions(node, count):
    (made,) = await node.controller.create_topics([NewTopic("t", count)])
    assert isinstance(made, Topic)
    assert len((await fresh_image(node)).topics["t"].partitions) == count


async def test_many_topics_share_few_transactions(node):
    before = node.image.revision
    results = await node.controller.create_topics([NewTopic(f"t-{n}") for n in range(1000)])
    assert all(isinstance(result, Topic) for result in results)
    assert [result.name for result in results] == [f"t-{n}" for n in range(1000)]
    assert node.image.revision - before == 20


async def test_large_settings_of_many_topics_are_spread_over_transactions(node, monkeypatch):
    name, value = "leader.replication.throttled.replicas", ",".join(f"{n}:1" for n in range(15_000))
    monkeypatch.setattr("penstock.cluster.topic_plan.validate_change", lambda *arguments: None)
    results = await node.controller.create_topics([NewTopic(f"t-{n}", configs={name: value}) for n in range(20)])
    assert all(isinstance(result, Topic) for result in results)
    (result,) = await node.controller.create_topics([NewTopic("huge", configs={name: value * 5})])
    assert isinstance(result, InvalidConfig)


async def test_a_failing_store_fails_the_topics_it_could_not_take_and_no_others(node, monkeypatch):
    real = SqliteStore.txn
    calls = 0

    async def txn(self, compare, then, orelse=()):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Unavailable("the disk is full")
        return await real(self, compare, then, orelse)

    monkeypatch.setattr(SqliteStore, "txn", txn)
    results = await node.controller.create_topics([NewTopic(f"t-{n}") for n in range(120)])
    failed = [number for number, result in enumerate(results) if isinstance(result, Unavailable)]
    assert failed == list(range(50, 100))
    assert len(node.image.topics) == 70


async def test_a_creation_whose_outcome_is_unknown_says_so_and_is_not_tried_again(node, lose_next_answer):
    lose_next_answer()
    (result,) = await node.controller.create_topics([NewTopic("a")])
    assert isinstance(result, Ambiguous)
    again = Controller(node.store, node.feed, Rng(9), node.membership, BrokerConfig())
    (again,) = await again.create_topics([NewTopic("a")])
    assert isinstance(again, TopicAlreadyExists)
