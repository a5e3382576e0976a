"""Three brokers' metadata parts on one store in one process, and partitions in any state a test wants."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

from penstock.cluster.image import PartitionState
from penstock.cluster.layout import encode
from penstock.cluster.store import Put
from penstock.cluster.topic_plan import NewTopic


@contextlib.asynccontextmanager
async def three(store, start_node, **options) -> AsyncIterator[list]:
    async with contextlib.AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(start_node(store, node_id=n, directory_id=UUID(int=n), **options))
            for n in (1, 2, 3)
        ]
        await settled(nodes)
        yield nodes


async def settled(nodes) -> None:
    """Every image holds the newest registration of all."""
    newest = max(node.membership.broker_epoch for node in nodes)
    for node in nodes:
        await node.feed.reached(newest)


async def make_topic(nodes, partitions: int = 1, name: str = "t", **configs: str):
    """A topic of three replicas led by 1, with at least two in sync."""
    assignment = {index: [1, 2, 3] for index in range(partitions)}
    wanted = NewTopic(name, -1, -1, {key.replace("_", "."): value for key, value in configs.items()}, assignment)
    (topic,) = await nodes[0].controller.create_topics([wanted])
    for node in nodes:
        await node.feed.reached(topic.mod_revision)
    return nodes[0].image.topics[name]


async def put_state(nodes, topic, index: int = 0, **fields) -> PartitionState:
    """Write a state as it is, as a test's beginning."""
    state = replace(nodes[0].image.topics[topic.name].partitions[index], **fields)
    key = nodes[0].image.layout.partition(topic.id, index)
    result = await nodes[0].store.txn([], [Put(key, encode(state.as_json()))])
    for node in nodes:
        await node.feed.reached(result.revision)
    return nodes[0].image.topics[topic.name].partitions[index]


async def until(condition) -> None:
    """The conditions are facts of several objects, no one event tells them."""
    async with asyncio.timeout(20):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)
