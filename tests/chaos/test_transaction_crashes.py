"""The process dies, or power fails, at every effect of a life with transactions: what was ended stays ended, as it was.

The life has aborts, commits and a transaction that stays open, over rolls, checkpoints, deleted records, compaction and
a clean restart. After each crash the log is judged twice: by what was acknowledged before, and by a reader who has read
all that is left of it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest
from tests.chaos.workload import ManualClock
from tests.simulation.disk import SimulatedDisk
from tests.simulation.watched_disk import Crash, CrashAt, WatchedDisk
from tests.unit.log.making import committed_values, whole_batches

from penstock.clock import Rng
from penstock.config import BrokerConfig, TopicConfig
from penstock.disk import Disk
from penstock.errors import PenstockError
from penstock.log.clean_job import CleanJob, CleanResult
from penstock.log.compaction import clean_segments
from penstock.log.compactor import Compactor
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.metrics import BrokerMetrics
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import BatchHeader, read_header
from penstock.records.markers import ControlType, Marker, decode_marker
from penstock.records.record import Record, decode_records, encode_batch

ROOT = Path("/data")
AT = TopicPartition("accounts", 0)
TOPIC_ID = UUID(int=0x77)
CONFIG = TopicConfig(
    cleanup_policy=frozenset({"compact", "delete"}),
    segment_bytes=500,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)
LASTING = 99  # the producer whose transaction is open to the end


class Value(NamedTuple):
    offset: int
    key: str
    value: str


class InProcess:
    """Compacts here and now: a worker process would not see the simulated disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def clean(self, job: CleanJob) -> CleanResult:
        return clean_segments(self._disk, job)

    def close(self) -> None:
        pass


class TransactionalLife:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        # What a transaction wrote, by its producer; moved when its marker is written.
        self.pending: dict[int, list[Value]] = {}
        self.committed: list[Value] = []
        self.undone: set[str] = set()
        self.maybe: set[str] = set()  # ended by a marker that was not acknowledged
        self.acked_end = 0
        self.start = 0
        self.rounds = 0

    async def open(self, disk: Disk) -> LogDirectory:
        logs = LogDirectory(disk, ROOT, self.clock, Rng(3))
        logs.prepare()
        await logs.open_all([LogRequest(AT, TOPIC_ID, CONFIG)])
        assert not logs.offline, [str(failure) for failure in logs.offline.values()]
        return logs

    async def compact(self, disk: Disk, logs: LogDirectory) -> None:
        compactor = Compactor(disk, logs, BrokerConfig(), self.clock, BrokerMetrics(self.clock))
        compactor.close()
        compactor._cleaner = InProcess(disk)  # type: ignore[assignment]
        log = logs.logs[AT]
        self.rounds += await compactor.run_round({AT: log.last_stable_offset(log.next_offset)}.get)

    def send(self, log: PartitionLog, producer: int, key: str) -> None:
        self.clock.ms += 1000
        value = f"{len(self.pending.get(producer, ()))}.{producer}.{log.next_offset}"
        sequence = self.sequences.get(producer, 0)
        batch = encode_batch(
            [Record(0, self.clock.ms, key.encode(), value.encode())],
            producer_id=producer,
            producer_epoch=self.epochs.get(producer, 0),
            base_sequence=sequence,
            is_transactional=True,
        )
        self.sequences[producer] = sequence + 1
        self.pending.setdefault(producer, []).append(Value(log.next_offset, key, value))
        log.append(memoryview(batch), read_header(batch), LeaderEpoch(0), self.clock.ms)

    async def end(self, log: PartitionLog, producer: int, *, is_abort: bool, is_version_2: bool = False) -> None:
        written = self.pending.pop(producer, [])
        self.maybe |= {each.value for each in written}
        if is_version_2:
            self.epochs[producer] = self.epochs.get(producer, 0) + 1
            self.sequences[producer] = 0
        marker = Marker(ControlType.ABORT if is_abort else ControlType.COMMIT, 0)
        epoch = self.epochs.get(producer, 0)
        log.append_marker(marker, producer, epoch, LeaderEpoch(0), self.clock.ms, is_version_2=is_version_2)
        if is_abort:
            self.undone |= {each.value for each in written}
        await log.sync.wait_for(log.next_offset)
        self.acked_end = log.next_offset
        self.maybe -= {each.value for each in written}
        if not is_abort:
            self.committed += written

    async def work(self, log: PartitionLog, rounds: int) -> None:
        for number in range(rounds):
            self.send(log, 1, f"a{number % 3}")
            self.send(log, 2, f"a{number % 3}")
            await self.end(log, 1, is_abort=True)
            self.send(log, 2, "b")
            await self.end(log, 2, is_abort=number % 2 == 1, is_version_2=True)

    async def run(self, disk: Disk) -> None:
        logs = await self.open(disk)
        log = logs.logs[AT]
        await self.work(log, 3)
        await logs.checkpoint()
        await self.work(log, 2)
        await self.compact(disk, logs)
        await logs.checkpoint()
        await self.work(log, 1)
        self.start = log.segments[2].base_offset
        log.advance_start(Offset(self.start))
        await logs.save_points()
        await logs.drop_segments_before_start(log)
        await self.work(log, 1)
        await logs.close()
        logs = await self.open(disk)
        log = logs.logs[AT]
        await self.compact(disk, logs)
        await self.work(log, 2)
        await self.compact(disk, logs)
        self.send(log, LASTING, "open")
        await self.work(log, 1)
        await logs.checkpoint()
        await self.work(log, 1)

    async def judge(self, disk: Disk) -> None:
        for _ in range(2):  # what recovery has made of it must be good for another start
            logs = await self.open(disk)
            log = logs.logs[AT]
            assert log.next_offset >= self.acked_end
            opened, aborted = read_transactions(log)
            stable = log.last_stable_offset(log.next_offset)
            assert stable == min(opened.values(), default=log.next_offset)
            told = {each.last_offset: each for each in log.aborted_transactions(log.log_start, stable)}
            for marker, (producer, first) in aborted.items():
                # The first of its records may be compacted away, and the entry still speak of it.
                assert first >= stable or (told[marker].producer_id == producer and told[marker].first_offset <= first)
            assert set(told) <= read_markers(log), "a reader told of an abort waits for its marker"
            seen = read_committed(log, stable)
            assert not self.undone & set(seen) - self.maybe
            # Each key keeps its newest committed value, unless it was deleted or a later one may have come.
            for key in {each.key for each in self.committed}:
                newest = [each for each in self.committed if each.key == key][-1]
                is_kept = self.start <= newest.offset < min(stable, self.acked_end)
                if is_kept and newest.value not in seen:
                    assert any(log_value in seen for log_value in self.maybe), newest
            logs.release()


def read_transactions(log: PartitionLog) -> tuple[dict[int, int], dict[int, tuple[int, int]]]:
    """First offsets of open transactions, and by marker (producer, first offset) of aborted ones: batches alone."""
    opened: dict[int, int] = {}
    aborted: dict[int, tuple[int, int]] = {}
    for header, batch in read_batches(log):
        if not header.is_control:
            opened.setdefault(header.producer_id, header.base_offset)
        elif header.record_count:
            (record,) = decode_records(batch, header, 1 << 20)
            first = opened.pop(header.producer_id, None)
            if first is not None and decode_marker(record).control_type is ControlType.ABORT:
                aborted[header.base_offset] = (header.producer_id, first)
    return opened, aborted


def read_markers(log: PartitionLog) -> set[int]:
    return {header.base_offset for header, _ in read_batches(log) if header.is_control and header.record_count}


def read_batches(log: PartitionLog) -> Iterator[tuple[BatchHeader, memoryview]]:
    offset = log.log_start
    while offset < log.next_offset:
        for header, batch in whole_batches(log.read(offset, 400, log.next_offset, cached_only=False)):
            offset = Offset(header.next_offset)
            yield header, batch


def read_committed(log: PartitionLog, stable: Offset) -> list[str]:
    """Answer by answer, each with its own list, as clients read."""
    values: list[str] = []
    offset = log.log_start
    while offset < stable:
        chunk = log.read(offset, 300, stable, cached_only=False)
        end = max(header.next_offset for header, _ in whole_batches(chunk))
        told = log.aborted_transactions(offset, Offset(end))
        values += committed_values(chunk, offset, [(each.producer_id, each.first_offset) for each in told])
        offset = Offset(end)
    return values


async def die_and_judge(number: int, seed: int | None) -> bool:
    """True if the life did not get to its end."""
    disk, watch, life = SimulatedDisk(seed or 0), CrashAt(number), TransactionalLife()
    with contextlib.suppress(Crash, PenstockError):
        await life.run(WatchedDisk(disk, watch))
    if seed is not None:
        disk.power_loss()
    await life.judge(disk)
    return watch.is_dead


@pytest.fixture(scope="module")
def effects() -> int:
    watch, life, disk = CrashAt(None), TransactionalLife(), SimulatedDisk()
    asyncio.run(life.run(WatchedDisk(disk, watch)))
    assert life.rounds == 3, "every compaction had something to do"
    asyncio.run(life.judge(disk))
    return watch.count


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_power", [False, True], ids=["kill", "power"])
def test_a_crash_at_any_effect_changes_no_transaction_that_was_ended(effects: int, is_power: bool) -> None:
    logging.disable(logging.CRITICAL)
    try:
        for number in range(1, effects + 1):
            try:
                assert asyncio.run(die_and_judge(number, number if is_power else None))
            except Exception as error:
                raise AssertionError(f"at effect {number}") from error
    finally:
        logging.disable(logging.NOTSET)
