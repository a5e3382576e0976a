"""handlers.log_dirs: how much the logs take."""

import shutil
from typing import Any

import pytest

from penstock.handlers.log_dirs import handle_describe_log_dirs
from penstock.wire.apis import ApiKey

LOG_DIRS = ApiKey.DESCRIBE_LOG_DIRS


async def sizes(node: Any, version: int | None = None, **body: Any) -> dict[tuple[str, int], int]:
    answer = await node.call(handle_describe_log_dirs, LOG_DIRS, version, **body)
    assert getattr(answer, "error_code", 0) == 0
    (directory,) = answer.results
    assert directory.log_dir == str(node.context.replicas.logs.root.absolute())
    assert directory.error_code == 0
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in directory.topics
        for partition in topic.partitions
        if (partition.offset_lag, partition.is_future_key) == (0, False)
    }


@pytest.mark.parametrize("version", range(1, 6))
async def test_every_version_tells_the_size_of_every_log(node: Any, version: int) -> None:
    await node.create("orders", 2)
    node.append("orders", 1, 2, 3, index=1)
    size = node.partition("orders", 1).log.size
    assert size > 0
    assert await sizes(node, version, topics=None) == {("orders", 0): 0, ("orders", 1): size}


async def test_only_the_partitions_asked_for_are_told_and_unknown_ones_left_out(node: Any) -> None:
    await node.create("orders", 2)
    await node.create("other")
    asked = [{"topic": "orders", "partitions": [1, 7, 1]}, {"topic": "nowhere", "partitions": [0]}]
    assert await sizes(node, topics=asked) == {("orders", 1): 0}
    assert await sizes(node, topics=[]) == {}


async def test_the_room_on_the_volume_is_told(node: Any) -> None:
    (directory,) = (await node.call(handle_describe_log_dirs, LOG_DIRS, topics=None)).results
    assert directory.total_bytes == shutil.disk_usage(node.context.replicas.logs.root).total
    assert 0 < directory.usable_bytes <= directory.total_bytes


async def test_a_volume_that_does_not_say_is_of_unknown_size(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise OSError

    monkeypatch.setattr(type(node.context.disk), "free_bytes", lambda *_: fail(_))
    (directory,) = (await node.call(handle_describe_log_dirs, LOG_DIRS, topics=None)).results
    assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)
