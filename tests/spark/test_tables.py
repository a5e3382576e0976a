"""Tables as sinks, with a real Spark: each batch once, whatever happens on the way, and read back as it was written."""

import datetime
import decimal
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as dbapi
import pyarrow.dataset as pads
import pytest
from deltalake import DeltaTable
from postgres import running_postgres
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.errors import BadOption, reason
from penstock.spark.tables import compact_table, open_sink, read_table, vacuum_table
from penstock.spark.tables.failures import SchemaMismatch, StaleBatch
from penstock.spark.tables.files import list_files
from penstock.spark.tables.iceberg_catalog import open_iceberg
from penstock.spark.tables.options import sink_options

FORMATS = ["delta", "iceberg", "parquet"]
COLUMNS = (
    "id long, name string, day date, at timestamp, price decimal(10,2), raw binary, ratio double, "
    "tags array<struct<key:string,value:binary>>"
)


def rows(first: int, count: int) -> list[tuple[Any, ...]]:
    """Two days, a null one among them, and every kind of value that an archive has."""
    found: list[tuple[Any, ...]] = []
    for number in range(first, first + count):
        day = None if number % 7 == 6 else datetime.date(2024, 5, 17 + number % 2)
        at = datetime.datetime(2024, 5, 17, 23, 59, 59, 123456 + number)
        tags = None if number % 3 == 0 else [("k", b"\x00\xff"), ("n", None)]
        price = decimal.Decimal(number) / 4
        found.append((number, f"näme {number}", day, at, price, bytes([number % 256]), number / 3, tags))
    return found


def frame(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.createDataFrame(rows(first, count), COLUMNS).repartition(2)


def as_set(df: DataFrame) -> list[str]:
    """All rows, in one order whatever wrote them, doubles included."""
    return sorted(map(repr, df.select("id", "name", "day", "at", "price", "raw", "ratio", "tags").collect()))


def ids(spark: SparkSession, kind: str, path: Path) -> list[int]:
    return sorted(row.id for row in read_table(spark, kind, str(path)).select("id").collect())


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres() as url:
        yield url


def ask(url: str, question: str) -> list[tuple[Any, ...]]:
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(question)
        found = cursor.fetchall()
        connection.commit()
        return found


def tell(url: str, what: str) -> None:
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(what)
        connection.commit()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_is_stored_once_and_read_back_as_it_was(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "my [table]"
    options = {"path": str(path), "partition_by": "day"}
    sink = open_sink(kind, options, "orders")
    first = sink.write_batch(frame(spark, 0, 20), 0)
    assert (first.rows, first.skipped) == (20, False)
    assert first.files >= 3
    # Again by the same driver, and by one that started anew after a crash.
    assert sink.write_batch(frame(spark, 0, 20), 0).skipped
    assert open_sink(kind, options, "orders").write_batch(frame(spark, 0, 20), 0).skipped
    assert not open_sink(kind, options, "orders").write_batch(frame(spark, 20, 10), 1).skipped
    # An empty batch is no news; a batch from before the last is no replay.
    assert sink.write_batch(frame(spark, 0, 20).where("false"), 2) == (0, 0, False)
    with pytest.raises(StaleBatch, match="holds batch 1 of query orders already, and now batch 0 came"):
        sink.write_batch(frame(spark, 0, 20), 0)
    # Another query has numbers of its own.
    assert not open_sink(kind, options, "returns").write_batch(frame(spark, 30, 5), 0).skipped

    written = spark.createDataFrame(rows(0, 35), COLUMNS)
    back = read_table(spark, kind, str(path))
    assert as_set(back) == as_set(written)
    assert {(field.name, field.dataType) for field in back.schema} == {(f.name, f.dataType) for f in written.schema}
    monday = read_table(spark, kind, str(path), wanted=lambda values: values["day"] == "2024-05-18")
    assert as_set(monday) == as_set(written.where("day = '2024-05-18'"))
    if kind == "delta":
        others = DeltaTable(path).to_pyarrow_table()
        assert sorted(others.column("id").to_pylist()) == list(range(35))
        assert DeltaTable(path).transaction_version("orders") == 1
        # The bounds in the log are used by readers to leave files out.
        assert DeltaTable(path).scan(predicate="id = 34").read_all().num_rows == 1
    elif kind == "iceberg":
        others = open_iceberg(sink_options(kind, {"path": str(path)})).scan(row_filter="id >= 30").to_arrow()
        assert sorted(others.column("id").to_pylist()) == list(range(30, 35))
    else:
        assert pads.dataset(path, partitioning="hive").count_rows() == 35


@pytest.mark.parametrize("kind", FORMATS)
def test_a_crash_before_the_commit_leaves_nothing_that_counts(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    options = {"path": str(path), "partition_by": "day"}
    open_sink(kind, options, "q").write_batch(frame(spark, 0, 10), 0)

    def files_of() -> set[str]:
        return {str(file) for file in path.rglob("*.parquet")}

    before = files_of()

    class Killed(BaseException):
        """As SIGKILL has it: nobody catches it and nothing is tidied."""

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as broken:
        sink = open_sink(kind, options, "q")
        broken.setattr(type(sink._sink), "_commit", die)
        with pytest.raises(Killed):
            sink.write_batch(frame(spark, 10, 10), 1)
    assert len(files_of()) > len(before)
    assert ids(spark, kind, path) == list(range(10))
    assert not open_sink(kind, options, "q").write_batch(frame(spark, 10, 10), 1).skipped
    assert ids(spark, kind, path) == list(range(20))
    # The files of the dead attempt went with the commit of the live one.
    known = {file.path.removeprefix("file://") for file in list_files(sink_options(kind, {"path": str(path)})).files}
    assert files_of() == known
    assert vacuum_table(kind, options, older_than_hours=0, dry_run=True) == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_writers_at_once_lose_nothing_and_double_nothing(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Two queries, each run by two drivers at once: what a split brain would do. The table does not exist yet."""
    options = {"path": str(tmp_path / "table")}
    outcomes: dict[str, list[bool]] = {"a": [], "b": []}
    failures: list[BaseException] = []
    together = threading.Barrier(4)

    def write(query: str, first: int) -> None:
        try:
            sink = open_sink(kind, options, query)
            data = frame(spark, first, 10)
            for batch in range(2):
                together.wait(60)
                outcomes[query].append(sink.write_batch(data, batch).skipped)
        except BaseException as error:
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=write, args=one) for one in [("a", 0), ("a", 0), ("b", 10), ("b", 10)]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert failures == []
    # Of two drivers with one batch, one has written and one has left it out.
    assert {query: sorted(skipped) for query, skipped in outcomes.items()} == {
        "a": [False, False, True, True],
        "b": [False, False, True, True],
    }
    assert ids(spark, kind, tmp_path / "table") == sorted([*range(20), *range(20)])
    assert vacuum_table(kind, options, older_than_hours=0, dry_run=True) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_columns_may_come_and_may_not_change(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "table"
    strict = open_sink(kind, {"path": str(path)}, "q")
    strict.write_batch(spark.createDataFrame([(1, "a")], "id long, name string"), 0)
    wider = spark.createDataFrame([(2, 0.5, "b")], "id int, score double, name string")
    with pytest.raises(SchemaMismatch, match="has no column score: set merge_schema=true"):
        strict.write_batch(wider, 1)
    merging = open_sink(kind, {"path": str(path), "mergeSchema": "true"}, "q")
    assert merging.write_batch(wider, 1).rows == 1
    assert strict.write_batch(spark.createDataFrame([(3,)], "id long"), 2).rows == 1
    with pytest.raises(SchemaMismatch, match="id is string in the batch and int64 in the table"):
        merging.write_batch(spark.createDataFrame([("4",)], "id string"), 3)
    found = {(row.id, row.name, row.score) for row in read_table(spark, kind, str(path)).collect()}
    assert found == {(1, "a", None), (2, "b", 0.5), (3, None, None)}
    # As a query in complete output mode has it: each batch is the whole answer.
    complete = open_sink(kind, {"path": str(path), "mode": "complete"}, "totals")
    complete.write_batch(spark.createDataFrame([(7,)], "id long"), 0)
    complete.write_batch(spark.createDataFrame([(8,), (9,)], "id long"), 1)
    assert ids(spark, kind, path) == [8, 9]
    if kind == "parquet":
        with pytest.raises(BadOption, match="cannot be compacted"):
            compact_table(kind, {"path": str(path)})
        return
    for batch in range(2, 5):
        open_sink(kind, {"path": str(path)}, "more").write_batch(spark.range(batch, batch + 1).coalesce(1), batch)
    before = len(list_files(sink_options(kind, {"path": str(path)})).files)
    done = compact_table(kind, {"path": str(path)})
    assert (done.files_before, done.files_after) == (before, 1)
    assert ids(spark, kind, path) == [2, 3, 4, 8, 9]
    assert open_sink(kind, {"path": str(path)}, "more").write_batch(spark.range(1), 4).skipped


def test_a_row_that_does_not_fit_fails_in_its_task_with_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa

    DeltaTable.create(tmp_path, pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    with pytest.raises(Exception, match="id") as failure:
        open_sink("delta", {"path": str(tmp_path)}, "q").write_batch(spark.createDataFrame([(None,)], "id long"), 0)
    assert reason(failure.value) == "column id of the table needs a value, and some rows have none"
    assert list(tmp_path.glob("*.parquet")) == []


def test_delta_upserts_by_key(spark: SparkSession, tmp_path: Path) -> None:
    options = {"path": str(tmp_path), "mode": "upsert", "keys": "id"}
    sink = open_sink("delta", options, "q")
    columns = "id long, name string, version int"
    assert sink.write_batch(spark.createDataFrame([(1, "a", 1), (2, "b", 1)], columns), 0).rows == 2
    twice = spark.createDataFrame([(2, "c", 2), (3, "d", 1), (2, "e", 3)], columns)
    with pytest.raises(SchemaMismatch, match=r"1 keys have more than one row in the batch \(id=2\)"):
        sink.write_batch(twice, 1)
    ordered = open_sink("delta", {**options, "order_by": "version"}, "q")
    assert ordered.write_batch(twice, 1).rows == 2
    assert ordered.write_batch(spark.createDataFrame([(1, "never", 9)], columns), 1).skipped
    found = sorted((row.id, row.name) for row in read_table(spark, "delta", str(tmp_path)).collect())
    assert found == [(1, "a"), (2, "e"), (3, "d")]
    assert list(tmp_path.glob("_penstock/*.parquet")) == []


def test_postgres_takes_each_batch_once(spark: SparkSession, postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"url": postgres, "table": "orders"}
    sink = open_sink("postgres", options, "q")
    assert sink.write_batch(frame(spark, 0, 20), 0).rows == 20
    assert sink.write_batch(frame(spark, 0, 20), 0).skipped
    with monkeypatch.context() as broken:

        def die(*_: Any) -> None:
            raise KeyboardInterrupt

        broken.setattr(type(sink._sink), "_move", die)
        with pytest.raises(KeyboardInterrupt):
            sink.write_batch(frame(spark, 20, 10), 1)
    assert ask(postgres, "SELECT count(*) FROM orders") == [(20,)]
    assert open_sink("postgres", options, "q").write_batch(frame(spark, 20, 10), 1).rows == 10
    assert ask(postgres, "SELECT count(*), count(DISTINCT id), sum(price)::text FROM orders") == [(30, 30, "108.75")]
    assert ask(postgres, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'penstock_stage%'") == []
    seen = ask(postgres, "SELECT name, day, at, raw, tags->0->>'key' FROM orders WHERE id = 1")
    moment = datetime.datetime(2024, 5, 17, 23, 59, 59, 123457, tzinfo=datetime.UTC)
    assert seen == [("näme 1", datetime.date(2024, 5, 18), moment, b"\x01", "k")]
    with pytest.raises(StaleBatch):
        sink.write_batch(frame(spark, 0, 1), 0)

    tell(postgres, "CREATE TABLE totals (shop varchar(5) PRIMARY KEY, sum int, at date)")
    upsert = {"url": postgres, "table": "public.totals", "mode": "upsert", "keys": ["shop"]}
    totals = open_sink("postgres", upsert, "totals")
    totals.write_batch(spark.createDataFrame([("a", 1), ("b", 2)], "shop string, sum long"), 0)
    totals.write_batch(spark.createDataFrame([("b", 5), ("c", 3)], "shop string, sum long"), 1)
    assert ask(postgres, "SELECT shop, sum FROM totals ORDER BY 1") == [("a", 1), ("b", 5), ("c", 3)]
    with pytest.raises(SchemaMismatch, match="integer out of range"):
        totals.write_batch(spark.createDataFrame([("d", 1 << 40)], "shop string, sum long"), 2)
    with pytest.raises(SchemaMismatch, match="more than one row in the batch"):
        totals.write_batch(spark.createDataFrame([("d", 1), ("d", 2)], "shop string, sum long"), 2)
    with pytest.raises(SchemaMismatch, match="has no column extra"):
        totals.write_batch(spark.createDataFrame([("d", 1)], "shop string, extra long"), 2)
    merged = open_sink("postgres", {**upsert, "merge_schema": True}, "totals")
    assert merged.write_batch(spark.createDataFrame([("d", 1)], "shop string, extra long"), 2).rows == 1
    assert ask(postgres, "SELECT shop, extra FROM totals WHERE shop >= 'c' ORDER BY 1") == [("c", None), ("d", 1)]


def test_postgres_counts_batches_for_each_table_and_cuts_no_text(spark: SparkSession, postgres: str) -> None:
    def written(table: str) -> int:
        return open_sink("postgres", {"url": postgres, "table": table}, "fan").write_batch(frame(spark, 0, 4), 0).rows

    assert [written(table) for table in ("fan_a", "fan_b", "public.fan_b", "fan_a")] == [4, 4, 0, 0]
    assert ask(postgres, "SELECT (SELECT count(*) FROM fan_a), (SELECT count(*) FROM fan_b)") == [(4, 4)]

    tell(postgres, "CREATE TABLE short (name varchar(5), mark char(2))")
    short = open_sink("postgres", {"url": postgres, "table": "short"}, "short")
    columns = "name string, mark string"
    with pytest.raises(SchemaMismatch, match="value too long"):
        short.write_batch(spark.createDataFrame([("sixsix", "a")], columns), 0)
    with pytest.raises(SchemaMismatch, match="value too long"):
        short.write_batch(spark.createDataFrame([("five5", "abc")], columns), 0)
    assert short.write_batch(spark.createDataFrame([("five5", "ab")], columns), 0).rows == 1
    assert ask(postgres, "SELECT name, mark FROM short") == [("five5", "ab")]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_query_whose_checkpoint_was_deleted_loses_no_rows_unseen(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    source, checkpoint, table = tmp_path / "source", tmp_path / "checkpoint", tmp_path / "table"
    source.mkdir()

    def run() -> None:
        sink = open_sink(kind, {"path": str(table)}, query="orders")

        def write(batch: DataFrame, number: int) -> None:
            sink.write_batch(batch, number)

        writer = spark.readStream.text(str(source)).writeStream.foreachBatch(write)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(120)

    (source / "one.txt").write_text("1\n")
    run()
    (source / "one.txt").unlink()
    (source / "two.txt").write_text("2\n")
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match="holds batch 0 of query orders already"):
        run()
    assert [row.value for row in read_table(spark, kind, str(table)).collect()] == ["1"]
