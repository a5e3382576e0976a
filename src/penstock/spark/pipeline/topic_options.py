"""What a pipeline file says of topics, as options of the data source `penstock`, and what that source has against them.

Called by pipeline.reading and pipeline.writing, and by pipeline.loading, so that `validate` finds what would only fail
when a query starts. Needs neither Spark nor a broker.
"""

from typing import TYPE_CHECKING

from penstock.spark.errors import BadOption
from penstock.spark.options import read_options
from penstock.spark.pipeline.model_sources import Scalar, Source, start_options
from penstock.spark.pipeline.text import DataPath

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


def option_problems(loaded: "LoadedPipeline") -> list[str]:
    """What the source would refuse, each at its place in the file."""
    problems: dict[str, None] = {}
    for name, source in loaded.pipeline.sources.items():
        if source.files is not None or source.postgres is not None:
            continue
        try:
            read_options(topic_options(loaded, source, loaded.pipeline.name), is_streaming=source.is_streaming)
        except BadOption as fault:
            path = _blamed(loaded, name, str(fault).lower())
            # What is said of all topics is said once, whichever of them it was found by.
            whose = f"source `{name}`: " if path[0] == "sources" else ""
            problems[f"{loaded.document.where(path)}: {whose}{fault}"] = None
    return list(problems)


def _blamed(loaded: "LoadedPipeline", name: str, sentence: str) -> DataPath:
    """The option that the sentence names; else the source as a whole."""
    places: dict[str, DataPath] = {
        "starting": ("sources", name, "start"),
        "kafka.bootstrap.servers": ("kafka", "bootstrap"),
        **{f"kafka.{key}".lower(): ("kafka", "options", key) for key in loaded.pipeline.kafka.options},
        **{key.lower(): ("sources", name, "options", key) for key in loaded.pipeline.sources[name].options},
    }
    named = [option for option in places if option in sentence]
    return places[max(named, key=len)] if named else ("sources", name)
