"""Which part of a log a compaction may touch, and when it is worth one."""

from pathlib import Path

import pytest

from penstock.config import TopicConfig
from penstock.disk import RealDisk
from penstock.log.clean_job import CleanJob
from penstock.log.cleanable import find_dirty_end, plan_cleaning
from penstock.log.compaction import clean_segments
from penstock.log.partition_log import PartitionLog
from penstock.log.producers import ProducerTail
from penstock.log.recovery import KnownPoints, open_log
from penstock.log.swap import swap_in
from penstock.model import NO_TOPIC_ID, LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import read_header
from penstock.records.record import Record, decode_records, encode_batch

NOW = 1_700_000_000_000
HOUR = 3_600_000
SEGMENT_BYTES = 1024


def make_log(directory: Path, batches: int, *, timeless: bool = False, **settings: object) -> PartitionLog:
    """Two batches to a segment, ten records and an hour to a batch; the newest is NOW."""
    disk = RealDisk()
    directory.mkdir(exist_ok=True)
    state = open_log(disk, directory, KnownPoints(Offset(0), Offset(0), None), 4096, NOW)
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES, **settings)
    log = PartitionLog(disk, directory, TopicPartition("t", 0), NO_TOPIC_ID, config, state)
    for number in range(batches):
        timestamp = -1 if timeless else NOW - (batches - 1 - number) * HOUR
        batch = encode_batch([Record(at, timestamp, b"k", b"v" * 30) for at in range(10)])
        assert SEGMENT_BYTES / 3 < len(batch) < SEGMENT_BYTES / 2
        log.append(memoryview(batch), read_header(batch), LeaderEpoch(0), NOW)
    assert [segment.base_offset for segment in log.segments] == list(range(0, batches * 10, 20))
    return log


def plan(log: PartitionLog, dirty_start: int = 0, last_stable_offset: int | None = None) -> CleanJob | None:
    return plan_cleaning(
        log,
        Offset(dirty_start),
        log.next_offset if last_stable_offset is None else Offset(last_stable_offset),
        NOW,
        dedupe_buffer_bytes=1 << 20,
        unpacked_bytes_max=1 << 20,
        producers={7: ProducerTail(3, 0)},
    )


def test_all_but_the_active_segment_is_compacted(tmp_path: Path) -> None:
    log = make_log(tmp_path, 6)
    job = plan(log)
    assert job is not None
    assert (job.dirty_start, job.dirty_end) == (0, 40)
    assert [(source.base_offset, source.next_offset) for source in job.segments] == [(0, 20), (20, 40)]
    assert [source.size for source in job.segments] == [segment.size for segment in log.segments[:2]]
    assert job.directory == tmp_path
    assert job.producers == {7: ProducerTail(3, 0)}


def test_the_last_stable_offset_bounds_the_work(tmp_path: Path) -> None:
    job = plan(make_log(tmp_path, 6), last_stable_offset=20)
    assert job is not None
    assert job.dirty_end == 20
    assert [source.base_offset for source in job.segments] == [0]


def test_a_log_of_one_segment_has_nothing_to_compact(tmp_path: Path) -> None:
    assert plan(make_log(tmp_path, 2)) is None
    assert plan(make_log(tmp_path / "empty", 0)) is None


@pytest.mark.parametrize(("lag_hours", "dirty_end"), [(0, 60), (1, 60), (3, 40), (5, 20), (7, 0), (100, 0)])
def test_a_segment_with_a_young_record_waits_with_all_after_it(tmp_path: Path, lag_hours: int, dirty_end: int) -> None:
    log = make_log(tmp_path, 8)
    # The largest times of the closed segments lie 6, 4 and 2 hours back.
    end = find_dirty_end(log.segments[:-1], Offset(0), log.next_offset, lag_hours * HOUR, NOW)
    assert end == dirty_end


def test_a_young_segment_that_is_clean_already_bounds_nothing(tmp_path: Path) -> None:
    log = make_log(tmp_path, 8)
    log.segments[0].max_timestamp = NOW
    assert find_dirty_end(log.segments[:-1], Offset(20), log.next_offset, 3 * HOUR, NOW) == 40


def test_without_a_lag_not_even_a_time_in_the_future_holds_a_segment_back(tmp_path: Path) -> None:
    log = make_log(tmp_path, 8)
    log.segments[0].max_timestamp = NOW + HOUR
    assert find_dirty_end(log.segments[:-1], Offset(0), log.next_offset, 0, NOW) == 60


def test_compaction_waits_until_enough_is_dirty(tmp_path: Path) -> None:
    log = make_log(tmp_path, 10, min_cleanable_dirty_ratio=0.5)
    assert plan(log, dirty_start=40) is None
    job = plan(log, dirty_start=20)
    assert job is not None
    # Also the clean part is read: what is dirty may push it out.
    assert [source.base_offset for source in job.segments] == [0, 20, 40, 60]
    assert plan(log, dirty_start=80) is None


def test_a_record_past_its_longest_wait_is_compacted_however_little_is_dirty(tmp_path: Path) -> None:
    log = make_log(tmp_path, 10, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=2 * HOUR)
    assert plan(log, dirty_start=60) is not None
    patient = make_log(tmp_path / "patient", 10, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=4 * HOUR)
    assert plan(patient, dirty_start=60) is None


def test_the_longest_wait_is_known_after_a_restart_too(tmp_path: Path) -> None:
    log = make_log(tmp_path, 10, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=2 * HOUR)
    for segment in log.segments:
        segment.first_timestamp = -1
    assert plan(log, dirty_start=60) is not None


def test_records_without_a_time_are_never_overdue(tmp_path: Path) -> None:
    log = make_log(tmp_path, 10, timeless=True, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=2 * HOUR)
    assert plan(log, dirty_start=60) is None


@pytest.mark.parametrize("dirty_start", [0, 1000])
def test_a_log_that_was_cut_is_compacted_from_its_start(tmp_path: Path, dirty_start: int) -> None:
    log = make_log(tmp_path, 6)
    log.advance_start(Offset(5))
    job = plan(log, dirty_start=dirty_start)
    assert job is not None
    assert job.dirty_start == 5


def read_offsets(log: PartitionLog) -> list[int]:
    """What a consumer sees that goes on after the last offset of each batch it got."""
    offset, offsets = log.log_start, list[int]()
    while offset < log.next_offset:
        found = log.read(offset, 1 << 20, log.next_offset, cached_only=False)
        assert found
        header = read_header(found)
        offsets += [record.offset for record in decode_records(found, header, 1 << 20)]
        assert header.next_offset > offset
        offset = Offset(header.next_offset)
    return offsets


def test_a_compacted_log_opens_again_and_reads_across_its_holes(tmp_path: Path) -> None:
    log = make_log(tmp_path, 10, min_cleanable_dirty_ratio=0.0)
    disk = RealDisk()
    job = plan(log)
    assert job is not None
    result = clean_segments(disk, job)
    assert result.clean_end == 80
    for cleaned in result.cleaned:
        swap_in(disk, tmp_path, cleaned.base_offset, cleaned.replaces)
    log.close()
    for recovery_point in (0, 80, 100):
        known = KnownPoints(Offset(recovery_point), Offset(0), None)
        state = open_log(disk, tmp_path, known, 4096, NOW)
        assert state.segments[-1].next_offset == 100
        again = PartitionLog(disk, tmp_path, log.at, NO_TOPIC_ID, log.config, state)
        assert read_offsets(again) == [79, *range(80, 100)]
        assert plan(again, dirty_start=result.clean_end) is None
        again.close()
