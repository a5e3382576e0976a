"""How much the logs take and how much room is left: DescribeLogDirs.

Called by server.dispatch.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.handlers.context import HandlerContext, Request
from penstock.model import TopicPartition

Body = Mapping[str, Any]

UNKNOWN_BYTES = -1


async def handle_describe_log_dirs(context: HandlerContext, request: Request) -> Body:
    logs = context.replicas.logs
    asked = request.body.topics
    wanted = None
    if asked is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in asked for index in topic.partitions}
    topics: dict[str, list[Body]] = {}
    for at, log in logs.logs.items():
        if wanted is None or at in wanted:
            # One replica is never behind itself, and no log here is on its way to another directory.
            partition = {"partition_index": at.partition, "partition_size": log.size, "offset_lag": 0}
            topics.setdefault(at.topic, []).append(partition)
    total_bytes, usable_bytes = await context.disk.run(_volume, context, logs.root)
    directory: Body = {
        "log_dir": str(logs.root.absolute()),
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
    }
    return {"results": [directory]}


def _volume(context: HandlerContext, root: Path) -> tuple[int, int]:
    """Size of the file system and what is free of it. Blocks."""
    try:
        volume = os.statvfs(root)
        return volume.f_blocks * volume.f_frsize, context.disk.free_bytes(root)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
