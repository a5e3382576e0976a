"""A .proto file as its source says it, before names have been looked up: what the parser hands to linking."""

from dataclasses import dataclass, field
from typing import Any, NoReturn

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from penstock.schemas.protobuf.option_syntax import Option, OptionSet, Value
from penstock.schemas.protobuf.tokens import Words
from penstock.schemas.schema import SchemaError

Path = tuple[int, ...]
"""An element's place among the descriptors, as in SourceCodeInfo: numbers of fields and indexes by turns."""

# Numbers of fields in descriptor.proto, for paths.
FILE_MESSAGE, FILE_ENUM, FILE_SERVICE, FILE_EXTENSION, FILE_DEPENDENCY = 4, 5, 6, 7, 3
MESSAGE_FIELD, MESSAGE_NESTED, MESSAGE_ENUM, MESSAGE_EXTENSION, MESSAGE_ONEOF = 2, 3, 4, 6, 8
MESSAGE_RANGE, MESSAGE_RESERVED, MESSAGE_RESERVED_NAME = 5, 9, 10
ENUM_VALUE, ENUM_RESERVED, ENUM_RESERVED_NAME = 2, 4, 5
SERVICE_METHOD = 2


@dataclass(slots=True)
class ParsedFile:
    file: FileDescriptorProto
    words: Words
    starts: dict[Path, int] = field(default_factory=dict[Path, int])
    docs: dict[Path, str] = field(default_factory=dict[Path, str])
    option_sets: list[OptionSet] = field(default_factory=list[OptionSet])
    defaults: list[tuple[FieldDescriptorProto, Value]] = field(default_factory=list[tuple[FieldDescriptorProto, Value]])

    def begin(self, path: Path) -> None:
        """The next word is where this element stands."""
        self.starts[path] = self.words.token.start

    def document(self, path: Path, leading: str, trailing: str = "") -> None:
        if leading or trailing:
            self.docs[path] = leading or trailing

    def keep_options(self, owner: Any, scope: str, options: list[Option]) -> None:
        if options:
            self.option_sets.append(OptionSet(owner, scope, options))

    def refuse(self, path: Path, why: str) -> NoReturn:
        """Refuse the element at this path, or the innermost one around it whose place is known."""
        while path and path not in self.starts:
            path = path[:-1]
        raise SchemaError(f"{self.words.place(self.starts.get(path, 0))}: {why}")
