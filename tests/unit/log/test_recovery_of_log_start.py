"""Where a log starts when it is opened: what was deleted stays so, whatever a power failure brought back or took."""

import os
from pathlib import Path

import pytest
from tests.unit.log.making import all_values, append, open_at
from tests.unit.log.recovering import BATCH, fill, log_file


def test_segments_that_were_deleted_and_came_back_are_removed(directory: Path) -> None:
    values = fill(directory, 12)
    log_file(directory, 8).unlink()  # of three deleted segments one deletion was not undone by the power failure
    log = open_at(directory, log_start=17, recovery_point=4)
    assert (log.log_start, log.next_offset) == (17, 24)
    assert all_values(log) == values[16:]
    assert sorted(path.name for path in directory.glob("*.log")) == [log_file(directory, 16).name]


def test_a_log_starts_where_its_first_segment_starts(directory: Path) -> None:
    fill(directory, 12)
    log_file(directory, 0).unlink()
    assert open_at(directory, recovery_point=24).log_start == 8


def test_offsets_of_deleted_records_are_not_given_out_again(directory: Path) -> None:
    fill(directory, 4)
    os.truncate(log_file(directory), 2 * BATCH)
    log = open_at(directory, log_start=8)
    assert (log.log_start, log.next_offset) == (8, 8)
    append(log, "next")
    assert all_values(log) == ["next"]
    assert [path.name for path in directory.glob("*.log")] == [log_file(directory, 8).name]
    again = open_at(directory, log_start=8)
    assert (again.log_start, again.next_offset) == (8, 9)


def test_an_emptied_log_whose_new_segment_was_lost_is_no_damage(directory: Path) -> None:
    fill(directory, 4)  # all of it deleted; the empty segment that was to follow has not come back
    os.truncate(log_file(directory), 2 * BATCH)
    log = open_at(directory, log_start=8, recovery_point=8)
    assert (log.log_start, log.next_offset) == (8, 8)


def test_a_log_whose_files_are_gone_goes_on_after_what_was_safe_and_says_so(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_at(directory, log_start=3, recovery_point=9)
    assert (log.log_start, log.next_offset) == (9, 9)
    assert "records 3 to 8 are gone" in caplog.text
    directory.mkdir()
    caplog.clear()
    assert open_at(directory, log_start=3, recovery_point=9).next_offset == 9
    assert "records 3 to 8 are gone" in caplog.text
