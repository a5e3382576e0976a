"""A whole .proto file: syntax, package, imports, options, types, services.

parse_source() gives what the source says; names are looked up by linking, options understood by interpreting, rules of
the language checked by checking.
"""

from typing import Any, cast

from google.protobuf.descriptor_pb2 import FileDescriptorProto, MethodDescriptorProto, ServiceDescriptorProto

from penstock.schemas.protobuf import option_syntax
from penstock.schemas.protobuf.declarations import Declarations, set_visibility, visible_words
from penstock.schemas.protobuf.option_syntax import Option
from penstock.schemas.protobuf.parsed_file import (
    FILE_DEPENDENCY,
    FILE_ENUM,
    FILE_EXTENSION,
    FILE_MESSAGE,
    FILE_SERVICE,
    SERVICE_METHOD,
    ParsedFile,
    Path,
)
from penstock.schemas.protobuf.tokens import NAME_LENGTH_MAX, Kind, Words

EDITIONS = {"2023": 1000, "2024": 1001}
PACKAGE_LENGTH_MAX = 511


def parse_source(text: str) -> ParsedFile:
    parsed = ParsedFile(FileDescriptorProto(), Words(text))
    _FileParser(parsed).run()
    return parsed


class _FileParser:
    def __init__(self, parsed: ParsedFile) -> None:
        self._parsed = parsed
        self._words = parsed.words
        self._file = parsed.file
        self._declarations = Declarations(parsed)
        self._options: list[Option] = []
        self._imported: set[str] = set()

    def run(self) -> None:
        words = self._words
        self._syntax()
        while words.token.kind is not Kind.END:
            self._statement()
        # An element's extensions are looked for around it: around a file there is its package.
        self._parsed.keep_options(self._file, "-", self._options)

    def _syntax(self) -> None:
        words, file = self._words, self._file
        start = words.token.start
        if words.accept("syntax"):
            words.expect("=")
            syntax = words.text_string("a syntax")
            if syntax not in ("proto2", "proto3"):
                words.refuse(f'the syntax {syntax!r} is not known; use "proto2" or "proto3"', start)
            file.syntax = syntax
        elif words.accept("edition"):
            words.expect("=")
            edition = words.text_string("an edition")
            if edition not in EDITIONS:
                words.refuse(f"the edition {edition!r} is not known; known are {', '.join(EDITIONS)}", start)
            file.syntax = "editions"
            cast("Any", file).edition = EDITIONS[edition]
        else:
            return
        words.expect(";")

    def _statement(self) -> None:
        words, file = self._words, self._file
        leading = words.leading_comment()
        match words.token.text if words.token.kind is Kind.NAME else "":
            case "message":
                words.take()
                at = (FILE_MESSAGE, len(file.message_type))
                self._declarations.message(file.message_type.add(), at, "")
                self._parsed.document(at, leading)
            case "enum":
                words.take()
                at = (FILE_ENUM, len(file.enum_type))
                self._declarations.enum(file.enum_type.add(), at, "")
                self._parsed.document(at, leading)
            case "export" | "local" as visibility if visible_words(self._parsed):
                words.take()
                self._visible(visibility)
            case "extend":
                words.take()
                self._declarations.extend(file, (), FILE_EXTENSION, FILE_MESSAGE, "")
            case "service":
                words.take()
                self._service(file.service.add(), (FILE_SERVICE, len(file.service) - 1))
            case "import":
                words.take()
                self._import()
            case "package":
                self._package()
            case "option":
                words.take()
                self._options.append(option_syntax.statement(words))
            case _ if words.accept(";"):
                words.count()
            case "syntax" | "edition":
                words.refuse(f'"{words.token.text}" must come first and only once')
            case _:
                words.unexpected('a declaration such as "message", "enum", "import" or "option"')

    def _visible(self, visibility: str) -> None:
        file = self._file
        if self._words.accept("message"):
            message = file.message_type.add()
            set_visibility(message, visibility)
            self._declarations.message(message, (FILE_MESSAGE, len(file.message_type) - 1), "")
        else:
            self._words.expect("enum")
            enum = file.enum_type.add()
            set_visibility(enum, visibility)
            self._declarations.enum(enum, (FILE_ENUM, len(file.enum_type) - 1), "")

    def _import(self) -> None:
        words, file = self._words, self._file
        words.count()
        kind = words.take().text if words.token.kind is Kind.NAME else ""
        if kind not in ("", "public", "weak", "option") or (kind == "option" and not visible_words(self._parsed)):
            words.refuse(f'"import {kind}" is not known; use "import", "import public" or "import weak"')
        start = words.token.start
        name = words.text_string("the name of a file to import")
        words.expect(";")
        if not 0 < len(name) <= NAME_LENGTH_MAX:
            words.refuse(f"the name of an import has 1 to {NAME_LENGTH_MAX} characters", start)
        if kind == "option":
            cast("Any", file).option_dependency.append(name)
            return
        if name in self._imported:
            words.refuse(f"{name!r} is imported twice", start)
        index = len(file.dependency)
        self._imported.add(name)
        self._parsed.starts[(FILE_DEPENDENCY, index)] = start
        file.dependency.append(name)
        if kind:
            (file.public_dependency if kind == "public" else file.weak_dependency).append(index)

    def _package(self) -> None:
        words = self._words
        start = words.take().start
        if self._file.package:
            words.refuse("a file has one package", start)
        name = words.dotted_name("the name of a package")
        words.expect(";")
        if name.startswith(".") or len(name) > PACKAGE_LENGTH_MAX:
            words.refuse(
                f"a package's name begins with a letter and has at most {PACKAGE_LENGTH_MAX} characters", start
            )
        self._file.package = name

    def _service(self, service: ServiceDescriptorProto, path: Path) -> None:
        words = self._words
        words.count()
        self._parsed.starts[path] = words.token.start
        service.name = words.name("the name of a service").text
        options: list[Option] = []
        words.expect("{")
        while not words.accept("}"):
            if words.accept(";"):
                continue
            if words.accept("option"):
                options.append(option_syntax.statement(words))
                continue
            words.expect("rpc")
            self._method(service.method.add(), (*path, SERVICE_METHOD, len(service.method) - 1), service.name)
        self._parsed.keep_options(service, service.name, options)

    def _method(self, method: MethodDescriptorProto, path: Path, scope: str) -> None:
        words = self._words
        words.count()
        self._parsed.starts[path] = words.token.start
        method.name = words.name("the name of a method").text
        words.expect("(")
        if words.accept("stream"):
            method.client_streaming = True
        method.input_type = words.dotted_name("the type that a method takes")
        words.expect(")")
        words.expect("returns")
        words.expect("(")
        if words.accept("stream"):
            method.server_streaming = True
        method.output_type = words.dotted_name("the type that a method returns")
        words.expect(")")
        options: list[Option] = []
        if words.accept("{"):
            while not words.accept("}"):
                if words.accept(";"):
                    continue
                words.expect("option")
                options.append(option_syntax.statement(words))
            words.accept(";")
        else:
            words.expect(";")
        self._parsed.keep_options(method, f"{scope}.{method.name}", options)
