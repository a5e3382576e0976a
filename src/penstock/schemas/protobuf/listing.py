"""A schema's fields as a person reads them in the console: one line each, names with dots, messages opened up.

Used by schema.fields(). Messages that others use as a field are shown there, not again by themselves. Where several
are left, names begin with their message's.
"""

import json
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from penstock.schemas.protobuf.compiling import Compiled
from penstock.schemas.protobuf.parsed_file import FILE_MESSAGE, MESSAGE_FIELD, MESSAGE_NESTED, Path
from penstock.schemas.protobuf.printer import SCALAR_NAMES
from penstock.schemas.schema import Field

LISTED_MAX = 2000
_DEPTH_MAX = 8
F = FieldDescriptorProto


def fields(compiled: Compiled) -> list[Field]:
    listing = _Listing(compiled)
    found: list[Field] = []
    roots = listing.roots()
    for name in roots:
        prefix = f"{name.rpartition('.')[2]}." if len(roots) > 1 else ""
        for field in listing.of_message(name, prefix, (name,)):
            if len(found) >= LISTED_MAX:
                return found
            found.append(field)
    return found


class _Listing:
    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._messages: dict[str, tuple[DescriptorProto, Path]] = {}
        package = compiled.file.package
        self._package = f".{package}." if package else "."
        for index, message in enumerate(compiled.file.message_type):
            self._index(message, self._package + message.name, (FILE_MESSAGE, index))
        # Comments are known of this file alone, types of all but the library's.
        for name, file in compiled.files.items():
            if not name.startswith("google/"):
                prefix = f".{file.package}." if file.package else "."
                for message in file.message_type:
                    self._index(message, prefix + message.name, ())

    def roots(self) -> list[str]:
        names = [self._package + message.name for message in self._compiled.file.message_type]
        used = {
            field.type_name
            for name, (message, _) in self._messages.items()
            for field in message.field
            if field.type_name != name
        }
        return [name for name in names if name not in used] or names[:1]

    def of_message(self, name: str, prefix: str, around: tuple[str, ...]) -> Iterator[Field]:
        message, path = self._messages[name]
        for index, field in enumerate(message.field):
            doc = self._compiled.docs.get((*path, MESSAGE_FIELD, index), "") if path else ""
            entry = self._entry(field)
            yield Field(prefix + field.name, self._type(field, message, entry), doc, _default(field))
            inner = field.type_name if entry is None else entry.field[1].type_name
            # A message in itself is named, not opened again.
            if inner in self._messages and inner not in around and len(around) < _DEPTH_MAX:
                yield from self.of_message(inner, f"{prefix}{field.name}.", (*around, inner))

    def _type(self, field: FieldDescriptorProto, message: DescriptorProto, entry: DescriptorProto | None) -> str:
        if entry is not None:
            return f"map<{self._name(entry.field[0])}, {self._name(entry.field[1])}>"
        name = self._name(field)
        if field.label == F.LABEL_REPEATED:
            return f"repeated {name}"
        if field.label == F.LABEL_REQUIRED:
            return f"required {name}"
        if field.proto3_optional:
            return f"optional {name}"
        if field.HasField("oneof_index"):
            return f"{name} (oneof {message.oneof_decl[field.oneof_index].name})"
        return name

    def _name(self, field: FieldDescriptorProto) -> str:
        if not field.type_name:
            return SCALAR_NAMES[field.type]
        return field.type_name.removeprefix(self._package).removeprefix(".")

    def _entry(self, field: FieldDescriptorProto) -> DescriptorProto | None:
        target = self._messages.get(field.type_name)
        return target[0] if target is not None and target[0].options.map_entry else None

    def _index(self, message: DescriptorProto, name: str, path: Path) -> None:
        self._messages[name] = (message, path)
        for index, nested in enumerate(message.nested_type):
            self._index(nested, f"{name}.{nested.name}", (*path, MESSAGE_NESTED, index) if path else ())


def _default(field: FieldDescriptorProto) -> str | None:
    if not field.HasField("default_value"):
        return None
    value = field.default_value
    is_text = field.type in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_ENUM) or value in ("inf", "-inf", "nan")
    return json.dumps(value, ensure_ascii=False) if is_text else value
