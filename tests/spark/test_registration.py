"""The environment of the source's function, which every stream that starts writes into, is safe for many at once."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from penstock.spark import register
from penstock.spark.pipeline.building import pipeline_session
from penstock.spark.pipeline.loading import load_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """\
name: copy
checkpoint: checkpoint
kafka: {bootstrap: "127.0.0.1:1"}
sources: {lines: {topic: lines, format: bytes}}
sinks: {copies: {input: lines, topic: copies}}
"""


def is_safe_for_many(session: "SparkSession") -> bool:
    manager = cast(Any, session)._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource("penstock").dataSourceCls().envVars()
    concurrent = cast(Any, session.sparkContext)._jvm.java.lang.Class.forName("java.util.concurrent.ConcurrentMap")
    return concurrent.isInstance(environment)


def test_sessions_of_ours_share_the_source_safely_between_streams(spark: "SparkSession", tmp_path: Path) -> None:
    file = tmp_path / "copy.yaml"
    file.write_text(PIPELINE)
    by_hand = spark.newSession()
    # What Spark finds by itself is not safe: where this fails, Spark has mended it and registration.py may go.
    assert not is_safe_for_many(by_hand)
    register(by_hand)
    sessions = {"built": spark, "by hand": by_hand, "a pipeline's": pipeline_session(spark, load_pipeline(file))}
    assert {name: is_safe_for_many(session) for name, session in sessions.items()} == dict.fromkeys(sessions, True)
