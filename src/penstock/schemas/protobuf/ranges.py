"""`reserved` and `extensions`: the numbers and names that a message or an enum sets apart.

Called by declarations. Descriptors end a message's ranges before their end and an enum's at it. An open end (`max`)
of a message is OPEN until its options are known: message sets have more numbers than others.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto

from penstock.schemas.protobuf import option_syntax
from penstock.schemas.protobuf.option_syntax import Option
from penstock.schemas.protobuf.parsed_file import (
    ENUM_RESERVED,
    ENUM_RESERVED_NAME,
    MESSAGE_RANGE,
    MESSAGE_RESERVED,
    MESSAGE_RESERVED_NAME,
    ParsedFile,
    Path,
)
from penstock.schemas.protobuf.tokens import Kind

OPEN = -1
FIELD_NUMBER_MAX = (1 << 29) - 1
MESSAGE_SET_NUMBER_MAX = (1 << 31) - 2
_INT32_MAX = (1 << 31) - 1


def message_reserved(parsed: ParsedFile, message: DescriptorProto, path: Path) -> None:
    """`reserved ...;` in a message, after its first word."""
    words = parsed.words
    if not _reserved_names(parsed, message.reserved_name, (*path, MESSAGE_RESERVED_NAME)):
        while True:
            words.count()
            parsed.starts[(*path, MESSAGE_RESERVED, len(message.reserved_range))] = words.token.start
            start, end = _message_range(parsed)
            message.reserved_range.add(start=start, end=end)
            if not words.accept(","):
                break
    words.expect(";")


def enum_reserved(parsed: ParsedFile, enum: EnumDescriptorProto, path: Path) -> None:
    """`reserved ...;` in an enum, after its first word."""
    words = parsed.words
    if not _reserved_names(parsed, enum.reserved_name, (*path, ENUM_RESERVED_NAME)):
        while True:
            words.count()
            parsed.starts[(*path, ENUM_RESERVED, len(enum.reserved_range))] = words.token.start
            start = end = words.integer("a reserved number", -_INT32_MAX - 1, _INT32_MAX)
            if words.accept("to"):
                end = _INT32_MAX
                if not words.accept("max"):
                    end = words.integer("the end of a range", -_INT32_MAX - 1, _INT32_MAX)
            enum.reserved_range.add(start=start, end=end)
            if not words.accept(","):
                break
    words.expect(";")


def extension_ranges(
    parsed: ParsedFile, message: DescriptorProto, path: Path, scope: str
) -> list[tuple[Any, str, list[Option]]]:
    """`extensions ...;`, after its first word; the options at its end hold for each range."""
    words = parsed.words
    first = len(message.extension_range)
    while True:
        words.count()
        parsed.starts[(*path, MESSAGE_RANGE, len(message.extension_range))] = words.token.start
        start, end = _message_range(parsed)
        message.extension_range.add(start=start, end=end)
        if not words.accept(","):
            break
    options = option_syntax.bracketed(words)
    words.expect(";")
    return [(one, scope, options) for one in message.extension_range[first:]]


def _message_range(parsed: ParsedFile) -> tuple[int, int]:
    words = parsed.words
    start = words.integer("the start of a range", 0, _INT32_MAX - 1)
    if not words.accept("to"):
        return start, start + 1
    if words.accept("max"):
        return start, OPEN
    return start, words.integer("the end of a range", 0, _INT32_MAX - 1) + 1


def _reserved_names(parsed: ParsedFile, names: Any, path: Path) -> bool:
    words = parsed.words
    is_edition = parsed.file.syntax == "editions"
    expected = Kind.NAME if is_edition else Kind.STRING
    if words.token.kind in (Kind.NAME, Kind.STRING) and words.token.kind is not expected:
        words.unexpected("a name without quotes" if is_edition else "a name in quotes")
    if words.token.kind is not expected:
        return False
    while True:
        words.count()
        parsed.starts[(*path, len(names))] = words.token.start
        names.append(words.take().text if is_edition else words.text_string("a reserved name"))
        if not words.accept(","):
            return True
