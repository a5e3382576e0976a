"""Offsets by timestamp, turned into what came in each day."""

from penstock.model import TopicPartition
from penstock.spark.report.buckets import Log, edges, fill
from penstock.spark.report.facts import DAY_MS

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


def test_buckets_end_with_the_one_that_holds_now() -> None:
    assert edges(10 * DAY_MS + 5, DAY_MS, 3) == [8 * DAY_MS, 9 * DAY_MS, 10 * DAY_MS]
    assert edges(10 * DAY_MS, DAY_MS, 1) == [10 * DAY_MS]


def test_rows_of_a_day_are_the_offsets_between_two_answers() -> None:
    logs = {ONE: Log(100, 200, 1000), TWO: Log(0, 50, 5000)}
    starts = [DAY_MS, 2 * DAY_MS, 3 * DAY_MS]
    answers = [{ONE: 100, TWO: 10}, {ONE: 150, TWO: -1}, {ONE: -1, TWO: -1}]
    buckets = fill(logs, starts, answers, oldest_ms=DAY_MS - 1)
    assert [bucket.rows for bucket in buckets] == [50 + 40, 50, 0]
    # 10 bytes a row in one partition, 100 in the other.
    assert [bucket.bytes for bucket in buckets] == [500 + 4000, 500, 0]
    assert [bucket.is_complete for bucket in buckets] == [True, True, False]


def test_days_before_the_oldest_record_and_its_own_are_not_complete() -> None:
    starts = [DAY_MS * day for day in range(4)]
    answers = [{ONE: 0}, {ONE: 0}, {ONE: 5}, {ONE: 9}]
    buckets = fill({ONE: Log(0, 10, 10)}, starts, answers, oldest_ms=DAY_MS + 1)
    assert [bucket.is_complete for bucket in buckets] == [False, False, True, False]


def test_an_empty_topic_has_empty_buckets() -> None:
    buckets = fill({ONE: Log(5, 5, 0)}, [0, DAY_MS], [{ONE: -1}, {ONE: -1}], oldest_ms=None)
    assert [(bucket.rows, bucket.is_complete) for bucket in buckets] == [(0, False), (0, False)]


def test_bytes_are_unknown_where_the_log_is_of_unknown_size() -> None:
    buckets = fill({ONE: Log(0, 10, None)}, [0], [{ONE: 0}], oldest_ms=1)
    assert buckets[0].rows == 10
    assert buckets[0].bytes is None


def test_an_answer_outside_of_the_log_is_moved_to_its_edge() -> None:
    buckets = fill({ONE: Log(10, 20, 10)}, [0, DAY_MS], [{ONE: 0}, {ONE: 99}], oldest_ms=1)
    assert [bucket.rows for bucket in buckets] == [10, 0]
