"""The fields and oneofs of two versions of one message, compared by number.

Used by comparing. On the wire a field is its number and its encoding: scalars that share an encoding may follow each
other, and what a oneof holds counts only because at most one of it survives.
"""

from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from penstock.schemas.protobuf.type_index import MessageType, TypeIndex

F = FieldDescriptorProto
_GENERAL, _ZIGZAG, _TEXT, _FIXED32, _FIXED64, _FLOAT, _DOUBLE = range(7)
_SCALAR_KINDS: dict[Any, int] = {
    F.TYPE_INT32: _GENERAL,
    F.TYPE_INT64: _GENERAL,
    F.TYPE_UINT32: _GENERAL,
    F.TYPE_UINT64: _GENERAL,
    F.TYPE_BOOL: _GENERAL,
    F.TYPE_ENUM: _GENERAL,
    F.TYPE_SINT32: _ZIGZAG,
    F.TYPE_SINT64: _ZIGZAG,
    F.TYPE_STRING: _TEXT,
    F.TYPE_BYTES: _TEXT,
    F.TYPE_FIXED32: _FIXED32,
    F.TYPE_SFIXED32: _FIXED32,
    F.TYPE_FIXED64: _FIXED64,
    F.TYPE_SFIXED64: _FIXED64,
    F.TYPE_FLOAT: _FLOAT,
    F.TYPE_DOUBLE: _DOUBLE,
}


class FieldComparison(NamedTuple):
    differences: list[tuple[str, str]]
    """Kind, and the place inside the message."""
    messages: list[tuple[str, str, str]]
    """Messages that fields hold, older and newer, whose insides decide too; and the place of the field."""


class _Side:
    """One version's fields by number: those outside of oneofs, and the oneofs."""

    def __init__(self, message: MessageType, types: TypeIndex) -> None:
        self.types = types
        self.message = message
        self.all: dict[int, FieldDescriptorProto] = {}
        self.single: dict[int, FieldDescriptorProto] = {}
        self.oneof_of: dict[int, str] = {}
        self.oneofs: dict[str, dict[int, FieldDescriptorProto]] = {}
        for field in message.proto.field:
            self.all[field.number] = field
            # `optional` in proto3 is a oneof by letter only.
            if field.HasField("oneof_index") and not field.proto3_optional:
                name = message.proto.oneof_decl[field.oneof_index].name
                self.oneofs.setdefault(name, {})[field.number] = field
                self.oneof_of[field.number] = name
            else:
                self.single[field.number] = field

    def is_required(self, field: FieldDescriptorProto) -> bool:
        return field.label == F.LABEL_REQUIRED or self.message.features.inside(field).is_required

    def label(self, field: FieldDescriptorProto) -> str:
        if field.label == F.LABEL_REPEATED:
            return "repeated"
        return "required" if self.is_required(field) else "single"

    def shape(self, field: FieldDescriptorProto) -> str:
        """How a field stands on the wire, scalars aside."""
        if field.type in _SCALAR_KINDS:
            return "scalar"
        if self.types.map_entry(field) is not None:
            return "map"
        is_group = field.type == F.TYPE_GROUP or self.message.features.inside(field).is_delimited
        return "group" if is_group else "message"


def compare_fields(
    older: MessageType, newer: MessageType, older_types: TypeIndex, newer_types: TypeIndex
) -> FieldComparison:
    return _FieldComparing(_Side(older, older_types), _Side(newer, newer_types)).run()


class _FieldComparing:
    def __init__(self, older: _Side, newer: _Side) -> None:
        self._older = older
        self._newer = newer
        self._found = FieldComparison([], [])

    def run(self) -> FieldComparison:
        older, newer = self._older, self._newer
        for name, fields in newer.oneofs.items():
            self._moved(name, fields)
        for name in [*older.oneofs, *(name for name in newer.oneofs if name not in older.oneofs)]:
            if name not in newer.oneofs:
                self._add("ONEOF_REMOVED", name)
            elif name not in older.oneofs:
                self._add("ONEOF_ADDED", name)
            else:
                self._oneof(name)
        for number in sorted(older.single | newer.single):
            self._number(number)
        for number in sorted(older.all.keys() & newer.all.keys()):
            # Fields that went into a oneof, out of one or from one to another.
            if older.oneof_of.get(number) != newer.oneof_of.get(number):
                self._field(number, str(number))
        return self._found

    def _add(self, kind: str, path: str) -> None:
        self._found.differences.append((kind, path))

    def _moved(self, name: str, fields: dict[int, FieldDescriptorProto]) -> None:
        """What a oneof holds must have come from one place, or else two of it may be set in older data."""
        moved = sum(1 for number in fields if number in self._older.single)
        sources = {self._older.oneof_of[number] for number in fields if number in self._older.oneof_of}
        if moved > 1 or len(sources) > 1:
            self._add("MULTIPLE_FIELDS_MOVED_TO_ONEOF", name)
        elif moved == 1 and sources:
            self._add("FIELD_MOVED_TO_EXISTING_ONEOF", name)

    def _oneof(self, name: str) -> None:
        old, new = self._older.oneofs[name], self._newer.oneofs[name]
        for number in sorted(old | new):
            path = f"{name}/{number}"
            if number in old and number in new:
                self._field(number, path)
            elif number in new:
                self._add("ONEOF_FIELD_ADDED", path)
            elif number not in self._newer.all:
                # One that still exists elsewhere has been freed, not lost.
                self._add("ONEOF_FIELD_REMOVED", path)

    def _number(self, number: int) -> None:
        old, new = self._older.single.get(number), self._newer.single.get(number)
        if old is not None and new is not None:
            self._field(number, str(number))
        elif old is not None and number not in self._newer.all:
            self._add("REQUIRED_FIELD_REMOVED" if self._older.is_required(old) else "FIELD_REMOVED", str(number))
        elif new is not None:
            self._add("REQUIRED_FIELD_ADDED" if self._newer.is_required(new) else "FIELD_ADDED", str(number))

    def _field(self, number: int, path: str) -> None:
        old, new = self._older.all[number], self._newer.all[number]
        if old.name != new.name:
            self._add("FIELD_NAME_CHANGED", path)
        shape = self._older.shape(old)
        if shape != self._newer.shape(new):
            self._add("FIELD_KIND_CHANGED", path)
            return
        match shape:
            case "scalar":
                self._scalar(old, new, path)
            case "map":
                self._map(old, new, path)
            case _:
                self._message(old.type_name, new.type_name, path)
        if self._newer.is_required(new) and not self._older.is_required(old):
            self._add("REQUIRED_FIELD_ADDED", path)

    def _scalar(self, old: FieldDescriptorProto, new: FieldDescriptorProto, path: str) -> None:
        kind = _SCALAR_KINDS[old.type]
        if kind != _SCALAR_KINDS[new.type]:
            self._add("FIELD_SCALAR_KIND_CHANGED", path)
        elif self._older.label(old) != self._newer.label(new):
            is_text = kind == _TEXT
            self._add("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if is_text else "FIELD_NUMERIC_LABEL_CHANGED", path)

    def _map(self, old: FieldDescriptorProto, new: FieldDescriptorProto, path: str) -> None:
        old_entry, new_entry = self._older.types.map_entry(old), self._newer.types.map_entry(new)
        assert old_entry is not None
        assert new_entry is not None
        for old_part, new_part in zip(old_entry.field, new_entry.field, strict=True):
            is_scalar = old_part.type in _SCALAR_KINDS, new_part.type in _SCALAR_KINDS
            if is_scalar[0] != is_scalar[1]:
                self._add("FIELD_KIND_CHANGED", path)
            elif not is_scalar[0]:
                self._message(old_part.type_name, new_part.type_name, path)
            elif _SCALAR_KINDS[old_part.type] != _SCALAR_KINDS[new_part.type]:
                self._add("FIELD_SCALAR_KIND_CHANGED", path)

    def _message(self, old_name: str, new_name: str, path: str) -> None:
        old, new = self._older.types.messages[old_name], self._newer.types.messages[new_name]
        if old.local_name != new.local_name:
            self._add("FIELD_NAMED_TYPE_CHANGED", path)
        else:
            self._found.messages.append((old_name, new_name, path))
