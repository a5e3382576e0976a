"""A record's value checked against its schema: message indexes, then the message itself.

Used by schema.validate(). A frame's payload begins with the place of its message among the schema's: how many numbers,
then the numbers, all zigzag varints; one zero byte stands for the first message. Laws:
- Nothing is raised for bad bytes; the reason is given. Work is bounded by the payload's length.
- A field whose number the schema knows must be encoded as the schema says. Numbers it does not know are left alone:
  that is how Protobuf lets a newer producer speak through an older one's schema.
"""

from typing import Any

from google.protobuf import message_factory, unknown_fields
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from penstock.schemas.protobuf.tokens import DEPTH_MAX

LOOKED_INTO_MAX = 10_000
"""Messages inside one value that are searched for fields of the wrong encoding."""

F = FieldDescriptorProto
_VARINT, _FIXED64, _BYTES, _GROUP, _FIXED32 = 0, 1, 2, 3, 5
_WIRE_TYPES: dict[Any, int] = {
    F.TYPE_DOUBLE: _FIXED64,
    F.TYPE_FIXED64: _FIXED64,
    F.TYPE_SFIXED64: _FIXED64,
    F.TYPE_FLOAT: _FIXED32,
    F.TYPE_FIXED32: _FIXED32,
    F.TYPE_SFIXED32: _FIXED32,
    F.TYPE_STRING: _BYTES,
    F.TYPE_BYTES: _BYTES,
    F.TYPE_MESSAGE: _BYTES,
    F.TYPE_GROUP: _GROUP,
}


class Payloads:
    def __init__(self, file: FileDescriptorProto, pool: Any) -> None:
        self._file = file
        self._pool = pool
        self._classes: dict[tuple[int, ...], Any] = {}

    def validate(self, payload: memoryview) -> str | None:
        try:
            indexes, start = read_indexes(payload)
        except ValueError as error:
            return str(error)
        message_class = self._class(indexes)
        if message_class is None:
            return f"its message indexes {list(indexes)} point to no message of the schema"
        name = message_class.DESCRIPTOR.full_name
        try:
            message = message_class.FromString(bytes(payload[start:]))
        except (DecodeError, ValueError) as error:
            return f"its bytes are no {name}: {error}"
        if not message.IsInitialized():
            missing: list[str] = message.FindInitializationErrors()
            return f"it lacks {', '.join(missing[:5])}, which {name} requires"
        return _wrongly_encoded(message, message_class)

    def _class(self, indexes: tuple[int, ...]) -> Any:
        found = self._classes.get(indexes)
        if found is None:
            # Some clients count the messages that maps are made of, some do not.
            name = self._name(indexes, False) or self._name(indexes, True)
            if name is None:
                return None
            found = self._classes[indexes] = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))
        return found

    def _name(self, indexes: tuple[int, ...], is_without_maps: bool) -> str | None:
        names = [self._file.package] if self._file.package else []
        level: list[DescriptorProto] = list(self._file.message_type)
        for index in indexes:
            if is_without_maps:
                level = [one for one in level if not one.options.map_entry]
            if index >= len(level) or level[index].options.map_entry:
                return None
            names.append(level[index].name)
            level = list(level[index].nested_type)
        return ".".join(names)


def read_indexes(payload: memoryview) -> tuple[tuple[int, ...], int]:
    """The message indexes and where the message begins; ValueError says what is wrong with them."""
    count, at = _zigzag(payload, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= DEPTH_MAX:
        raise ValueError(f"its message indexes are {count}, but messages nest 1 to {DEPTH_MAX} deep")
    indexes: list[int] = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        if index < 0:
            raise ValueError("one of its message indexes is negative")
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(payload: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(payload):
            raise ValueError("it ends within its message indexes")
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("one of its message indexes is no 32-bit number")


def _wrongly_encoded(message: Any, message_class: Any) -> str | None:
    size = message.ByteSize()
    bare = message_class()
    bare.CopyFrom(message)
    bare.DiscardUnknownFields()
    # The usual case, told by the library alone: everything was understood.
    if bare.ByteSize() == size:
        return None
    waiting = [message]
    for _ in range(LOOKED_INTO_MAX):
        if not waiting:
            break
        one = waiting.pop()
        by_number = one.DESCRIPTOR.fields_by_number
        for unknown in unknown_fields.UnknownFieldSet(one):
            field = by_number.get(unknown.field_number)
            if field is not None and not _is_possible(field, unknown.wire_type):
                return f"its field {field.full_name} is encoded as another type"
        waiting.extend(_messages_in(one))
    return None


def _is_possible(field: Any, wire_type: int) -> bool:
    expected = _WIRE_TYPES.get(field.type, _VARINT)
    # Numbers of a list may come one by one or packed; and an enum's unknown numbers are unknown fields too.
    return wire_type == expected or (field.is_repeated and wire_type == _BYTES and expected in (0, 1, 5))


def _messages_in(message: Any) -> list[Any]:
    found: list[Any] = []
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if not field.is_repeated:
            found.append(value)
        elif field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                found.extend(value.values())
        else:
            found.extend(value)
        if len(found) > LOOKED_INTO_MAX:
            break
    return found
