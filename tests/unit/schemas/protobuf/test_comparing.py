"""Which schema may follow which: Confluent's rules, and what users of other registries met."""

from collections.abc import Mapping
from itertools import pairwise

import pytest

from penstock.schemas.protobuf import ProtobufSchema, comparing, parse_protobuf, serialized
from penstock.schemas.schema import DIFFERENCES_MAX, Incompatible, Level, ParsedSchema, compatibility, parse

from .compatibility_cases import CASES, Case


def _schema(text: str, references: Mapping[str, str] | None = None, syntax: str = "proto3") -> ProtobufSchema:
    given = [(name, parse_protobuf(source, [])) for name, source in (references or {}).items()]
    source = text if text.startswith(("syntax", "edition")) else f'syntax = "{syntax}"; {text}'
    schema = parse_protobuf(source, given)
    assert isinstance(schema, ProtobufSchema)
    return schema


def _kinds(found: list[Incompatible]) -> list[str]:
    return [one.kind for one in found]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_change_has_its_name_and_place(case: Case) -> None:
    older = _schema(case.older, case.older_references, case.syntax)
    newer = _schema(case.newer, case.newer_references, case.syntax)
    found = comparing.compare(older.compiled, newer.compiled)
    assert sorted(f"{one.kind} {one.path}" for one in found) == sorted(case.changes)
    incompatible = newer.differences(older)
    assert (incompatible == []) is case.is_compatible
    assert all(one.path in one.message and one.kind not in comparing.COMPATIBLE for one in incompatible)


def test_the_cases_cover_every_kind() -> None:
    shown = {change.split()[0] for case in CASES.values() for change in case.changes}
    assert shown == comparing.SENTENCES.keys()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_descriptor_is_compared_like_its_source(case: Case) -> None:
    older = _schema(case.older, case.older_references, case.syntax)
    newer = _schema(case.newer, case.newer_references, case.syntax)
    given = [(name, parse_protobuf(source, [])) for name, source in case.older_references.items()]
    encoded = parse_protobuf(serialized(older), given)
    assert encoded.canonical == older.canonical
    assert older.differences(encoded) == encoded.differences(older) == []
    assert newer.differences(encoded) == newer.differences(older)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_schema_follows_itself_and_its_normal_form(case: Case) -> None:
    schema = _schema(case.newer, case.newer_references, case.syntax)
    assert schema.differences(schema) == []
    assert schema.normalized().differences(schema) == schema.differences(schema.normalized()) == []


def test_features_of_an_edition_count_like_the_words_they_replace() -> None:
    old = _schema("message M { required int32 a = 1; }", syntax="proto2")
    new = _schema('edition = "2023"; message M { int32 a = 1 [features.field_presence = LEGACY_REQUIRED]; }')
    plain = _schema('edition = "2023"; message M { int32 a = 1; }')
    delimited = _schema('edition = "2023"; message M { M m = 1 [features.message_encoding = DELIMITED]; }')
    group = _schema('edition = "2023"; message M { M m = 1; }')
    assert new.differences(old) == []
    assert _kinds(new.differences(plain)) == ["FIELD_NUMERIC_LABEL_CHANGED", "REQUIRED_FIELD_ADDED"]
    assert _kinds(delimited.differences(group)) == ["FIELD_KIND_CHANGED"]


def test_removing_a_map_removes_no_message() -> None:
    """Redpanda 30374: the entries that a map is made of were taken for a message of their own."""
    with_map = _schema("message M { int32 a = 1; map<string, string> tags = 10; message In {} }")
    without = _schema("message M { int32 a = 1; message In {} }")
    assert without.differences(with_map) == with_map.differences(without) == []


def test_a_oneof_of_two_types_registered_as_source_is_found_again_by_its_descriptor() -> None:
    """Confluent 1851: names written short in the source and long in the descriptor made two schemas of one."""
    source = _schema("package p; message Envelope { oneof message { A a = 1; B b = 2; } } message A {} message B {}")
    assert parse_protobuf(serialized(source), []).canonical == source.canonical


def test_the_imports_behind_a_field_are_looked_at() -> None:
    """Confluent 1512: another file under the same import was registered, whatever its messages were."""
    uses = 'import "google.proto"; message Reading { oneof device { d.Google google = 2; } }'
    old = _schema(uses, {"google.proto": 'syntax = "proto3"; package d; message Google { int32 id = 1; }'})
    new = _schema(uses, {"google.proto": 'syntax = "proto3"; package d; message Google { string id = 1; }'})
    assert _kinds(new.differences(old)) == ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"]


def test_unrelated_messages_under_one_subject_are_incompatible() -> None:
    """Confluent 1644: two schemas without a message in common were taken for versions of one."""
    assert _kinds(_schema("message A {}").differences(_schema("message B {}"))) == ["MESSAGE_REMOVED"]


def test_names_are_looked_up_from_where_they_stand() -> None:
    """Apicurio 6832, 6853: nested names, also of grandparents and of messages without fields, were compared as text."""
    short = (
        "package t; message Top { message Mid { message Low {} Low l = 1; Mid m = 2; Empty e = 3; } message Empty {} }"
    )
    full = short.replace("Low l", ".t.Top.Mid.Low l").replace("Mid m", "Top.Mid m").replace("Empty e", "t.Top.Empty e")
    assert _schema(full).canonical == _schema(short).canonical
    assert _schema(full).differences(_schema(short)) == []


def test_a_map_of_nested_messages_is_the_same_however_it_is_named() -> None:
    """Apicurio 9477: a map's value written short differed from the same in a descriptor."""
    text = "package e; message E { map<string, Item> items = 3; message Item {} } message G { optional E.Item i = 1; }"
    source = _schema(text, syntax="proto2")
    assert parse_protobuf(serialized(source), []).differences(source) == []


def test_a_new_required_field_is_refused() -> None:
    """Apicurio 2447: required fields of proto2 could be added under BACKWARD."""
    old = _schema("message P { required string message = 1; }", syntax="proto2")
    new = _schema("message P { required string message = 1; required string code = 3; }", syntax="proto2")
    assert compatibility(Level.BACKWARD, new, [old]) != []
    assert _kinds(old.differences(new)) == ["REQUIRED_FIELD_REMOVED"]


@pytest.mark.parametrize("level", [level for level in Level if level is not Level.NONE])
def test_adding_an_optional_field_is_allowed_at_every_level(level: Level) -> None:
    """Apicurio 9662: FORWARD refused a new field."""
    versions: list[ParsedSchema] = [
        _schema("message M { " + "".join(f"string f{n} = {n};" for n in range(1, k)) + "}") for k in range(2, 6)
    ]
    assert compatibility(level, versions[-1], versions[:-1]) == []


def test_an_optional_of_proto3_is_no_oneof() -> None:
    """Karapace 913: the oneof that stands for `optional` in descriptors was printed and not understood again."""
    source = _schema("package l; message C { optional T t = 6; double d = 7; } message T {}")
    assert "oneof" not in source.canonical
    assert parse_protobuf(serialized(source), []).canonical == source.canonical
    assert _schema("package l; message C { T t = 6; double d = 7; } message T {}").differences(source) == []


def test_a_message_in_itself_ends() -> None:
    """Redpanda 5577: recursive messages, also over two files."""
    node = "message Node { Node left = 1; repeated Node more = 2; map<string, Leaf> by = 3; }"
    tree = f'syntax = "proto3"; package t; {node} message Leaf {{ Node up = 1; %s v = 2; }}'
    uses = 'import "tree.proto"; message Forest { t.Node root = 1; Forest next = 2; }'
    old, new = _schema(uses, {"tree.proto": tree % "int32"}), _schema(uses, {"tree.proto": tree % "string"})
    assert old.differences(old) == []
    found = {(one.kind, one.path) for one in new.differences(old)}
    assert ("FIELD_SCALAR_KIND_CHANGED", "#/Leaf/2") in found
    assert ("FIELD_NAMED_TYPE_CHANGED", "#/Forest/1") in found


def test_a_long_chain_of_imported_messages_is_followed_to_its_end() -> None:
    def chain(last: str) -> str:
        links = "".join(f"message C{n} {{ C{n + 1} next = 1; }} " for n in range(1500))
        return f'syntax = "proto3"; {links} message C1500 {{ {last} end = 1; }}'

    uses = 'import "chain.proto"; message M { C0 first = 1; }'
    old, new = _schema(uses, {"chain.proto": chain("int32")}), _schema(uses, {"chain.proto": chain("string")})
    found = new.differences(old)
    assert len(found) == DIFFERENCES_MAX
    assert found[0][:2] == ("FIELD_SCALAR_KIND_CHANGED", "#/C1500/1")


def test_versions_that_follow_each_other_may_not_follow_the_first() -> None:
    texts = ["message M { int32 a = 1; }", "message M { }", "message M { string a = 1; }"]
    schemas: list[ParsedSchema] = [_schema(text) for text in texts]
    assert all(newer.differences(older) == [] for older, newer in pairwise(schemas))
    assert compatibility(Level.BACKWARD, schemas[2], schemas[:2]) == []
    assert compatibility(Level.BACKWARD_TRANSITIVE, schemas[2], schemas[:2]) != []


def test_a_schema_of_another_kind_is_a_difference() -> None:
    avro = parse("AVRO", '"string"')
    protobuf = _schema("message M {}")
    assert _kinds(protobuf.differences(avro)) == _kinds(avro.differences(protobuf)) == ["TYPE_MISMATCH"]
