"""Files that a schema imports: references, what they import in turn, and those that need no reference."""

import base64
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from penstock.schemas.protobuf import ProtobufSchema, parse_protobuf, serialized
from penstock.schemas.protobuf import imports as imports_module
from penstock.schemas.protobuf.imports import known_file
from penstock.schemas.protobuf.known_files import KNOWN_SOURCES
from penstock.schemas.schema import ParsedSchema, SchemaError, parse

_3 = 'syntax = "proto3"; '


def _parse(text: str, *references: tuple[str, ParsedSchema]) -> ParsedSchema:
    return parse_protobuf(_3 + text, references)


def test_a_reference_is_known_by_the_name_it_is_imported_under() -> None:
    common = _parse("package c; message Common { enum Kind { Z = 0; } }")
    for name in ("common.proto", "deep/er/common.proto", "any name at all"):
        schema = _parse(f'import "{name}"; message M {{ c.Common a = 1; c.Common.Kind k = 2; }}', (name, common))
        assert ".c.Common.Kind k = 2;" in schema.canonical


def test_references_bring_their_own() -> None:
    """Confluent 2033: a imports b, which imports c; only b is a's reference."""
    c = _parse("message C { string value = 1; }")
    b = _parse('import "c.proto"; message B { C c = 1; }', ("c.proto", c))
    a = _parse('import "b.proto"; message A { B b = 1; }', ("b.proto", b))
    assert a.validate(memoryview(b"\0\x0a\x05\x0a\x03\x0a\x01x")) is None
    with pytest.raises(SchemaError, match="'C' is not known here"):
        _parse('import "b.proto"; message A { C c = 1; }', ("b.proto", b))


def test_public_imports_are_passed_on() -> None:
    c = _parse("message C {}")
    b = _parse('import public "c.proto"; message B {}', ("c.proto", c))
    outer = _parse('import public "b.proto";', ("b.proto", b))
    assert _parse('import "outer.proto"; message A { C c = 1; }', ("outer.proto", outer)).fields() != []


def test_two_references_may_share_a_third() -> None:
    shared = _parse("package s; message Shared {}")
    left = _parse('import "s.proto"; message Left { s.Shared s = 1; }', ("s.proto", shared))
    right = _parse('import "s.proto"; message Right { s.Shared s = 1; }', ("s.proto", shared))
    text = 'import "l.proto"; import "r.proto"; message M { Left l = 1; Right r = 2; }'
    assert _parse(text, ("l.proto", left), ("r.proto", right)).fields()[0].name == "l"


@pytest.mark.parametrize(
    ("text", "references", "why"),
    [
        ('import "gone.proto";', [], "'gone.proto' is needed but is none of the references"),
        ('import "a.proto"; message A {}', [("a.proto", "message A {}")], "'A' is already defined in the imported"),
        ('import "a.proto"; package p.A;', [("a.proto", "package p; message A {}")], "'p.A' is already defined"),
        (
            'import "a.proto"; import "b.proto";',
            [("a.proto", "message A {}"), ("b.proto", "message A {}")],
            "duplicate symbol 'A'",
        ),
    ],
)
def test_imports_that_do_not_fit_are_refused(text: str, references: Sequence[tuple[str, str]], why: str) -> None:
    with pytest.raises(SchemaError, match=why.replace("(", r"\(")):
        _parse(text, *((name, _parse(source)) for name, source in references))


def test_a_file_that_imports_itself_is_refused() -> None:
    inner = _parse("message C {}")
    b = _parse('import "x.proto"; message B { C c = 1; }', ("x.proto", inner))
    with pytest.raises(SchemaError, match=r"'x.proto' imports itself"):
        _parse('import "x.proto"; message A { B b = 1; }', ("x.proto", b))


def test_a_chain_of_imports_is_bounded_and_costs_no_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports_module, "FILES_MAX", 30)
    schema = _parse("message M0 {}")
    for n in range(1, 31):
        schema = _parse(f'import "{n - 1}.proto"; message M{n} {{ M{n - 1} m = 1; }}', (f"{n - 1}.proto", schema))
    with pytest.raises(SchemaError, match="more than 30 files"):
        _parse('import "30.proto";', ("30.proto", schema))


def test_a_reference_that_is_not_imported_does_no_harm() -> None:
    other = _parse("message M {}")
    assert _parse("message M {}", ("other.proto", other)).canonical == other.canonical


@pytest.mark.parametrize(
    "name",
    [
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    ],
)
def test_the_librarys_files_need_no_reference(name: str) -> None:
    path = f"google/protobuf/{name}.proto"
    schema = _parse(f'import "{path}";')
    # Java clients send them as references all the same: what they send is not looked at.
    other = _parse("message Nonsense {}")
    assert _parse(f'import "{path}";', (path, other)).canonical == schema.canonical
    with pytest.raises(SchemaError, match="'Nonsense' is not known here"):
        _parse(f'import "{path}"; message M {{ Nonsense n = 1; }}', (path, other))


def test_common_types_need_no_reference() -> None:
    """Apicurio 4877, Redpanda 7431: well-known imports had to be registered by hand."""
    text = """import "google/type/date.proto"; import "google/type/money.proto"; import "google/type/datetime.proto";
        import "confluent/type/decimal.proto"; import "confluent/meta.proto"; import "google/protobuf/timestamp.proto";
        message M { google.type.Date d = 1; google.type.Money m = 2; confluent.type.Decimal c = 3 [
          (confluent.field_meta) = { tags: "PII" params: [{ key: "precision", value: "9" }] }]; }"""
    assert (
        '[(confluent.field_meta) = {params: [{key: "precision", value: "9"}], tags: ["PII"]}]' in _parse(text).canonical
    )
    assert known_file("google/type/../os.proto") is None
    assert known_file("google/api/http.proto") is None


@pytest.mark.parametrize("name", KNOWN_SOURCES)
def test_known_files_load(name: str) -> None:
    file = known_file(name)
    assert file is not None
    assert file.name == name
    assert _parse(f'import "{name}";').canonical


def test_a_reference_goes_before_a_common_type() -> None:
    own = _parse("package confluent.type; message Decimal { string text = 1; }")
    schema = _parse(
        'import "confluent/type/decimal.proto"; message M { confluent.type.Decimal d = 1; }',
        ("confluent/type/decimal.proto", own),
    )
    assert [one.name for one in schema.fields()] == ["d", "d.text"]


def test_a_descriptor_with_references_is_read_and_served() -> None:
    """Apicurio 7066, Karapace 1263: descriptors in base64 worked only as long as they imported nothing."""
    common = _parse("package c; enum Kind { Z = 0; } message Common { optional int32 n = 1; }")
    schema = _parse(
        'import "c.proto"; package m; message M { c.Common common = 1; c.Kind k = 2; }', ("c.proto", common)
    )
    common_again = parse_protobuf(serialized(common), [])
    again = parse_protobuf(serialized(schema), [("c.proto", common_again)])
    assert again.canonical == schema.canonical
    # As confluent-kafka's deserializer does it: each descriptor into one pool, under the name it is imported by.
    pool = descriptor_pool.DescriptorPool()
    for name, one in (("c.proto", common), ("m.proto", schema)):
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized(one)))
        file.name = name
        pool.AddSerializedFile(file.SerializeToString())
    common_field: Any = pool.FindMessageTypeByName("m.M").fields_by_name["common"]
    assert common_field.message_type.full_name == "c.Common"


def test_a_descriptor_with_everything_that_clients_leave_in_is_the_same_schema() -> None:
    source = _parse("package p; // why\n message M { int32 a_b = 1; map<string, int32> m = 2; optional string o = 3; }")
    assert isinstance(source, ProtobufSchema)
    file = descriptor_pb2.FileDescriptorProto()
    file.CopyFrom(source.compiled.file)
    file.name = "some/name.proto"
    file.message_type[0].field[0].json_name = "aB"
    location = file.source_code_info.location.add(leading_comments=" The a. ", span=[1, 2, 3])
    location.path.extend([4, 0, 2, 0])
    # An option that no import defines: number 50000, a varint.
    file.message_type[0].options.MergeFromString(b"\x80\xb5\x18\x05")
    again = parse_protobuf(base64.b64encode(file.SerializeToString()).decode(), [])
    assert again.canonical == source.canonical
    assert again.fields()[0].doc == "The a."


_WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda file: file.message_type.add(name="not a name"), "invalid name"),
    (lambda file: file.message_type.add(name="M"), "duplicate symbol"),
    (
        lambda file: file.message_type[0].field.add(name="x", number=9, label=1, type=11, type_name=".no.Type"),
        "no.Type",
    ),
    (lambda file: file.message_type[0].field.add(name="x", number=0, label=1, type=5), "number"),
    (lambda file: setattr(file.message_type[0].field[0], "name", "a = 1; int32 b"), "invalid name"),
    (lambda file: setattr(file, "syntax", "proto9"), "syntax 'proto9'"),
    (lambda file: file.dependency.append("nowhere.proto"), "nowhere.proto"),
    (lambda file: file.dependency.append('x"; message Evil {} import "y'), "needed"),
]


@pytest.mark.parametrize(("change", "why"), _WRONG)
def test_a_descriptor_that_is_no_schema_is_refused(change: Callable[[Any], object], why: str) -> None:
    source = _parse("message M { int32 a = 1; }")
    assert isinstance(source, ProtobufSchema)
    file = descriptor_pb2.FileDescriptorProto()
    file.CopyFrom(source.compiled.file)
    change(file)
    with pytest.raises(SchemaError, match=why):
        parse_protobuf(base64.b64encode(file.SerializeToString()).decode(), [])


@pytest.mark.parametrize("text", ["AAAA", "hello", "Cg==Cg==", "CgZhLnByb3RvEgFh/w", "/+/+"])
def test_base64_that_is_no_descriptor_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        parse_protobuf(text, [])


def test_a_schema_of_another_kind_is_no_reference() -> None:
    with pytest.raises(SchemaError, match="AVRO"):
        parse_protobuf(_3, [("a.proto", parse("AVRO", '"string"'))])
    assert parse("PROTOBUF", _3 + "message M {}").kind == "PROTOBUF"
