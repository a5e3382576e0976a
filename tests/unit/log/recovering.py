"""Logs for the tests of recovery: filled, synced, closed, and then damaged behind their back."""

import asyncio
from pathlib import Path

from tests.unit.log.making import append, open_at

from penstock.disk import RealDisk
from penstock.log.partition_log import PartitionLog
from penstock.log.recovery import CleanEnd, write_snapshot

BATCH = 155  # bytes of each batch that `fill` appends
SEGMENT = BATCH * 4


def fill(directory: Path, batches: int, *, producer: int = -1, leader_epoch: int = 0) -> list[str]:
    """Batches of two records each, four to a segment, all of them synced; gives their values."""
    log = open_at(directory, segment_bytes=SEGMENT)
    values = [f"{number:04}".ljust(40, "x") for number in range(batches * 2)]
    for number in range(batches):
        sequence = number * 2 if producer >= 0 else -1
        pair = values[number * 2 : number * 2 + 2]
        append(log, *pair, producer=producer, sequence=sequence, leader_epoch=leader_epoch)
    sync(log)
    log.close()
    return values


def sync(log: PartitionLog) -> None:
    async def wait() -> None:
        await log.sync.wait_for(log.next_offset)

    asyncio.run(wait())


def log_file(directory: Path, base: int = 0) -> Path:
    return directory / f"{base:020d}.log"


def flip(path: Path, byte: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


def clean_end(log: PartitionLog) -> CleanEnd:
    active = log.segments[-1]
    write_snapshot(RealDisk(), log.directory, log.next_offset, log.producers.encode())
    return CleanEnd(active.base_offset, active.size, active.next_offset, active.first_timestamp, active.max_timestamp)
