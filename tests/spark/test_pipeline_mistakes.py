"""What is wrong with a pipeline, or with what it needs, is told at its line; and which of the two it is."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import Topics, run_once

from penstock.spark.errors import BadPipeline
from penstock.spark.pipeline.failures import CannotStart, QueryFailed
from penstock.spark.pipeline.loading import LoadedPipeline, parse_pipeline
from penstock.spark.pipeline.schemas import schemas_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_mistakes_that_only_spark_sees_name_the_step_and_the_line(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1, "at": "2026-01-01T00:00:00Z"}\n')
    text = """\
name: files
checkpoint: checkpoint
sources:
  rows:
    files: {path: in, format: json, stream: true, schema: "id INT, at TIMESTAMP"}
    watermark: {column: at, delay: 1s}
steps:
  counted:
    sql: |
      SELECT id, count(*) AS n
      FROM rows
      GROUP BY id, window(at, '1 minute')
sinks:
  table: {input: counted, parquet: {path: table}}
  plain: {input: rows, delta: {path: rows}}
"""

    def load(old: str = "", new: str = "") -> LoadedPipeline:
        assert old in text
        return parse_pipeline(text.replace(old, new, 1), tmp_path, "p.yaml")

    with pytest.raises(BadPipeline, match=r"^p.yaml:12:16: step `counted`: .*`idd` cannot be resolved"):
        schemas_of(spark, load("GROUP BY id,", "GROUP BY idd,"))
    with pytest.raises(BadPipeline, match=r"^p.yaml:\d+:\d+: step `counted`: .*[Ss]yntax error"):
        schemas_of(spark, load("GROUP BY id,", "GRUOP BOY id,"))
    with pytest.raises(BadPipeline, match=r"^p.yaml:13:3: sink `table`: .*(output mode|watermark)"):
        run_once(spark, load("    watermark: {column: at, delay: 1s}\n", ""))

    run = run_once(spark, load())
    # Two sinks are two queries, each with what is behind it; the window is not over yet.
    assert {one.sink: (one.state, one.rows_in, one.rows_out) for one in run.progress} == {
        "table": ("finished", 1, 0),
        "plain": ("finished", 1, 1),
    }
    (tmp_path / "in" / "b.json").write_text('{"id": 2, "at": "2026-01-01T00:00:01Z"}\n')
    # Another key of the state: the checkpoint cannot follow, and says what to do.
    with pytest.raises((QueryFailed, BadPipeline), match=r"its checkpoint .* cannot follow"):
        run_once(
            spark,
            load(
                "SELECT id, count(*) AS n\n      FROM rows\n      GROUP BY id, window(at, '1 minute')",
                "SELECT at, id, count(*) AS n FROM rows GROUP BY at, id, window(at, '1 minute')",
            ),
        )


def test_a_registry_that_does_not_answer_is_no_mistake_in_the_file(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    topic = topics.make()
    with socket.socket() as nobody:
        # Bound and not listening: nobody else can have the port, and whoever connects is refused.
        nobody.bind(("127.0.0.1", 0))
        registry = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        text = f"""\
name: registered
checkpoint: checkpoint
kafka: {{bootstrap: "{topics.bootstrap}"}}
sources:
  rows:
    topic: {topic}
    format: avro
    options: {{schema.registry.url: "{registry}", schema.registry.retries: 0}}
sinks:
  out: {{input: rows, console: }}
"""
        told = rf"^p.yaml:5:3: source `rows`: no schema registry answers for .*{topic}-value.* \({registry}: .*refused"
        with pytest.raises(CannotStart, match=told):
            run_once(spark, parse_pipeline(text, tmp_path, "p.yaml"))


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("kafka.acks: 1", "p.yaml:7:15: sink `out`: kafka.acks=1 would lose rows when a broker is lost"),
        ("kafka.delivery.timeout.ms: soon", "p.yaml:7:15: sink `out`: kafka.delivery.timeout.ms is soon"),
        ("kafka.enable.idempotence: false", "p.yaml:7:15: sink `out`: kafka.enable.idempotence=false would double"),
    ],
)
def test_a_sink_that_would_lose_or_double_rows_is_refused_before_spark_starts(
    tmp_path: Path, option: str, told: str
) -> None:
    text = f"""\
name: careless
checkpoint: checkpoint
sources: {{rows: {{topic: t}}}}
sinks:
  out:
    input: rows
    options: {{{option}}}
    topic: copy
"""
    with pytest.raises(BadPipeline) as refused:
        parse_pipeline(text, tmp_path, "p.yaml")
    assert told in str(refused.value)
