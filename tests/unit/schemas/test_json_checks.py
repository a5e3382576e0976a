"""Values held against JSON Schemas: what the rarer keywords say, and a cost that has an end."""

import json
from typing import Any

import jsonschema
import pytest

from penstock.schemas import ParsedSchema, json_values, parse

D2020 = "https://json-schema.org/draft/2020-12/schema"


def schema(value: Any) -> ParsedSchema:
    return parse("JSON", json.dumps(value))


def fault(parsed: ParsedSchema, value: Any) -> str | None:
    return parsed.validate(memoryview(json.dumps(value).encode()))


UNEVALUATED: list[tuple[dict[str, Any], Any, str | None]] = [
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1}, None),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}, "the property 'b' is not allowed"),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 1}, None),
    ({"anyOf": [{"required": ["a"]}, {"properties": {"b": {}}}], "unevaluatedProperties": False}, {"b": 1}, None),
    ({"anyOf": [{"required": ["a"], "properties": {"a": {}, "b": {}}}, {}], "unevaluatedProperties": False},
     {"b": 1}, "the property 'b' is not allowed"),
    ({"if": {"required": ["k"], "properties": {"k": {}}}, "then": {"properties": {"a": {}}},
      "else": {"properties": {"b": {}}}, "unevaluatedProperties": False}, {"k": 1, "a": 1}, None),
    ({"if": {"required": ["k"], "properties": {"k": {}}}, "then": {"properties": {"a": {}}},
      "else": {"properties": {"b": {}}}, "unevaluatedProperties": False}, {"a": 1}, "the property 'a' is not allowed"),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}}}}, "unevaluatedProperties": {"type": "string"}},
     {"a": 1, "b": 2}, "/b: is no string"),
    ({"dependentSchemas": {"a": {"properties": {"b": {}}}}, "properties": {"a": {}}, "unevaluatedProperties": False},
     {"a": 1, "b": 1}, None),
    ({"allOf": [{"unevaluatedProperties": True}], "unevaluatedProperties": False}, {"b": 1}, None),
    ({"prefixItems": [True], "unevaluatedItems": False}, [1], None),
    ({"prefixItems": [True], "unevaluatedItems": False}, [1, 2], "/1: the schema allows no value here"),
    ({"contains": {"type": "integer"}, "unevaluatedItems": {"type": "string"}}, [1, "a"], None),
    ({"contains": {"type": "integer"}, "unevaluatedItems": {"type": "string"}}, [1, None], "/1: is no string"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "value", "expected"), UNEVALUATED)
def test_what_no_keyword_has_spoken_of_is_judged_by_the_unevaluated_ones(
    made: dict[str, Any], value: Any, expected: str | None
) -> None:
    assert fault(schema({"$schema": D2020, **made}), value) == expected
    assert jsonschema.Draft202012Validator({"$schema": D2020, **made}).is_valid(value) == (expected is None)


def test_one_and_true_differ_and_one_has_two_spellings() -> None:
    for made in ({"enum": [[1]]}, {"const": [1]}):
        assert fault(schema(made), [1.0]) is None
        assert fault(schema(made), [True]) == "is none of the values that the schema lists"
    assert fault(schema({"uniqueItems": True}), [1, True, "1", [1], [True], {"a": 1}, {"a": True}]) is None
    assert fault(schema({"uniqueItems": True}), [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}]) == "holds the same item twice"


def test_multiples_are_those_of_the_written_numbers() -> None:
    assert fault(schema({"multipleOf": 0.1}), 0.3) is None
    assert fault(schema({"multipleOf": 0.1}), 0.35) == "is no multiple of 1/10"
    assert fault(schema({"multipleOf": 1e-300}), 1e300) is None


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"NaN", "no JSON"),
        (b"1 2", "no JSON"),
        (b'"\\ud800"', "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[" * 500 + b"]" * 500, "nests deeper"),
    ],
)
def test_bytes_that_are_no_value_are_refused_with_a_reason(payload: bytes, reason: str) -> None:
    assert reason in str(schema({"items": {"$ref": "#"}}).validate(memoryview(payload)))


def test_patterns_take_linear_time() -> None:
    assert fault(schema({"pattern": "^(a+)+$"}), "a" * 200_000 + "b") is not None


def _branching(keyword: str) -> dict[str, Any]:
    """Thirty schemas, each asking twice for the next: a billion checks of one small value."""
    made = {f"d{n}": {keyword: [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(30)}
    return {
        "$ref": "#/definitions/d0",
        "definitions": {**made, "d30": {"type": "object" if keyword == "anyOf" else "null"}},
    }


@pytest.mark.parametrize(
    ("made", "value"),
    [
        (_branching("allOf"), None),
        (_branching("anyOf"), None),
        (_branching("oneOf"), None),
        ({"allOf": [{"$ref": "#"}]}, 1),
        ({"anyOf": [{"enum": [number, [number]]} for number in range(300)]}, list(range(300))),
        ({"anyOf": [{"required": [f"r{n}" for n in range(300)]} for _ in range(100)]}, {}),
        ({"allOf": [{"properties": {"a": False}} for _ in range(100)]}, {str(n): 1 for n in range(300)}),
        ({"anyOf": [{"pattern": f"x{n}$"} for n in range(100)]}, "y" * 100_000),
        ({"allOf": [{"patternProperties": {f"x{n}": True}} for n in range(100)]}, {str(n): 1 for n in range(300)}),
        ({"allOf": [{"uniqueItems": True} for _ in range(100)]}, list(range(300))),
    ],
    ids=["all", "any", "one", "itself", "enum", "required", "properties", "pattern", "names", "unique"],
)
def test_a_check_that_would_take_too_long_is_given_up(made: Any, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = schema(made)
    monkeypatch.setattr(json_values, "WORK_MAX", 20_000)
    found = fault(parsed, value)
    assert found is not None
    assert "too many steps" in found or "nests deeper" in found
