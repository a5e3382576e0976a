"""The columns of each source and step, as Spark sees them; no query is started.

Called by cli.pipeline for `validate --schema`.
"""

from typing import TYPE_CHECKING, NamedTuple

from penstock.spark.pipeline.building import build_frames, pipeline_session
from penstock.spark.pipeline.loading import LoadedPipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Column(NamedTuple):
    name: str
    type: str


def schemas_of(spark: "SparkSession", loaded: LoadedPipeline) -> dict[str, list[Column]]:
    """By name, in the order in which they are built."""
    session = pipeline_session(spark, loaded)
    names = {*loaded.pipeline.sources, *loaded.pipeline.steps}
    frames = build_frames(session, loaded, names, loaded.pipeline.name)
    return {
        name: [Column(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
        for name, frame in frames.items()
    }
