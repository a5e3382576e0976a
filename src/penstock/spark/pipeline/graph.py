"""Who reads whom: names checked, cycles refused, an order in which everything can be built.

Called by pipeline.loading. Pure: a Pipeline and its Document in, a Graph or problems out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from penstock.spark.pipeline.code import NoSuchCode, parameters_of
from penstock.spark.pipeline.model import Pipeline
from penstock.spark.pipeline.model_steps import Step
from penstock.spark.pipeline.nearest import did_you_mean
from penstock.spark.pipeline.sql_names import QUERY_WORDS, first_word, tables_read, writing_word
from penstock.spark.pipeline.text import DataPath, Document

SESSION_PARAMETER = "spark"


@dataclass
class Graph:
    """`inputs` of each step in order; `order` lists steps after all that they read."""

    inputs: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    order: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])

    def needed_by(self, name: str) -> set[str]:
        """Everything that must be built for it, itself included."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self.inputs.get(one, ())
        return found


def connect(pipeline: Pipeline, document: Document, folder: Path) -> Graph:
    graph = Graph()
    known = {*pipeline.sources, *pipeline.steps}
    # SQL does not tell `Orders` from `orders`.
    by_lower = {name.lower(): name for name in known}
    _refuse_doubles(pipeline, document, graph)
    for name, step in pipeline.steps.items():
        path = ("steps", name)
        reads = _reads(name, step, document, folder, known, graph)
        inputs: list[str] = []
        for read, where in reads:
            actual = read if read in known else by_lower.get(read.lower(), read)
            if actual not in known:
                hint = did_you_mean(read, known - {name})
                graph.problems.append(f"{where}: step `{name}` reads `{read}`, which is no source or step{hint}")
            else:
                inputs.append(actual)
        if not inputs and not graph.problems:
            graph.problems.append(f"{document.where(path)}: step `{name}` reads nothing; name a source or step")
        graph.inputs[name] = tuple(dict.fromkeys(inputs))
    for name, sink in pipeline.sinks.items():
        if sink.input not in known:
            where = document.where(("sinks", name, "input"), at_key=False)
            hint = did_you_mean(sink.input, known)
            graph.problems.append(f"{where}: sink `{name}` reads `{sink.input}`, which is no source or step{hint}")
    _set_order(pipeline, document, graph)
    if not graph.problems:
        _check_flow(pipeline, document, graph)
        _warn_unused(pipeline, document, graph)
    return graph


def _reads(
    name: str, step: Step, document: Document, folder: Path, known: set[str], graph: Graph
) -> list[tuple[str, str]]:
    """The names a step reads, each with its place."""
    path: DataPath = ("steps", name)
    if step.inputs is not None:
        return [
            (one, document.where((*path, "inputs", slot), at_key=False)) for slot, one in enumerate(step.inputs)
        ] + _missing_code(step, path, document, folder, graph)
    if step.input is not None:
        graph_only = _missing_code(step, path, document, folder, graph)
        return [(step.input, document.where((*path, "input"), at_key=False)), *graph_only]
    if step.join is not None:
        sides = {"left": step.join.left, "right": step.join.right}
        return [(one, document.where((*path, "join", side), at_key=False)) for side, one in sides.items()]
    if step.sql is not None:
        first = first_word(step.sql)
        writes = writing_word(step.sql)
        if first not in QUERY_WORDS or writes:
            # Spark would run it at once, even to look at its columns.
            where = document.where((*path, "sql"), at_key=False)
            said = f"it has `{writes}` in it" if writes else f"it begins with `{first}`"
            graph.problems.append(f"{where}: step `{name}` must be a query, SELECT or WITH; {said}")
        reads = tables_read(step.sql)
        return [(one.name, document.line_in((*path, "sql"), one.line, one.column)) for one in reads]
    assert step.python is not None
    where = document.where((*path, "python"), at_key=False)
    try:
        parameters = parameters_of(step.python, folder)
    except NoSuchCode as fault:
        graph.problems.append(f"{where}: {fault}")
        return []
    given = step.args or {}
    return [
        (one, where)
        for one in parameters.names
        if one not in given and one != SESSION_PARAMETER and (one in known or one not in parameters.optional)
    ]


def _missing_code(step: Step, path: DataPath, document: Document, folder: Path, graph: Graph) -> list[tuple[str, str]]:
    """Nothing is read through code; but that it is there can be said now instead of after Spark has started."""
    code = step.python or (step.stateful.processor if step.stateful is not None else None)
    if code is None:
        return []
    try:
        parameters_of(code, folder)
    except NoSuchCode as fault:
        at = (*path, "python") if step.python is not None else (*path, "stateful", "processor")
        graph.problems.append(f"{document.where(at, at_key=False)}: {fault}")
    return []


def _refuse_doubles(pipeline: Pipeline, document: Document, graph: Graph) -> None:
    first: dict[str, DataPath] = {}
    for path in [("sources", name) for name in pipeline.sources] + [("steps", name) for name in pipeline.steps]:
        name = path[1].lower()
        if name in first:
            there = document.where(first[name])
            graph.problems.append(f"{document.where(path)}: the name `{path[1]}` is taken already, at {there}")
        first.setdefault(name, path)
    # A checkpoint is a folder, and not every file system tells `Table` from `table`.
    sinks: dict[str, str] = {}
    for name in pipeline.sinks:
        if name.lower() in sinks:
            graph.problems.append(f"{document.where(('sinks', name))}: the name `{name}` is taken already")
        sinks[name.lower()] = name


def _set_order(pipeline: Pipeline, document: Document, graph: Graph) -> None:
    try:
        order = TopologicalSorter(graph.inputs).static_order()
        graph.order = [name for name in order if name in pipeline.steps]
    except CycleError as fault:
        circle: list[str] = fault.args[1]
        where = document.where(("steps", circle[0]))
        graph.problems.append(f"{where}: the steps read each other in a circle: {' -> '.join(reversed(circle))}")


def streaming_names(pipeline: Pipeline, graph: Graph) -> set[str]:
    """The sources and steps that flow; the others are read once."""
    flowing = {name for name, source in pipeline.sources.items() if source.is_streaming}
    for name in graph.order:
        if flowing.intersection(graph.inputs[name]):
            flowing.add(name)
    return flowing


def _check_flow(pipeline: Pipeline, document: Document, graph: Graph) -> None:
    flowing = streaming_names(pipeline, graph)
    for name, sink in pipeline.sinks.items():
        if sink.input not in flowing:
            where = document.where(("sinks", name, "input"), at_key=False)
            graph.problems.append(
                f"{where}: sink `{name}` reads `{sink.input}`, which does not flow: a pipeline needs a topic, or files "
                "with `stream: true`, behind each sink"
            )
    for name, step in pipeline.steps.items():
        if name not in flowing and (step.watermark is not None or step.stateful is not None):
            graph.problems.append(
                f"{document.where(('steps', name))}: step `{name}` needs rows that flow, and all it reads is read once"
            )


def _warn_unused(pipeline: Pipeline, document: Document, graph: Graph) -> None:
    used: set[str] = set().union(*(graph.needed_by(sink.input) for sink in pipeline.sinks.values()))
    rooms: Mapping[str, Mapping[str, object]] = {"sources": pipeline.sources, "steps": pipeline.steps}
    for room, names in rooms.items():
        for name in names:
            if name not in used:
                kind = room.removesuffix("s")
                graph.warnings.append(f"{document.where((room, name))}: {kind} `{name}` leads to no sink")
