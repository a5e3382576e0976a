"""Archive and replay for real: a broker, Spark, a table, and a topic that is what the first one was."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import Row, Topics
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.archive import app as archive_app
from penstock.spark.archive import DAY, Archive, compact_archive, start_archive
from penstock.spark.archive_lock import ArchiveRunning
from penstock.spark.archive_status import archive_status
from penstock.spark.errors import BadOption
from penstock.spark.replay import Replay, run_replay, survey
from penstock.spark.tables import read_table

DAY_MS = 86_400_000
START_MS = 19_860 * DAY_MS - 500  # half a second before midnight, UTC


def records(first: int, count: int, partitions: int = 2) -> list[Row]:
    """Over two days, with and without keys, values and headers."""
    return [
        Row(
            None if number % 5 == 0 else f"value {number}".encode(),
            None if number % 4 == 0 else f"key {number % 3}".encode(),
            number % partitions,
            [("n", str(number).encode()), ("empty", None)] if number % 3 else [],
            START_MS + number * 100,
        )
        for number in range(first, first + count)
    ]


def run_once(spark: SparkSession, archive: Archive) -> int:
    written: list[int] = []
    query = start_archive(spark, archive, is_once=True, on_batch=lambda done: written.append(done.written.rows))
    assert query.awaitTermination(300)
    assert query.exception() is None
    return sum(written)


def content(topics: Topics, topic: str) -> list[tuple[Any, ...]]:
    return [
        (one.partition(), one.key(), one.value(), one.headers() or [], one.timestamp()[1]) for one in topics.read(topic)
    ]


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_topic_comes_back_from_its_archive_as_it_was(
    spark: SparkSession, topics: Topics, tmp_path: Path, table_format: Any
) -> None:
    topic = topics.make(partitions=2)
    topics.produce(topic, records(0, 30))
    source = {"kafka.bootstrap.servers": topics.bootstrap}
    archive = Archive((topic,), str(tmp_path / "table"), source, table_format, batch_rows=12)
    assert run_once(spark, archive) == 30
    assert run_once(spark, archive) == 0
    topics.produce(topic, records(30, 10))
    assert run_once(spark, archive) == 10
    # Without its checkpoint the table itself tells where to go on.
    shutil.rmtree(archive.checkpoint_folder)
    topics.produce(topic, records(40, 6))
    assert run_once(spark, archive) == 6
    done = compact_archive(archive)
    assert done.files_after < done.files_before

    found = archive_status(table_format, archive.sink_options)
    assert [(one.topic, one.partition, one.rows, one.first, one.last) for one in found.held] == [
        (topic, 0, 23, 0, 22),
        (topic, 1, 23, 0, 22),
    ]
    days = read_table(spark, table_format, archive.table).groupBy("day").count().collect()
    assert sorted((str(row.day), row["count"]) for row in days) == [("2024-05-16", 5), ("2024-05-17", 41)]

    cluster = {"kafka.bootstrap.servers": topics.bootstrap}
    target = topics.make(partitions=2)
    asked = Replay(target, cluster, kind=table_format, table=archive.table)
    assert [(one.partition, one.rows) for one in survey(spark, asked)] == [(0, 23), (1, 23)]
    assert topics.values(target) == []
    assert sum(one.rows for one in run_replay(spark, asked)) == 46
    assert content(topics, target) == content(topics, topic)

    if table_format == "delta":
        shown = CliRunner().invoke(archive_app, ["status", "--table", archive.table, "--json"])
        assert (shown.exit_code, json.loads(shown.stdout)["rows"]) == (0, 46)


def test_a_stretch_of_a_topic_goes_into_a_narrower_one_in_order(spark: SparkSession, topics: Topics) -> None:
    topic, target = topics.make(partitions=2), topics.make(partitions=1)
    topics.produce(topic, records(0, 40))
    cluster = {"kafka.bootstrap.servers": topics.bootstrap}
    begin, until = START_MS + 10 * 100, START_MS + 30 * 100
    asked = Replay(target, cluster, topic=topic, begin_ms=begin, until_ms=until, rate=500)
    assert sum(one.rows for one in run_replay(spark, asked)) == 20
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000"
    wanted = [one for one in content(topics, topic) if begin <= one[4] < until]
    found = content(topics, target)
    for partition in (0, 1):
        # The target has one partition: those of one source partition stand in it in their order.
        parity = [one[1:] for one in found if (one[4] - START_MS) // 100 % 2 == partition]
        assert parity == [one[1:] for one in wanted if one[0] == partition]
    with pytest.raises(BadOption, match="there is no topic nowhere to replay into"):
        run_replay(spark, Replay("nowhere", cluster, topic=topic))


def test_archives_that_share_a_topic_and_a_table_store_each_record_once(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    first, second = topics.make(partitions=1), topics.make(partitions=1)
    source = {"kafka.bootstrap.servers": topics.bootstrap}

    def archive(*names: str) -> int:
        return run_once(spark, Archive(names, str(tmp_path / "table"), source))

    topics.produce(first, records(0, 5, partitions=1))
    assert archive(first) == 5
    topics.produce(first, records(5, 5, partitions=1))
    topics.produce(second, records(0, 3, partitions=1))
    assert archive(first, second) == 8
    topics.produce(first, records(10, 2, partitions=1))
    assert archive(first) == 2
    assert archive(first, second) == 0
    found = archive_status("delta", {"path": str(tmp_path / "table")})
    assert {one.topic: (one.rows, one.first, one.last) for one in found.held} == {first: (12, 0, 11), second: (3, 0, 2)}
    held = start_archive(spark, Archive((first,), str(tmp_path / "table"), source), is_once=False)
    try:
        with pytest.raises(ArchiveRunning, match="another archive of the same topic is running"):
            archive(second, first)
    finally:
        held.stop()


def test_a_time_that_no_calendar_has_stands_under_the_last_day_of_one(spark: SparkSession) -> None:
    times = spark.sql("SELECT timestamp_micros(each) AS timestamp FROM VALUES (-1), (1L << 60), (-1L << 60) AS t(each)")
    days = times.selectExpr(f"CAST({DAY} AS STRING) AS day").collect()
    assert [row.day for row in days] == ["1969-12-31", "9999-12-31", "0001-01-01"]
