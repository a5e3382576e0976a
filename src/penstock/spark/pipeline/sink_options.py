"""What a pipeline file says of sinks, as options of the data source `penstock` and of penstock.spark.tables.

Called by pipeline.writing and pipeline.option_checks. Needs neither Spark nor a broker.
"""

from typing import TYPE_CHECKING, Any

from penstock.spark.pipeline.model_sinks import Sink
from penstock.spark.pipeline.topic_options import kafka_options, option_text

if TYPE_CHECKING:
    from penstock.spark.pipeline.loading import LoadedPipeline


def written_topic_options(loaded: "LoadedPipeline", sink: Sink, query: str) -> dict[str, str]:
    """The sink's own `options` come last, and win."""
    assert sink.topic is not None
    options = kafka_options(loaded) | {"topic": sink.topic, "delivery": sink.delivery, "queryName": query}
    return options | {key: option_text(value) for key, value in sink.options.items()}


def table_options(loaded: "LoadedPipeline", sink: Sink) -> dict[str, Any]:
    """In the words of penstock.spark.tables; what was not said is left out."""
    table = sink.delta or sink.iceberg or sink.parquet or sink.postgres
    assert table is not None
    given = {
        name: value for name, value in table.model_dump(exclude={"options"}).items() if value not in (None, [], {})
    }
    if "path" in given:
        given["path"] = loaded.resolve(given["path"])
    return given | {"mode": sink.mode} | table.options
