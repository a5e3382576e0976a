"""From .proto source to a checked descriptor: parse, link, understand options, check, load.

Called by __init__ (schemas) and imports (known files).
"""

from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from penstock.schemas.protobuf.checking import check
from penstock.schemas.protobuf.imports import Imports
from penstock.schemas.protobuf.interpreting import interpret
from penstock.schemas.protobuf.linking import link
from penstock.schemas.protobuf.names import Scope
from penstock.schemas.protobuf.parsed_file import Path
from penstock.schemas.protobuf.parser import parse_source
from penstock.schemas.protobuf.pools import build_pool
from penstock.schemas.protobuf.ranges import FIELD_NUMBER_MAX, MESSAGE_SET_NUMBER_MAX, OPEN


@dataclass(frozen=True, slots=True)
class Compiled:
    file: FileDescriptorProto
    files: dict[str, FileDescriptorProto]
    pool: Any
    scope: Scope
    docs: dict[Path, str]


def compile_source(text: str, imports: Imports) -> Compiled:
    parsed = parse_source(text)
    file = parsed.file
    files = imports.needed_by(file)
    scopes = link(parsed, files)
    interpret(parsed, scopes.options, lambda: build_pool(_with_ends(file), files, has_options=True))
    for message in file.message_type:
        _close_ranges(message)
    check(parsed, files)
    if file.syntax == "proto2":
        # Descriptors name no syntax where it is the oldest.
        file.ClearField("syntax")
    return Compiled(file, files, build_pool(file, files), scopes.options, parsed.docs)


def _with_ends(file: FileDescriptorProto) -> FileDescriptorProto:
    copy = FileDescriptorProto()
    copy.CopyFrom(file)
    for message in copy.message_type:
        _close_ranges(message)
    return copy


def _close_ranges(message: DescriptorProto) -> None:
    last = MESSAGE_SET_NUMBER_MAX if message.options.message_set_wire_format else FIELD_NUMBER_MAX
    for one in (*message.extension_range, *message.reserved_range):
        if one.end == OPEN:
            one.end = last + 1
    for nested in message.nested_type:
        _close_ranges(nested)
