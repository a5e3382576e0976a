"""The process dies, or power fails, at every effect of a life with compaction: each key keeps its newest value."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.chaos.workload import ManualClock
from tests.simulation.disk import SimulatedDisk
from tests.simulation.watched_disk import Crash, CrashAt, WatchedDisk

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
from penstock.records.batch import HEADER_BYTES, read_header
from penstock.records.record import Record, decode_records, encode_batch

ROOT = Path("/data")
AT = TopicPartition("state", 0)
TOPIC_ID = UUID(int=0x51)
KEYS = 5
CONFIG = TopicConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=500,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.0,
)


class InProcess:
    """Compacts here and now: a worker process would not see the simulated disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def clean(self, job: CleanJob) -> CleanResult:
        return clean_segments(self._disk, job)

    def close(self) -> None:
        pass


class CompactedLife:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent: list[tuple[int, bytes, bytes]] = []
        self.acked_end = 0
        self.rounds = 0

    async def open(self, disk: Disk) -> LogDirectory:
        logs = LogDirectory(disk, ROOT, self.clock, Rng(3))
        logs.prepare()
        await logs.open_all([LogRequest(AT, TOPIC_ID, CONFIG)])
        assert not logs.offline, [str(failure) for failure in logs.offline.values()]
        return logs

    async def compact(self, disk: Disk, logs: LogDirectory) -> None:
        compactor = Compactor(disk, logs, BrokerConfig(), self.clock, BrokerMetrics(self.clock))
        compactor._cleaner = InProcess(disk)  # type: ignore[assignment]
        self.rounds += await compactor.run_round({AT: logs.logs[AT].next_offset}.get)

    async def produce(self, log: PartitionLog, batches: int) -> None:
        for _ in range(batches):
            self.clock.ms += 1000
            first = log.next_offset
            key = str(len(self.sent) * 7 % KEYS).encode()
            records = [(first + n, key if n else b"0", f"{first + n}".ljust(60).encode()) for n in range(2)]
            batch = encode_batch(
                [Record(n, self.clock.ms, key, value) for n, (_, key, value) in enumerate(records)],
                producer_id=4,
                producer_epoch=0,
                base_sequence=first,
            )
            self.sent += records
            log.append(memoryview(batch), read_header(batch), LeaderEpoch(0), self.clock.ms)
            await log.sync.wait_for(log.next_offset)
            self.acked_end = log.next_offset

    async def run(self, disk: Disk) -> None:
        logs = await self.open(disk)
        log = logs.logs[AT]
        await self.produce(log, 6)
        await logs.checkpoint()
        await self.produce(log, 6)
        await self.compact(disk, logs)  # also of what no checkpoint has covered yet
        await self.produce(log, 4)
        await logs.close()
        logs = await self.open(disk)
        await self.produce(logs.logs[AT], 4)
        await self.compact(disk, logs)
        await self.produce(logs.logs[AT], 2)

    async def judge(self, disk: Disk) -> None:
        for _ in range(2):  # what recovery has made of it must be good for another start
            logs = await self.open(disk)
            log = logs.logs[AT]
            assert log.next_offset >= self.acked_end
            found = list(read_records(log))
            assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
            assert set(found) <= set(self.sent)
            newest: dict[bytes, tuple[int, bytes, bytes]] = {}
            for record in self.sent:
                if record[0] < self.acked_end:
                    newest[record[1]] = record
            missing = [
                record
                for record in newest.values()
                if record not in found and not any(key == record[1] and at > record[0] for at, key, _ in found)
            ]
            assert missing == []
            self.judge_producer(log)
            logs.release()

    def judge_producer(self, log: PartitionLog) -> None:
        """The last batch of a producer outlives compaction, if only as a header: sent again, it is known."""
        if self.acked_end:
            last = [record for record in self.sent if record[0] < self.acked_end][-2:]
            batch = encode_batch(
                [Record(n, self.clock.ms, key, value) for n, (_, key, value) in enumerate(last)],
                producer_id=4,
                producer_epoch=0,
                base_sequence=last[0][0],
            )
            again = log.append(memoryview(batch), read_header(batch), LeaderEpoch(0), self.clock.ms)
            assert (again.base_offset, again.is_duplicate) == (last[0][0], True)


def read_records(log: PartitionLog) -> Iterator[tuple[int, bytes, bytes]]:
    offset = log.log_start
    while offset < log.next_offset:
        chunk = log.read(offset, 400, log.next_offset, cached_only=False)
        assert chunk, f"nothing at {offset}"
        while len(chunk) >= HEADER_BYTES and read_header(chunk).size <= len(chunk):
            header = read_header(chunk)
            for record in decode_records(chunk[: header.size], header, 1 << 20):
                if record.offset >= offset:
                    yield record.offset, record.key or b"", record.value or b""
            offset = Offset(header.next_offset)
            chunk = chunk[header.size :]


async def die_and_judge(number: int, seed: int | None) -> bool:
    """True if the life did not get to its end."""
    disk, watch, life = SimulatedDisk(seed or 0), CrashAt(number), CompactedLife()
    with contextlib.suppress(Crash, PenstockError):
        await life.run(WatchedDisk(disk, watch))
    if seed is not None:
        disk.power_loss()
    await life.judge(disk)
    return watch.is_dead


@pytest.fixture(scope="module")
def effects() -> int:
    watch, life = CrashAt(None), CompactedLife()
    asyncio.run(life.run(WatchedDisk(SimulatedDisk(), watch)))
    assert life.rounds == 2, "both compactions had something to do"
    return watch.count


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_power", [False, True], ids=["kill", "power"])
def test_a_crash_around_a_compaction_loses_no_key(effects: int, is_power: bool) -> None:
    logging.disable(logging.CRITICAL)
    try:
        for number in range(1, effects + 1):
            try:
                assert asyncio.run(die_and_judge(number, number if is_power else None))
            except Exception as error:
                raise AssertionError(f"at effect {number}") from error
    finally:
        logging.disable(logging.NOTSET)


async def test_a_log_that_cannot_be_read_is_left_as_it_is_and_the_round_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, life = SimulatedDisk(), CompactedLife()
    logs = await life.open(disk)
    await life.produce(logs.logs[AT], 8)
    await logs.close()
    file = disk.open(ROOT / str(AT) / f"{0:020d}.log")
    file.write_at(0, (bytes(file.size()),))
    logs = await life.open(disk)
    await life.compact(disk, logs)
    assert life.rounds == 0
    assert "state-0 was not compacted" in caplog.text
