"""Every name of a file given its full meaning: no name twice, each type found, each default of its field's type.

Called by compiling after the parser. Afterwards type names are absolute (".pkg.Type") and every field has its type.
"""

import math
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from penstock.schemas.protobuf.imports import Files, option_dependencies, visible
from penstock.schemas.protobuf.literals import double_text, escape_bytes, float_text
from penstock.schemas.protobuf.names import Scope, Symbols, Thing, definitions, packages, symbols_of
from penstock.schemas.protobuf.option_syntax import Value
from penstock.schemas.protobuf.parsed_file import (
    FILE_EXTENSION,
    FILE_MESSAGE,
    FILE_SERVICE,
    MESSAGE_EXTENSION,
    MESSAGE_FIELD,
    MESSAGE_NESTED,
    SERVICE_METHOD,
    ParsedFile,
    Path,
)

F = FieldDescriptorProto
INTEGER_RANGES: dict[Any, tuple[int, int]] = {
    F.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    F.TYPE_SINT32: (-(1 << 31), (1 << 31) - 1),
    F.TYPE_SFIXED32: (-(1 << 31), (1 << 31) - 1),
    F.TYPE_UINT32: (0, (1 << 32) - 1),
    F.TYPE_FIXED32: (0, (1 << 32) - 1),
    F.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    F.TYPE_SINT64: (-(1 << 63), (1 << 63) - 1),
    F.TYPE_SFIXED64: (-(1 << 63), (1 << 63) - 1),
    F.TYPE_UINT64: (0, (1 << 64) - 1),
    F.TYPE_FIXED64: (0, (1 << 64) - 1),
}


class Linked:
    """What a file's own names and its imports' say: one scope for types, one for options."""

    def __init__(self, types: Scope, options: Scope) -> None:
        self.types = types
        self.options = options


def link(parsed: ParsedFile, files: Files) -> Linked:
    """Resolve all names in place; `files`: everything the file imports, directly or not."""
    scopes = _scopes(parsed, files)
    linker = _Linker(parsed, scopes.types)
    file = parsed.file
    package = file.package
    for index, message in enumerate(file.message_type):
        linker.message(message, _join(package, message.name), (FILE_MESSAGE, index))
    for index, field in enumerate(file.extension):
        linker.field(field, _join(package, field.name), (FILE_EXTENSION, index))
    for index, service in enumerate(file.service):
        for place, method in enumerate(service.method):
            element = f"{_join(package, service.name)}.{method.name}"
            path = (FILE_SERVICE, index, SERVICE_METHOD, place)
            method.input_type = linker.message_name(method.input_type, element, path)
            method.output_type = linker.message_name(method.output_type, element, path)
    for field, value in parsed.defaults:
        field.default_value = _default(parsed, scopes.types, field, value)
    return scopes


def _scopes(parsed: ParsedFile, files: Files) -> Linked:
    file = parsed.file
    own: dict[str, Thing] = dict.fromkeys(packages(file), Thing.PACKAGE)
    for one in definitions(file):
        if one.name in own:
            what = "a package" if own[one.name] is Thing.PACKAGE else "something else"
            parsed.refuse(one.path, f"{one.name!r} is already the name of {what} in this schema")
        own[one.name] = one.thing
    for name, other in files.items():
        # Two files may share packages, nothing else.
        theirs = symbols_of(other.SerializeToString(deterministic=True))
        for clash in own.keys() & theirs.keys():
            if own[clash] is not Thing.PACKAGE or theirs[clash] is not Thing.PACKAGE:
                path = next((one.path for one in definitions(file) if one.name == clash), ())
                parsed.refuse(path, f"{clash!r} is already defined in the imported {name!r}")
    return scopes_of(file, files, own)


def scopes_of(file: FileDescriptorProto, files: Files, own: Symbols) -> Linked:
    """What `file` can see: its own names and those of what it imports."""
    types = dict(own)
    for name in visible(file, files):
        types.update(symbols_of(files[name].SerializeToString(deterministic=True)))
    extra = option_dependencies(file)
    if not extra:
        return Linked(Scope(types), Scope(types))
    options = dict(types)
    for name in extra:
        options.update(symbols_of(files[name].SerializeToString(deterministic=True)))
    return Linked(Scope(types), Scope(options))


class _Linker:
    def __init__(self, parsed: ParsedFile, scope: Scope) -> None:
        self._parsed = parsed
        self._scope = scope

    def message(self, message: DescriptorProto, name: str, path: Path) -> None:
        for index, field in enumerate(message.field):
            self.field(field, f"{name}.{field.name}", (*path, MESSAGE_FIELD, index))
        for index, field in enumerate(message.extension):
            self.field(field, f"{name}.{field.name}", (*path, MESSAGE_EXTENSION, index))
        for index, nested in enumerate(message.nested_type):
            self.message(nested, f"{name}.{nested.name}", (*path, MESSAGE_NESTED, index))

    def field(self, field: FieldDescriptorProto, element: str, path: Path) -> None:
        if field.extendee:
            field.extendee = self.message_name(field.extendee, element, path)
        if not field.type_name:
            return
        found = self._scope.resolve(field.type_name, element, is_type=True)
        thing = None if found is None else self._scope.thing(found)
        if thing is Thing.ENUM and field.type != F.TYPE_GROUP:
            field.type = F.TYPE_ENUM
        elif thing is Thing.MESSAGE:
            if field.type != F.TYPE_GROUP:
                field.type = F.TYPE_MESSAGE
        else:
            self._parsed.refuse(path, self._unknown(field.type_name, found))
        field.type_name = f".{found}"

    def message_name(self, name: str, element: str, path: Path) -> str:
        found = self._scope.resolve(name, element)
        if found is None or self._scope.thing(found) is not Thing.MESSAGE:
            self._parsed.refuse(path, self._unknown(name, found, "message"))
        return f".{found}"

    def _unknown(self, name: str, found: str | None, what: str = "type") -> str:
        if found is not None:
            return f"{name!r} is no {what}"
        return f"the type {name!r} is not known here; define it, or import the file that does"


def _default(parsed: ParsedFile, scope: Scope, field: FieldDescriptorProto, value: Value) -> str:
    refuse = parsed.words.refuse
    data: Any = value.data
    if field.label == F.LABEL_REPEATED:
        refuse("a repeated field has no default", value.start)
    match field.type:
        case F.TYPE_STRING if value.kind == "string":
            try:
                return data.decode()
            except UnicodeDecodeError:
                return refuse("the default is no UTF-8 text", value.start)
        case F.TYPE_BYTES if value.kind == "string":
            return escape_bytes(data)
        case F.TYPE_BOOL if value.kind == "name" and data in ("true", "false"):
            return data
        case F.TYPE_FLOAT | F.TYPE_DOUBLE:
            number = _float(value)
            if number is not None:
                return float_text(number) if field.type == F.TYPE_FLOAT else double_text(number)
        case F.TYPE_ENUM if value.kind == "name":
            # Values stand beside their enum.
            around = field.type_name[1:].rpartition(".")[0]
            if scope.thing(_join(around, data)) is Thing.VALUE:
                return data
            return refuse(f"{field.type_name[1:]} has no value {data!r}", value.start)
        case _ if value.kind == "integer" and field.type in INTEGER_RANGES:
            low, high = INTEGER_RANGES[field.type]
            if not low <= data <= high:
                refuse(f"the default of {field.name!r} must lie between {low} and {high}", value.start)
            return str(data)
        case _:
            pass
    return refuse(f"this is no default for {field.name!r}, which is of another type", value.start)


def _float(value: Value) -> float | None:
    match value.kind:
        case "integer" | "float":
            try:
                return float(value.data)
            except OverflowError:
                return math.inf
        case "name" if value.data in ("inf", "nan"):
            return float(value.data)
        case _:
            return None


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
