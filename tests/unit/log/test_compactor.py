"""Compaction as the broker runs it, of logs with transactions: what goes, what the log then says of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.chaos.workload import ManualClock
from tests.unit.log.making import TOPIC_ID, abort, commit, committed_values, whole_batches

from penstock.clock import Rng
from penstock.config import BrokerConfig, TopicConfig
from penstock.disk import Disk, RealDisk
from penstock.log.clean_job import CleanJob, CleanResult
from penstock.log.compaction import clean_segments
from penstock.log.compactor import Compactor
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.metrics import BrokerMetrics
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import read_header
from penstock.records.record import Record, encode_batch

AT = TopicPartition("state", 0)
RETENTION_MS = 1000
CONFIG = TopicConfig(
    cleanup_policy=frozenset({"compact"}),
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
)


class InProcess:
    """Compacts here and now."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.jobs: list[CleanJob] = []
        self.began = asyncio.Event()

    async def clean(self, job: CleanJob) -> CleanResult:
        self.jobs.append(job)
        self.began.set()
        return clean_segments(self._disk, job)

    def close(self) -> None:
        pass


class Life:
    """One compacted log, its directory and its compactor."""

    def __init__(self, root: Path) -> None:
        self.disk = RealDisk()
        self.root = root
        self.clock = ManualClock()
        self.sequences: dict[int, int] = {}

    async def open(self, topic_id: UUID = TOPIC_ID) -> "Life":
        self.logs = LogDirectory(self.disk, self.root, self.clock, Rng(3))
        self.logs.prepare()
        await self.logs.open_all([LogRequest(AT, topic_id, CONFIG)])
        self.log: PartitionLog = self.logs.logs[AT]
        self.compactor = Compactor(self.disk, self.logs, BrokerConfig(), self.clock, BrokerMetrics(self.clock))
        self.compactor.close()
        self.cleaner = InProcess(self.disk)
        self.compactor._cleaner = self.cleaner  # type: ignore[assignment]
        return self

    def put(self, key: str, value: str, producer: int = -1) -> int:
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        self.sequences[producer] = sequence + 1
        batch = encode_batch(
            [Record(0, self.clock.ms, key.encode(), value.encode())],
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            is_transactional=producer >= 0,
        )
        return self.log.append(memoryview(batch), read_header(batch), LeaderEpoch(0), self.clock.ms).base_offset

    async def compact(self, stable: int | None = None) -> int:
        if self.log.segments[-1].size:
            self.log.roll(self.clock.ms)
        end = self.log.last_stable_offset(self.log.next_offset) if stable is None else Offset(stable)
        done = await self.compactor.run_round({AT: end}.get)
        self.put("end", f"{self.log.next_offset}")
        return done

    def seen(self, offset: int = 0) -> list[str]:
        """What a committed reader shows who begins here and is told of aborts once per answer."""
        values: list[str] = []
        end = self.log.last_stable_offset(self.log.next_offset)
        while offset < end:
            chunk = self.log.read(Offset(offset), 1 << 20, end, cached_only=False)
            batches = [header for header, _ in whole_batches(chunk)]
            told = self.log.aborted_transactions(Offset(offset), Offset(batches[-1].next_offset))
            values += committed_values(chunk, offset, [(each.producer_id, each.first_offset) for each in told])
            offset = batches[-1].next_offset
        return values

    def markers(self) -> list[int]:
        found: list[int] = []
        offset = self.log.log_start
        while offset < self.log.next_offset:
            chunk = self.log.read(offset, 1 << 20, self.log.next_offset, cached_only=False)
            for header, _ in whole_batches(chunk):
                if header.is_control and header.record_count:
                    found.append(header.base_offset)
                offset = Offset(header.next_offset)
        return found


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[Life]:
    life = await Life(tmp_path / "data").open()
    yield life
    life.logs.release()
    life.disk.close()


async def test_nothing_at_or_above_the_stable_offset_is_touched(life: Life) -> None:
    life.put("a", "1")
    life.put("a", "2", producer=7)
    life.put("a", "3")
    assert await life.compact() == 1
    assert life.cleaner.jobs[0].dirty_end == 1
    abort(life.log, 7)
    assert life.seen()[:2] == ["1", "3"]


async def test_aborted_records_go_and_those_that_they_would_have_replaced_stay(life: Life) -> None:
    life.put("a", "committed")
    life.put("a", "aborted", producer=7)
    abort(life.log, 7)
    assert await life.compact() == 1
    assert life.seen()[0] == "committed"
    chunk = life.log.read(Offset(0), 1 << 20, life.log.next_offset, cached_only=False)
    assert all(header.record_count == 0 or header.base_offset != 1 for header, _ in whole_batches(chunk))


async def one_after_another(life: Life, times: int) -> None:
    for _ in range(times):
        await life.logs.checkpoint()
        assert await life.compact() == 1
        life.clock.ms += RETENTION_MS + 1


async def test_an_entry_goes_with_its_marker_so_that_what_comes_later_is_seen(life: Life) -> None:
    life.put("a", "aborted", producer=7)
    marker = abort(life.log, 7)
    life.put("b", "filler", producer=7)
    commit(life.log, 7)
    await one_after_another(life, 2)
    assert marker in life.markers()
    assert [each.last_offset for each in life.log.aborted] == [marker]
    await one_after_another(life, 2)
    assert marker not in life.markers()
    assert list(life.log.aborted) == []
    assert "filler" in life.seen(), "a reader told of an abort without its marker would skip this"


async def test_a_marker_that_no_snapshot_knows_of_stays(life: Life) -> None:
    life.put("a", "aborted", producer=7)
    marker = abort(life.log, 7)
    life.put("b", "committed", producer=7)
    commit(life.log, 7)
    for _ in range(4):
        await life.compact()
        life.clock.ms += RETENTION_MS + 1
    assert marker in life.markers()


async def test_after_a_crash_the_aborted_list_is_that_of_the_compacted_log(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        life.put(f"key {number}", "aborted", producer=7)
        abort(life.log, 7)
        life.log.roll(life.clock.ms)
    await life.logs.checkpoint()
    assert len(list(life.log.directory.glob("*.txnindex"))) == 4
    await life.compact()
    assert len(life.log.segments) == 2, "compaction has merged them"
    assert list(life.log.directory.glob("*.txnindex")) == []
    seen = life.seen()
    life.logs.release()
    await life.open()
    assert "anew" in caplog.text
    assert [each.last_offset for each in life.log.aborted] == [7], "of the others only the marker is left"
    assert life.seen() == seen


async def test_a_log_whose_place_another_has_taken_since_the_round_began_is_left_alone(life: Life) -> None:
    life.put("key", "1")
    life.log.roll(life.clock.ms)
    replaced, asked = TopicPartition("replaced", 0), list[TopicPartition]()
    life.logs.logs[replaced] = life.log

    def stable_offset(at: TopicPartition) -> Offset | None:
        asked.append(at)
        life.logs.logs.pop(replaced, None)
        return None

    assert await life.compactor.run_round(stable_offset) == 0
    assert asked == [AT]


async def test_the_next_checkpoint_writes_the_list_of_the_compacted_log_though_nothing_was_appended(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        life.put(f"key {number}", "aborted", producer=7)
        abort(life.log, 7)
        life.log.roll(life.clock.ms)
    life.put("end", "1")
    await life.logs.checkpoint()
    life.log.roll(life.clock.ms)
    assert await life.compactor.run_round({AT: life.log.next_offset}.get) == 1
    before = list(life.log.aborted)
    await life.logs.close()
    await life.open()
    assert list(life.log.aborted) == before
    assert "anew" not in caplog.text


async def test_a_swap_waits_for_a_checkpoint_that_still_knows_the_old_segments(life: Life) -> None:
    for number in range(3):
        life.put(f"key {number}", "aborted", producer=7)
        abort(life.log, 7)
        life.log.roll(life.clock.ms)
    order: list[str] = []
    begin, go_on = asyncio.Event(), asyncio.Event()
    checkpoint_log = life.logs._checkpoints.save_log

    async def slowly(log: PartitionLog) -> None:
        begin.set()
        await go_on.wait()
        await checkpoint_log(log)
        order.append("checkpoint")

    life.logs._checkpoints.save_log = slowly
    checkpoint = asyncio.ensure_future(life.logs.checkpoint())
    await begin.wait()
    replace = life.log.replace_segments

    def replaced(*arguments: Any) -> Any:
        order.append("swap")
        return replace(*arguments)

    life.log.replace_segments = replaced  # type: ignore[method-assign]
    compaction = asyncio.ensure_future(life.compact())
    await life.cleaner.began.wait()
    go_on.set()
    await asyncio.gather(checkpoint, compaction)
    assert order == ["checkpoint", "swap"]


async def test_how_far_a_log_is_clean_is_not_told_of_another_topic_of_its_name(life: Life) -> None:
    for number in range(20):
        life.put("a", str(number))
    assert await life.compact() == 1
    await life.logs.close()
    life.logs.delete(AT)
    other = UUID(int=5)
    life.logs.release()
    await life.open(other)
    for number in range(40):
        life.put("a", str(number))
    assert await life.compact() == 1
    assert life.cleaner.jobs[0].dirty_start == 0


async def test_a_log_that_was_cut_while_it_was_compacted_is_left_as_the_cut_made_it(life: Life) -> None:
    for number in range(8):
        life.put("a", str(number))
        life.log.roll(life.clock.ms)
    clean = life.cleaner.clean

    async def cut_meanwhile(job: CleanJob) -> CleanResult:
        result = await clean(job)
        life.log = await life.logs.truncate(life.log, Offset(5))
        return result

    life.cleaner.clean = cut_meanwhile  # type: ignore[method-assign]
    assert await life.compact() == 0
    assert life.logs.busy == set()
    await life.logs.close()
    await life.open()
    assert life.seen() == ["0", "1", "2", "3", "4", "5"]  # the last is what compact() puts behind it


async def test_what_is_written_after_a_cut_below_what_was_clean_is_compacted_again(life: Life) -> None:
    for number in range(10):
        life.put("a", str(number))
    assert await life.compact() == 1
    life.log = await life.logs.truncate(life.log, Offset(2))
    for number in range(20):
        life.put("b" if number < 10 else "c", str(number))
    assert await life.compact() == 1
    assert life.seen() == ["9", "19", "20"]  # of the first ten nothing was left below 2: the log began anew at 0
