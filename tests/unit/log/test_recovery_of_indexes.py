"""Indexes and times when a log is opened: made anew from the segments, whatever became of their files."""

from pathlib import Path

import pytest
from tests.unit.log.making import NOW, all_values, append, open_at
from tests.unit.log.recovering import fill

from penstock.disk import RealDisk
from penstock.log.recovery import write_snapshot
from penstock.model import Offset


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["lost", "empty", "zeroed", "garbage", "older"])
def test_indexes_are_no_part_of_the_truth(directory: Path, suffix: str, how: str) -> None:
    values = fill(directory, 12)
    log = open_at(directory)
    for segment in log.segments:
        segment.write_indexes(segment.encode_indexes())
    for path in directory.glob(f"*{suffix}"):
        content = path.read_bytes()
        match how:
            case "lost":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case "zeroed":
                path.write_bytes(bytes(len(content)))
            case "garbage":
                path.write_bytes(bytes(range(1, 200)))
            case _:
                path.write_bytes(content[:12])
    for point in (0, 5, 24):
        again = open_at(directory, recovery_point=point)
        assert all_values(again) == values
        for offset in range(24):
            chunk = again.read(Offset(offset), 1, Offset(24), cached_only=False)
            assert chunk is not None
            assert int.from_bytes(chunk[:8], "big") == offset // 2 * 2
        for segment in again.segments:
            segment.load_max_timestamp()
            assert segment.max_timestamp == NOW


def test_a_scan_from_the_middle_knows_the_times_before_it(directory: Path) -> None:
    log = open_at(directory, index_interval_bytes=100)
    for number, timestamp in enumerate((NOW, NOW + 9, NOW + 1, NOW + 2)):
        append(log, f"{number}".ljust(40), "x" * 40, timestamp=timestamp)
    active = log.segments[0]
    active.write_indexes(active.encode_indexes())
    write_snapshot(RealDisk(), directory, Offset(6), log.producers.encode())
    log.close()
    again = open_at(directory, recovery_point=6, index_interval_bytes=100).segments[0]
    assert again.max_timestamp == NOW + 9
    assert again.first_timestamp == NOW
