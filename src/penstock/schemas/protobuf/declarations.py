"""Messages, fields, enums and extensions as .proto source declares them, put into descriptors.

Called by parser.py. What the language writes shortly, descriptors spell out, and this is where it happens as protoc
does it: a map is a message of entries, a group a nested message, `optional` in proto3 a oneof of one. The order of
nested messages matters, since records name their message by it.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    OneofDescriptorProto,
)

from penstock.schemas.protobuf import option_syntax
from penstock.schemas.protobuf.field_syntax import Fields, join
from penstock.schemas.protobuf.option_syntax import Option
from penstock.schemas.protobuf.parsed_file import (
    ENUM_VALUE,
    MESSAGE_ENUM,
    MESSAGE_EXTENSION,
    MESSAGE_FIELD,
    MESSAGE_NESTED,
    MESSAGE_ONEOF,
    MESSAGE_RANGE,
    ParsedFile,
    Path,
)
from penstock.schemas.protobuf.ranges import enum_reserved, extension_ranges, message_reserved
from penstock.schemas.protobuf.tokens import Kind

_INT32_MAX = (1 << 31) - 1


class Declarations:
    def __init__(self, parsed: ParsedFile) -> None:
        self._parsed = parsed
        self._words = parsed.words
        self._fields = Fields(parsed, self._message_body)

    def message(self, message: DescriptorProto, path: Path, scope: str) -> None:
        """`Name { ... }`, after the word message."""
        self._words.count()
        self._parsed.begin(path)
        message.name = self._words.name("the name of a message").text
        self._message_body(message, path, join(scope, message.name))

    def enum(self, enum: EnumDescriptorProto, path: Path, scope: str) -> None:
        """`Name { ... }`, after the word enum."""
        words = self._words
        words.count()
        self._parsed.begin(path)
        enum.name = words.name("the name of an enum").text
        options: list[Option] = []
        words.expect("{")
        while not words.accept("}"):
            if words.accept(";"):
                continue
            if words.is_next("option"):
                words.take()
                # A value may be called `option` too.
                if words.is_next("="):
                    self._enum_value(enum, path, scope, "option")
                else:
                    options.append(option_syntax.statement(words))
            elif words.is_next("reserved"):
                words.take()
                if words.is_next("="):
                    self._enum_value(enum, path, scope, "reserved")
                else:
                    enum_reserved(self._parsed, enum, path)
            else:
                self._enum_value(enum, path, scope)
        self._parsed.keep_options(enum, join(scope, enum.name), options)

    def extend(self, owner: Any, path: Path, number: int, nested_number: int, scope: str) -> None:
        """`Type { fields }`, after the word extend. `owner`: the file or message it stands in."""
        words = self._words
        extendee = words.dotted_name("the name of the message to extend")
        words.expect("{")
        nested = owner.nested_type if isinstance(owner, DescriptorProto) else owner.message_type
        while True:
            field = owner.extension.add()
            field.extendee = extendee
            self._fields.field(
                field, (*path, number, len(owner.extension) - 1), nested, (*path, nested_number), scope, None
            )
            if words.accept("}"):
                break

    def _enum_value(self, enum: EnumDescriptorProto, path: Path, scope: str, name: str | None = None) -> None:
        words = self._words
        words.count()
        leading = words.leading_comment()
        at = (*path, ENUM_VALUE, len(enum.value))
        self._parsed.begin(at)
        value = enum.value.add()
        value.name = name or words.name("the name of a value").text
        words.expect("=")
        value.number = words.integer("the number of a value", -_INT32_MAX - 1, _INT32_MAX)
        self._parsed.keep_options(value, join(scope, value.name), option_syntax.bracketed(words))
        words.expect(";")
        self._parsed.document(at, leading, words.trailing_comment())

    def _message_body(self, message: DescriptorProto, path: Path, scope: str) -> None:
        words = self._words
        options: list[Option] = []
        words.deeper()
        words.expect("{")
        while not words.accept("}"):
            leading = words.leading_comment()
            match words.token.text if words.token.kind is Kind.NAME else "":
                case "message":
                    words.take()
                    at = (*path, MESSAGE_NESTED, len(message.nested_type))
                    self.message(message.nested_type.add(), at, scope)
                    self._parsed.document(at, leading, "")
                case "enum":
                    words.take()
                    at = (*path, MESSAGE_ENUM, len(message.enum_type))
                    self.enum(message.enum_type.add(), at, scope)
                    self._parsed.document(at, leading, "")
                case "extend":
                    words.take()
                    self.extend(message, path, MESSAGE_EXTENSION, MESSAGE_NESTED, scope)
                case "extensions":
                    words.take()
                    first = len(message.extension_range)
                    self._parsed.begin((*path, MESSAGE_RANGE, first))
                    for option_set in extension_ranges(self._parsed, message, path, scope):
                        self._parsed.keep_options(*option_set)
                case "reserved":
                    words.take()
                    message_reserved(self._parsed, message, path)
                case "option":
                    words.take()
                    options.append(option_syntax.statement(words))
                case "oneof":
                    words.take()
                    self._oneof(message, path, scope)
                case "export" | "local" as visibility if visible_words(self._parsed):
                    self._visible(message, path, scope, visibility)
                case _ if words.accept(";"):
                    pass
                case _:
                    at = (*path, MESSAGE_FIELD, len(message.field))
                    self._fields.field(
                        message.field.add(), at, message.nested_type, (*path, MESSAGE_NESTED), scope, None
                    )
        words.back()
        self._parsed.keep_options(message, scope, options)
        _add_synthetic_oneofs(message)

    def _visible(self, message: DescriptorProto, path: Path, scope: str, visibility: str) -> None:
        self._words.take()
        if self._words.accept("message"):
            nested = message.nested_type.add()
            set_visibility(nested, visibility)
            self.message(nested, (*path, MESSAGE_NESTED, len(message.nested_type) - 1), scope)
        else:
            self._words.expect("enum")
            enum = message.enum_type.add()
            set_visibility(enum, visibility)
            self.enum(enum, (*path, MESSAGE_ENUM, len(message.enum_type) - 1), scope)

    def _oneof(self, message: DescriptorProto, path: Path, scope: str) -> None:
        words = self._words
        words.count()
        index = len(message.oneof_decl)
        self._parsed.begin((*path, MESSAGE_ONEOF, index))
        oneof: OneofDescriptorProto = message.oneof_decl.add()
        oneof.name = words.name("the name of a oneof").text
        options: list[Option] = []
        words.expect("{")
        while not words.accept("}"):
            if words.accept("option"):
                options.append(option_syntax.statement(words))
                continue
            at = (*path, MESSAGE_FIELD, len(message.field))
            self._fields.field(message.field.add(), at, message.nested_type, (*path, MESSAGE_NESTED), scope, index)
        self._parsed.keep_options(oneof, join(scope, oneof.name), options)


def visible_words(parsed: ParsedFile) -> bool:
    """Whether `export` and `local` have a meaning: since edition 2024."""
    return parsed.file.syntax == "editions" and parsed.file.edition > 1000


def set_visibility(owner: Any, word: str) -> None:
    owner.visibility = 2 if word == "export" else 1


def _add_synthetic_oneofs(message: DescriptorProto) -> None:
    optional = [field for field in message.field if field.proto3_optional]
    if not optional:
        return
    taken = {field.name for field in message.field} | {oneof.name for oneof in message.oneof_decl}
    for field in optional:
        name = field.name if field.name.startswith("_") else f"_{field.name}"
        while name in taken:
            name = f"X{name}"
        taken.add(name)
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=name)
