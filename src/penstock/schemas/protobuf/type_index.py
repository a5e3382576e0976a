"""Every message and enum that a schema can reach, by its full name, with what comparing wants to know of it."""

from typing import NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from penstock.schemas.protobuf.features import Features, file_features
from penstock.schemas.protobuf.imports import Files


class MessageType(NamedTuple):
    name: str
    """With the package and a dot in front, as descriptors name types."""
    local_name: str
    """Without the package."""
    proto: DescriptorProto
    is_own: bool
    """Of the schema itself, not of an import."""
    features: Features


class TypeIndex:
    def __init__(self, file: FileDescriptorProto, files: Files) -> None:
        self.messages: dict[str, MessageType] = {}
        self._file = file
        for other in files.values():
            self._add_file(other, is_own=False)
        self._add_file(file, is_own=True)

    def top_level(self) -> list[MessageType]:
        prefix = f".{self._file.package}." if self._file.package else "."
        return [self.messages[prefix + one.name] for one in self._file.message_type]

    def inside(self, message: MessageType) -> list[MessageType]:
        """The messages nested in one, without those that maps are made of."""
        return [
            self.messages[f"{message.name}.{one.name}"]
            for one in message.proto.nested_type
            if not one.options.map_entry
        ]

    def map_entry(self, field: FieldDescriptorProto) -> DescriptorProto | None:
        found = self.messages.get(field.type_name)
        return found.proto if found is not None and found.proto.options.map_entry else None

    def _add_file(self, file: FileDescriptorProto, *, is_own: bool) -> None:
        prefix = f".{file.package}." if file.package else "."
        features = file_features(file)
        # Descriptors may nest deeper than calls should.
        waiting = [(prefix, "", one, features) for one in file.message_type]
        while waiting:
            before, local, message, outer = waiting.pop()
            name, local_name = before + message.name, local + message.name
            inside = outer.inside(message)
            self.messages[name] = MessageType(name, local_name, message, is_own, inside)
            waiting.extend((f"{name}.", f"{local_name}.", one, inside) for one in message.nested_type)
