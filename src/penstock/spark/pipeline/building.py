"""From a loaded pipeline to DataFrames: the sources and steps behind one sink.

Called by pipeline.running for each sink, and by pipeline.schemas. Steps see each other as temporary views of a session
that is the pipeline's alone. What Spark has to say against a step is told with the step's name, file and line.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.spark.errors import BadPipeline, is_unreachable
from penstock.spark.pipeline.code import NoSuchCode, load_code, parameters_of
from penstock.spark.pipeline.durations import interval
from penstock.spark.pipeline.failures import CannotStart, clean_message
from penstock.spark.pipeline.graph import SESSION_PARAMETER
from penstock.spark.pipeline.loading import LoadedPipeline
from penstock.spark.pipeline.model_steps import Join, Stateful, Step, Window
from penstock.spark.pipeline.reading import open_source, with_watermark
from penstock.spark.pipeline.text import DataPath
from penstock.spark.pipeline.topic_options import option_text
from penstock.spark.registration import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_TIME_MODES = {"none": "None", "processing": "ProcessingTime", "event": "EventTime"}
_POSITION = re.compile(r"\bline (\d+),? pos(?:ition)? (\d+)")


def pipeline_session(spark: "SparkSession", loaded: LoadedPipeline) -> "SparkSession":
    """A session of its own: its views and settings are nobody else's."""
    session = spark.newSession()
    register(session)
    for key, value in loaded.pipeline.spark.conf.items():
        # Those that only count when Spark starts were given to it then.
        if session.conf.isModifiable(key):
            session.conf.set(key, option_text(value))
    is_stateful = any(step.stateful is not None for step in loaded.pipeline.steps.values())
    if is_stateful and STATE_STORE not in loaded.pipeline.spark.conf:
        # transformWithState keeps several columns of state, which only this store can.
        session.conf.set(STATE_STORE, ROCKS_DB)
    return session


def build_frames(
    session: "SparkSession", loaded: LoadedPipeline, names: set[str], query: str
) -> "dict[str, DataFrame]":
    """DataFrames of the sources and steps in `names` (which must hold all that they read)."""
    frames: dict[str, DataFrame] = {}
    for name in (*loaded.pipeline.sources, *loaded.graph.order):
        if name not in names:
            continue
        if name in loaded.pipeline.sources:
            with _blamed_on(loaded, f"source `{name}`", ("sources", name)):
                frames[name] = open_source(session, loaded, name, query)
        else:
            step = loaded.pipeline.steps[name]
            with _blamed_on(loaded, f"step `{name}`", ("steps", name, step.kind)):
                frames[name] = with_watermark(_build_step(session, loaded, name, step, frames), step.watermark)
        frames[name].createOrReplaceTempView(name)
    return frames


def _build_step(
    session: "SparkSession", loaded: LoadedPipeline, name: str, step: Step, frames: "dict[str, DataFrame]"
) -> "DataFrame":
    if step.sql is not None:
        return session.sql(step.sql)
    if step.python is not None:
        return _call(session, loaded, name, step, frames)
    if step.join is not None:
        return _join(step.join, frames)
    assert step.input is not None
    df = frames[step.input]
    if step.select is not None:
        return df.selectExpr(*step.select)
    if step.deduplicate is not None:
        keys = step.deduplicate.keys
        return df.dropDuplicatesWithinWatermark(keys) if step.deduplicate.within_watermark else df.dropDuplicates(keys)
    if step.window is not None:
        return _window(df, step.window)
    assert step.stateful is not None
    return _stateful(loaded, df, step.stateful)


def _call(
    session: "SparkSession", loaded: LoadedPipeline, name: str, step: Step, frames: "dict[str, DataFrame]"
) -> "DataFrame":
    from pyspark.sql import DataFrame

    assert step.python is not None
    function: Any = load_code(step.python, loaded.folder)
    parameters = parameters_of(step.python, loaded.folder).names
    keywords: dict[str, Any] = dict(step.args or {})
    if SESSION_PARAMETER in parameters:
        keywords[SESSION_PARAMETER] = session
    inputs = loaded.graph.inputs[name]
    if step.inputs is not None:
        made = function(*(frames[one] for one in step.inputs), **keywords)
    else:
        by_lower = {one.lower(): one for one in inputs}
        named = {one: frames[by_lower[one.lower()]] for one in parameters if one.lower() in by_lower}
        made = function(**named, **keywords)
    if not isinstance(made, DataFrame):
        raise NoSuchCode(f"{step.python} must return a DataFrame; it returned {type(made).__name__}")
    return made


def _join(join: Join, frames: "dict[str, DataFrame]") -> "DataFrame":
    from pyspark.sql import functions

    left, right = frames[join.left].alias(join.left), frames[join.right].alias(join.right)
    condition: Any = functions.expr(join.on) if isinstance(join.on, str) else join.on
    joined = left.join(right, condition, join.type)
    return joined if join.select is None else joined.selectExpr(*join.select)


def _window(df: "DataFrame", window: Window) -> "DataFrame":
    from pyspark.sql import functions

    span = functions.window(window.column, interval(window.size), interval(window.slide or window.size))
    aggregates = [functions.expr(text).alias(name) for name, text in window.aggregate.items()]
    grouped = df.groupBy(span, *window.by).agg(*aggregates)
    return grouped.select("window.start", "window.end", *window.by, *window.aggregate)


def _stateful(loaded: LoadedPipeline, df: "DataFrame", stateful: Stateful) -> "DataFrame":
    processor: Any = load_code(stateful.processor, loaded.folder)(**stateful.args)
    groups = df.groupBy(*stateful.key)
    transform = groups.transformWithState if stateful.rows == "row" else groups.transformWithStateInPandas
    return transform(
        processor,
        stateful.schema_,
        stateful.output.capitalize(),
        _TIME_MODES[stateful.time],
        eventTimeColumnName=stateful.event_time,
    )


@contextmanager
def _blamed_on(loaded: LoadedPipeline, what: str, path: DataPath) -> Generator[None]:
    try:
        yield
    except (BadPipeline, CannotStart):
        raise
    except PenstockError as fault:
        kind = CannotStart if is_unreachable(fault) else BadPipeline
        raise kind(f"{loaded.document.where(path)}: {what}: {fault}") from fault
    except Exception as fault:
        if is_unreachable(fault):
            # A registry that is down is nobody's mistake in the file.
            raise CannotStart(f"{loaded.document.where(path)}: {what}: {clean_message(fault)}") from fault
        # Whatever the user's code raises is the user's to read: its kind and its message, at the step's line.
        message = str(fault)
        found = _POSITION.search(message)
        if found is not None and path[-1] == "sql":
            where = loaded.document.line_in(path, int(found.group(1)), int(found.group(2)) + 1)
        else:
            where = loaded.document.where(path)
        raise BadPipeline(f"{where}: {what}: {clean_message(fault)}") from fault
