"""log.times: offsets by time."""

from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any
from uuid import UUID

import pytest

from penstock.clock import Rng, SystemClock
from penstock.config import BrokerConfig
from penstock.disk import RealDisk
from penstock.errors import CorruptMessage
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.log.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from penstock.log.times import first_at, look, newest_timestamp
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import read_header, refresh_crc
from penstock.records.compression import Codec
from penstock.records.record import Record, encode_batch

AT = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=7)
SMALL = {"index.interval.bytes": "0", "segment.bytes": "1024"}


class Logs:
    """One log that can be filled, and opened again as after a stop or a crash."""

    def __init__(self, root: Path) -> None:
        self.disk = RealDisk()
        self._root = root
        self.directory: LogDirectory
        self.log: PartitionLog
        self.open()

    def open(self, **settings: str) -> None:
        self.directory = LogDirectory(self.disk, self._root, SystemClock(), Rng(1))
        self.directory.prepare()
        config = BrokerConfig().topic({**SMALL, **settings})
        self.log = self.directory.open_one(LogRequest(AT, TOPIC_ID, config))

    def append(self, *timestamps: int, epoch: int = 0, size: int = 10, **options: Any) -> None:
        records = [Record(delta, timestamp, b"k", b"v" * size) for delta, timestamp in enumerate(timestamps)]
        self.append_batch(encode_batch(records, **options), epoch)

    def append_batch(self, batch: bytearray, epoch: int = 0) -> None:
        view = memoryview(batch)
        self.log.append(view, read_header(view), LeaderEpoch(epoch), 0)

    def first_at(self, timestamp: int, end: int | None = None) -> tuple[int, int] | None:
        end = self.log.next_offset if end is None else end
        found = first_at(look(self.log, Offset(end), timestamp), timestamp)
        return None if found is None else (found.offset, found.timestamp)

    def newest(self, end: int | None = None) -> int | None:
        return newest_timestamp(look(self.log, Offset(self.log.next_offset if end is None else end)))


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    logs = Logs(tmp_path / "data")
    yield logs
    logs.directory.release()
    logs.disk.close()


def test_an_empty_log_has_no_times(logs: Logs) -> None:
    assert logs.first_at(0) is None
    assert logs.newest() is None


@pytest.mark.parametrize("codec", list(Codec))
def test_the_record_is_found_inside_its_batch(logs: Logs, codec: Codec) -> None:
    logs.append(100, 200, 300, compression=codec)
    logs.append(400, 500, compression=codec)
    assert logs.first_at(0) == (0, 100)
    assert logs.first_at(200) == (1, 200)
    assert logs.first_at(201) == (2, 300)
    assert logs.first_at(301) == (3, 400)
    assert logs.first_at(501) is None


def test_the_leader_epoch_is_that_of_the_batch(logs: Logs) -> None:
    logs.append(100, epoch=3)
    logs.append(200, epoch=5)
    found = first_at(look(logs.log, Offset(2), 200), 200)
    assert found is not None
    assert found.leader_epoch == 5


def test_records_out_of_order_are_found_by_offset_not_by_time(logs: Logs) -> None:
    logs.append(500)
    logs.append(100, 900, 200)
    logs.append(700)
    assert logs.first_at(100) == (0, 500)
    assert logs.first_at(600) == (2, 900)
    assert logs.first_at(901) is None
    assert logs.newest() == 900


def test_a_segment_that_holds_only_older_records_is_passed_over(logs: Logs) -> None:
    for timestamp in range(100, 1000, 100):
        logs.append(timestamp, size=600)
    assert len(logs.log.segments) > 5
    assert logs.first_at(550) == (5, 600)
    assert logs.newest() == 900


def test_nothing_below_the_log_start_is_found(logs: Logs) -> None:
    logs.append(900, 100, 800)
    logs.append(300)
    logs.log.advance_start(Offset(1))
    assert logs.first_at(0) == (1, 100)
    assert logs.first_at(500) == (2, 800)
    assert logs.first_at(850) is None
    assert logs.newest() == 800
    logs.log.advance_start(Offset(3))
    assert logs.first_at(0) == (3, 300)
    assert logs.newest() == 300
    logs.log.advance_start(Offset(4))
    assert logs.first_at(0) is None
    assert logs.newest() is None


def test_a_match_below_the_log_start_does_not_hide_one_in_a_later_segment(logs: Logs) -> None:
    logs.append(900, 100, size=400)
    logs.append(950, size=800)
    assert len(logs.log.segments) == 2
    logs.log.advance_start(Offset(1))
    assert logs.first_at(500) == (2, 950)


def test_nothing_at_or_above_the_end_is_found(logs: Logs) -> None:
    logs.append(100, 200)
    logs.append(300, 400)
    assert logs.first_at(200, end=1) is None
    assert logs.first_at(250, end=2) is None
    assert logs.first_at(350, end=3) is None
    assert logs.newest(end=3) == 300
    assert logs.newest(end=2) == 200
    assert logs.newest(end=0) is None


def test_records_stamped_by_the_broker_all_have_the_batchs_time(logs: Logs) -> None:
    logs.append(100, 200, 300, is_log_append_time=True)
    assert logs.first_at(150) == (0, 300)
    logs.log.advance_start(Offset(1))
    assert logs.first_at(150) == (1, 300)


def test_records_without_a_time_are_passed_over(logs: Logs) -> None:
    logs.append(-1, -1)
    assert logs.first_at(0) is None
    assert logs.newest() is None
    logs.append(50)
    assert logs.first_at(0) == (2, 50)


@pytest.mark.parametrize("lost", [(), (TIME_INDEX_SUFFIX,), (INDEX_SUFFIX,), (INDEX_SUFFIX, TIME_INDEX_SUFFIX)])
def test_a_crash_and_lost_indexes_change_no_answer(logs: Logs, lost: tuple[str, ...]) -> None:
    for timestamp in (900, 100, 200, 850, 300, 400, 500):
        logs.append(timestamp, size=300)
    assert len(logs.log.segments) > 2
    expected = {timestamp: logs.first_at(timestamp) for timestamp in range(0, 1000, 50)}
    assert expected[850] == (0, 900)
    logs.directory.release()
    for path in list(logs.log.directory.iterdir()):
        if path.suffix in lost:
            path.unlink()
    logs.open()
    assert {timestamp: logs.first_at(timestamp) for timestamp in range(0, 1000, 50)} == expected
    assert logs.newest() == 900


async def test_a_time_index_of_another_file_is_not_believed(logs: Logs) -> None:
    for timestamp in (900, 100, 200, 850, 300, 400, 500):
        logs.append(timestamp, size=300)
    expected = {timestamp: logs.first_at(timestamp) for timestamp in range(0, 1000, 50)}
    await logs.directory.checkpoint()
    logs.directory.release()
    for path in logs.log.directory.glob(f"*{TIME_INDEX_SUFFIX}"):
        path.write_bytes(pack(">qI", 50, 1) + pack(">qI", 60, 2))
    logs.open()
    assert {timestamp: logs.first_at(timestamp) for timestamp in range(0, 1000, 50)} == expected
    assert logs.newest() == 900


async def test_a_recovery_that_walks_only_the_tail_forgets_no_earlier_time(logs: Logs) -> None:
    logs.append(900)
    logs.append(100)
    await logs.directory.checkpoint()
    logs.append(200)
    logs.directory.release()
    logs.open()
    assert logs.first_at(500) == (0, 900)
    assert logs.newest() == 900


async def test_a_clean_stop_changes_no_answer(logs: Logs) -> None:
    for timestamp in (900, 100, 200, 300):
        logs.append(timestamp, size=500)
    await logs.directory.close()
    logs.open()
    assert logs.first_at(150) == (0, 900)
    logs.log.advance_start(Offset(1))
    assert logs.first_at(150) == (2, 200)
    assert logs.newest() == 300


def test_a_batch_that_cannot_be_unpacked_is_found_where_it_begins(logs: Logs) -> None:
    logs.append(100)
    batch = encode_batch([Record(0, 200, b"k", b"v"), Record(1, 300, b"k", b"v")])
    batch[61] = 0x7F  # the first record's length: more than there is
    refresh_crc(memoryview(batch))
    logs.append_batch(batch)
    logs.append(400)
    assert logs.first_at(250) == (1, 300)
    assert logs.first_at(350) == (3, 400)
    logs.log.advance_start(Offset(2))
    assert logs.first_at(250) == (2, 300)


def test_damage_on_disk_is_told_not_skipped(logs: Logs) -> None:
    logs.append(100)
    logs.append(200)
    segment = logs.log.segments[0]
    segment.file.write_at(segment.size - 3, (b"\xff",))
    assert logs.first_at(50) == (0, 100)
    with pytest.raises(CorruptMessage):
        logs.first_at(150)
    segment.file.write_at(16, (b"\x09",))
    with pytest.raises(CorruptMessage):
        logs.first_at(50)


def test_what_is_appended_after_the_look_is_not_searched(logs: Logs) -> None:
    logs.append(100)
    view = look(logs.log, Offset(1), 150)
    logs.append(200)
    assert first_at(view, 150) is None
