"""Parquet files as tasks write them, without Spark: names, partitions, bounds, and what a failure leaves."""

import datetime
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.tables import data_files
from penstock.spark.tables.data_files import FileOrder, TaskFiles, delete_leftovers
from penstock.spark.tables.failures import SchemaMismatch
from penstock.spark.tables.model import batch_prefix, query_tag
from penstock.spark.tables.partitions import hive_folder, plain_folder, split

SCHEMA = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("at", pa.timestamp("us", "UTC"))])


def rows(ids: list[int], shops: list[str | None]) -> pa.RecordBatch:
    at = [datetime.datetime(2024, 5, 17, 8, 0, 0, 999_999, tzinfo=datetime.UTC)] * len(ids)
    return pa.RecordBatch.from_pydict({"id": ids, "shop": pa.array(shops, pa.string()), "at": at}, schema=SCHEMA)


def test_a_task_writes_one_file_for_each_value_and_tells_of_them(tmp_path: Path) -> None:
    order = FileOrder(str(tmp_path), "q-", SCHEMA, ("shop",))
    with TaskFiles(order, 3) as files:
        files.write(rows([1, 2, 3], ["a", "b/ü", "a"]))
        files.write(rows([4, 5], [None, ""]))
        written = files.finish()
    assert [(one.partition["shop"], one.rows) for one in written] == [("a", 2), ("b/ü", 1), (None, 2)]
    for one in written:
        path = tmp_path / one.path
        assert path.name.startswith("q-00003-")
        assert one.size == path.stat().st_size
        assert pq.read_schema(path).names == ["id", "at"]
    # A value with signs that a path or a URI would take wrongly names no folder.
    assert all(set(one.path) <= set("abcdefghijklmnopqrstuvwxyz0123456789=-/._HIVEDFAULTPRON") for one in written)


def test_bounds_hold_and_doubtful_columns_have_none(tmp_path: Path) -> None:
    with TaskFiles(FileOrder(str(tmp_path), "q-", SCHEMA), 0) as files:
        files.write(rows([5, 2], ["x" * 100, None]))
        (written,) = files.finish()
    stats = json.loads(written.stats)
    assert stats["numRecords"] == 2
    assert (stats["minValues"]["id"], stats["maxValues"]["id"]) == (2, 5)
    assert stats["nullCount"]["shop"] == 1
    assert "shop" not in stats["minValues"]
    # Rounded away from the value: 08:00:00.999999 lies within.
    assert stats["minValues"]["at"] == "2024-05-17T08:00:00.999Z"
    assert stats["maxValues"]["at"] == "2024-05-17T08:00:01.000Z"


def test_a_file_ends_when_it_is_large_enough_and_few_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "OPEN_FILES_MAX", 2)
    with TaskFiles(FileOrder(str(tmp_path), "q-", SCHEMA, ("shop",)), 0) as files:
        for number in range(6):
            files.write(rows([number], [f"shop {number % 3}"]))
            assert len(files._open) <= 2
        written = files.finish()
    assert sum(one.rows for one in written) == 6
    with TaskFiles(FileOrder(str(tmp_path), "r-", SCHEMA, target_file_bytes=1), 0) as files:
        files.write(rows([1], ["a"]))
        files.write(rows([2], ["a"]))
        assert len(files.finish()) == 2


def test_a_task_that_fails_takes_its_files_away(tmp_path: Path) -> None:
    order = FileOrder(str(tmp_path), "q-", SCHEMA, target_file_bytes=1)
    wrong = pa.schema([pa.field("id", pa.int64(), nullable=False)])

    def write_and_fail() -> None:
        with TaskFiles(order, 0) as files:
            files.write(rows([1], ["a"]))
            assert list(tmp_path.glob("*.parquet"))
            files._order = FileOrder(str(tmp_path), "q-", wrong)
            files.write(pa.RecordBatch.from_pydict({"id": pa.array([None], pa.int64())}))

    with pytest.raises(SchemaMismatch):
        write_and_fail()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_leftovers_are_those_of_one_batch_of_one_query(tmp_path: Path) -> None:
    kept = f"day=1/{batch_prefix('q', 7)}00000-new.parquet"
    others = [f"{batch_prefix('q', 6)}x.parquet", f"{batch_prefix('other', 7)}x.parquet", "theirs.parquet"]
    orphan = f"day=2/{batch_prefix('q', 7)}00000-old.parquet"
    for name in (kept, *others, orphan):
        os.makedirs((tmp_path / name).parent, exist_ok=True)
        (tmp_path / name).touch()
    assert delete_leftovers(str(tmp_path), batch_prefix("q", 7), {kept}) == 1
    assert not (tmp_path / orphan).exists()
    assert all((tmp_path / name).exists() for name in (kept, *others))


def test_numbers_of_batches_are_no_prefixes_of_each_other() -> None:
    assert not batch_prefix("q", 10).startswith(batch_prefix("q", 1))
    assert query_tag("a") != query_tag("b")


def test_rows_are_split_by_every_combination_and_lose_nothing() -> None:
    columns = {"n": [1, 2, 3, 4, 5], "a": ["x", None, "x", None, "y"], "b": [True, True, False, True, True]}
    batch = pa.RecordBatch.from_pydict(columns)
    found = {(values["a"], values["b"]): part.column("n").to_pylist() for values, part in split(batch, ["a", "b"])}
    assert found == {("x", "true"): [1], (None, "true"): [2, 4], ("x", "false"): [3], ("y", "true"): [5]}


def test_folders_say_what_they_hold() -> None:
    assert plain_folder({"day": "2024-05-17"}) == "day=2024-05-17"
    assert plain_folder({"shop": "a b"}) != plain_folder({"shop": "a c"})
    assert hive_folder({"shop": "a:b/c%", "day": None}) == "shop=a%3Ab%2Fc%25/day=__HIVE_DEFAULT_PARTITION__"
