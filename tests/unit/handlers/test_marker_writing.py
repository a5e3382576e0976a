"""handlers.marker_writing: each partition's marker, or why it has none yet."""

import asyncio
from typing import Any

import pytest

from penstock.errors import ErrorCode, StorageFailed
from penstock.model import TopicPartition
from penstock.records.markers import ControlType, Marker
from penstock.transactions.markers import MarkerToWrite


async def test_a_partition_that_is_led_elsewhere_gets_its_marker_from_there(node: Any) -> None:
    await node.create("orders", 2)
    here, elsewhere, gone = (TopicPartition("orders", index) for index in range(3))
    del node.context.replicas.topics["orders"].partitions[elsewhere.partition]
    marker = Marker(ControlType.COMMIT, 0)
    codes = await node.context.write_markers([MarkerToWrite(at, marker, 5, 0) for at in (here, elsewhere, gone)])
    assert codes == {
        here: ErrorCode.NONE,
        elsewhere: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_a_marker_is_durable_before_it_is_said_to_be_written(node: Any) -> None:
    await node.create("orders", 2)
    partitions = [node.partition("orders", index) for index in range(2)]
    marker = Marker(ControlType.ABORT, 0)
    codes = await node.context.write_markers([MarkerToWrite(partition.at, marker, 5, 0) for partition in partitions])
    assert set(codes.values()) == {ErrorCode.NONE}
    assert [(one.log.next_offset, one.log.durable_offset) for one in partitions] == [(1, 1), (1, 1)]


async def test_a_log_that_failed_keeps_its_transaction_until_the_broker_is_restarted(node: Any) -> None:
    await node.create("orders", 2)
    broken, whole = (node.partition("orders", index) for index in range(2))
    broken.log.failure = StorageFailed("the disk is gone")
    marker = Marker(ControlType.COMMIT, 0)
    codes = await node.context.write_markers([MarkerToWrite(one.at, marker, 5, 0) for one in (broken, whole)])
    assert codes == {broken.at: ErrorCode.KAFKA_STORAGE_ERROR, whole.at: ErrorCode.NONE}


async def test_a_writer_that_is_cancelled_leaves_the_sync_to_those_who_share_it(node: Any) -> None:
    await node.create("orders", 1)
    partition = node.partition("orders", 0)
    marker = Marker(ControlType.COMMIT, 0)
    writing = asyncio.create_task(node.context.write_markers([MarkerToWrite(partition.at, marker, 5, 0)]))
    await asyncio.sleep(0)
    shared = partition.log.sync.wait_for(partition.log.next_offset)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await shared
    assert partition.log.durable_offset == 1
