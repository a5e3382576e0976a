"""A schema's file put into one order where order means nothing.

Used by schema.normalized(). Kept as they are: the order of messages (records name their message by it), the first
value of an enum (it is the default), services and their methods. Map entries, which nobody names, change places among
themselves so that two orders of the same fields become one.
"""

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)


def normalized(file: FileDescriptorProto) -> FileDescriptorProto:
    copy = FileDescriptorProto()
    copy.CopyFrom(file)
    _imports(copy)
    for message in copy.message_type:
        _message(message)
    for enum in copy.enum_type:
        _enum(enum)
    _extensions(copy.extension)
    return copy


def _imports(file: FileDescriptorProto) -> None:
    public = {file.dependency[index] for index in file.public_dependency}
    weak = {file.dependency[index] for index in file.weak_dependency}
    names = sorted(file.dependency)
    for name in ("dependency", "public_dependency", "weak_dependency"):
        file.ClearField(name)
    file.dependency.extend(names)
    file.public_dependency.extend(index for index, name in enumerate(names) if name in public)
    file.weak_dependency.extend(index for index, name in enumerate(names) if name in weak)
    options: Any = getattr(file, "option_dependency", [])
    options.sort()


def _message(message: DescriptorProto) -> None:
    _sort(message.field, _number)
    _sort(message.reserved_range, _start)
    _sort(message.extension_range, _start)
    message.reserved_name.sort()
    _extensions(message.extension)
    _entries(message)
    for nested in message.nested_type:
        _message(nested)
    for enum in message.enum_type:
        _enum(enum)


def _entries(message: DescriptorProto) -> None:
    """Give the places of map entries to the maps in the order of their fields."""
    places = [index for index, one in enumerate(message.nested_type) if one.options.map_entry]
    if len(places) < 2:
        return
    by_name = {one.name: one for one in message.nested_type if one.options.map_entry}
    named = (field.type_name.rpartition(".")[2] for field in message.field)
    order = [by_name[name].SerializeToString() for name in named if name in by_name]
    if len(order) == len(places):
        for place, raw in zip(places, order, strict=True):
            message.nested_type[place].ParseFromString(raw)


def _enum(enum: EnumDescriptorProto) -> None:
    first = enum.value[0].name

    def place(value: EnumValueDescriptorProto) -> tuple[bool, int]:
        return value.name != first, value.number

    _sort(enum.value, place)
    _sort(enum.reserved_range, _start)
    enum.reserved_name.sort()


def _extensions(extensions: Any) -> None:
    _sort(extensions, _extended)


def _number(field: FieldDescriptorProto) -> int:
    return field.number


def _extended(field: FieldDescriptorProto) -> tuple[str, int]:
    return field.extendee, field.number


def _start(one: Any) -> int:
    return one.start


def _sort(container: Any, key: Callable[[Any], Any]) -> None:
    # Sorted by Python, which keeps equal ones in their order: of two values with one number the first gives the name.
    raw = [one.SerializeToString() for one in sorted(container, key=key)]
    for one, text in zip(container, raw, strict=True):
        one.ParseFromString(text)
