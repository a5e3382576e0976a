"""The file sinks where the world around them is at fault: other folders, lost answers, new checkpoints, power cuts."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Transaction

# The parts that tests share lie beside them.
sys.path.insert(0, str(Path(__file__).parent))

from frames import LocalFrame, frame

from penstock.spark.archive_status import archive_status
from penstock.spark.errors import BadOption, SparkFailure
from penstock.spark.tables import open_sink
from penstock.spark.tables.durability import file_system, replace_file
from penstock.spark.tables.failures import FilesNotShared, SchemaMismatch, StaleBatch
from penstock.spark.tables.files import list_files
from penstock.spark.tables.options import sink_options

FORMATS = ["delta", "iceberg", "parquet"]


class AbroadFrame(LocalFrame):
    """Its tasks run in another working folder, and `spoil` has its way with what they wrote."""

    def __init__(self, *tasks: pa.Table, cwd: Path, spoil: Callable[[], None] = lambda: None) -> None:
        super().__init__(*tasks)
        self._cwd, self._spoil = cwd, spoil

    def mapInArrow(self, write: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> LocalFrame:
        home = os.getcwd()
        os.chdir(self._cwd)
        try:
            return super().mapInArrow(write, _)
        finally:
            os.chdir(home)
            self._spoil()


def of_stream(stream: str, first: int) -> Any:
    """A batch as Spark hands it to foreachBatch: the thread knows the query's id."""
    batch: Any = frame(first, 8)
    properties = {"sql.streaming.queryId": stream}
    batch.sparkSession = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=properties.get))
    return batch


def ids(kind: str, path: Path) -> list[int]:
    found = list_files(sink_options(kind, {"path": str(path)})).files
    paths = [file_system(file.path)[1] for file in found]
    return sorted(number for one in paths for number in pq.ParquetFile(one).read(["id"]).column("id").to_pylist())


def rows(first: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + 4), pa.int64())})


@pytest.mark.parametrize("kind", FORMATS)
def test_a_relative_path_is_the_drivers_wherever_tasks_run(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "abroad").mkdir()
    monkeypatch.chdir(tmp_path)
    sink = open_sink(kind, {"path": "table"}, "q")
    sink.write_batch(cast(Any, AbroadFrame(rows(0), cwd=tmp_path / "abroad")), 0)
    assert ids(kind, tmp_path / "table") == list(range(4))
    assert os.listdir(tmp_path / "abroad") == []


@pytest.mark.parametrize("kind", FORMATS)
def test_files_that_the_driver_does_not_see_are_not_committed(tmp_path: Path, kind: str) -> None:
    sink = open_sink(kind, {"path": str(tmp_path)}, "q")
    sink.write_batch(cast(Any, LocalFrame(rows(0))), 0)
    kept = set(tmp_path.rglob("*.parquet"))

    def lose() -> None:
        for path in tmp_path.rglob("*.parquet"):
            if path not in kept:
                path.unlink()

    with pytest.raises(FilesNotShared, match="must be one that driver and executors share"):
        sink.write_batch(cast(Any, AbroadFrame(rows(4), cwd=tmp_path, spoil=lose)), 1)
    assert ids(kind, tmp_path) == list(range(4))
    assert not sink.write_batch(cast(Any, LocalFrame(rows(4))), 1).skipped
    assert ids(kind, tmp_path) == list(range(8))


def test_a_folder_does_not_take_a_lost_file_for_a_published_one(tmp_path: Path) -> None:
    open_sink("parquet", {"path": str(tmp_path)}, "q").write_batch(cast(Any, LocalFrame(rows(0))), 0)
    (state,) = (tmp_path / "_penstock").glob("*.json")
    replace_file(state, '{"query": "q", "batch": 1, "files": ["lost.parquet"]}')
    with pytest.raises(SparkFailure, match=r"lost\.parquet of it lies neither"):
        open_sink("parquet", {"path": str(tmp_path)}, "q").write_batch(cast(Any, LocalFrame(rows(4))), 2)


def test_a_commit_of_iceberg_that_lands_after_its_failure_finds_its_files(tmp_path: Path) -> None:
    sink = open_sink("iceberg", {"path": str(tmp_path)}, "q")
    sink.write_batch(cast(Any, LocalFrame(rows(0))), 0)
    real, late = Transaction.commit_transaction, list[Transaction]()

    def time_out(transaction: Transaction) -> Any:
        late.append(transaction)
        raise CommitStateUnknownException("504 Gateway Timeout")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transaction, "commit_transaction", time_out)
        with pytest.raises(CommitStateUnknownException):
            sink.write_batch(cast(Any, LocalFrame(rows(4))), 1)
    real(late[0])
    assert ids("iceberg", tmp_path) == list(range(8))
    assert sink.write_batch(cast(Any, LocalFrame(rows(4))), 1).skipped


def test_a_commit_of_delta_that_lands_after_its_failure_finds_its_files(tmp_path: Path) -> None:
    sink = open_sink("delta", {"path": str(tmp_path)}, "q")
    sink.write_batch(cast(Any, LocalFrame(rows(0))), 0)
    real, late = DeltaTable.create_write_transaction, list[Callable[[], None]]()

    def time_out(*given: Any, **named: Any) -> None:
        late.append(lambda: real(*given, **named))
        raise OSError("504 Gateway Timeout")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", time_out)
        with pytest.raises(OSError, match="504"):
            sink.write_batch(cast(Any, LocalFrame(rows(4))), 1)
    late[0]()
    assert ids("delta", tmp_path) == list(range(8))


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_number_of_another_checkpoint_is_not_taken_for_a_replay(tmp_path: Path, kind: str) -> None:
    def sink() -> Any:
        return open_sink(kind, {"path": str(tmp_path)}, "q")

    assert not sink().write_batch(of_stream("one", 0), 0).skipped
    assert sink().write_batch(of_stream("one", 0), 0).skipped
    # The checkpoint was deleted: batch 0 has other rows now.
    with pytest.raises(StaleBatch, match="the checkpoint was reset"):
        sink().write_batch(of_stream("two", 8), 0)
    assert not sink().write_batch(of_stream("one", 8), 1).skipped
    assert ids(kind, tmp_path) == list(range(16))


@pytest.mark.parametrize("kind", FORMATS)
def test_what_a_batch_wrote_is_on_the_disk_before_it_is_done(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    synced: set[str] = set()
    real = os.fsync

    def note(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", note)
    sink = open_sink(kind, {"path": str(table), "partition_by": "shop"}, "q")
    for number in range(2):
        sink.write_batch(cast(Any, frame(number * 8, 8)), number)
    names = {path for path in synced if Path(path).exists()}
    # SQLite syncs its own file; locks hold nothing; a folder's files were synced where they were staged.
    wanted = {
        str(path)
        for path in table.rglob("*")
        if "catalog.db" not in path.name and path.name not in ("lock", "staging") and "staging" not in path.parts
        if kind != "parquet" or path.is_dir()
    }
    assert wanted - names == set()
    assert str(tmp_path) in names


def test_a_partition_column_may_begin_with_an_underscore_and_not_with_a_dot(tmp_path: Path) -> None:
    batch = pa.table({"id": pa.array(range(4), pa.int64()), "_day": ["a"] * 4, ".x": ["b"] * 4})
    options = {"path": str(tmp_path), "mode": "overwrite"}
    open_sink("parquet", {**options, "partition_by": "_day"}, "q").write_batch(cast(Any, LocalFrame(batch)), 0)
    assert ids("parquet", tmp_path) == list(range(4))
    with pytest.raises(BadOption, match=r"rename column \.x"):
        open_sink("parquet", {**options, "partition_by": ".x"}, "q").write_batch(cast(Any, LocalFrame(batch)), 1)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_record_stamped_past_all_calendars_is_stored_like_any_other(tmp_path: Path, kind: str) -> None:
    far = pa.array([1 << 60], pa.timestamp("us", "UTC"))
    columns = {"topic": ["a"], "partition": [0], "offset": [7], "id": [1], "timestamp": far}
    sink = open_sink(kind, {"path": str(tmp_path)}, "q")
    for number in range(2):
        assert sink.write_batch(cast(Any, LocalFrame(pa.table(columns))), number).rows == 1
    assert ids(kind, tmp_path) == [1, 1]
    (held,) = archive_status(kind, {"path": str(tmp_path)}).held
    assert (held.last, held.newest) == (7, None)
    late = pa.table({"id": [1], "day": pa.array([3_000_000], pa.date32())})
    with pytest.raises(SchemaMismatch, match="outside of the years 1 to 9999"):
        open_sink(kind, {"path": str(tmp_path / "days"), "partition_by": "day"}, "q").write_batch(
            cast(Any, LocalFrame(late)), 0
        )
