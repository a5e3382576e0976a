"""What changed between two schemas, by the rules of Confluent's registry and under its names.

compare() is called by schema.differences(). Messages are followed into imported files: a field whose message lives
there is as incompatible as that message. Laws:
- Every difference is named, compatible ones too (COMPATIBLE says which); their order is that of the schemas.
- Each pair of messages is compared once, and none inside another: recursive and long chains of types cost no stack.
- Names are compared without their package, so that types may move between packages and files.
"""

from typing import NamedTuple

from google.protobuf.descriptor_pb2 import EnumDescriptorProto

from penstock.schemas.protobuf.comparing_fields import compare_fields
from penstock.schemas.protobuf.compiling import Compiled
from penstock.schemas.protobuf.type_index import MessageType, TypeIndex
from penstock.schemas.schema import Incompatible

COMPATIBLE = frozenset(
    {
        "PACKAGE_CHANGED",
        "MESSAGE_ADDED",
        "MESSAGE_MOVED",
        "ENUM_ADDED",
        "ENUM_REMOVED",
        "ENUM_CONST_ADDED",
        "ENUM_CONST_CHANGED",
        "ENUM_CONST_REMOVED",
        "FIELD_ADDED",
        "FIELD_REMOVED",
        "FIELD_NAME_CHANGED",
        "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
        "ONEOF_ADDED",
        "ONEOF_REMOVED",
        "ONEOF_FIELD_ADDED",
    }
)

SENTENCES = {
    "PACKAGE_CHANGED": "the package is another one",
    "MESSAGE_ADDED": "the message is new",
    "MESSAGE_REMOVED": "the message is gone, and with it all its records",
    "MESSAGE_MOVED": "the message stands at another place",
    "ENUM_ADDED": "the enum is new",
    "ENUM_REMOVED": "the enum is gone",
    "ENUM_CONST_ADDED": "the enum has a new value",
    "ENUM_CONST_CHANGED": "the value has another name",
    "ENUM_CONST_REMOVED": "the value is gone",
    "FIELD_ADDED": "the field is new",
    "FIELD_REMOVED": "the field is gone",
    "FIELD_NAME_CHANGED": "the field has another name",
    "FIELD_KIND_CHANGED": "the field was of another kind: scalar, message, group or map",
    "FIELD_SCALAR_KIND_CHANGED": "the field was a scalar that is encoded otherwise",
    "FIELD_NAMED_TYPE_CHANGED": "the field was another message, or one that has changed incompatibly",
    "FIELD_NUMERIC_LABEL_CHANGED": "the field is a number whose label (optional, required, repeated) was another",
    "FIELD_STRING_OR_BYTES_LABEL_CHANGED": "the field is a string or bytes whose label was another",
    "REQUIRED_FIELD_ADDED": "the field is required now, but older records may lack it",
    "REQUIRED_FIELD_REMOVED": "the field was required and is gone",
    "ONEOF_ADDED": "the oneof is new",
    "ONEOF_REMOVED": "the oneof is gone",
    "ONEOF_FIELD_ADDED": "the oneof has a new field",
    "ONEOF_FIELD_REMOVED": "the oneof has lost the field",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "the oneof holds fields that could be set together before",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "the oneof has taken up a field that could be set beside its others",
}


class Pair(NamedTuple):
    older: str
    newer: str


class _Use(NamedTuple):
    """Who depends on a pair, and where to tell it; None where being a part is enough."""

    user: Pair | None
    path: str | None


def compare(older: Compiled, newer: Compiled) -> list[Incompatible]:
    return _Comparison(older, newer).run()


class _Comparison:
    def __init__(self, older: Compiled, newer: Compiled) -> None:
        self._older_file, self._newer_file = older.file, newer.file
        self._older = TypeIndex(older.file, older.files)
        self._newer = TypeIndex(newer.file, newer.files)
        self._found: list[Incompatible] = []
        self._waiting: list[Pair] = []
        self._uses: dict[Pair, list[_Use]] = {}
        self._broken: set[Pair] = set()

    def run(self) -> list[Incompatible]:
        if self._older_file.package != self._newer_file.package:
            self._add("PACKAGE_CHANGED", "#/", None)
        messages = self._older.top_level(), self._newer.top_level()
        self._messages(messages[0], messages[1], "#", None)
        self._enums(list(self._older_file.enum_type), list(self._newer_file.enum_type), "#")
        done = 0
        while done < len(self._waiting):
            self._pair(self._waiting[done])
            done += 1
        self._spread()
        return self._found

    def _add(self, kind: str, path: str, pair: Pair | None) -> None:
        self._found.append(Incompatible(kind, path, f"at {path}: {SENTENCES[kind]}"))
        if pair is not None and kind not in COMPATIBLE:
            self._broken.add(pair)

    def _messages(self, older: list[MessageType], newer: list[MessageType], path: str, user: Pair | None) -> None:
        """Messages that stand beside each other, by their names. What maps are made of is compared with the map."""
        new = {one.proto.name: (index, one) for index, one in enumerate(newer)}
        old = {one.proto.name: index for index, one in enumerate(older)}
        for index, one in enumerate(older):
            name = one.proto.name
            at = f"{path}/{name}"
            if name not in new:
                self._add("MESSAGE_REMOVED", at, user)
                continue
            place, other = new[name]
            self._use(Pair(one.name, other.name), _Use(user, None))
            if place != index:
                self._add("MESSAGE_MOVED", at, user)
        for one in newer:
            if one.proto.name not in old:
                self._add("MESSAGE_ADDED", f"{path}/{one.proto.name}", user)

    def _enums(self, older: list[EnumDescriptorProto], newer: list[EnumDescriptorProto], path: str) -> None:
        new = {one.name: one for one in newer}
        for enum in older:
            at = f"{path}/{enum.name}"
            other = new.pop(enum.name, None)
            if other is None:
                self._add("ENUM_REMOVED", at, None)
                continue
            old_values = {value.number: value.name for value in enum.value}
            new_values = {value.number: value.name for value in other.value}
            for number in sorted(old_values | new_values):
                if number not in new_values:
                    self._add("ENUM_CONST_REMOVED", f"{at}/{number}", None)
                elif number not in old_values:
                    self._add("ENUM_CONST_ADDED", f"{at}/{number}", None)
                elif old_values[number] != new_values[number]:
                    self._add("ENUM_CONST_CHANGED", f"{at}/{number}", None)
        for name in new:
            self._add("ENUM_ADDED", f"{path}/{name}", None)

    def _use(self, pair: Pair, use: _Use) -> None:
        if pair not in self._uses:
            self._uses[pair] = []
            self._waiting.append(pair)
        self._uses[pair].append(use)

    def _pair(self, pair: Pair) -> None:
        older, newer = self._older.messages[pair.older], self._newer.messages[pair.newer]
        path = f"#/{newer.local_name.replace('.', '/')}"
        fields = compare_fields(older, newer, self._older, self._newer)
        for kind, at in fields.differences:
            self._add(kind, f"{path}/{at}", pair)
        for old_name, new_name, at in fields.messages:
            # Two messages of the schemas themselves are compared where they stand.
            if not (self._older.messages[old_name].is_own and self._newer.messages[new_name].is_own):
                self._use(Pair(old_name, new_name), _Use(pair, f"{path}/{at}"))
        self._messages(self._older.inside(older), self._newer.inside(newer), path, pair)
        self._enums(list(older.proto.enum_type), list(newer.proto.enum_type), path)

    def _spread(self) -> None:
        """What uses an incompatible message is incompatible."""
        told: set[str] = set()
        waiting = sorted(self._broken)
        while waiting:
            for user, path in self._uses[waiting.pop()]:
                if path is not None and path not in told:
                    told.add(path)
                    self._add("FIELD_NAMED_TYPE_CHANGED", path, None)
                if user is not None and user not in self._broken:
                    self._broken.add(user)
                    waiting.append(user)
