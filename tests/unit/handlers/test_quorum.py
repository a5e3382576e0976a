"""handlers.quorum: who decides in the cluster, in the shape Kafka has for it."""

from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.handlers.quorum import METADATA_TOPIC, handle_describe_quorum
from penstock.wire.apis import ApiKey

QUORUM = ApiKey.DESCRIBE_QUORUM


async def describe(node: Any, version: int, *asked: tuple[str, int]) -> Any:
    topics = [{"topic_name": name, "partitions": [{"partition_index": index}]} for name, index in asked]
    return await node.call(handle_describe_quorum, QUORUM, version, topics=topics)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_controller_leads_and_every_broker_has_a_vote(node: Any, version: int) -> None:
    answer = await describe(node, version, (METADATA_TOPIC, 0))
    assert answer.error_code == 0
    ((partition,),) = [topic.partitions for topic in answer.topics]
    assert (partition.error_code, partition.leader_id) == (0, node.context.image.controller_id)
    assert partition.leader_epoch > 0
    assert partition.high_watermark == node.context.image.revision > 0
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
    assert partition.observers == ()
    if version >= 2:
        (listed,) = answer.nodes
        (listener,) = listed.listeners
        assert (listed.node_id, listener.host, listener.port) == (1, "127.0.0.1", node.context.node.port)


@pytest.mark.parametrize(
    "asked", [[("orders", 0)], [(METADATA_TOPIC, 1)], [(METADATA_TOPIC, 0), ("orders", 0)], [(METADATA_TOPIC, 0)] * 2]
)
async def test_nothing_else_can_be_described(node: Any, asked: list[tuple[str, int]]) -> None:
    answer = await describe(node, 2, *asked)
    found = [
        (topic.topic_name, one.partition_index, one.error_code) for topic in answer.topics for one in topic.partitions
    ]
    assert found == [(*each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for each in asked]


async def test_an_empty_request_is_answered_with_nothing(node: Any) -> None:
    answer = await describe(node, 2)
    assert (answer.error_code, answer.topics) == (0, ())
