"""What a pipeline file says of topics, as options of the data source `penstock`.

Called by pipeline.reading, pipeline.sink_options and pipeline.option_checks. Needs neither Spark nor a broker.
"""

from typing import TYPE_CHECKING

from penstock.spark.pipeline.model_sources import Scalar, Source, start_options

if TYPE_CHECKING:
    from penstock.spark.pipeline.loading import LoadedPipeline


def topic_options(loaded: "LoadedPipeline", source: Source, query: str) -> dict[str, str]:
    """The source's own `options` come last, and win."""
    options = kafka_options(loaded)
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics or [source.topic or ""])
    options |= start_options(source.start)
    if source.is_streaming:
        options["queryName"] = query
    named = {
        "value.format": source.format if source.format != "bytes" else None,
        "value.schema": source.schema_,
        "value.schema.file": loaded.resolve(source.schema_file) if source.schema_file is not None else None,
        "key.format": source.key_format,
        "on.bad.record": source.bad_records or ("deadletter" if source.dead_letters is not None else None),
        "deadletter.topic": source.dead_letters,
    }
    options |= {key: value for key, value in named.items() if value is not None}
    return options | {key: option_text(value) for key, value in source.options.items()}


def kafka_options(loaded: "LoadedPipeline") -> dict[str, str]:
    """Of any source or sink that is a topic."""
    kafka = loaded.pipeline.kafka
    given = {f"kafka.{key}": option_text(value) for key, value in kafka.options.items()}
    return {"kafka.bootstrap.servers": kafka.bootstrap, **given}


def option_text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
