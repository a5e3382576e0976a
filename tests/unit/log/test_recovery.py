"""Opening a log after a crash: a torn tail is cut and kept aside, damage below the recovery point keeps it closed."""

import errno
import os
from pathlib import Path

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import all_values, append, make_batch, open_at
from tests.unit.log.recovering import BATCH, SEGMENT, fill, flip, log_file

from penstock.disk import RealDisk
from penstock.errors import StorageFailed
from penstock.log.recovery import write_snapshot
from penstock.model import Offset

DISK = RealDisk()


@pytest.mark.parametrize("cut", [1, 5, 60, 61, 62, 100, 140])
def test_a_torn_tail_is_cut_back_to_the_last_whole_batch(
    directory: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    values = fill(directory, 3)
    os.truncate(log_file(directory), 3 * BATCH - cut)
    log = open_at(directory)
    assert log.next_offset == 4
    assert all_values(log) == values[:4]
    assert log_file(directory).stat().st_size == 2 * BATCH
    assert f"torn at byte {2 * BATCH}" in caplog.text
    assert "the log ends at offset 4" in caplog.text
    assert (directory / f"{log_file(directory).name}.{2 * BATCH}.torn").stat().st_size == BATCH - cut
    append(log, "next")
    assert all_values(log) == [*values[:4], "next"]


def test_zeroes_behind_the_end_are_cut_and_not_kept(directory: Path) -> None:
    values = fill(directory, 3)
    os.truncate(log_file(directory), 3 * BATCH + 4096)
    log = open_at(directory)
    assert all_values(log) == values
    assert not list(directory.glob("*.torn"))


def test_a_zero_filled_last_page_takes_the_batches_it_hit(directory: Path) -> None:
    values = fill(directory, 4)
    with log_file(directory).open("r+b") as file:
        file.seek(BATCH + 20)
        file.write(b"\0" * (3 * BATCH - 20))
    assert all_values(open_at(directory)) == values[:2]


@pytest.mark.parametrize("byte", range(2 * BATCH, 3 * BATCH, 7))
def test_a_flipped_bit_above_the_recovery_point_ends_the_log_there(
    directory: Path, byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    values = fill(directory, 4)
    flip(log_file(directory), byte, bit=6)
    log = open_at(directory, recovery_point=4)
    assert all_values(log) == values[:4]
    assert f"torn at byte {2 * BATCH}" in caplog.text
    torn = directory / f"{log_file(directory).name}.{2 * BATCH}.torn"
    assert torn.stat().st_size == 2 * BATCH, "the sound batch behind it is kept too"


@pytest.mark.parametrize("byte", range(2 * BATCH, 3 * BATCH, 7))
def test_a_flipped_bit_below_the_recovery_point_keeps_the_log_closed(directory: Path, byte: int) -> None:
    fill(directory, 4)
    flip(log_file(directory), byte, bit=6)
    before = log_file(directory).read_bytes()
    with pytest.raises(StorageFailed, match=rf"damaged at byte {2 * BATCH} .*below the recovery point 8"):
        open_at(directory, recovery_point=8)
    assert log_file(directory).read_bytes() == before, "nothing is cut, nothing is thrown away"


@pytest.mark.parametrize("size", [0, BATCH, 3 * BATCH])
def test_a_log_that_ends_below_its_recovery_point_stays_closed(directory: Path, size: int) -> None:
    fill(directory, 4)
    os.truncate(log_file(directory), size)
    with pytest.raises(StorageFailed, match="below the recovery point 8"):
        open_at(directory, recovery_point=8)


def test_a_closed_segment_that_lost_its_end_below_the_recovery_point_keeps_the_log_closed(
    directory: Path,
) -> None:
    fill(directory, 10)
    os.truncate(log_file(directory), 3 * BATCH)
    with pytest.raises(StorageFailed, match="ends at offset 6, below the recovery point 20"):
        open_at(directory, recovery_point=20)


def test_segments_behind_a_cut_are_set_aside(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = fill(directory, 12)
    os.truncate(log_file(directory, 8), 2 * BATCH + 50)
    log = open_at(directory, segment_bytes=SEGMENT)
    assert all_values(log) == values[:12]
    assert f"{log_file(directory, 16).name} lies behind the cut" in caplog.text
    assert (directory / f"{log_file(directory, 16).name}.torn").exists()
    append(log, "next")
    assert all_values(open_at(directory)) == [*values[:12], "next"]


def test_a_segment_that_does_not_follow_the_one_before_it_is_set_aside(directory: Path) -> None:
    values = fill(directory, 12)
    os.truncate(log_file(directory, 8), 2 * BATCH)  # at a batch's end: every batch that is left is whole
    log = open_at(directory, segment_bytes=SEGMENT)
    assert all_values(log) == values[:12]
    assert log.next_offset == 12


def test_what_a_killed_process_left_in_memory_is_synced_before_it_counts_as_durable(directory: Path) -> None:
    log = open_at(directory)
    append(log, "a")
    log.close()
    acts: list[Act] = []
    again = open_at(directory, disk=WatchedDisk(RealDisk(), acts.append))
    assert again.durable_offset == 1
    synced = [act.path.name for act in acts if act.kind in ("sync", "sync_directory")]
    assert {log_file(directory).name, directory.name, directory.parent.name} <= set(synced)


def test_a_recovery_leaves_no_file_open(directory: Path) -> None:
    fill(directory, 12)
    before = len(os.listdir("/dev/fd"))
    logs = [open_at(directory, disk=DISK) for _ in range(5)]
    flip(log_file(directory, 16), 80)
    with pytest.raises(StorageFailed):
        open_at(directory, disk=DISK, recovery_point=24)
    assert len(os.listdir("/dev/fd")) == before
    assert all(log.next_offset == 24 for log in logs)


def test_a_scan_begins_at_the_recovery_point(directory: Path) -> None:
    fill(directory, 12)
    log = open_at(directory)
    for segment in log.segments:
        segment.write_indexes(segment.encode_indexes())
    write_snapshot(RealDisk(), directory, Offset(20), log.producers.encode())
    acts: list[Act] = []
    open_at(directory, disk=WatchedDisk(RealDisk(), acts.append), recovery_point=20)
    read = {act.path.name for act in acts if act.kind == "read" and act.path.suffix == ".log"}
    assert read == {log_file(directory, 16).name}


class Full(RealDisk):
    def replace_file(self, path: Path, content: bytes) -> None:
        if path.suffix == ".torn":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().replace_file(path, content)


def test_a_batch_that_a_full_disk_tore_does_not_keep_the_log_closed(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = fill(directory, 3)
    os.truncate(log_file(directory), 3 * BATCH - 50)
    assert all_values(open_at(directory, disk=Full())) == values[:4]
    assert "too full to keep them" in caplog.text


def test_whole_batches_are_not_thrown_away_because_there_is_no_room_to_keep_them(directory: Path) -> None:
    fill(directory, 3)
    flip(log_file(directory), BATCH + 100)
    with pytest.raises(OSError, match="No space left"):
        open_at(directory, disk=Full())
    assert log_file(directory).stat().st_size == 3 * BATCH


def test_the_batches_of_these_tests_have_the_size_they_say() -> None:
    batch, _ = make_batch("0000".ljust(40, "x"), "0001".ljust(40, "x"))
    assert len(batch) == BATCH
