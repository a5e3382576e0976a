"""The process dies, or power fails, at every effect of a follower's life: its log is the one before or after a cut.

Never damaged, never with offsets that mean two things, never with producers, transactions or leader epochs other than
those of the batches it holds.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest
from tests.chaos.workload import ManualClock
from tests.simulation.disk import SimulatedDisk
from tests.simulation.watched_disk import Crash, CrashAt, WatchedDisk

from penstock.clock import Rng
from penstock.config import TopicConfig
from penstock.disk import Disk
from penstock.errors import PenstockError
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import read_header, stamp
from penstock.records.markers import ControlType, Marker, encode_marker
from penstock.records.record import Record, encode_batch

ROOT = Path("/data")
AT = TopicPartition("orders", 0)
CONFIG = TopicConfig(segment_bytes=600, index_interval_bytes=150, file_delete_delay_ms=0)
PRODUCERS = 3
POWER_SEEDS = 2  # of every effect


class May(NamedTuple):
    """What a crash may leave: the batches from `start` on, up to any of them at or after `end_min`."""

    start: int
    batches: tuple[bytes, ...]
    end_min: int
    # Which the log may still know of, or have forgotten, from any of them on.
    before: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Leaders:
    """What leaders of several epochs write: transactions, their markers, plain batches, never twice the same."""

    sequences: dict[int, int] = field(default_factory=dict[int, int])
    count: int = 0

    def write(self, offset: int, epoch: int, now_ms: int) -> bytes:
        self.count += 1
        producer = self.count % PRODUCERS
        match self.count % 7:
            case 3 | 6:
                control = ControlType.ABORT if self.count % 2 else ControlType.COMMIT
                batch = encode_marker(
                    Marker(control, 0), offset=0, timestamp=now_ms, producer_id=producer, producer_epoch=0
                )
            case _:
                sequence = self.sequences.get(producer, 0)
                self.sequences[producer] = sequence + 2
                text = f"{self.count} ".ljust(70).encode()
                batch = encode_batch(
                    [Record(n, now_ms, None, text) for n in range(2)],
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequence,
                    is_transactional=producer != 0,
                )
        stamp(memoryview(batch), Offset(offset), LeaderEpoch(epoch))
        return bytes(batch)


class FollowersLife:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.leaders = Leaders()
        self.may = [May(0, (), 0)]
        self.cuts = 0

    async def open(self, disk: Disk) -> LogDirectory:
        logs = LogDirectory(disk, ROOT, self.clock, Rng(3))
        logs.prepare()
        await logs.open_all([LogRequest(AT, UUID(int=0x51), CONFIG, has_peers=True)])
        assert not logs.offline, [str(failure) for failure in logs.offline.values()]
        return logs

    async def follow(self, log: PartitionLog, batches: int, epoch: int, *, is_synced: bool = True) -> None:
        ((start, held, end_min, _),) = self.may
        for _ in range(batches):
            self.clock.ms += 1000
            held = (*held, self.leaders.write(log.next_offset, epoch, self.clock.ms))
            self.may = [May(start, held, end_min)]
            log.append_replicated(memoryview(held[-1]), self.clock.ms)
        if is_synced:
            await log.sync.wait_for(log.next_offset)
            self.may = [May(start, held, log.next_offset)]

    async def truncate(self, logs: LogDirectory, back: int) -> None:
        ((start, held, end_min, _),) = self.may
        end = end_of(held[-back - 1])
        self.may = [May(start, held, min(end, end_min))]
        log = await logs.truncate(logs.logs[AT], Offset(end + 1))  # in the middle of a batch, where there is one
        if log.next_offset == end + 1:
            log = await logs.truncate(log, Offset(end))
        self.may = [May(start, held[:-back], end)]
        self.cuts += 1

    async def restart(self, logs: LogDirectory, offset: int) -> None:
        ((start, held, end_min, _),) = self.may
        above = tuple(batch for batch in held if end_of(batch) > offset)
        before = held[: len(held) - len(above)]
        higher = max(start, offset)
        self.may += [May(offset, (), offset), May(higher, (), higher)]
        if above and before:
            self.may.append(May(higher, above, end_min, before))
        await logs.restart_at(logs.logs[AT], Offset(offset))
        self.may = [May(offset, (), offset)]
        self.cuts += 1

    async def run(self, disk: Disk) -> None:
        logs = await self.open(disk)
        await self.follow(logs.logs[AT], 9, 1)
        await logs.checkpoint()
        await logs.save_high_watermarks({AT: logs.logs[AT].next_offset})
        await self.follow(logs.logs[AT], 7, 1)
        await self.follow(logs.logs[AT], 3, 2, is_synced=False)
        await self.truncate(logs, 5)  # also of what was synced, across two segments
        await self.follow(logs.logs[AT], 6, 4)
        await logs.checkpoint()
        await self.truncate(logs, 1)
        await self.follow(logs.logs[AT], 2, 6, is_synced=False)
        await logs.close()
        self.may = [self.may[0]._replace(end_min=end_of(self.may[0].batches[-1]))]
        logs = await self.open(disk)
        await self.truncate(logs, 8)
        await self.follow(logs.logs[AT], 5, 7)
        await self.restart(logs, logs.logs[AT].next_offset + 40)
        await self.follow(logs.logs[AT], 6, 8)
        await logs.checkpoint()
        await self.follow(logs.logs[AT], 2, 8)
        await self.restart(logs, logs.logs[AT].next_offset - 4)
        await self.follow(logs.logs[AT], 3, 9)
        await logs.checkpoint()
        await self.restart(logs, 10)
        await self.follow(logs.logs[AT], 2, 10)
        await logs.close()

    async def judge(self, disk: Disk) -> None:
        for _ in range(2):  # what recovery has made of it must be good for another start
            logs = await self.open(disk)
            log = logs.logs[AT]
            held = tuple(read_batches(log))
            fitting = [
                may
                for may in self.may
                if log.log_start == may.start
                and held == may.batches[: len(held)]
                and log.next_offset >= may.end_min
                and log.next_offset == (end_of(held[-1]) if held else may.start)
            ]
            assert fitting, (log.log_start, log.next_offset, [(m.start, m.end_min, len(m.batches)) for m in self.may])
            knowledge = said_of(log)
            before = fitting[-1].before  # the last of them has most, and the others nothing
            possible = [await self.said_of_fresh(log, before[first:], held) for first in range(len(before) + 1)]
            assert knowledge in possible
            logs.release()

    async def said_of_fresh(self, log: PartitionLog, before: tuple[bytes, ...], held: tuple[bytes, ...]) -> object:
        """What a log knows that was made of these batches and of nothing else."""
        logs = await self.open(SimulatedDisk())
        first = read_header(before[0]).base_offset if before else log.log_start
        fresh = await logs.restart_at(logs.logs[AT], Offset(first))
        fresh.append_replicated(memoryview(b"".join((*before, *held))), self.clock.ms)
        fresh.advance_start(log.log_start)
        return said_of(fresh)


def said_of(log: PartitionLog) -> object:
    producers = [
        (each.producer_id, each.last_sequence, each.coordinator_epoch, each.current_txn_start_offset)
        for each in sorted(log.producer_states())
    ]
    epochs = [log.epochs.end_of(LeaderEpoch(epoch), log.next_offset) for epoch in range(12)]
    return producers, log.aborted_transactions(log.log_start, log.next_offset), epochs


def end_of(batch: bytes) -> int:
    return read_header(batch).next_offset


def read_batches(log: PartitionLog) -> Iterator[bytes]:
    offset = log.log_start
    while offset < log.next_offset:
        chunk = log.read(offset, 500, log.next_offset, cached_only=False)
        assert chunk, f"nothing at {offset}"
        header = read_header(chunk)
        yield bytes(chunk[: header.size])
        offset = Offset(header.next_offset)


async def die_and_judge(number: int, seed: int | None) -> bool:
    """True if the life did not get to its end."""
    disk, watch, life = SimulatedDisk(seed or 0), CrashAt(number), FollowersLife()
    with contextlib.suppress(Crash, PenstockError):
        await life.run(WatchedDisk(disk, watch))
    if seed is not None:
        disk.power_loss()
    await life.judge(disk)
    return watch.is_dead


@pytest.fixture(scope="module")
def effects() -> int:
    watch, life = CrashAt(None), FollowersLife()
    asyncio.run(life.run(WatchedDisk(SimulatedDisk(), watch)))
    assert life.cuts == 6
    assert watch.count >= 300, "the script must do enough to be worth dying in"
    return watch.count


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_power", [False, True], ids=["kill", "power"])
def test_a_crash_around_a_cut_leaves_the_log_before_or_after_it(effects: int, is_power: bool) -> None:
    logging.disable(logging.CRITICAL)
    try:
        for number in range(1, effects + 1):
            for seed in range(POWER_SEEDS) if is_power else [None]:
                try:
                    assert asyncio.run(die_and_judge(number, None if seed is None else number * POWER_SEEDS + seed))
                except Exception as error:
                    raise AssertionError(f"at effect {number}, seed {seed}") from error
    finally:
        logging.disable(logging.NOTSET)
