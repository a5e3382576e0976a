"""One field as .proto source writes it: its label, type, name, number and options; and maps and groups, which make a
nested message besides.

Used by declarations for the fields of messages, oneofs and extensions.
"""

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from penstock.schemas.protobuf import option_syntax
from penstock.schemas.protobuf.checking_names import json_name
from penstock.schemas.protobuf.option_syntax import Option
from penstock.schemas.protobuf.parsed_file import ParsedFile, Path
from penstock.schemas.protobuf.tokens import Kind

SCALARS: dict[str, Any] = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64",
        "fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
    )
}  # fmt: skip
LABELS: dict[str, Any] = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_INT32_MAX = (1 << 31) - 1


class Fields:
    def __init__(self, parsed: ParsedFile, body: Callable[[DescriptorProto, Path, str], None]) -> None:
        """`body` reads a message from its opening brace on: groups have one."""
        self._parsed = parsed
        self._words = parsed.words
        self._body = body

    def field(
        self, field: FieldDescriptorProto, path: Path, nested: Any, nested_path: Path, scope: str, oneof: int | None
    ) -> None:
        words = self._words
        words.count()
        leading = words.leading_comment()
        self._parsed.begin(path)
        start = words.token.start
        label = self._label(field, oneof)
        if oneof is not None:
            field.oneof_index = oneof
        type_start = words.token
        type_name = words.dotted_name("the type of a field")
        if type_name == "map" and words.is_next("<"):
            if label or field.extendee or oneof is not None:
                words.refuse("a map can be neither labelled, nor an extension, nor in a oneof", start)
            self._map(field, nested, nested_path, scope)
        elif type_name == "group":
            self._group(field, path, nested, nested_path, scope)
        else:
            if type_name in SCALARS:
                field.type = SCALARS[type_name]
            else:
                field.type_name = type_name
            field.name = words.name("the name of a field").text
            self._number(field)
            self._field_options(field, scope, option_syntax.bracketed(words))
            if not words.is_next(";") and not label and not oneof and type_start.text in ("import", "syntax"):
                words.refuse(f'"{type_start.text}" belongs outside of messages', start)
            words.expect(";")
        self._parsed.document(path, leading, words.trailing_comment())

    def _label(self, field: FieldDescriptorProto, oneof: int | None) -> str:
        words = self._words
        label = words.token.text if words.token.kind is Kind.NAME and words.token.text in LABELS else ""
        file = self._parsed.file
        if label:
            if oneof is not None:
                words.refuse(f'a field in a oneof has no label; leave "{label}" out')
            if file.syntax == "editions" and label != "repeated":
                words.refuse(f'"{label}" is no word of editions; use features.field_presence')
            words.take()
        elif file.syntax not in ("proto3", "editions") and oneof is None and not words.is_next("map"):
            words.unexpected('"optional", "required" or "repeated"')
        field.label = LABELS[label or "optional"]
        if label == "optional" and file.syntax == "proto3":
            field.proto3_optional = True
        return label

    def _number(self, field: FieldDescriptorProto) -> None:
        self._words.expect("=")
        field.number = self._words.integer("the number of a field", -_INT32_MAX - 1, _INT32_MAX)

    def _map(self, field: FieldDescriptorProto, nested: Any, nested_path: Path, scope: str) -> None:
        words = self._words
        words.take()
        # A map is a message of two fields.
        for _ in range(3):
            words.count()
        key_start = words.token.start
        key = words.name("the type of a map's key").text
        if key not in SCALARS or key in ("float", "double", "bytes"):
            words.refuse(f"a map's key must be an integer, bool or string, not {key}", key_start)
        words.expect(",")
        value = words.dotted_name("the type of a map's value")
        words.expect(">")
        field.name = words.name("the name of a field").text
        self._number(field)
        options = option_syntax.bracketed(words)
        words.expect(";")
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type_name = map_entry_name(field.name)
        entry = nested.add(name=field.type_name)
        entry.options.map_entry = True
        self._parsed.starts[(*nested_path, len(nested) - 1)] = key_start
        entry.field.add(name="key", number=1, label=LABELS["optional"], type=SCALARS[key])
        entry.field.add(name="value", number=2, label=LABELS["optional"])
        if value in SCALARS:
            entry.field[1].type = SCALARS[value]
        else:
            entry.field[1].type_name = value
        self._field_options(field, scope, options)
        # A map's features hold for what it is made of.
        features = [one for one in options if one.parts[0] == ("features", False)]
        for part in entry.field:
            self._parsed.keep_options(part, f"{join(scope, entry.name)}.{part.name}", features)

    def _group(self, field: FieldDescriptorProto, path: Path, nested: Any, nested_path: Path, scope: str) -> None:
        words = self._words
        if self._parsed.file.syntax == "editions":
            words.refuse("editions have no groups; use features.message_encoding = DELIMITED on a message field")
        start = words.token.start
        name = words.name("the name of a group").text
        if not name[0].isupper():
            words.refuse("the name of a group must begin with a capital letter", start)
        self._number(field)
        field.name = name.lower()
        field.type = FieldDescriptorProto.TYPE_GROUP
        field.type_name = name
        self._field_options(field, scope, option_syntax.bracketed(words))
        group = nested.add(name=name)
        at = (*nested_path, len(nested) - 1)
        self._parsed.starts[at] = start
        self._body(group, at, join(scope, name))

    def _field_options(self, field: FieldDescriptorProto, scope: str, options: list[Option]) -> None:
        kept: list[Option] = []
        for option in options:
            name = option.text
            if name == "default":
                if any(one is field for one, _ in self._parsed.defaults[-1:]):
                    self._words.refuse("the default is given twice", option.start)
                self._parsed.defaults.append((field, option.value))
            elif name == "json_name":
                if option.value.kind != "string":
                    self._words.refuse("json_name must be a string", option.value.start)
                if field.extendee:
                    self._words.refuse("an extension has no json_name", option.start)
                self._json_name(field, option)
            else:
                kept.append(option)
        self._parsed.keep_options(field, join(scope, field.name), kept)

    def _json_name(self, field: FieldDescriptorProto, option: Option) -> None:
        if field.HasField("json_name"):
            self._words.refuse("json_name is given twice", option.start)
        try:
            name = option.value.data.decode()
        except UnicodeDecodeError:
            self._words.refuse("json_name is no UTF-8 text", option.value.start)
        if "\0" in name:
            self._words.refuse("json_name has a zero character", option.value.start)
        # The name that JSON would use anyway is no choice: one spelling of one meaning.
        if name != json_name(field.name):
            field.json_name = name


def map_entry_name(field_name: str) -> str:
    """The message that a map field is made of, as protoc calls it."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"


def join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
