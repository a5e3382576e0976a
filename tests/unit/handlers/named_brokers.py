"""Brokers in name only, for tests of handlers: registered in the broker's own metadata store, and doing nothing else.

They never fall behind, since nothing is produced, and never catch up where they are not in sync.
"""

from typing import Any

from penstock.cluster.layout import encode
from penstock.cluster.store import Delete, Put
from penstock.cluster.topic_plan import NewTopic

NOWHERE = ["127.0.0.1", 1]


async def register(node: Any, *node_ids: int) -> None:
    layout = node.context.image.layout
    value = encode({"endpoint": NOWHERE, "rack": None})
    await write(node, *(Put(layout.broker(node_id), value) for node_id in node_ids))


async def deregister(node: Any, node_id: int) -> None:
    await write(node, Delete(node.context.image.layout.broker(node_id)))


async def create(node: Any, name: str, *assignment: tuple[int, ...]) -> None:
    """A topic with these replicas, partition by partition; all that are registered are in sync."""
    (made,) = await node.context.controller.create_topics([NewTopic(name, -1, -1, {}, dict(enumerate(assignment)))])
    assert not isinstance(made, Exception), made


async def set_state(node: Any, name: str, index: int = 0, **fields: Any) -> None:
    """A partition in a state that only a long story would lead to."""
    image = node.context.image
    topic = image.topics[name]
    state = {**topic.partitions[index].as_json(), **fields}
    await write(node, Put(image.layout.partition(topic.id, index), encode(state)))


async def write(node: Any, *operations: Put | Delete) -> None:
    """Straight into the store; returns when the broker has seen it."""
    result = await node.broker._store.txn([], list(operations), [])
    await node.context.controller._feed.reached(result.revision)
