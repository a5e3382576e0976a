"""What an edition's features make of an element: the few that the rules of the language ask for.

Used by checking and comparing. A feature holds for what it is written on and for everything inside; the edition says
what holds where none is written. proto2 and proto3 are editions with fixed features.
"""

from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FeatureSet, FileDescriptorProto

_S: Any = FeatureSet


class Features(NamedTuple):
    field_presence: int
    enum_type: int
    json_format: int
    message_encoding: int

    @property
    def is_required(self) -> bool:
        return self.field_presence == _S.LEGACY_REQUIRED

    @property
    def is_implicit(self) -> bool:
        return self.field_presence == _S.IMPLICIT

    @property
    def is_open(self) -> bool:
        return self.enum_type == _S.OPEN

    @property
    def is_json_strict(self) -> bool:
        return self.json_format == _S.ALLOW

    @property
    def is_delimited(self) -> bool:
        return self.message_encoding == _S.DELIMITED

    def inside(self, owner: Any) -> "Features":
        """The features of an element that stands where these hold."""
        if not owner.HasField("options") or not owner.options.HasField("features"):
            return self
        written: Any = owner.options.features
        return Features(*(getattr(written, name) or value for name, value in self._asdict().items()))


_PROTO2 = Features(_S.EXPLICIT, _S.CLOSED, _S.LEGACY_BEST_EFFORT, _S.LENGTH_PREFIXED)
_PROTO3 = Features(_S.IMPLICIT, _S.OPEN, _S.ALLOW, _S.LENGTH_PREFIXED)
_EDITIONS = Features(_S.EXPLICIT, _S.OPEN, _S.ALLOW, _S.LENGTH_PREFIXED)


def file_features(file: FileDescriptorProto) -> Features:
    match file.syntax:
        case "proto3":
            return _PROTO3
        case "editions":
            return _EDITIONS.inside(file)
        case _:
            return _PROTO2
