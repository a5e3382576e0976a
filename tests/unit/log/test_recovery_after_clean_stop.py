"""Opening a log after a clean stop: no scan, and nothing forgotten; but only what the stop left is believed."""

import os
from pathlib import Path

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import NOW, all_values, append, open_at
from tests.unit.log.recovering import SEGMENT, clean_end, fill, flip

from penstock.disk import RealDisk
from penstock.log.recovery import SNAPSHOT_SUFFIX


def test_after_a_clean_stop_no_byte_of_a_segment_is_read(directory: Path) -> None:
    values = fill(directory, 10, producer=7)
    first = open_at(directory, segment_bytes=SEGMENT)
    end = clean_end(first)
    first.close()
    acts: list[Act] = []
    log = open_at(directory, disk=WatchedDisk(RealDisk(), acts.append), clean_end=end, segment_bytes=SEGMENT)
    touched = [act for act in acts if act.kind in ("read", "write", "sync")]
    assert [act for act in touched if act.path.suffix in (".log", ".index", ".timeindex")] == []
    assert log.next_offset == log.durable_offset == 20
    assert log.segments[-1].max_timestamp == NOW
    assert append(log, *values[18:], producer=7, sequence=18) == (18, 20, True)
    assert all_values(log) == values


def test_a_clean_stop_keeps_the_producers(directory: Path) -> None:
    values = fill(directory, 6, producer=7)
    first = open_at(directory)
    end = clean_end(first)
    log = open_at(directory, clean_end=end)
    again = append(log, *values[10:12], producer=7, sequence=10)
    assert (again.base_offset, again.is_duplicate) == (10, True)


@pytest.mark.parametrize("lost", ["lost", "torn", "flipped"])
def test_a_clean_stop_without_a_sound_snapshot_reads_the_producers_from_the_log(directory: Path, lost: str) -> None:
    values = fill(directory, 6, producer=7)
    end = clean_end(open_at(directory))
    (snapshot,) = directory.glob(f"*{SNAPSHOT_SUFFIX}")
    match lost:
        case "lost":
            snapshot.unlink()
        case "torn":
            os.truncate(snapshot, snapshot.stat().st_size - 3)
        case _:
            flip(snapshot, 20)
    log = open_at(directory, clean_end=end, recovery_point=12)
    again = append(log, *values[10:12], producer=7, sequence=10)
    assert (again.base_offset, again.is_duplicate) == (10, True)


def test_a_mark_that_is_of_an_earlier_stop_is_not_believed(directory: Path) -> None:
    fill(directory, 2)
    end = clean_end(open_at(directory))
    log = open_at(directory)
    append(log, "later")
    log.close()
    assert open_at(directory, clean_end=end).next_offset == 5


def test_the_time_a_segment_began_survives_a_clean_stop(directory: Path) -> None:
    fill(directory, 2)
    end = clean_end(open_at(directory))
    log = open_at(directory, clean_end=end, segment_ms=1000)
    append(log, "much later", timestamp=NOW + 1001)
    assert len(log.segments) == 2
