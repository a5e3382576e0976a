"""Which names a file defines, which it can see, and what a name written in some place means there.

Used by linking, interpreting and the printer. The rules are protoc's: the innermost scope that knows a name's first
part decides, and only things that can hold others decide for a name of several parts.
"""

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto

from penstock.schemas.protobuf.parsed_file import (
    ENUM_VALUE,
    FILE_ENUM,
    FILE_EXTENSION,
    FILE_MESSAGE,
    FILE_SERVICE,
    MESSAGE_ENUM,
    MESSAGE_EXTENSION,
    MESSAGE_FIELD,
    MESSAGE_NESTED,
    MESSAGE_ONEOF,
    SERVICE_METHOD,
    Path,
)


class Thing(Enum):
    PACKAGE = auto()
    MESSAGE = auto()
    ENUM = auto()
    VALUE = auto()
    FIELD = auto()
    EXTENSION = auto()
    ONEOF = auto()
    SERVICE = auto()
    METHOD = auto()


_HOLDERS = frozenset({Thing.PACKAGE, Thing.MESSAGE, Thing.ENUM, Thing.SERVICE})
_TYPES = frozenset({Thing.MESSAGE, Thing.ENUM})
Symbols = Mapping[str, Thing]


class Definition(NamedTuple):
    name: str
    thing: Thing
    path: Path


def definitions(file: FileDescriptorProto) -> Iterator[Definition]:
    """Every name that a file defines, except its package, with its full name and place."""
    package = f"{file.package}." if file.package else ""
    for index, message in enumerate(file.message_type):
        yield from _of_message(message, package, (FILE_MESSAGE, index))
    for index, enum in enumerate(file.enum_type):
        yield from _of_enum(enum, package, (FILE_ENUM, index))
    for index, field in enumerate(file.extension):
        yield Definition(package + field.name, Thing.EXTENSION, (FILE_EXTENSION, index))
    for index, service in enumerate(file.service):
        yield Definition(package + service.name, Thing.SERVICE, (FILE_SERVICE, index))
        for place, method in enumerate(service.method):
            name = f"{package}{service.name}.{method.name}"
            yield Definition(name, Thing.METHOD, (FILE_SERVICE, index, SERVICE_METHOD, place))


def packages(file: FileDescriptorProto) -> Iterator[str]:
    """The file's package and those around it."""
    parts = file.package.split(".") if file.package else []
    for end in range(len(parts)):
        yield ".".join(parts[: end + 1])


@lru_cache(maxsize=256)
def symbols_of(raw: bytes) -> Symbols:
    """All names of a serialized file, its packages among them."""
    file = FileDescriptorProto.FromString(raw)
    found = dict.fromkeys(packages(file), Thing.PACKAGE)
    found.update((one.name, one.thing) for one in definitions(file))
    return found


class Scope:
    """The names visible in one file."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols

    def thing(self, full_name: str) -> Thing | None:
        return self._symbols.get(full_name)

    def resolve(self, name: str, element: str, *, is_type: bool = False) -> str | None:
        """The full name that `name` stands for when `element` (a full name) uses it; None where it means nothing."""
        if name.startswith("."):
            return name[1:] if name[1:] in self._symbols else None
        first, _, rest = name.partition(".")
        around = element
        while around:
            around = around.rpartition(".")[0]
            prefix = f"{around}." if around else ""
            found = self._symbols.get(prefix + first)
            if found is None:
                continue
            if rest:
                if found in _HOLDERS:
                    full = prefix + name
                    return full if full in self._symbols else None
            elif not is_type or found in _TYPES:
                return prefix + first
        return None


def _of_message(message: DescriptorProto, prefix: str, path: Path) -> Iterator[Definition]:
    name = prefix + message.name
    yield Definition(name, Thing.MESSAGE, path)
    inside = f"{name}."
    for index, field in enumerate(message.field):
        yield Definition(inside + field.name, Thing.FIELD, (*path, MESSAGE_FIELD, index))
    for index, oneof in enumerate(message.oneof_decl):
        yield Definition(inside + oneof.name, Thing.ONEOF, (*path, MESSAGE_ONEOF, index))
    for index, nested in enumerate(message.nested_type):
        yield from _of_message(nested, inside, (*path, MESSAGE_NESTED, index))
    for index, enum in enumerate(message.enum_type):
        yield from _of_enum(enum, inside, (*path, MESSAGE_ENUM, index))
    for index, field in enumerate(message.extension):
        yield Definition(inside + field.name, Thing.EXTENSION, (*path, MESSAGE_EXTENSION, index))


def _of_enum(enum: EnumDescriptorProto, prefix: str, path: Path) -> Iterator[Definition]:
    yield Definition(prefix + enum.name, Thing.ENUM, path)
    # Values stand beside their enum, not in it, as in C++.
    for index, value in enumerate(enum.value):
        yield Definition(prefix + value.name, Thing.VALUE, (*path, ENUM_VALUE, index))
