"""The rules of the language that names and types alone do not show.

Called by compiling with everything resolved. Each rule is one of protoc's; a schema that passes is one that protoc
takes too.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from penstock.schemas.protobuf.checking_names import check_json_names, check_value_names
from penstock.schemas.protobuf.features import Features, file_features
from penstock.schemas.protobuf.imports import Files
from penstock.schemas.protobuf.parsed_file import (
    ENUM_RESERVED,
    ENUM_VALUE,
    FILE_ENUM,
    FILE_EXTENSION,
    FILE_MESSAGE,
    MESSAGE_ENUM,
    MESSAGE_EXTENSION,
    MESSAGE_FIELD,
    MESSAGE_NESTED,
    MESSAGE_ONEOF,
    MESSAGE_RANGE,
    MESSAGE_RESERVED,
    MESSAGE_RESERVED_NAME,
    ParsedFile,
    Path,
)
from penstock.schemas.protobuf.ranges import FIELD_NUMBER_MAX, MESSAGE_SET_NUMBER_MAX

F = FieldDescriptorProto
LIBRARY_NUMBERS = range(19000, 20000)
_UNPACKABLE = (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE, F.TYPE_GROUP)


def check(parsed: ParsedFile, files: Files) -> None:
    checker = _Checker(parsed, files)
    file = parsed.file
    features = file_features(file)
    for index, message in enumerate(file.message_type):
        checker.message(message, (FILE_MESSAGE, index), features)
    for index, enum in enumerate(file.enum_type):
        checker.enum(enum, (FILE_ENUM, index), features)
    for index, field in enumerate(file.extension):
        checker.extension(field, (FILE_EXTENSION, index), features)


class _Checker:
    def __init__(self, parsed: ParsedFile, files: Files) -> None:
        self._parsed = parsed
        self._syntax = parsed.file.syntax
        self._messages: dict[str, DescriptorProto] = {}
        self._closed_enums: set[str] = set()
        self._zeroless_enums: set[str] = set()
        self._extendable: dict[str, list[tuple[int, int, int]]] = {}
        for file in (*files.values(), parsed.file):
            self._index(file)

    def message(self, message: DescriptorProto, path: Path, outer: Features) -> None:
        features = outer.inside(message)
        is_set = message.options.message_set_wire_format
        self._ranges(message, path, MESSAGE_SET_NUMBER_MAX if is_set else FIELD_NUMBER_MAX)
        self._numbers(message, path)
        for index, field in enumerate(message.field):
            self._field(field, (*path, MESSAGE_FIELD, index), features)
            if is_set:
                self._parsed.refuse((*path, MESSAGE_FIELD, index), "a message set has extensions, but no fields")
        if message.options.map_entry and message.field[1].type_name in self._zeroless_enums:
            self._parsed.refuse(path, f"the first value of {message.field[1].type_name[1:]} must be 0 to be in a map")
        filled = {field.oneof_index for field in message.field if field.HasField("oneof_index")}
        for index, oneof in enumerate(message.oneof_decl):
            if index not in filled:
                self._parsed.refuse((*path, MESSAGE_ONEOF, index), f"the oneof {oneof.name!r} has no fields")
        if self._syntax == "proto3" and message.extension_range:
            self._parsed.refuse((*path, MESSAGE_RANGE, 0), "proto3 has no extension ranges")
        check_json_names(self._parsed, message, path, features)
        for index, nested in enumerate(message.nested_type):
            self.message(nested, (*path, MESSAGE_NESTED, index), features)
        for index, enum in enumerate(message.enum_type):
            self.enum(enum, (*path, MESSAGE_ENUM, index), features)
        for index, field in enumerate(message.extension):
            self.extension(field, (*path, MESSAGE_EXTENSION, index), features)

    def enum(self, enum: EnumDescriptorProto, path: Path, outer: Features) -> None:
        refuse = self._parsed.refuse
        features = outer.inside(enum)
        if not enum.value:
            refuse(path, f"the enum {enum.name!r} has no values; give it at least one")
        if features.is_open and enum.value[0].number != 0:
            refuse((*path, ENUM_VALUE, 0), f"the first value of {enum.name!r} must be 0")
        # An enum's ranges hold their end.
        reserved = sorted((one.start, one.end + 1, index) for index, one in enumerate(enum.reserved_range))
        self._disjoint([(start, end, (*path, ENUM_RESERVED, index)) for start, end, index in reserved], enum.name)
        reserved_names = set(enum.reserved_name)
        if len(reserved_names) != len(enum.reserved_name):
            refuse(path, f"the enum {enum.name!r} reserves a name twice")
        numbers: dict[int, str] = {}
        for index, value in enumerate(enum.value):
            at = (*path, ENUM_VALUE, index)
            if value.number in numbers and not enum.options.allow_alias:
                refuse(at, f"{value.name} has the number of {numbers[value.number]}; if that is meant, set allow_alias")
            if _holds(reserved, value.number):
                refuse(at, f"the number {value.number} of {value.name} is reserved")
            if value.name in reserved_names:
                refuse(at, f"the name {value.name} is reserved")
            numbers.setdefault(value.number, value.name)
        if enum.options.allow_alias and len(numbers) == len(enum.value):
            refuse(path, f"the enum {enum.name!r} sets allow_alias, but no two values share a number")
        check_value_names(self._parsed, enum, path, features)

    def extension(self, field: FieldDescriptorProto, path: Path, outer: Features) -> None:
        refuse = self._parsed.refuse
        self._field(field, path, outer)
        target = self._messages[field.extendee]
        if field.extendee not in self._extendable:
            self._extendable[field.extendee] = sorted((one.start, one.end, 0) for one in target.extension_range)
        if not _holds(self._extendable[field.extendee], field.number):
            refuse(path, f"{field.extendee[1:]} keeps no number {field.number} for extensions")
        if field.label == F.LABEL_REQUIRED or outer.inside(field).is_required:
            refuse(path, "an extension cannot be required")
        if field.options.features.HasField("field_presence"):
            refuse(path, "an extension's presence is always explicit; leave features.field_presence out")
        is_option = field.extendee.startswith(".google.protobuf.") and field.extendee.endswith("Options")
        if self._syntax == "proto3" and not is_option:
            refuse(path, "proto3 extends nothing but options")

    def _field(self, field: FieldDescriptorProto, path: Path, outer: Features) -> None:
        def refuse(why: str) -> None:
            self._parsed.refuse(path, why)

        features = outer.inside(field)
        most = FIELD_NUMBER_MAX
        if field.extendee and self._messages[field.extendee].options.message_set_wire_format:
            most = MESSAGE_SET_NUMBER_MAX
        if not 1 <= field.number <= most:
            refuse(f"the number {field.number} of {field.name!r} must lie between 1 and {most}")
        if field.number in LIBRARY_NUMBERS:
            refuse(f"the numbers 19000 to 19999 belong to protobuf itself; give {field.name!r} another one")
        if self._syntax == "proto3":
            if field.label == F.LABEL_REQUIRED:
                refuse("proto3 has no required fields")
            if field.type == F.TYPE_GROUP:
                refuse("proto3 has no groups")
            if field.HasField("default_value"):
                refuse("proto3 has no defaults")
        if features.is_implicit and self._syntax == "editions" and field.HasField("default_value"):
            refuse("a field of implicit presence has no default")
        if field.type_name in self._closed_enums:
            is_single = field.label != F.LABEL_REPEATED and not field.HasField("oneof_index")
            if self._syntax == "proto3" or (features.is_implicit and is_single):
                refuse(f"{field.type_name[1:]} is a closed enum, which a field without presence cannot hold")
        if field.HasField("default_value") and field.type in (F.TYPE_MESSAGE, F.TYPE_GROUP):
            refuse("a message has no default")
        options = field.options
        if options.packed and (field.label != F.LABEL_REPEATED or field.type in _UNPACKABLE):
            refuse("only repeated numbers, bools and enums can be packed")
        if options.HasField("packed") and self._syntax == "editions":
            refuse("editions have no option packed; use features.repeated_field_encoding")
        if (options.lazy or options.unverified_lazy) and field.type not in (F.TYPE_MESSAGE, F.TYPE_GROUP):
            refuse("only messages can be lazy")

    def _numbers(self, message: DescriptorProto, path: Path) -> None:
        refuse = self._parsed.refuse
        numbers: dict[int, str] = {}
        names = set(message.reserved_name)
        if len(names) != len(message.reserved_name):
            refuse((*path, MESSAGE_RESERVED_NAME), f"{message.name} reserves a name twice")
        reserved = sorted((one.start, one.end, 0) for one in message.reserved_range)
        extended = sorted((one.start, one.end, 0) for one in message.extension_range)
        for index, field in enumerate(message.field):
            at = (*path, MESSAGE_FIELD, index)
            if field.number in numbers:
                refuse(at, f"{field.name!r} has the number {field.number} of {numbers[field.number]!r}")
            numbers[field.number] = field.name
            if field.name in names:
                refuse(at, f"the name {field.name!r} is reserved in {message.name}")
            if _holds(reserved, field.number):
                refuse(at, f"the number {field.number} of {field.name!r} is reserved in {message.name}")
            if _holds(extended, field.number):
                refuse(at, f"the number {field.number} of {field.name!r} is kept for extensions")

    def _ranges(self, message: DescriptorProto, path: Path, most: int) -> None:
        taken: list[tuple[int, int, Path]] = []
        for number, ranges in ((MESSAGE_RESERVED, message.reserved_range), (MESSAGE_RANGE, message.extension_range)):
            all_ranges: Any = ranges
            for index, one in enumerate(all_ranges):
                at = (*path, number, index)
                if one.start < 1 or one.end > most + 1:
                    self._parsed.refuse(at, f"numbers must lie between 1 and {most}")
                taken.append((one.start, one.end, at))
        taken.sort()
        self._disjoint(taken, message.name)

    def _disjoint(self, ranges: list[tuple[int, int, Path]], owner: str) -> None:
        """Refuse ranges, in the order of their starts, of which one is empty or two share a number."""
        before: int | None = None
        for start, end, at in ranges:
            if end <= start:
                self._parsed.refuse(at, "the range ends before it begins")
            if before is not None and start < before:
                self._parsed.refuse(at, f"{start} to {end - 1} overlaps another range of {owner}")
            before = end

    def _index(self, file: FileDescriptorProto) -> None:
        prefix = f".{file.package}." if file.package else "."
        features = file_features(file)
        self._index_enums(file.enum_type, prefix, features)
        for name, message, inside in _nested(file.message_type, prefix, features):
            self._messages[name] = message
            self._index_enums(message.enum_type, f"{name}.", inside)

    def _index_enums(self, enums: Iterable[EnumDescriptorProto], prefix: str, outer: Features) -> None:
        for enum in enums:
            if not outer.inside(enum).is_open:
                self._closed_enums.add(prefix + enum.name)
            if enum.value and enum.value[0].number != 0:
                self._zeroless_enums.add(prefix + enum.name)


def _holds(ranges: list[tuple[int, int, int]], number: int) -> bool:
    """Whether a number lies in one of several ranges, which are in order and share nothing."""
    at = bisect_right(ranges, number, key=lambda one: one[0]) - 1
    return at >= 0 and number < ranges[at][1]


def _nested(messages: Any, prefix: str, outer: Features) -> Iterator[tuple[str, DescriptorProto, Features]]:
    for message in messages:
        features = outer.inside(message)
        yield prefix + message.name, message, features
        yield from _nested(message.nested_type, f"{prefix}{message.name}.", features)
