"""The .proto language: what protoc takes we take, with the same descriptor; what it refuses we refuse and say where."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from penstock.schemas.protobuf import ProtobufSchema, parse_protobuf, serialized
from penstock.schemas.protobuf.interpreting import dynamic_options
from penstock.schemas.schema import SchemaError

from .language_cases import REFUSED, TAKEN

FILES = Path(__file__).parent / "files"
FIXTURES = sorted(path.stem for path in FILES.glob("*.proto"))


def _parse(text: str) -> ProtobufSchema:
    schema = parse_protobuf(text, [])
    assert isinstance(schema, ProtobufSchema)
    return schema


def _meaning(file: Any, pool: Any) -> Any:
    """A descriptor without what protoc adds for itself, and with options in one order."""
    copy = descriptor_pb2.FileDescriptorProto()
    copy.CopyFrom(file)
    copy.name = ""
    waiting: list[Any] = [copy]
    while waiting:
        owner = waiting.pop()
        for field, value in owner.ListFields():
            if field.name == "options":
                known = dynamic_options(pool, value)
                if known is not None:
                    value.ParseFromString(known.SerializeToString(deterministic=True))
                if not value.ByteSize():
                    owner.ClearField("options")
            elif field.message_type is not None:
                waiting.extend(value if field.is_repeated else [value])
        if isinstance(owner, descriptor_pb2.FieldDescriptorProto):
            first, *rest = owner.name.split("_")
            if owner.json_name == first + "".join(part[:1].upper() + part[1:] for part in rest):
                owner.ClearField("json_name")
    return copy


@pytest.mark.parametrize("name", FIXTURES)
def test_a_source_becomes_the_descriptor_that_protoc_makes_of_it(name: str) -> None:
    encoded = (FILES / f"{name}.descriptor").read_text()
    by_protoc = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(encoded))
    ours = _parse((FILES / f"{name}.proto").read_text())
    pool = ours.compiled.pool
    assert _meaning(ours.compiled.file, pool) == _meaning(by_protoc, pool)
    # And back: the printed text means the same, and is printed as it is.
    again = _parse(ours.canonical)
    assert _meaning(again.compiled.file, pool) == _meaning(by_protoc, pool)
    assert again.canonical == ours.canonical
    # Whoever registers the descriptor registers the same schema.
    assert parse_protobuf(encoded, []).canonical == ours.canonical
    assert parse_protobuf(serialized(ours), []).canonical == ours.canonical


@pytest.mark.parametrize("name", FIXTURES)
def test_a_normal_form_is_its_own_normal_form_and_means_the_same(name: str) -> None:
    schema = _parse((FILES / f"{name}.proto").read_text())
    normal = schema.normalized()
    assert normal.normalized() is normal
    assert normal.differences(schema) == schema.differences(normal) == []


@pytest.mark.parametrize("source", TAKEN.values(), ids=TAKEN.keys())
def test_the_language_is_taken(source: str) -> None:
    schema = _parse(source)
    assert _parse(schema.canonical).canonical == schema.canonical
    if schema.compiled.file.ByteSize():
        assert parse_protobuf(serialized(schema), []).canonical == schema.canonical


@pytest.mark.parametrize(("source", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_the_language_is_refused_with_its_place(source: str, why: str) -> None:
    with pytest.raises(SchemaError) as refused:
        parse_protobuf(source, [])
    assert why in str(refused.value)
    # What only the whole of a schema and its imports shows has no place in it.
    if not re.search(r"do not fit together|none of the references", str(refused.value)):
        assert re.match(r"\d+:\d+: ", str(refused.value))


def test_the_place_is_the_line_and_column_of_what_is_wrong() -> None:
    source = 'syntax = "proto3";\n\nmessage M {\n  int32 a = 1;\n    Nope b = 2;\n}\n'
    with pytest.raises(SchemaError, match=r"^5:5: the type 'Nope'"):
        parse_protobuf(source, [])


def test_the_canonical_text_reads_like_a_source() -> None:
    source = """
        // gone
        syntax = 'proto3'; package a.b; import "google/protobuf/timestamp.proto"; option java_package = "x";
        message M { map<string, N> m = 2; oneof o { int32 i = 3; } message N { optional bytes y = 1; }
          google.protobuf.Timestamp t = 1 [json_name = "when", deprecated = true];
          reserved 9, 10 to max; reserved "z"; }
        enum E { Z = 0; }
        service S { rpc R(M) returns (stream M.N) { option deprecated = true; } }
    """
    assert _parse(source).canonical.splitlines() == [
        'syntax = "proto3";',
        "package a.b;",
        "",
        'import "google/protobuf/timestamp.proto";',
        "",
        'option java_package = "x";',
        "",
        "message M {",
        "  reserved 9, 10 to max;",
        '  reserved "z";',
        "  map<string, .a.b.M.N> m = 2;",
        "  oneof o {",
        "    int32 i = 3;",
        "  }",
        '  .google.protobuf.Timestamp t = 1 [json_name = "when", deprecated = true];',
        "  message N {",
        "    optional bytes y = 1;",
        "  }",
        "}",
        "",
        "enum E {",
        "  Z = 0;",
        "}",
        "",
        "service S {",
        "  rpc R(.a.b.M) returns (stream .a.b.M.N) {",
        "    option deprecated = true;",
        "  }",
        "}",
    ]


def test_several_rules_of_one_custom_option_stay_one_message() -> None:
    """Confluent 4438: two parts of one option became a list that nobody could read again."""
    schema = _parse((FILES / "nested_options.proto").read_text())
    assert "(penstock.fixture.nested.field) = {string: {min_len: 1, max_len: 3}}" in schema.canonical


def test_an_extension_within_an_options_name_is_read() -> None:
    """Confluent 4470: `(a).string.(b) = true` was refused, and only its form in braces taken."""
    lines = _parse((FILES / "nested_options.proto").read_text()).canonical.splitlines()
    written = [line.partition("[(")[2] for line in lines if " day " in line or " other " in line]
    assert written[0] == written[1]
    assert "[penstock.fixture.nested.datetime]: true" in written[0]


def test_normalizing_sorts_what_has_no_order_and_nothing_else() -> None:
    one = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import public "google/protobuf/any.proto";
        option java_multiple_files = true; option java_package = "x";
        message M { map<string, int32> b = 2; message In {} map<string, int32> a = 1; int32 c = 7;
          oneof o { int32 e = 6; int32 d = 5; } reserved 20, 10; reserved "y", "x"; }
        enum E { Z = 0; B = 2; A = 1; N = -1; reserved 9, 8; }"""
    other = """syntax = "proto3"; import public "google/protobuf/any.proto"; import "google/protobuf/timestamp.proto";
        option java_package = "x"; option java_multiple_files = true;
        message M { oneof o { int32 d = 5; int32 e = 6; } reserved "x", "y"; reserved 10, 20; int32 c = 7;
          map<string, int32> a = 1; message In {} map<string, int32> b = 2; }
        enum E { Z = 0; reserved 8, 9; N = -1; A = 1; B = 2; }"""
    assert _parse(one).canonical != _parse(other).canonical
    normal = _parse(one).normalized()
    assert normal.canonical == _parse(other).normalized().canonical
    # A record's message is found by its place: In was the second of M's nested messages and still is.
    assert [nested.name for nested in normal.compiled.file.message_type[0].nested_type] == ["AEntry", "In", "BEntry"]
    assert [value.name for value in normal.compiled.file.enum_type[0].value] == ["Z", "N", "A", "B"]
    assert [normal.compiled.file.dependency[index] for index in normal.compiled.file.public_dependency] == [
        "google/protobuf/any.proto"
    ]


def test_fields_are_listed_with_their_comments_for_the_console() -> None:
    source = """syntax = "proto2";
        message Order {
          // Who ordered.
          // In short.
          required string id = 1;

          // Not about the next field.

          optional int32 n = 2 [default = 7]; // How many.
          repeated Line lines = 3; /* What. */
          oneof how { string card = 4; }
          map<string, Line> by_name = 5;
          optional Order parent = 6;
        }
        message Line { optional string sku = 1 [default = "none"]; }"""
    assert [tuple(one) for one in _parse(source).fields()] == [
        ("id", "required string", "Who ordered.\nIn short.", None),
        ("n", "int32", "How many.", "7"),
        ("lines", "repeated Line", "What.", None),
        ("lines.sku", "string", "", '"none"'),
        ("card", "string (oneof how)", "", None),
        ("by_name", "map<string, Line>", "", None),
        ("by_name.sku", "string", "", '"none"'),
        ("parent", "Order", "", None),
    ]
