"""parse() and the seven levels, whatever the kind of schema."""

import json
from typing import Any

import pytest

from penstock.schemas import Level, ParsedSchema, SchemaError, compatibility, first_incompatible, parse
from penstock.schemas.schema import DIFFERENCES_MAX, REFERENCES_MAX, SCHEMA_BYTES_MAX


def record(**fields: Any) -> ParsedSchema:
    """A record; a field is a type, or a type and its default."""
    made = [
        {"name": name, "type": given[0], "default": given[1]}
        if isinstance(given, tuple)
        else {"name": name, "type": given}
        for name, given in fields.items()
    ]
    return parse("AVRO", json.dumps({"type": "record", "name": "R", "fields": made}))


V1 = record(a="int")
WITH_OPTIONAL = record(a="int", b=("int", 0))
WITH_REQUIRED = record(a="int", b="int")
WITH_LONG = record(a="long")
WITHOUT_A = record(b=("int", 0))

# candidate, older ones (newest last), and the levels that take it
LEVELS: list[tuple[str, ParsedSchema, list[ParsedSchema], str]] = [
    ("the first", WITH_REQUIRED, [], "NONE B BT F FT FULL FULLT"),
    ("the same again", V1, [V1], "NONE B BT F FT FULL FULLT"),
    ("an optional field more", WITH_OPTIONAL, [V1], "NONE B BT F FT FULL FULLT"),
    ("a required field more", WITH_REQUIRED, [V1], "NONE F FT"),
    ("a required field less", V1, [WITH_REQUIRED], "NONE B BT"),
    ("a wider number", WITH_LONG, [V1], "NONE B BT"),
    ("only the newest is like it", WITH_REQUIRED, [V1, WITH_OPTIONAL], "NONE B F FT FULL"),
    ("an old one without it reads past it", V1, [WITHOUT_A, WITH_OPTIONAL], "NONE B F FT FULL"),
    ("the oldest needs what is gone", WITH_OPTIONAL, [record(a="int", c="int"), V1], "NONE B BT F FULL"),
    ("wider than the newest, narrower than the oldest", WITH_LONG, [record(a="double"), V1], "NONE B"),
]
SHORT = {"NONE": "NONE", "BACKWARD": "B", "FORWARD": "F", "FULL": "FULL"}


@pytest.mark.parametrize(("what", "candidate", "older", "taken_by"), LEVELS, ids=[case[0] for case in LEVELS])
@pytest.mark.parametrize("level", list(Level))
def test_a_level_looks_in_its_direction_and_as_far_back_as_it_says(
    what: str, candidate: ParsedSchema, older: list[ParsedSchema], taken_by: str, level: Level
) -> None:
    short = SHORT[level.removesuffix("_TRANSITIVE")] + ("T" if level.is_transitive else "")
    assert (compatibility(level, candidate, older) == []) == (short in taken_by.split())


def test_the_newest_incompatible_version_is_named() -> None:
    found = first_incompatible(Level.BACKWARD_TRANSITIVE, WITH_REQUIRED, [V1, WITH_REQUIRED, V1, WITH_OPTIONAL])
    assert found is not None
    place, differences = found
    assert place == 2
    assert [each.kind for each in differences] == ["READER_FIELD_MISSING_DEFAULT_VALUE"]


def test_a_schema_of_another_kind_is_incompatible_both_ways() -> None:
    other = parse("JSON", "{}")
    for level in (Level.BACKWARD, Level.FORWARD, Level.FULL):
        assert [each.kind for each in compatibility(level, other, [V1])][:1] == ["TYPE_MISMATCH"]
    assert compatibility(Level.NONE, other, [V1]) == []


def test_no_more_differences_are_told_than_anybody_reads() -> None:
    wide = record(**{f"f{number}": "int" for number in range(300)})
    assert len(compatibility(Level.BACKWARD, wide, [V1])) == DIFFERENCES_MAX
    other = record(**{f"g{number}": "string" for number in range(300)})
    assert len(compatibility(Level.FULL, wide, [other])) == DIFFERENCES_MAX


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("XML", "{}", "is no kind of schema; use one of AVRO, JSON, PROTOBUF"),
        ("AVRO", " ", "the schema is empty"),
        ("AVRO", '"' + "x" * SCHEMA_BYTES_MAX + '"', "longer than"),
        ("JSON", '{"title":"' + "é" * (SCHEMA_BYTES_MAX // 2) + '"}', "longer than"),
        ("AVRO", "{", "no JSON: .* in line 1, column 2"),
        ("JSON", '{"a": NaN}', "it holds NaN"),
        ("JSON", '{"default": 1e999}', "too large"),
        ("JSON", '{"default": %s}' % ("9" * 301), "more than 300 digits"),
        ("JSON", '{"title": "\\ud800"}', "half of a surrogate pair"),
        ("JSON", '{"title": "\ud800"}', "half of a surrogate pair"),
        ("AVRO", "[" * 100_000, "nests deeper"),
        ("AVRO", '{"type":"array","items":' * 201 + '"int"' + "}" * 201, "nests deeper"),
        ("JSON", '{"not":' * 201 + "{}" + "}" * 201, "nests deeper"),
    ],
)
def test_what_is_no_schema_is_refused_with_a_reason(kind: str, text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        parse(kind, text)


def test_references_have_names_of_their_own_and_the_schemas_kind() -> None:
    with pytest.raises(SchemaError, match="'x' is given twice"):
        parse("AVRO", '"int"', [("x", V1), ("x", V1)])
    with pytest.raises(SchemaError, match="empty name"):
        parse("AVRO", '"int"', [("", V1)])
    with pytest.raises(SchemaError, match="'x' is a schema of kind AVRO, not JSON"):
        parse("JSON", "{}", [("x", V1)])
    with pytest.raises(SchemaError, match=f"more than {REFERENCES_MAX}"):
        parse("AVRO", '"int"', [(f"x{number}", V1) for number in range(REFERENCES_MAX + 1)])
