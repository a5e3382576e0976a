"""Schemas that arrive as descriptors: base64 of a FileDescriptorProto, as most clients but Java's register them.

read_descriptor() gives the source that says the same; from there they go the way of all schemas, so that one schema
has one text whichever client brought it. A descriptor that no source can say is refused.
"""

import base64
import binascii
import re
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from penstock.schemas.protobuf.checking_names import json_name
from penstock.schemas.protobuf.imports import DESCRIPTOR_FILE, Imports
from penstock.schemas.protobuf.linking import scopes_of
from penstock.schemas.protobuf.names import Thing, definitions, packages
from penstock.schemas.protobuf.option_text import OptionPrinter
from penstock.schemas.protobuf.parsed_file import Path
from penstock.schemas.protobuf.pools import build_pool
from penstock.schemas.protobuf.printer import print_file
from penstock.schemas.schema import SchemaError

# No source of any use is without a semicolon and braces, which base64 does not have. One of comments alone is.
_BASE64 = re.compile(r"\s*[A-Za-z0-9+][A-Za-z0-9+/\s]*={0,2}\s*")


def is_encoded(text: str) -> bool:
    return _BASE64.fullmatch(text) is not None


def encode(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def decode(text: str) -> FileDescriptorProto:
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
        file = FileDescriptorProto.FromString(raw)
    except (binascii.Error, ValueError, DecodeError) as error:
        raise SchemaError(
            "the schema is neither .proto source nor a FileDescriptorProto in base64; send one of them"
        ) from error
    # Said to be empty is not said.
    for name in ("syntax", "package"):
        if not getattr(file, name):
            file.ClearField(name)
    return file


def source_of(file: FileDescriptorProto, imports: Imports) -> str:
    """The source that says what a foreign descriptor says."""
    if file.syntax not in ("", "proto2", "proto3", "editions"):
        raise SchemaError(f"the descriptor's syntax {file.syntax!r} is not known")
    files = imports.needed_by(file)
    pool = build_pool(file, files)
    own = dict.fromkeys(packages(file), Thing.PACKAGE) | {one.name: one.thing for one in definitions(file)}
    scope = scopes_of(file, files, own).options
    try:
        return print_file(file, OptionPrinter(pool if DESCRIPTOR_FILE in files else None, scope))
    except (KeyError, ValueError, IndexError) as error:
        raise SchemaError("the descriptor has parts that no .proto source can say") from error


def is_same(given: FileDescriptorProto, compiled: FileDescriptorProto) -> bool:
    """Whether two descriptors have the same types, names and numbers; options and defaults aside."""
    return _bare(given) == _bare(compiled)


def docs_of(file: FileDescriptorProto) -> dict[Path, str]:
    """The comments that came along."""
    found: dict[Path, str] = {}
    for location in file.source_code_info.location:
        text = (location.leading_comments or location.trailing_comments).strip()
        if text:
            found[tuple(location.path)] = text
    return found


def _bare(file: FileDescriptorProto) -> FileDescriptorProto:
    bare = FileDescriptorProto()
    bare.CopyFrom(file)
    for name in ("name", "options", "source_code_info", "public_dependency", "weak_dependency"):
        bare.ClearField(name)
    if bare.syntax == "proto2":
        bare.ClearField("syntax")
    del bare.dependency[:]
    for message in bare.message_type:
        _bare_message(message)
    for enum in bare.enum_type:
        _bare_enum(enum)
    for service in bare.service:
        service.ClearField("options")
        for method in service.method:
            method.ClearField("options")
            method.client_streaming = method.client_streaming
            method.server_streaming = method.server_streaming
    _bare_fields(bare.extension)
    return bare


def _bare_message(message: DescriptorProto) -> None:
    is_entry = message.options.map_entry
    message.ClearField("options")
    message.options.map_entry = is_entry
    real = {field.oneof_index for field in message.field if field.HasField("oneof_index") and not field.proto3_optional}
    del message.oneof_decl[len(real) :]
    for oneof in message.oneof_decl:
        oneof.ClearField("options")
    for one in message.extension_range:
        one.ClearField("options")
    _bare_fields(message.field)
    _bare_fields(message.extension)
    for nested in message.nested_type:
        _bare_message(nested)
    for enum in message.enum_type:
        _bare_enum(enum)


def _bare_enum(enum: Any) -> None:
    enum.ClearField("options")
    for value in enum.value:
        value.ClearField("options")


def _bare_fields(fields: Any) -> None:
    for field in fields:
        _bare_field(field)
    fields.sort(key=_place)


def _place(field: FieldDescriptorProto) -> tuple[str, int]:
    return field.extendee, field.number


def _bare_field(field: FieldDescriptorProto) -> None:
    field.ClearField("options")
    field.ClearField("default_value")
    if field.json_name == json_name(field.name):
        field.ClearField("json_name")
    field.label = field.label
    if field.proto3_optional:
        field.ClearField("oneof_index")
