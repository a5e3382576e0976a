"""Schemas made to hurt: each is answered with SchemaError (or taken) in bounded time and without a deep stack."""

import base64
from collections.abc import Callable

import pytest
from google.protobuf import descriptor_pb2

from penstock.schemas.protobuf import ProtobufSchema, parse_protobuf, tokens
from penstock.schemas.protobuf.tokens import DEPTH_MAX, ELEMENTS_MAX
from penstock.schemas.schema import SCHEMA_BYTES_MAX, SchemaError

_3 = 'syntax = "proto3"; '
_2 = 'syntax = "proto2"; '
_META = _3 + 'import "confluent/meta.proto"; '
_MIB = SCHEMA_BYTES_MAX - 200

HOSTILE = {
    "braces": "{" * _MIB,
    "closing braces": "}" * _MIB,
    "open brackets in an option": _3 + "option (x) = {" + "[" * _MIB,
    "messages in messages": _3 + "message M {" * 90_000,
    "groups in groups": _2 + "message M { " + "optional group G = 1 {" * 40_000,
    "aggregates in aggregates": _META + "option (confluent.file_meta) = " + "{ rules " * 100_000,
    "lists in lists": _META + "option (confluent.file_meta) = { tags: " + "[" * _MIB,
    "angles in angles": _META + "option (confluent.file_meta) = { rules " + "< rules" * 120_000,
    "string without an end": _3 + 'option java_package = "' + "a" * _MIB,
    "string of backslashes": _3 + 'option java_package = "' + "\\" * _MIB,
    "string of escapes": _3 + 'option java_package = "' + "\\q" * (_MIB // 2) + '";',
    "comment without an end": _3 + "/*" + "*" * _MIB,
    "comments without an end": _3 + "/* " * (_MIB // 3),
    "slashes": "/" + " /" * (_MIB // 2),
    "a number of a million digits": _3 + "message M { int32 a = " + "9" * _MIB + "; }",
    "an octal number of a million digits": _3 + "message M { int32 a = 0" + "7" * _MIB + "; }",
    "a float of a million digits": _2 + "message M { optional double a = 1 [default = 1." + "9" * _MIB + "x]; }",
    "a name of a million letters": _3 + "message " + "M" * _MIB,
    "a name of half a million parts": _3 + "message M { " + "a." * (_MIB // 2) + "b c = 1; }",
    "a package of half a million parts": _3 + "package " + "a." * (_MIB // 2) + "b;",
    "an option's name of many parts": _3 + "option " + "a." * (_MIB // 2) + "b = 1;",
    "too many fields": _3 + "message M {" + "".join(f"int32 a{n}={n};" for n in range(1, ELEMENTS_MAX + 2)) + "}",
    "too many values": _3 + "enum E {" + "".join(f"A{n}={n};" for n in range(ELEMENTS_MAX + 1)) + "}",
    "too many imports": _3 + "".join(f'import "{n}";' for n in range(ELEMENTS_MAX + 1)),
    "too many options": _3 + "message M { int32 a = 1 [" + ",".join(["a = 1"] * (ELEMENTS_MAX + 1)) + "]; }",
    "too many items": _META
    + "option (confluent.file_meta) = { tags: ["
    + ",".join(['""'] * (ELEMENTS_MAX + 1))
    + "] };",
    "too many ranges": _3 + "message M { reserved " + ",".join(f"{n}" for n in range(1, ELEMENTS_MAX + 2)) + "; }",
    "one name over and over": _3 + "message M {" + "int32 a = 1;" * 5000 + "}",
    "half a character": _3 + "// \ud800",
    "zero characters": "\0" * _MIB,
    "base64 of nothing": "A" * _MIB,
    "base64 of a message in itself": "",
}


def _deep_descriptor() -> str:
    file = descriptor_pb2.FileDescriptorProto(syntax="proto3")
    message = file.message_type.add(name="M")
    for _ in range(90):
        message = message.nested_type.add(name="M")
    return base64.b64encode(file.SerializeToString()).decode()


HOSTILE["base64 of a message in itself"] = _deep_descriptor()


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_it_is_refused(source: str) -> None:
    with pytest.raises(SchemaError):
        parse_protobuf(source, [])


def test_a_schema_that_is_too_long_is_not_looked_at() -> None:
    with pytest.raises(SchemaError, match="longer than"):
        parse_protobuf("//" + "a" * SCHEMA_BYTES_MAX, [])


def _nested(depth: int) -> str:
    return _3 + "message M {" * depth + "}" * depth


def _aggregate(depth: int) -> str:
    # Inside a message, which counts as one.
    start = 'syntax = "proto2"; import "google/protobuf/descriptor.proto"; message T { optional T t = 1; } '
    extend = "extend google.protobuf.MessageOptions { optional T t = 50000; } "
    return f"{start}{extend}message M {{ option (t) = {'{ t ' * (depth - 2)}{{}}{'}' * (depth - 2)}; }}"


@pytest.mark.parametrize("deep", [_nested, _aggregate])
def test_as_deep_as_allowed_is_taken_and_one_deeper_is_not(deep: Callable[[int], str]) -> None:
    schema = parse_protobuf(deep(DEPTH_MAX), [])
    assert parse_protobuf(schema.canonical, []).canonical == schema.canonical
    with pytest.raises(SchemaError, match=f"deeper than {DEPTH_MAX}"):
        parse_protobuf(deep(DEPTH_MAX + 1), [])


def test_as_many_elements_as_allowed_are_taken_and_one_more_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "ELEMENTS_MAX", 20)
    for count in (19, 20):
        source = _3 + "message M {" + "".join(f"int32 a{n}={n};" for n in range(1, count + 1)) + "}"
        if count == 19:
            assert isinstance(parse_protobuf(source, []), ProtobufSchema)
        else:
            with pytest.raises(SchemaError, match="more than 20 elements"):
                parse_protobuf(source, [])
