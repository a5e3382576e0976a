"""A data directory as a broker opens it, with the logs of two topics, on a clock that stands still."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.unit.log.making import NOW, append

from penstock.clock import Rng
from penstock.config import TopicConfig
from penstock.disk import Disk, RealDisk
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.model import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
IDS = {A: UUID(int=0xA), B: UUID(int=0xB)}


class FixedClock:
    def __init__(self) -> None:
        self.ms = NOW

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


async def start(
    root: Path,
    *wanted: TopicPartition,
    ids: dict[TopicPartition, UUID] = IDS,
    disk: Disk | None = None,
    clock: FixedClock | None = None,
    **settings: Any,
) -> LogDirectory:
    """A directory as a broker opens it, with these logs (both, if none are named)."""
    logs = LogDirectory(disk or RealDisk(), root, clock or FixedClock(), Rng(1))
    logs.prepare()
    config = TopicConfig(**{"file_delete_delay_ms": 0, "segment_bytes": 400, **settings})
    await logs.open_all(LogRequest(at, ids[at], config) for at in wanted or (A, B))
    return logs


def fill(log: PartitionLog, count: int, **batch: Any) -> list[str]:
    values = [f"{log.at} {log.next_offset + number}".ljust(60) for number in range(count)]
    for value in values:
        append(log, value, **batch)
    return values


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (what a thread does to files tells nobody)
            await asyncio.sleep(0.005)
