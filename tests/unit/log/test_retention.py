"""Which old segments a log lets go: by age, by size, and never what is not committed."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.making import HOUR, NOW, append, open_at

from penstock.log.partition_log import PartitionLog
from penstock.log.retention import start_after_retention
from penstock.model import Offset


def aged_log(tmp_path: Path, **settings: Any) -> PartitionLog:
    """Five segments of two records, one record an hour; the newest is NOW. The fifth is active."""
    log = open_at(tmp_path / "t-0", segment_bytes=300, **settings)
    for number in range(10):
        append(log, f"{number}".ljust(60), timestamp=NOW - (9 - number) * HOUR)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    return log


@pytest.mark.parametrize(
    ("retention_hours", "start"), [(100, 0), (8, 0), (7.5, 2), (6, 2), (5, 4), (1, 8), (0.5, 8), (0, 8)]
)
def test_segments_whose_newest_record_is_too_old_go(tmp_path: Path, retention_hours: float, start: int) -> None:
    log = aged_log(tmp_path, retention_ms=int(retention_hours * HOUR))
    assert start_after_retention(log, log.next_offset, NOW) == start


def test_the_active_segment_goes_too_when_all_of_it_is_old(tmp_path: Path) -> None:
    log = aged_log(tmp_path, retention_ms=HOUR)
    assert start_after_retention(log, log.next_offset, NOW + 2 * HOUR) == 10


def test_a_young_segment_keeps_the_old_ones_behind_it(tmp_path: Path) -> None:
    log = aged_log(tmp_path, retention_ms=5 * HOUR)
    log.segments[0].max_timestamp = NOW
    assert start_after_retention(log, log.next_offset, NOW) == 0


def test_a_segment_without_times_does_not_expire(tmp_path: Path) -> None:
    log = open_at(tmp_path / "t-0", retention_ms=HOUR)
    append(log, "timeless", timestamp=-1)
    assert start_after_retention(log, log.next_offset, NOW + 1000 * HOUR) == 0


@pytest.mark.parametrize(("segments_kept", "start"), [(5, 0), (4.5, 0), (4, 2), (3.9, 2), (1, 8), (0.5, 8)])
def test_old_segments_go_while_what_is_left_is_still_enough(tmp_path: Path, segments_kept: float, start: int) -> None:
    log = aged_log(tmp_path, retention_ms=-1)
    size = log.segments[0].size
    log = aged_log(tmp_path / "again", retention_ms=-1, retention_bytes=int(size * segments_kept))
    assert start_after_retention(log, log.next_offset, NOW) == start


def test_without_limits_everything_stays(tmp_path: Path) -> None:
    log = aged_log(tmp_path, retention_ms=-1)
    assert start_after_retention(log, log.next_offset, NOW + 10**12) == 0


def test_a_compacted_log_is_not_cut(tmp_path: Path) -> None:
    log = aged_log(tmp_path, retention_ms=1, cleanup_policy=frozenset({"compact"}))
    assert start_after_retention(log, log.next_offset, NOW) == 0
    both = aged_log(tmp_path / "both", retention_ms=1, cleanup_policy=frozenset({"compact", "delete"}))
    assert start_after_retention(both, both.next_offset, NOW) == 8


def test_what_is_not_committed_stays(tmp_path: Path) -> None:
    log = aged_log(tmp_path, retention_ms=1)
    assert start_after_retention(log, Offset(5), NOW) == 4


def test_a_start_that_was_moved_by_hand_does_not_fall_back(tmp_path: Path) -> None:
    log = aged_log(tmp_path, retention_ms=6 * HOUR)
    log.advance_start(Offset(5))
    assert start_after_retention(log, log.next_offset, NOW) == 5
