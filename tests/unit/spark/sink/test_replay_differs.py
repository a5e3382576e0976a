"""As many rows with other bytes: an error that names the way on, or what is written stays and a warning tells of it."""

import logging

import pytest
from sink_world import end_worker, options_for, read, rows_of, task_of, write

from penstock.spark.errors import BadOption
from penstock.spark.sink.failures import ReplayDiffers
from penstock.spark.sink.marker import QUERY_MARKERS, Marker, check_same
from penstock.spark.sink.marker_reading import read_markers
from penstock.spark.sink.writers import compare_replay
from penstock.testing.embedded import EmbeddedBroker

FOUND = Marker("q", "run-1", 3, 0, 50, "ff")


def test_the_error_names_the_option_only_where_it_would_help() -> None:
    with pytest.raises(ReplayDiffers, match=r"on\.replay\.differs=skip"):
        check_same("task 0", FOUND, 50, "fe", "fail")
    with pytest.raises(ReplayDiffers) as seen:
        check_same("task 0", FOUND, 49, "fe", "fail")
    assert "on.replay.differs" not in str(seen.value)


def test_with_skip_other_bytes_are_a_warning_and_another_count_is_still_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        check_same("task 0", FOUND, 50, "ff", "skip")
        assert not caplog.records
        check_same("task 0", FOUND, 50, "fe", "skip")
    assert "task 0 of batch 3 of query q came again with 50 rows that are not those written" in caplog.text
    # Skipped, the rows that are too many would be lost; with fewer, some are in the topic that the query has not.
    for rows in (49, 51):
        with pytest.raises(ReplayDiffers, match=f"came again with {rows} rows that are not the 50 written"):
            check_same("task 0", FOUND, rows, "fe", "skip")


def test_the_option_is_fail_unless_it_says_skip() -> None:
    assert options_for("h:1").on_replay_differs == "fail"
    assert options_for("h:1", on_replay_differs="Skip").on_replay_differs == "skip"
    with pytest.raises(BadOption, match=r"on\.replay\.differs is ignore; there are fail, skip"):
        options_for("h:1", on_replay_differs="ignore")


def test_with_skip_a_replay_of_other_bytes_leaves_what_is_written_and_the_query_goes_on(broker: EmbeddedBroker) -> None:
    options = options_for(broker.bootstrap, on_replay_differs="skip")
    write(options, task_of(0))
    end_worker(options)
    # Once from the markers, once from what the worker has kept.
    for _ in range(2):
        again = write(options, task_of(0, run="run-2"), rows_of(9, 9))
        assert (again.is_skipped, again.is_replay) == (True, True)
        # The driver compares what stands with what the task tells, and must not fail where the task did not.
        compare_replay([again.marker], read_markers(options, QUERY_MARKERS, "q"))
    assert not write(options, task_of(1, run="run-2")).is_skipped
    assert read(broker.bootstrap) == sorted(rows_of(0, 0) + rows_of(1, 0))
