"""A descriptor as .proto source, in one spelling: what the registry keeps.

print_file() is called by __init__ and normalizing. Laws:
- Parsing the text gives the descriptor back: the same types, in the same order among their kind.
- Comments are not kept; types have their full names; options stand in the order of their numbers.
"""

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from penstock.schemas.protobuf.checking_names import json_name
from penstock.schemas.protobuf.field_syntax import LABELS, SCALARS
from penstock.schemas.protobuf.literals import escape_bytes, quote_text, unescape
from penstock.schemas.protobuf.members import Group, Member, Members
from penstock.schemas.protobuf.option_text import OptionPrinter
from penstock.schemas.protobuf.parser import EDITIONS
from penstock.schemas.protobuf.ranges import FIELD_NUMBER_MAX, MESSAGE_SET_NUMBER_MAX

F = FieldDescriptorProto
_INT32_MAX = (1 << 31) - 1
SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
_LABEL_NAMES = {number: name for name, number in LABELS.items()}
_VISIBILITIES = {1: "local ", 2: "export "}


def print_file(file: FileDescriptorProto, options: OptionPrinter) -> str:
    return _Printer(file, options).text()


class _Printer:
    def __init__(self, file: FileDescriptorProto, options: OptionPrinter) -> None:
        self._file = file
        self._options = options
        self._lines: list[str] = []
        self._indent = ""

    def text(self) -> str:
        file = self._file
        edition = {number: name for name, number in EDITIONS.items()}.get(_any(file).edition, "")
        if file.syntax == "editions":
            self._line(f'edition = "{edition}";')
        else:
            self._line(f'syntax = "{file.syntax or "proto2"}";')
        if file.package:
            self._line(f"package {file.package};")
        self._imports()
        self._block(f"option {one};" for one in self._options.options(file, _join(file.package, "-")))
        self._members(Members(file.message_type, (), (), file.extension, file.package, is_file=True), file.package)
        for enum in file.enum_type:
            self._blank()
            self._enum(enum, file.package)
        for service in file.service:
            self._blank()
            self._service(service, file.package)
        return "\n".join(self._lines) + "\n"

    def _imports(self) -> None:
        file = self._file
        kinds = dict.fromkeys(file.public_dependency, "public ") | dict.fromkeys(file.weak_dependency, "weak ")
        names = [f"import {kinds.get(i, '')}{quote_text(name)};" for i, name in enumerate(file.dependency)]
        names += [f"import option {quote_text(name)};" for name in _any(file).option_dependency]
        self._block(names)

    def _message(self, message: DescriptorProto, scope: str, head: str) -> None:
        name = _join(scope, message.name)
        self._open(head)
        for one in self._options.options(message, name):
            self._line(f"option {one};")
        last = MESSAGE_SET_NUMBER_MAX if message.options.message_set_wire_format else FIELD_NUMBER_MAX
        self._reserved([(one.start, one.end - 1) for one in message.reserved_range], last, message.reserved_name)
        for one in message.extension_range:
            options = self._bracketed(self._options.options(one, name))
            self._line(f"extensions {_range(one.start, one.end - 1, last)}{options};")
        members = Members(message.nested_type, message.field, message.oneof_decl, message.extension, name)
        self._members(members, name)
        for enum in message.enum_type:
            self._enum(enum, name)
        self._close()

    def _members(self, members: Members, scope: str) -> None:
        for member in members.in_order():
            match member:
                case DescriptorProto():
                    if not self._indent:
                        self._blank()
                    self._message(member, scope, f"{_visibility(member)}message {member.name}")
                case Group():
                    self._group_of_fields(member, members, scope)
                case _:
                    self._field(member, members, scope)

    def _group_of_fields(self, group: Group, members: Members, scope: str) -> None:
        """A oneof, or extensions of one message."""
        if group.oneof is None:
            if not self._indent:
                self._blank()
            self._open(f"extend {group.fields[0].extendee}")
        else:
            self._open(f"oneof {group.oneof.name}")
            for one in self._options.options(group.oneof, _join(scope, group.oneof.name)):
                self._line(f"option {one};")
        for field in group.fields:
            self._field(field, members, scope, is_in_oneof=group.oneof is not None)
        self._close()

    def _field(self, field: Member, members: Members, scope: str, *, is_in_oneof: bool = False) -> None:
        assert isinstance(field, FieldDescriptorProto)
        options = self._options.options(field, _join(scope, field.name))
        if field.HasField("json_name") and field.json_name != json_name(field.name):
            options.insert(0, f"json_name = {quote_text(field.json_name)}")
        if field.HasField("default_value"):
            options.insert(0, f"default = {self._default(field)}")
        end = f" = {field.number}{self._bracketed(options)}"
        label = "" if is_in_oneof else self._label(field)
        nested = members.made_for(field)
        if nested is None:
            type_name = field.type_name or SCALAR_NAMES[field.type]
            self._line(f"{label}{type_name} {field.name}{end};")
        elif field.type == F.TYPE_GROUP:
            self._message(nested, scope, f"{label}group {nested.name}{end}")
        else:
            key, value = nested.field
            value_type = value.type_name or SCALAR_NAMES[value.type]
            self._line(f"map<{SCALAR_NAMES[key.type]}, {value_type}> {field.name}{end};")

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == F.LABEL_REPEATED:
            return "repeated "
        if self._file.syntax == "editions":
            return ""
        if self._file.syntax == "proto3" and not field.proto3_optional:
            return ""
        return f"{_LABEL_NAMES[field.label]} "

    def _default(self, field: FieldDescriptorProto) -> str:
        match field.type:
            case F.TYPE_STRING:
                return quote_text(field.default_value)
            case F.TYPE_BYTES:
                return f'"{escape_bytes(unescape(field.default_value))}"'
            case _:
                return field.default_value

    def _enum(self, enum: EnumDescriptorProto, scope: str) -> None:
        self._open(f"{_visibility(enum)}enum {enum.name}")
        for one in self._options.options(enum, _join(scope, enum.name)):
            self._line(f"option {one};")
        self._reserved([(one.start, one.end) for one in enum.reserved_range], _INT32_MAX, enum.reserved_name)
        for value in enum.value:
            options = self._bracketed(self._options.options(value, _join(scope, value.name)))
            self._line(f"{value.name} = {value.number}{options};")
        self._close()

    def _service(self, service: ServiceDescriptorProto, scope: str) -> None:
        name = _join(scope, service.name)
        self._open(f"service {service.name}")
        for one in self._options.options(service, name):
            self._line(f"option {one};")
        for method in service.method:
            takes = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            gives = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            head = f"rpc {method.name}({takes}) returns ({gives})"
            options = self._options.options(method, f"{name}.{method.name}")
            if not options:
                self._line(f"{head};")
                continue
            self._open(head)
            for one in options:
                self._line(f"option {one};")
            self._close()
        self._close()

    def _reserved(self, ranges: Sequence[tuple[int, int]], last: int, names: Sequence[str]) -> None:
        if ranges:
            self._line(f"reserved {', '.join(_range(start, end, last) for start, end in ranges)};")
        if names:
            shown = names if self._file.syntax == "editions" else [quote_text(name) for name in names]
            self._line(f"reserved {', '.join(shown)};")

    def _bracketed(self, options: list[str]) -> str:
        return f" [{', '.join(options)}]" if options else ""

    def _block(self, lines: Any) -> None:
        lines = list(lines)
        if lines:
            self._blank()
            for line in lines:
                self._line(line)

    def _open(self, head: str) -> None:
        self._line(f"{head} {{")
        self._indent += "  "

    def _close(self) -> None:
        self._indent = self._indent[:-2]
        self._line("}")

    def _blank(self) -> None:
        self._lines.append("")

    def _line(self, text: str) -> None:
        self._lines.append(self._indent + text)


def _range(start: int, end: int, last: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == last else end}"


def _visibility(owner: Any) -> str:
    return _VISIBILITIES.get(owner.visibility, "")


def _any(owner: Any) -> Any:
    return owner


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
