"""A pipeline file, read and checked: every mistake names its file, line and column, and the nearest known name.

Called by cli.pipeline and by whoever runs a pipeline from Python:

    loaded = load_pipeline(Path("orders.yaml"), settings={"checkpoint": "/data/checkpoints"})
"""

import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from penstock.spark.errors import BadPipeline
from penstock.spark.pipeline.graph import Graph, connect
from penstock.spark.pipeline.model import Pipeline
from penstock.spark.pipeline.nearest import did_you_mean
from penstock.spark.pipeline.option_checks import option_problems
from penstock.spark.pipeline.paths import resolve_path
from penstock.spark.pipeline.substitution import override, substitute
from penstock.spark.pipeline.text import DataPath, Document, parse_document, read_document

# pydantic's words for what is wrong, in ours. What a value is, is never quoted: it may be a password.
_SENTENCES = {
    "missing": "is missing",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "dict_type": "must be names with values below it",
    "model_type": "must be names with values below it",
    "model_attributes_type": "must be names with values below it",
    "list_type": "must be a list",
    "too_short": "must not be empty",
}


@dataclass(frozen=True)
class LoadedPipeline:
    pipeline: Pipeline
    graph: Graph
    document: Document
    folder: Path

    def resolve(self, path: str) -> str:
        """Paths in a file are meant from where the file is; those with a scheme (s3a://…) are nobody's to change."""
        return resolve_path(path, self.folder)

    @property
    def checkpoint(self) -> str:
        return self.resolve(self.pipeline.checkpoint)


def load_pipeline(
    file: Path, settings: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> LoadedPipeline:
    return _checked(read_document(file), file.parent.resolve(), settings, environment)


def parse_pipeline(
    text: str,
    folder: Path,
    file: str = "pipeline.yaml",
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedPipeline:
    """The same from a text."""
    return _checked(parse_document(text, file), folder.resolve(), settings, environment)


def _checked(
    document: Document, folder: Path, settings: Mapping[str, str] | None, environment: Mapping[str, str] | None
) -> LoadedPipeline:
    if not isinstance(document.data, dict):
        raise BadPipeline(f"{document.file}:1:1: a pipeline begins with names: name, checkpoint, sources, steps, sinks")
    override(document, settings or {})
    substitute(document, os.environ if environment is None else environment)
    try:
        pipeline = Pipeline.model_validate(document.data)
    except ValidationError as fault:
        # A union reports each of its ways to be right; one sentence a place is enough.
        problems = dict.fromkeys(_sentence(document, error) for error in fault.errors(include_url=False))
        raise BadPipeline("\n".join(problems)) from None
    graph = connect(pipeline, document, folder)
    loaded = LoadedPipeline(pipeline, graph, document, folder)
    if problems := [*graph.problems, *option_problems(loaded)]:
        raise BadPipeline("\n".join(problems))
    return loaded


def _sentence(document: Document, error: Any) -> str:
    kind: str = error["type"]
    path = _path_in(document.data, tuple(error["loc"]))
    name = ".".join(str(part) for part in path) or "the file"
    last = str(path[-1]) if path else ""
    if kind == "extra_forbidden":
        hint = did_you_mean(last, _known_below(path[:-1]))
        return f"{document.where(path)}: `{last}` is not known here{hint}"
    if kind == "missing":
        around = path[:-1]
        of = f" in {'.'.join(str(part) for part in around)}" if around else ""
        return f"{document.where(around)}: `{last}` is missing{of}"
    where = document.where(path, at_key=False)
    if kind == "literal_error":
        expected: str = error["ctx"]["expected"]
        allowed = [word.strip(" '") for part in expected.split(" or ") for word in part.split(",")]
        given = error["input"]
        hint = did_you_mean(given, allowed) if isinstance(given, str) else ""
        return f"{where}: `{name}` must be one of {', '.join(allowed)}{hint if '?' in hint else ''}"
    if kind == "string_pattern_mismatch":
        is_key = error["loc"][-1] == "[key]"
        return f"{document.where(path, at_key=is_key)}: {_pattern_sentence(name, error['loc'])}"
    if kind == "value_error":
        return f"{document.where(path)}: `{name}`: {error['ctx']['error']}"
    if kind in _SENTENCES:
        return f"{where}: `{name}` {_SENTENCES[kind]}"
    return f"{where}: `{name}`: {error['msg']}"


def _pattern_sentence(name: str, location: tuple[str | int, ...]) -> str:
    if location[-1] in {"python", "processor"}:
        return f"`{name}` must be written as module:name"
    if location[-1] == "[key]":
        return f"`{location[-2]}` cannot be a name here: letters, digits and _ only, and no digit first"
    return f"`{name}` may have letters, digits, `.`, `_` and `-` in it, and no more than 100 of them"


def _path_in(data: Any, location: tuple[str | int, ...]) -> DataPath:
    """pydantic's location without what it adds (the kinds of a union, `[key]`), so that it can be found in the file."""
    path: list[str | int] = []
    here: Any = data
    for slot, part in enumerate(location):
        is_there = (isinstance(here, dict) and part in here) or (
            isinstance(here, list) and isinstance(part, int) and part < len(here)
        )
        if is_there:
            path.append(part)
            here = cast(Any, here)[part]
        elif slot == len(location) - 1 and part != "[key]" and isinstance(here, dict):
            path.append(part)
    return tuple(path)


def _known_below(path: DataPath) -> list[str]:
    """The names that the model takes at a path."""
    here: Any = Pipeline
    for part in path:
        here = _model_of(here)
        if isinstance(here, type) and issubclass(here, BaseModel):
            fields = {(field.alias or name): field.annotation for name, field in here.model_fields.items()}
            here = fields.get(str(part))
        elif typing.get_origin(here) is dict:
            here = typing.get_args(here)[1]
        elif typing.get_origin(here) is list:
            here = typing.get_args(here)[0]
        else:
            return []
    here = _model_of(here)
    if isinstance(here, type) and issubclass(here, BaseModel):
        return [field.alias or name for name, field in here.model_fields.items()]
    return []


def _model_of(annotation: Any) -> Any:
    """`X | None` and `Annotated[X, …]` are X here."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _model_of(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(one for one in typing.get_args(annotation) if one is not type(None))
    return annotation
