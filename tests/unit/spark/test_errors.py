"""The sentence of a failure, on its way through Spark."""

import os
import pickle

import pytest

from penstock.spark.errors import BadOption, DecodeFailed, SparkFailure, Unreachable, reason, told_plainly

THROUGH_SPARK = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source read: Traceback (most recent call last):
  File "source.py", line 12, in reader
    raise Unreachable("no broker answered")
penstock.spark.errors.Unreachable: no broker answered

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "source.py", line 14, in reader
    raise DataLost("orders-0: offset 5 is gone")
penstock.spark.errors.DataLost: orders-0: offset 5 is gone

SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        (RuntimeError(THROUGH_SPARK), "orders-0: offset 5 is gone"),
        (
            RuntimeError("[X] Failed to create it: penstock.spark.errors.BadOption: unknown option a\nSQLSTATE: 1"),
            "unknown option a",
        ),
        (Unreachable("no broker answered"), "no broker answered"),
        (RuntimeError("\n[TABLE_NOT_FOUND] no table t\nat line 1"), "[TABLE_NOT_FOUND] no table t"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_the_reason_is_found_in_what_spark_raises(raised: BaseException, sentence: str) -> None:
    assert reason(raised) == sentence


def test_a_planned_failure_hides_its_frames_in_a_worker_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)

    @told_plainly()
    def fail(with_what: Exception) -> None:
        raise with_what

    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    assert "SPARK_HIDE_TRACEBACK" not in os.environ, "a bug comes with its frames"

    monkeypatch.delenv("SPARK_PYTHON_RUNTIME")
    with pytest.raises(SparkFailure):
        fail(SparkFailure("planned"))
    assert "SPARK_HIDE_TRACEBACK" not in os.environ, "the user's own process is left as it is"

    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    with pytest.raises(SparkFailure):
        fail(SparkFailure("planned"))
    assert os.environ.pop("SPARK_HIDE_TRACEBACK") == "1"


def test_an_unknown_option_names_the_nearest() -> None:
    known = ["startingOffsets", "endingOffsets", "subscribe"]
    assert str(BadOption.unknown("startingoffset", known)) == (
        "unknown option startingoffset: did you mean startingOffsets?"
    )
    assert str(BadOption.unknown("STARTINGOFFSET", known)).endswith("did you mean startingOffsets?")
    assert "docs/spark.md" in str(BadOption.unknown("zzz", known))


def test_a_poison_record_says_where_it_lies_and_can_be_pickled() -> None:
    failed = pickle.loads(pickle.dumps(DecodeFailed("orders", 3, 17, "not JSON")))
    assert str(failed) == "orders-3 at offset 17: not JSON"
    assert (failed.topic, failed.partition, failed.offset, failed.why) == ("orders", 3, 17, "not JSON")
