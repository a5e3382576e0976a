"""What sources and sinks would refuse when a query starts, said of the file instead, each at its place.

Called by pipeline.loading, so that `validate` finds it. Needs neither Spark nor a broker.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.spark.errors import BadOption
from penstock.spark.formats.options import FORMAT_OPTION_NAMES
from penstock.spark.option_table import BY_LOWER_NAME, WRITE
from penstock.spark.options import read_options, write_options
from penstock.spark.pipeline.model_sinks import TABLE_KINDS, Sink
from penstock.spark.pipeline.sink_options import table_options, written_topic_options
from penstock.spark.pipeline.text import DataPath
from penstock.spark.pipeline.topic_options import topic_options
from penstock.spark.sink.producer_config import producer_config
from penstock.spark.tables.options import sink_options

if TYPE_CHECKING:
    from penstock.spark.pipeline.loading import LoadedPipeline

_ROOMS = {"sources": "source", "sinks": "sink"}
_NOT_FOR_WRITING = {name.lower() for name in FORMAT_OPTION_NAMES} | {
    name for name, option in BY_LOWER_NAME.items() if not option.scopes & WRITE
}


def option_problems(loaded: "LoadedPipeline") -> list[str]:
    # What is said of all topics is said once, whichever of them it was found by.
    problems: dict[str, None] = {}
    name_of_all = loaded.pipeline.name
    for name, source in loaded.pipeline.sources.items():
        if source.files is None and source.postgres is None:
            places = _places(("sources", name, "options"), source.options)
            places["starting"] = ("sources", name, "start")
            with _told_at(loaded, ("sources", name), places | _places_of_all(loaded), problems):
                read_options(topic_options(loaded, source, name_of_all), is_streaming=source.is_streaming)
    for name, sink in loaded.pipeline.sinks.items():
        if sink.topic is not None:
            places = _places(("sinks", name, "options"), sink.options)
            with _told_at(loaded, ("sinks", name), places | _places_of_all(loaded), problems):
                _refuse_reading(sink)
                # Acks and time-outs too, as the query would when it starts.
                producer_config(write_options(written_topic_options(loaded, sink, name_of_all)), None)
        elif sink.kind in TABLE_KINDS:
            table = sink.delta or sink.iceberg or sink.parquet or sink.postgres
            assert table is not None
            places = _places(("sinks", name, sink.kind, "options"), table.options)
            with _told_at(loaded, ("sinks", name, sink.kind), places, problems):
                sink_options(sink.kind, table_options(loaded, sink))
    return list(problems)


def _refuse_reading(sink: Sink) -> None:
    """The data source lets them pass, as Spark's own does; in a file, `value.format` of a sink would be believed."""
    for name in sink.options:
        if name.lower() in _NOT_FOR_WRITING:
            raise BadOption(f"{name} is an option of sources, and has no effect on a topic that is written")


def _places(path: DataPath, options: Mapping[str, object]) -> dict[str, DataPath]:
    return {key.lower(): (*path, key) for key in options}


def _places_of_all(loaded: "LoadedPipeline") -> dict[str, DataPath]:
    given: dict[str, DataPath] = {
        f"kafka.{key}".lower(): ("kafka", "options", key) for key in loaded.pipeline.kafka.options
    }
    return {"kafka.bootstrap.servers": ("kafka", "bootstrap"), **given}


@contextmanager
def _told_at(
    loaded: "LoadedPipeline", whose: DataPath, places: Mapping[str, DataPath], problems: dict[str, None]
) -> Generator[None]:
    """At the option that the sentence names; else at the source or sink as a whole."""
    try:
        yield
    except BadOption as fault:
        sentence = str(fault).lower()
        named = [option for option in places if option in sentence]
        path = places[max(named, key=len)] if named else whose
        owner = f"{_ROOMS[str(path[0])]} `{path[1]}`: " if path[0] in _ROOMS else ""
        problems[f"{loaded.document.where(path)}: {owner}{fault}"] = None
