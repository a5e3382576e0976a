"""Protobuf schemas: serialized file descriptors from a descriptor set or a registry, and the message class they make.

Called by resolving (files) and protobuf_decoder (the class). Well-known types come with the protobuf library, whether
or not the schema brings them along.
"""

import base64
import binascii
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError, Message

from penstock.spark.errors import BadOption
from penstock.spark.formats.columns import BadRecord

_WELL_KNOWN = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
}


def files_of_set(raw: bytes, where: str) -> tuple[bytes, ...]:
    """The files of a descriptor set, the last one being the schema itself."""
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(raw)
    except DecodeError as error:
        raise BadOption(
            f"{where} is no descriptor set; make one with protoc --include_imports --descriptor_set_out"
        ) from error
    if not found.file:
        raise BadOption(f"{where} holds no file; make it with protoc --include_imports --descriptor_set_out")
    return tuple(file.SerializeToString() for file in found.file)


def files_of_registry(text: str, references: tuple[tuple[str, str], ...]) -> tuple[bytes, ...]:
    """From base64 descriptors, each known to the others by the name it is imported under; ValueError otherwise."""
    files: list[bytes] = []
    for name, one in (*references, ("", text)):
        file = _descriptor(one)
        # What a registry calls a file itself may be anything; the import says what it must be called here.
        file.name = name or "penstock/schema.proto"
        files.append(file.SerializeToString())
    return tuple(files)


def message_at(text: str, indexes: tuple[int, ...]) -> str:
    """The full name of the message that indexes point to; ValueError for source text, BadRecord if there is none."""
    file = _descriptor(text)
    names = [file.package] if file.package else []
    level: Any = file.message_type
    for index in indexes:
        if index >= len(level):
            raise BadRecord("its message indexes point to no message of its schema")
        names.append(level[index].name)
        level = level[index].nested_type
    return ".".join(names)


def indexes_of(descriptor: Any) -> tuple[int, ...]:
    """The path to a message in its file."""
    found: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = outer.nested_types if outer is not None else descriptor.file.message_types_by_name.values()
        found.append([one.full_name for one in siblings].index(descriptor.full_name))
        descriptor = outer
    return tuple(reversed(found))


def message_class(files: tuple[bytes, ...], name: str | None) -> type[Message]:
    """The class of a message by its full name, or of the first message in the last file."""
    pool = descriptor_pool.DescriptorPool()
    parsed = {file.name: file for file in (_parsed(raw) for raw in files)}
    main = _parsed(files[-1])
    added: set[str] = set()

    def add(file: Any, path: tuple[str, ...]) -> None:
        if file.name in added:
            return
        if file.name in path or len(path) > 200:
            raise BadOption("the protobuf schema's imports go round in a circle")
        for needed in file.dependency:
            if needed in parsed:
                add(parsed[needed], (*path, file.name))
            elif needed in _WELL_KNOWN:
                add(_parsed(_WELL_KNOWN[needed]), (*path, file.name))
            else:
                raise BadOption(
                    f"the protobuf schema imports {needed}, which is not there; use protoc --include_imports"
                )
        added.add(file.name)
        pool.AddSerializedFile(file.SerializeToString())

    try:
        for file in parsed.values():
            add(file, ())
        if name is None:
            if not main.message_type:
                raise BadOption("the protobuf schema has no message")
            name = ".".join([*([main.package] if main.package else []), main.message_type[0].name])
        descriptor = pool.FindMessageTypeByName(name)
    except KeyError as error:
        known = sorted(one.name for file in parsed.values() for one in file.message_type)[:20]
        raise BadOption(f"the protobuf schema has no message {name} (its messages: {', '.join(known)})") from error
    except TypeError as error:
        raise BadOption(f"the protobuf schema is not valid: {str(error)[:200]}") from error
    return message_factory.GetMessageClass(descriptor)


def _parsed(raw: bytes) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    file.ParseFromString(raw)
    return file


def _descriptor(text: str) -> descriptor_pb2.FileDescriptorProto:
    try:
        return _parsed(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError) as error:
        raise ValueError(
            "the registry gives protobuf as source text, not as a descriptor; "
            "make a descriptor set with protoc and name it in value.schema.file"
        ) from error
