"""The whole of a pipeline file, typed.

Called by pipeline.loading, which turns what does not fit into sentences with lines; all other files of the room trust
a Pipeline.
"""

from typing import Annotated, Any, NamedTuple, cast

from pydantic import BeforeValidator, Field, StringConstraints

from penstock.spark.pipeline.durations import DurationMs, parse_duration_ms
from penstock.spark.pipeline.model_sinks import Sink
from penstock.spark.pipeline.model_sources import Scalar, Source, Strict
from penstock.spark.pipeline.model_steps import Step

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
PipelineName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]


class Trigger(NamedTuple):
    """When a batch begins: as soon as the last one is done (neither), every so often, or until the end and no more."""

    every_ms: int | None = None
    is_once: bool = False


def _read_trigger(value: Any) -> Any:
    if isinstance(value, Trigger):
        return value
    if value == "continuous":
        return Trigger()
    if value == "once":
        return Trigger(is_once=True)
    given = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    if isinstance(value, str) and value.startswith("every "):
        given = {"every": value.removeprefix("every ")}  # as `--set trigger="every 10s"` has it
    if list(given) == ["every"]:
        every_ms = parse_duration_ms(given["every"])
        if every_ms > 0:
            return Trigger(every_ms=every_ms)
    raise ValueError("write `once`, `continuous`, or `every: 10s` below it")


class Kafka(Strict):
    """Where topics are. `options` are the client's own, as security.protocol; a source or sink may say otherwise."""

    bootstrap: str = "127.0.0.1:9092"
    options: dict[str, Scalar] = Field(default_factory=dict[str, Scalar])


class Restarts(Strict):
    """How a failed query is tried again: so often in a row, with pauses that double. A batch that succeeds forgives."""

    attempts: int = Field(default=0, ge=0, le=1_000_000)
    first_pause: DurationMs = 1000
    longest_pause: DurationMs = 60_000


def _read_restarts(value: Any) -> Any:
    return {"attempts": value} if isinstance(value, int | str) and not isinstance(value, bool) else value


class SparkSettings(Strict):
    master: str | None = None
    conf: dict[str, Scalar] = Field(default_factory=dict[str, Scalar])


class Pipeline(Strict):
    name: PipelineName
    checkpoint: str
    kafka: Kafka = Kafka()
    trigger: Annotated[Trigger, BeforeValidator(_read_trigger)] = Trigger()
    restarts: Annotated[Restarts, BeforeValidator(_read_restarts)] = Restarts()
    spark: SparkSettings = SparkSettings()
    sources: dict[Name, Source] = Field(min_length=1)
    steps: dict[Name, Step] = Field(default_factory=dict[Name, Step])
    sinks: dict[Name, Sink] = Field(min_length=1)
