"""The files that a schema imports: its references, what they import in turn, and the files everybody may use.

Made by parse_protobuf for each schema. Laws:
- A reference is known by the name the schema gives it, whatever it calls itself.
- google/protobuf/* always means the protobuf library's own files; google/type/* and confluent/* do so unless a
  reference says otherwise.
- Files come in an order in which each needs only those before it.
"""

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from penstock.schemas.protobuf.known_files import KNOWN_SOURCES
from penstock.schemas.schema import SchemaError

FILES_MAX = 500
"""A schema, its references and theirs."""
DESCRIPTOR_FILE = "google/protobuf/descriptor.proto"

_LIBRARY_FILE = re.compile(r"google/(?:protobuf|type)/[a-z][a-z0-9_]*\.proto")
Files = Mapping[str, FileDescriptorProto]


class Imports:
    """Files by the name they are imported under."""

    def __init__(self, references: Sequence[tuple[str, Files, FileDescriptorProto]]) -> None:
        """`references`: the name of each, the files it imports itself, and its file."""
        self._given: dict[str, FileDescriptorProto] = {}
        for name, _, file in references:
            named = FileDescriptorProto()
            named.CopyFrom(file)
            named.name = name
            self._given[name] = named
        for _, files, _ in references:
            for name, file in files.items():
                self._given.setdefault(name, file)
        if len(self._given) > FILES_MAX:
            raise SchemaError(f"the schema and its references are more than {FILES_MAX} files")

    def find(self, name: str) -> FileDescriptorProto | None:
        if name.startswith("google/protobuf/") and (known := known_file(name)):
            return known
        return self._given.get(name) or known_file(name)

    def needed_by(self, file: FileDescriptorProto) -> dict[str, FileDescriptorProto]:
        """All that `file` imports, directly and through others; SchemaError where one is missing or needs itself."""
        found: dict[str, FileDescriptorProto] = {}
        under_way: set[str] = set()
        # A stack of its own: imports may form a chain as long as FILES_MAX.
        stack: list[tuple[str, FileDescriptorProto, Iterator[str]]] = [("", file, iter(imported(file)))]
        while stack:
            name, current, rest = stack[-1]
            needed = next(rest, None)
            if needed is None:
                stack.pop()
                under_way.discard(name)
                if name:
                    found[name] = current
            elif needed in under_way:
                raise SchemaError(f"the file {needed!r} imports itself, directly or through others")
            elif needed not in found:
                target = self.find(needed)
                if target is None:
                    raise SchemaError(_missing(needed, name))
                under_way.add(needed)
                stack.append((needed, target, iter(imported(target))))
        return found


def imported(file: FileDescriptorProto) -> Iterable[str]:
    return (*file.dependency, *option_dependencies(file))


def option_dependencies(file: FileDescriptorProto) -> tuple[str, ...]:
    """Files imported for options alone (since edition 2024)."""
    return tuple(getattr(file, "option_dependency", ()))


def visible(file: FileDescriptorProto, files: Files) -> list[str]:
    """The files whose names `file` may use: what it imports, and what that imports publicly."""
    found: dict[str, None] = {}
    waiting = list(file.dependency)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = None
            waiting.extend(files[name].dependency[index] for index in files[name].public_dependency)
    return list(found)


@lru_cache(maxsize=64)
def known_file(name: str) -> FileDescriptorProto | None:
    """A file that needs no reference."""
    if name in KNOWN_SOURCES:
        # Only here does a known file need the parser, which needs known files.
        from penstock.schemas.protobuf.compiling import compile_source

        file = compile_source(KNOWN_SOURCES[name], Imports(())).file
        file.name = name
        return file
    if not _LIBRARY_FILE.fullmatch(name):
        return None
    try:
        importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
    except ImportError:
        return None
    file = FileDescriptorProto()
    descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
    return file


def _missing(name: str, importer: str) -> str:
    by = f" by {importer!r}" if importer else ""
    return f"the import {name!r} is needed{by} but is none of the references; add a reference with that name"
