"""The rules of a run that need no Spark: what reports add up to, what failures say, when there is another try."""

import socket
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.spark.errors import BadPipeline, DataLost
from penstock.spark.pipeline.durations import parse_duration_ms
from penstock.spark.pipeline.failures import CannotStart, clean_message, explain_failure
from penstock.spark.pipeline.loading import LoadedPipeline, parse_pipeline
from penstock.spark.pipeline.model import Restarts
from penstock.spark.pipeline.progress import SinkProgress, lag_of
from penstock.spark.pipeline.reading import open_source
from penstock.spark.pipeline.running import next_pause_ms, refuse_endless
from penstock.spark.pipeline.sink_options import table_options, written_topic_options
from penstock.spark.pipeline.topic_options import topic_options

TEXT = """\
name: p
checkpoint: c
kafka:
  bootstrap: b:9092
  options: {security.protocol: SSL, enable.ssl.certificate.verification: true}
sources:
  orders: {topics: [a, b], format: json, schema: id INT, dead_letters: dead, options: {maxOffsetsPerTrigger: 5}}
  old: {topic: c, static: true, start: "2026-03-01T00:00:00Z"}
steps:
  counted:
    input: orders
    stateful: {processor: mine:Counter, key: id, schema: n INT, time: processing}
sinks:
  out: {input: orders, topic: t, key: id, format: json, delivery: at-least-once, options: {kafka.linger.ms: 5}}
  table: {input: counted, mode: update, delta: {path: t, keys: [id], partition_by: [day], options: {compression: gzip}}}
"""


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedPipeline:
    (tmp_path / "mine.py").write_text("class Counter: ...\n")
    return parse_pipeline(TEXT, tmp_path, "p.yaml")


def report(batch: int, rows: int, **more: Any) -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"addBatch": 3, "triggerExecution": 10},
        "processedRowsPerSecond": 100.0,
        "sources": [],
        **more,
    }


def test_each_report_counts_once_and_idle_ones_never() -> None:
    progress = SinkProgress("s")
    idle = {"batchId": 2, "numInputRows": 0, "durationMs": {"latestOffset": 1, "triggerExecution": 1}}
    assert progress.take([report(0, 5), report(1, 7)], {0: 2, 1: 3}, "o")
    assert not progress.take([report(0, 5), report(1, 7), idle], {0: 2, 1: 3}, "o")
    assert (progress.rows_in, progress.rows_out, progress.batches, progress.last_batch) == (12, 5, 2, 1)
    # A batch without rows that closes windows is a batch all the same.
    assert progress.take([report(2, 0)], {2: 4}, "o")
    assert (progress.rows_in, progress.rows_out, progress.last_batch) == (12, 9, 2)


def test_rows_out_come_from_whoever_counted_them() -> None:
    observed, counted, unknown = SinkProgress("a"), SinkProgress("b"), SinkProgress("c")
    observed.take([report(0, 5, observedMetrics={"o": {"rows": 4}}, sink={"numOutputRows": -1})], {}, "o")
    counted.take([report(0, 5, sink={"numOutputRows": 3})], {}, "o")
    unknown.take([report(0, 5, sink={"numOutputRows": -1})], {}, "o")
    assert (observed.rows_out, counted.rows_out, unknown.rows_out) == (4, 3, None)


def test_lag_is_between_the_batchs_end_and_the_topics_end() -> None:
    topic = {"endOffset": {"t": {"0": 5, "1": 9}}, "latestOffset": '{"t": {"0": 15, "1": 9, "2": 4}}'}
    files = {"endOffset": {"logOffset": 3}, "latestOffset": None}
    assert lag_of([topic, files]) == 10
    assert lag_of([files]) is None
    assert lag_of([{"endOffset": "garbage", "latestOffset": "{"}]) is None


def test_pauses_double_up_to_the_longest_and_end() -> None:
    restarts = Restarts.model_validate({"attempts": 4, "first_pause": "1s", "longest_pause": "5s"})
    assert [next_pause_ms(restarts, failures) for failures in (1, 2, 3, 4, 5)] == [1000, 2000, 4000, 5000, None]
    assert next_pause_ms(Restarts(), 1) is None


PYTHON_ERROR = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted. SQLSTATE: XXKST
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 4, in main
    process()
  File "mine.py", line 11, in handle
    raise decimal.InvalidOperation("no such coin")
decimal.InvalidOperation: no such coin
\tat org.apache.spark.Something
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError(PYTHON_ERROR), "InvalidOperation: no such coin"),
        (RuntimeError("x\npenstock.spark.errors.DataLost: t-0 lost 3 rows\n at y"), "t-0 lost 3 rows"),
        (DataLost("t-0 lost 3 rows"), "t-0 lost 3 rows"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError(""), "ValueError"),
        (
            type("AnalysisException", (Exception,), {"__module__": "pyspark.errors.exceptions.captured"})(
                "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `a` cannot be resolved. SQLSTATE: 42703; line 1 pos 7"
            ),
            "A column `a` cannot be resolved.",
        ),
    ],
)
def test_a_failure_is_one_sentence(error: Exception, expected: str) -> None:
    assert clean_message(error) == expected


def test_a_checkpoint_of_another_plan_is_final_and_says_what_to_do() -> None:
    failure = explain_failure("s", RuntimeError("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema"), "/c/s")
    assert failure.is_final
    assert "its checkpoint /c/s cannot follow" in str(failure)
    assert "new `checkpoint` folder" in str(failure)
    assert not explain_failure("s", RuntimeError("anything else"), "/c/s").is_final


def test_a_database_that_is_down_is_no_mistake_in_the_file(tmp_path: Path) -> None:
    def open_table(url: str) -> None:
        text = TEXT.replace("  old:", f"  prices: {{postgres: {{url: '{url}', table: t}}}}\n  old:")
        open_source(cast("Any", None), parse_pipeline(text, tmp_path, "p.yaml"), "prices", "p-out")

    (tmp_path / "mine.py").write_text("class Counter: ...\n")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(
            CannotStart, match=r"^p.yaml:8:12: source `prices`: PostgreSQL cannot be reached: .*"
        ) as told:
            open_table(f"postgresql://u:hunter2@{address}/d")
    assert "hunter2" not in str(told.value)
    with pytest.raises(BadPipeline, match=r"^p.yaml:8:12: source `prices`: the PostgreSQL url is not valid"):
        open_table("postgresql://u:hunter2@h:x/d")


def test_timers_of_processing_time_and_once_do_not_go_together(loaded: LoadedPipeline) -> None:
    with pytest.raises(BadPipeline, match=r"^p.yaml:12:71: step `counted` has timers of processing time"):
        refuse_endless(loaded)


def test_a_topics_options_are_the_kafka_sources(loaded: LoadedPipeline) -> None:
    assert topic_options(loaded, loaded.pipeline.sources["orders"], "p-out") == {
        "kafka.bootstrap.servers": "b:9092",
        "kafka.security.protocol": "SSL",
        "kafka.enable.ssl.certificate.verification": "true",
        "subscribe": "a,b",
        "startingOffsets": "earliest",
        "queryName": "p-out",
        "value.format": "json",
        "value.schema": "id INT",
        "on.bad.record": "deadletter",
        "deadletter.topic": "dead",
        "maxOffsetsPerTrigger": "5",
    }
    old = topic_options(loaded, loaded.pipeline.sources["old"], "p-out")
    assert old["startingTimestamp"] == "1772323200000"
    assert "queryName" not in old


def test_a_sinks_options_are_the_writers(loaded: LoadedPipeline, tmp_path: Path) -> None:
    out = written_topic_options(loaded, loaded.pipeline.sinks["out"], "p-out")
    assert (out["topic"], out["delivery"], out["kafka.linger.ms"]) == ("t", "at-least-once", "5")
    assert table_options(loaded, loaded.pipeline.sinks["table"]) == {
        "path": str(tmp_path / "t"),
        "keys": ["id"],
        "partition_by": ["day"],
        "merge_schema": False,
        "mode": "update",
        "compression": "gzip",
    }


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("10s", 10_000), ("1h30m", 5_400_000), ("500ms", 500), ("10 minutes", 600_000), ("1 day, 2 hours", 93_600_000)],
)
def test_lengths_of_time_are_read(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "soon", "10", "s", "5 parsecs", "10s later", 10, None])
def test_what_is_no_length_of_time_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="no length of time"):
        parse_duration_ms(text)
