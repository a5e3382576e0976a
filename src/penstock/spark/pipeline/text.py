"""A YAML file as plain data that knows where each value stands.

Called by pipeline.loading. Laws:
- Only data: no tags, no aliases (a few lines of them unfold into gigabytes), one document, bounded size and depth.
- Keys are text as written, so that `on:` is a key and not YAML 1.1's "true"; `010` and `1:30` are text too.
- Every key and value has a Place; a path is the tuple of keys and list positions that leads to it.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from penstock.spark.errors import BadPipeline

FILE_BYTES_MAX = 256 * 1024
DEPTH_MAX = 20

_WHOLE = re.compile(r"[-+]?(0|[1-9]\d*)")
_REAL = re.compile(r"[-+]?(0|[1-9]\d*)?\.\d+([eE][-+]?\d+)?|[-+]?(0|[1-9]\d*)[eE][-+]?\d+")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None, "True": True, "False": False, "Null": None}

# libyaml's is ten times faster, which a large file notices; not every PyYAML was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

DataPath = tuple[str | int, ...]


class Place(NamedTuple):
    """Counted from 1. A literal block's (`|`) text begins on the line below, indented by `indent`."""

    line: int
    column: int
    is_literal: bool = False
    indent: int = 0


@dataclass
class Document:
    """What a file holds, and where. `labels` are places that are not in the file (values given on the command line)."""

    file: str
    data: Any
    values: dict[DataPath, Place] = field(default_factory=dict[DataPath, Place])
    keys: dict[DataPath, Place] = field(default_factory=dict[DataPath, Place])
    labels: dict[DataPath, str] = field(default_factory=dict[DataPath, str])

    def where(self, path: DataPath, *, at_key: bool = True) -> str:
        """`FILE:LINE:COLUMN` of the path, or of the nearest thing around it that is there."""
        for length in range(len(path), -1, -1):
            part = path[:length]
            if part in self.labels:
                return self.labels[part]
            place = (self.keys.get(part) if at_key else None) or self.values.get(part)
            if place is not None:
                return f"{self.file}:{place.line}:{place.column}"
        return self.file

    def line_in(self, path: DataPath, line: int, column: int) -> str:
        """Where line and column (from 1) of a text value are in the file; a folded text only knows its beginning."""
        place = self.values.get(path)
        if path in self.labels or place is None or not (place.is_literal or line == 1):
            return self.where(path, at_key=False)
        if place.is_literal:
            return f"{self.file}:{place.line + line}:{place.indent + column}"
        return f"{self.file}:{place.line}:{place.column + column - 1}"


def read_document(file: Path) -> Document:
    try:
        with file.open("rb") as stream:
            raw = stream.read(FILE_BYTES_MAX + 1)
    except OSError as fault:
        raise BadPipeline(f"{file}: the file cannot be read ({fault.strerror or fault})") from None
    if len(raw) > FILE_BYTES_MAX:
        raise BadPipeline(f"{file}: the file is larger than {FILE_BYTES_MAX // 1024} KiB; no pipeline needs that much")
    try:
        text = raw.decode()
    except UnicodeDecodeError as fault:
        raise BadPipeline(f"{file}: byte {fault.start} is not UTF-8; save the file as UTF-8 text") from None
    return parse_document(text, str(file))


def parse_document(text: str, file: str) -> Document:
    document = Document(file, None)
    try:
        _refuse_hostile(text, file)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark is not None else file
        raise BadPipeline(f"{where}: this is not YAML: {fault.problem or fault.context}") from None
    except yaml.YAMLError as fault:
        raise BadPipeline(f"{file}: this is not YAML: {str(fault).splitlines()[0]}") from None
    if node is None:
        raise BadPipeline(f"{file}: the file is empty")
    # The marks only know where a literal's header is; its indentation is that of its first line with text.
    document.data = _plain(node, (), document, text.splitlines())
    return document


def _refuse_hostile(text: str, file: str) -> None:
    """Looks at the events only, which cost what the text costs: nothing has been unfolded or nested yet."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        where = f"{file}:{event.start_mark.line + 1}:{event.start_mark.column + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise BadPipeline(f"{where}: aliases (*{event.anchor}) are not taken; write the value out")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise BadPipeline(f"{where}: a second document begins here; one file holds one pipeline")
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag not in (None, "!"):
            raise BadPipeline(f"{where}: tags ({event.tag}) are not taken; write plain text or a number")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise BadPipeline(f"{where}: nested more than {DEPTH_MAX} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _plain(node: yaml.Node, path: DataPath, document: Document, lines: list[str]) -> Any:
    document.values[path] = _place(node, lines)
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, value in node.value:
            where = f"{document.file}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise BadPipeline(f"{where}: a key must be plain text")
            name = str(key.value)
            if name in found:
                first = document.keys[(*path, name)]
                raise BadPipeline(f"{where}: `{name}` stands here twice; the first is on line {first.line}")
            document.keys[(*path, name)] = _place(key, lines)
            found[name] = _plain(value, (*path, name), document, lines)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, slot), document, lines) for slot, item in enumerate(node.value)]
    assert isinstance(node, yaml.ScalarNode)
    return _scalar(str(node.value), is_plain=not node.style)


def _scalar(text: str, *, is_plain: bool) -> Any:
    if not is_plain:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text) and len(text) < 30:
        return int(text)
    return float(text) if _REAL.fullmatch(text) else text


def _place(node: yaml.Node, lines: list[str]) -> Place:
    line, column = node.start_mark.line + 1, node.start_mark.column + 1
    if not isinstance(node, yaml.ScalarNode) or node.style != "|":
        return Place(line, column)
    first = next((text for text in lines[line:] if text.strip()), "")
    return Place(line, column, is_literal=True, indent=len(first) - len(first.lstrip()))
