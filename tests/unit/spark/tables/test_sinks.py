"""The file sinks against real tables, without Spark: crashes at each step, lost answers, and what readers see then."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Transaction

# The parts that tests share lie beside them.
sys.path.insert(0, str(Path(__file__).parent))

from frames import frame

from penstock.spark.errors import BadOption
from penstock.spark.tables import committing, data_files, open_sink, parquet, upkeep
from penstock.spark.tables.failures import CommitConflict, NotReadable, SchemaMismatch, StaleBatch
from penstock.spark.tables.files import list_files
from penstock.spark.tables.iceberg_catalog import open_iceberg
from penstock.spark.tables.model import TableSink, WrittenBatch
from penstock.spark.tables.options import sink_options

FORMATS = ["delta", "iceberg", "parquet"]


class Killed(BaseException):
    """As SIGKILL has it: nobody catches it and nothing is tidied."""


def write(sink: TableSink, batch: int, first: int, count: int = 8, **more: Any) -> WrittenBatch:
    return sink.write_batch(cast(Any, frame(first, count, **more)), batch)


def ids(kind: str, path: Path) -> list[int]:
    """By the table's own list of files: doubles would show."""
    found = list_files(sink_options(kind, {"path": str(path)})).files
    paths = [data_files.file_system(file.path)[1] for file in found]
    return sorted(number for one in paths for number in pq.ParquetFile(one).read(["id"]).column("id").to_pylist())


def on_disk(path: Path) -> int:
    return len(list(path.rglob("*.parquet")))


@pytest.mark.parametrize("kind", FORMATS)
def test_partition_values_of_every_kind_come_back(tmp_path: Path, kind: str) -> None:
    options = {"path": str(tmp_path), "partition_by": "shop"}
    write(open_sink(kind, options, "q"), 0, 0)
    found = list_files(sink_options(kind, {"path": str(tmp_path)}))
    values = {file.partition["shop"] for file in found.files}
    # Delta and folders know no empty text: it is null there.
    assert values == ({None, "", "a b", "c:d/e"} if kind == "iceberg" else {None, "a b", "c:d/e"})
    assert ids(kind, tmp_path) == list(range(8))
    if kind == "delta":
        assert set(DeltaTable(tmp_path).to_pyarrow_table().column("shop").to_pylist()) == values
    with pytest.raises((BadOption, SchemaMismatch), match="partitioned by shop"):
        write(open_sink(kind, {"path": str(tmp_path), "partition_by": "id"}, "q"), 1, 8)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_that_is_stored_already_is_worked_through_for_the_state_behind_it(tmp_path: Path, kind: str) -> None:
    first, again = frame(0, 8), frame(0, 8)
    assert not open_sink(kind, {"path": str(tmp_path)}, "q").write_batch(cast(Any, first), 0).skipped
    assert first.writes == []
    assert open_sink(kind, {"path": str(tmp_path)}, "q").write_batch(cast(Any, again), 0).skipped
    assert again.writes == ["noop"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_older_than_the_last_is_refused_or_left_out_as_asked(tmp_path: Path, kind: str) -> None:
    sink = open_sink(kind, {"path": str(tmp_path)}, "q")
    write(sink, 4, 0)
    assert write(sink, 4, 100).skipped
    with pytest.raises(StaleBatch, match="holds batch 4 of query q already, and now batch 3 came"):
        write(sink, 3, 100)
    assert write(open_sink(kind, {"path": str(tmp_path), "on_old_batch": "skip"}, "q"), 3, 100).skipped
    assert ids(kind, tmp_path) == list(range(8))


def lost_answer_of_delta(patch: pytest.MonkeyPatch) -> None:
    real = DeltaTable.create_write_transaction

    def commit(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        patch.undo()
        raise CommitFailedError("the answer was lost")

    patch.setattr(DeltaTable, "create_write_transaction", commit)


def lost_answer_of_iceberg(patch: pytest.MonkeyPatch) -> None:
    real = Transaction.commit_transaction

    def commit(transaction: Transaction) -> Any:
        real(transaction)
        patch.undo()
        raise CommitFailedException("the answer was lost")

    patch.setattr(Transaction, "commit_transaction", commit)


@pytest.mark.parametrize(("kind", "lose"), [("delta", lost_answer_of_delta), ("iceberg", lost_answer_of_iceberg)])
def test_a_commit_whose_answer_is_lost_is_not_made_again(
    tmp_path: Path, kind: str, lose: Callable[[pytest.MonkeyPatch], None]
) -> None:
    sink = open_sink(kind, {"path": str(tmp_path)}, "q")
    write(sink, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        lose(patch)
        # It is ours, its files are the table's: neither doubled nor taken away.
        assert write(sink, 1, 8) == (8, 2, False)
    assert ids(kind, tmp_path) == list(range(16))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_commit_that_never_gets_through_leaves_no_files(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = open_sink(kind, {"path": str(tmp_path)}, "q")
    write(sink, 0, 0)
    before = on_disk(tmp_path)
    monkeypatch.setattr(committing, "COMMIT_ATTEMPTS", 3)

    def refuse(*_: Any, **__: Any) -> None:
        raise CommitFailedError("faster") if kind == "delta" else CommitFailedException("faster")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", refuse)
        patch.setattr(Transaction, "commit_transaction", refuse)
        with pytest.raises(CommitConflict, match="at each of 3 attempts"):
            write(sink, 1, 8)
    assert on_disk(tmp_path) == before
    assert not write(sink, 1, 8).skipped
    assert ids(kind, tmp_path) == list(range(16))


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_another_driver_that_stores_the_batch_first_wins(tmp_path: Path, kind: str, is_new: bool) -> None:
    """It commits between our last look at the table and our commit; a new one also takes away our files."""
    options = {"path": str(tmp_path)}
    other = open_sink(kind, options, "q")
    write(other, 0, 0)
    other = open_sink(kind, options, "q") if is_new else other
    sink = open_sink(kind, options, "q")
    kept = type(sink._sink)
    real = kept._is_stored
    looks: list[bool] = []

    with pytest.MonkeyPatch.context() as patch:

        def look(*arguments: Any) -> bool:
            looks.append(real(*arguments))
            # The first look is before the files are written, the second right before the commit.
            if len(looks) == 2:
                patch.undo()
                assert not write(other, 1, 8).skipped
            return looks[-1]

        patch.setattr(kept, "_is_stored", look)
        assert write(sink, 1, 8).skipped
    assert looks == [False, False]
    assert ids(kind, tmp_path) == list(range(16))
    assert upkeep.vacuum_table(kind, options, older_than_hours=0, dry_run=True) == []


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("step", range(5))
def test_a_folder_is_whole_for_our_reader_wherever_its_writer_dies(tmp_path: Path, mode: str, step: int) -> None:
    """Dies at the n-th rename or removal after the commit: state file, each file into place, each old file out."""
    options = {"path": str(tmp_path), "mode": mode}
    write(open_sink("parquet", options, "q"), 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        left = [step]

        def dying(real: Callable[..., Any]) -> Callable[..., Any]:
            def act(*arguments: Any, **named: Any) -> Any:
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                return real(*arguments, **named)

            return act

        patch.setattr(parquet.os, "rename", dying(parquet.os.rename))
        patch.setattr(parquet.os, "replace", dying(parquet.os.replace))
        patch.setattr(parquet.Path, "unlink", dying(parquet.Path.unlink))
        try:
            write(open_sink("parquet", options, "q"), 1, 8)
            is_dead = False
        except Killed:
            is_dead = True
    old, new = list(range(8)), list(range(8, 16))
    after = [*old, *new] if mode == "append" else new
    seen = ids("parquet", tmp_path)
    assert seen in (old, after)
    # The replay finds the batch committed and publishes it, or makes it anew; never both.
    again = write(open_sink("parquet", options, "q"), 1, 8)
    assert again.skipped == (step > 0 or not is_dead)
    assert ids("parquet", tmp_path) == after
    assert on_disk(tmp_path) == len(parquet.folder_files(tmp_path))


def test_vacuum_takes_what_nobody_names_and_nothing_else(tmp_path: Path) -> None:
    for kind in FORMATS:
        path = tmp_path / kind
        options = {"path": str(path)}
        sink = open_sink(kind, options, "q")
        write(sink, 0, 0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(sink._sink), "_commit", lambda *_: (_ for _ in ()).throw(Killed()))
            with pytest.raises(Killed):
                write(sink, 1, 8)
        count = on_disk(path)
        assert upkeep.vacuum_table(kind, options, older_than_hours=1) == []
        assert len(upkeep.vacuum_table(kind, options, older_than_hours=0)) == 2
        assert on_disk(path) == count - 2
        assert ids(kind, path) == list(range(8))


def test_an_iceberg_table_is_compacted_within_its_partitions_beside_a_writer(tmp_path: Path) -> None:
    options = {"path": str(tmp_path), "partition_by": "shop"}
    for batch in range(3):
        write(open_sink("iceberg", options, "q"), batch, batch * 8)
    real = Transaction.commit_transaction
    with pytest.MonkeyPatch.context() as patch:

        def slow(transaction: Transaction) -> Any:
            patch.undo()
            write(open_sink("iceberg", options, "other"), 0, 24)
            return real(transaction)

        patch.setattr(Transaction, "commit_transaction", slow)
        done = upkeep.compact_table("iceberg", {"path": str(tmp_path)})
    assert done.files_after == 4
    assert ids("iceberg", tmp_path) == list(range(32))
    table = open_iceberg(sink_options("iceberg", {"path": str(tmp_path)}))
    assert sorted(table.scan(row_filter="shop = 'a b'").to_arrow().column("id").to_pylist()) == list(range(1, 32, 4))
    assert len(list(table.scan(row_filter="shop = 'a b'").plan_files())) == 1
    # What is large enough already is left alone.
    assert upkeep.compact_table("iceberg", {"path": str(tmp_path)}) == (0, 0)


def test_a_table_that_plain_reading_would_get_wrong_is_refused(tmp_path: Path) -> None:
    write(open_sink("iceberg", {"path": str(tmp_path)}, "q"), 0, 0)
    options = sink_options("iceberg", {"path": str(tmp_path)})
    with open_iceberg(options).update_schema() as update:
        update.rename_column("shop", "store")
    with pytest.raises(NotReadable, match="columns were renamed"):
        list_files(options)
