"""Checkpoints and status files, without Spark: what is done, how far behind, and who is at it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.model import TopicPartition
from penstock.spark.errors import SparkFailure
from penstock.spark.offsets import Position
from penstock.spark.pipeline import status
from penstock.spark.pipeline.checkpoints import read_checkpoint, read_checkpoints
from penstock.spark.pipeline.paths import local_folder
from penstock.spark.pipeline.status_file import CheckpointInUse, StatusFile, is_running, read_status

ORDERS = TopicPartition("orders", 0)
MORE = TopicPartition("orders", 1)


def position(**offsets: int) -> str:
    per_partition = {TopicPartition("orders", int(name[1:])): offset for name, offset in offsets.items()}
    return json.dumps(Position(per_partition).to_json())


def make_checkpoint(folder: Path, done: int, planned: int, *sources: str) -> Path:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"5bd9-11"}')
    for batch in range(planned + 1):
        (folder / "offsets" / str(batch)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *sources]))
    for batch in range(done + 1):
        (folder / "commits" / str(batch)).write_text("v1\n{}")
    # What Spark leaves beside them.
    (folder / "offsets" / ".3.crc").write_bytes(b"crc")
    (folder / "commits" / ".7.tmp").write_bytes(b"")
    return folder


def test_the_last_batch_done_says_how_far_topics_were_read(tmp_path: Path) -> None:
    found = read_checkpoint(make_checkpoint(tmp_path / "out", 2, 3, position(p0=5, p1=7), '{"logOffset":3}', "-"))
    assert (found.sink, found.query_id, found.done_batch, found.planned_batch) == ("out", "5bd9-11", 2, 3)
    assert found.offsets == {ORDERS: 5, MORE: 7}
    assert found.sources == 3
    assert found.done_at_ms is not None


def test_two_sources_on_one_topic_are_as_far_as_the_slower(tmp_path: Path) -> None:
    found = read_checkpoint(make_checkpoint(tmp_path / "out", 0, 0, position(p0=9), position(p0=4, p1=1)))
    assert found.offsets == {ORDERS: 4, MORE: 1}


def test_a_checkpoint_without_a_finished_batch_has_no_offsets(tmp_path: Path) -> None:
    found = read_checkpoint(make_checkpoint(tmp_path / "out", -1, 0, position(p0=9)))
    assert (found.done_batch, found.planned_batch, found.offsets) == (None, 0, {})


def test_what_a_run_says_of_itself_is_for_its_owner_alone(tmp_path: Path) -> None:
    with StatusFile(str(tmp_path)) as running:
        running.write({"sinks": []})
    assert (tmp_path / "status.json").stat().st_mode & 0o777 == 0o600


def test_only_folders_that_are_checkpoints_are_read(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "a", 0, 0, position(p0=1))
    (tmp_path / "else").mkdir()
    (tmp_path / "status.json").write_text("{}")
    assert [one.sink for one in read_checkpoints(tmp_path)] == ["a"]
    assert read_checkpoints(tmp_path / "none") == []


def test_a_log_of_another_version_is_said_to_be_one(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "a", 0, 0, position(p0=1))
    (folder / "offsets" / "0").write_text("v9\n{}\n{}")
    with pytest.raises(SparkFailure, match="begins with 'v9'"):
        read_checkpoint(folder)


def test_lag_is_counted_against_the_ends_the_brokers_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(tmp_path / "a", 0, 0, position(p0=5, p1=7))
    with StatusFile(str(tmp_path)) as running:
        running.write({"sinks": [{"sink": "a", "state": "running", "rows_in": 12}]})
        # One partition's topic is gone: the other still has its lag.
        monkeypatch.setattr(status, "_ends", lambda options, wanted: {ORDERS: 25})
        found = status.status_of(str(tmp_path), {"bootstrap.servers": "b:1"})
        assert found.is_running
    (sink,) = found.as_json()["sinks"]
    assert sink["lag_rows"] == 20
    assert [one["lag_rows"] for one in sink["partitions"]] == [20, None]
    assert sink["last_run"]["rows_in"] == 12


def test_a_broker_that_does_not_answer_leaves_the_rest_of_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(options: Any, wanted: Any) -> Any:
        raise SparkFailure("b:1 does not answer")

    make_checkpoint(tmp_path / "a", 0, 0, position(p0=5))
    monkeypatch.setattr(status, "_ends", nobody)
    found = status.status_of(str(tmp_path), {"bootstrap.servers": "b:1"})
    assert found.lag_problem == "b:1 does not answer"
    assert found.sinks[0].lag_rows is None
    assert not found.is_running


def test_what_was_never_run_has_no_status(tmp_path: Path) -> None:
    with pytest.raises(SparkFailure, match="has the pipeline been run"):
        status.status_of(str(tmp_path), None)
    with pytest.raises(SparkFailure, match="not a local folder"):
        status.status_of("s3a://bucket/checkpoint", None)


def test_one_run_at_a_time_has_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    with StatusFile(str(folder)) as first:
        first.write({"sinks": []})
        assert is_running(folder)
        with pytest.raises(CheckpointInUse), StatusFile(str(folder)):
            pass
        assert is_running(folder), "the second try must not let go of the first one's lock"
    assert not is_running(folder)
    with StatusFile(str(folder)):
        assert read_status(folder) == {"sinks": []}
    assert not [name for name in os.listdir(folder) if name.startswith(".status")]


def test_a_checkpoint_is_tied_to_the_sources_it_was_begun_with(tmp_path: Path) -> None:
    with StatusFile(str(tmp_path)) as running:
        running.remember_sources("a", ["orders: topics o"])
        running.remember_sources("a", ["other: topics x"])  # nothing was read yet
        make_checkpoint(tmp_path / "a", 0, 0, position(p0=5))
        running.remember_sources("a", ["other: topics x,y"])  # one more topic
        running.remember_sources("a", ["renamed: topics x,y"])
        with pytest.raises(
            SparkFailure, match=r"now reads renamed: topics x,y, more: topics m, .*was made for renamed"
        ):
            running.remember_sources("a", ["renamed: topics x,y", "more: topics m"])
        for wrong in ("renamed: files folder", "third: topics z", "renamed: topics y,z", "renamed: topics .*"):
            with pytest.raises(SparkFailure, match="new `checkpoint` folder"):
                running.remember_sources("a", [wrong])
        running.remember_sources("b", ["more: files old"])
        make_checkpoint(tmp_path / "b", 0, 0, '{"logOffset":3}')
        with pytest.raises(SparkFailure, match="now reads more: files new"):
            running.remember_sources("b", ["more: files new"])  # Spark would take all that is in it for new


def test_checkpoints_elsewhere_have_no_file_and_no_lock() -> None:
    for elsewhere in ("s3a://bucket/x", "hdfs:/x"):
        with StatusFile(elsewhere) as first, StatusFile(elsewhere):
            first.write({"sinks": []})
            first.remember_sources("a", [])
    assert local_folder("file:/data/c") == local_folder("file:///data/c") == Path("/data/c")
