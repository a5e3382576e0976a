"""JSON Schemas: what is one, what its references lead to, and the text in which it is kept."""

import json
import socket
from typing import Any

import pytest

from penstock.schemas import Field, ParsedSchema, SchemaError, parse
from penstock.schemas.json_checks import PATTERNS_MAX
from penstock.schemas.json_schema import JsonSchema

DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}


def schema(value: Any, **references: ParsedSchema) -> JsonSchema:
    parsed = parse("JSON", json.dumps(value), list(references.items()))
    assert isinstance(parsed, JsonSchema)
    return parsed


def fault(parsed: ParsedSchema, value: Any) -> str | None:
    return parsed.validate(memoryview(json.dumps(value).encode()))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a schema reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"type": "strin"}, "/type"),
        ({"properties": {"a": {"minLength": -1}}}, "/properties/a/minLength"),
        ({"properties": {"a": 5}}, "/properties/a"),
        ({"allOf": []}, "/allOf"),
        ({"required": "a"}, "/required"),
        ({"enum": "a"}, "/enum"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"pattern": 5}, "/pattern"),
        ({"not": {"items": {"uniqueItems": 1}}}, "/not/items"),
    ],
)
def test_a_schema_is_held_against_its_drafts_metaschema(draft: int, value: dict[str, Any], place: str) -> None:
    with pytest.raises(SchemaError, match=f"not one of draft {draft}: {place}"):
        schema({"$schema": DRAFTS[draft], **value})


def test_the_draft_is_the_one_that_is_named_and_else_the_seventh() -> None:
    exclusive = {"minimum": 1, "exclusiveMinimum": True}
    assert schema({"$schema": DRAFTS[4], **exclusive})
    for other in ({}, {"$schema": DRAFTS[7].rstrip("#")}, {"$schema": "http://example.com/mine"}):
        with pytest.raises(SchemaError, match="draft 7: /exclusiveMinimum"):
            schema({**other, **exclusive})
    # What stands beside a $ref counts since 2019-09 only.
    beside = {"$ref": "#/definitions/n", "minimum": 5, "definitions": {"n": {"type": "integer"}}}
    assert fault(schema({"$schema": DRAFTS[7], **beside}), 1) is None
    assert fault(schema({"$schema": DRAFTS[2019], **beside}), 1) == "is less than 5"


@pytest.mark.parametrize("value", [5, "string", [], None])
def test_only_objects_and_booleans_are_schemas(value: Any) -> None:
    with pytest.raises(SchemaError, match="an object, or true or false"):
        schema(value)


def test_true_takes_everything_and_false_nothing() -> None:
    assert fault(schema(True), 5) is None
    assert fault(schema(False), 5) == "the schema allows no value here"


@pytest.mark.parametrize(
    "reference",
    [
        "#/definitions/none",
        "http://example.com/other.json",
        "other.json",
        "#none",
        "file:///etc/passwd",
        "http://[",
        "#/%",
    ],
)
def test_a_reference_that_leads_nowhere_is_refused_and_nothing_is_fetched(reference: str) -> None:
    with pytest.raises(SchemaError, match=r"^/properties/a: \$ref .* leads nowhere"):
        schema({"properties": {"a": {"$ref": reference}}})


def test_references_that_lead_back_to_themselves_are_refused() -> None:
    with pytest.raises(SchemaError, match="circle"):
        schema(
            {
                "$ref": "#/definitions/a",
                "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
            }
        )
    with pytest.raises(SchemaError, match="what is no schema"):
        schema({"properties": {"a": {"$ref": "#/title"}}, "title": "no schema"})


def test_references_by_pointer_identifier_anchor_and_metaschema_are_followed() -> None:
    parsed = schema(
        {
            "$schema": DRAFTS[2020],
            "$id": "http://example.com/root.json",
            "properties": {
                "pointer": {"$ref": "#/$defs/a~1b"},
                "id": {"$ref": "inner.json"},
                "anchor": {"$ref": "inner.json#deep"},
                "meta": {"$ref": DRAFTS[2020]},
                "itself": {"$dynamicRef": "#node"},
            },
            "$dynamicAnchor": "node",
            "$defs": {
                "a/b": {"type": "integer"},
                "c": {"$id": "inner.json", "type": "string", "$defs": {"d": {"$anchor": "deep", "type": "null"}}},
            },
        }
    )
    assert fault(parsed, {"pointer": 1, "id": "x", "anchor": None, "meta": {"type": "string"}, "itself": {}}) is None
    for name, value in (("pointer", "x"), ("id", 1), ("anchor", 1), ("meta", {"type": 1}), ("itself", {"id": 1})):
        assert str(fault(parsed, {name: value})).startswith(f"/{name}")


@pytest.mark.parametrize("draft", [4, 6, 7])
def test_dependencies_may_hold_names_and_schemas_side_by_side(draft: int) -> None:
    identified = {"id" if draft == 4 else "$id": "http://example.com/inner.json", "required": ["z"]}
    for dependencies in ({"a": ["b"], "c": identified}, {"c": identified, "a": ["b"]}):
        made = {"properties": {"deep": {"$ref": "http://example.com/inner.json"}}, "dependencies": dependencies}
        parsed = schema({"$schema": DRAFTS[draft], **made})
        assert fault(parsed, {"a": 1}) == "has 'a' but lacks 'b', which it needs then"
        assert fault(parsed, {"c": 1}) == "lacks the required 'z'"
        assert fault(parsed, {"deep": {}}) == "/deep: lacks the required 'z'"


@pytest.mark.parametrize(
    ("draft", "anchor", "reference"),
    [
        (2019, {"$recursiveAnchor": True}, {"$recursiveRef": "#"}),
        (2020, {"$dynamicAnchor": "node"}, {"$dynamicRef": "#node"}),
    ],
)
def test_a_schema_that_extends_a_recursive_one_is_meant_inside_it_too(
    draft: int, anchor: dict[str, Any], reference: dict[str, Any]
) -> None:
    tree = {"$schema": DRAFTS[draft], **anchor, "properties": {"below": {"items": reference}}}
    strict = {"$schema": DRAFTS[draft], **anchor, "$ref": "tree.json", "unevaluatedProperties": False}
    parsed = schema(strict, **{"tree.json": schema(tree)})
    assert fault(parsed, {"below": [{"below": []}]}) is None
    assert fault(parsed, {"below": [{"bleow": []}]}) == "/below/0: the property 'bleow' is not allowed"
    assert fault(schema(tree), {"below": [{"bleow": []}]}) is None


def test_other_schemas_are_used_by_the_name_of_their_reference() -> None:
    money = schema({"$id": "http://example.com/money.json", "type": "object", "required": ["amount"]})
    line = schema({"properties": {"price": {"$ref": "money.json"}}}, **{"money.json": money})
    order = {"$id": "http://example.com/order.json", "items": {"$ref": "line.json"}}
    parsed = schema(order, **{"line.json": line})
    assert fault(parsed, [{"price": {}}]) == "/0/price: lacks the required 'amount'"
    assert fault(schema({"$ref": "http://example.com/money.json"}, m=money), {}) == "lacks the required 'amount'"
    assert fault(schema({"$ref": "m#/properties/price"}, m=line), {}) == "lacks the required 'amount'"
    # A change inside a reference is a change.
    other = schema({"$id": "http://example.com/money.json", "type": "array"})
    newer = schema(order, **{"line.json": schema(json.loads(line.canonical), **{"money.json": other})})
    assert [each.path for each in newer.differences(parsed)] == ["#/items/properties/price"]
    with pytest.raises(SchemaError, match=r"two references of the name 'money.json' differ"):
        schema(order, **{"line.json": line, "money.json": schema({"type": "array"})})


def test_the_text_is_short_and_keeps_its_order_and_normalized_it_has_none() -> None:
    text = '{"type" : "object",\n "properties": {"ö": {"type":"string"}, "a": {"const": 1.50}}, "x-owner": null }'
    parsed = parse("JSON", text)
    assert parsed.canonical == '{"type":"object","properties":{"ö":{"type":"string"},"a":{"const":1.5}},"x-owner":null}'
    normalized = parsed.normalized()
    assert (
        normalized.canonical
        == '{"properties":{"a":{"const":1.5},"ö":{"type":"string"}},"type":"object","x-owner":null}'
    )
    assert normalized.normalized() is normalized
    assert parse("JSON", normalized.canonical).differences(parsed) == []


def test_the_fields_for_people_are_flat_and_end() -> None:
    parsed = schema(
        {
            "properties": {
                "name": {"type": "string", "description": "what it is called", "default": "none"},
                "when": {"type": ["string", "null"], "format": "date-time"},
                "below": {"type": "array", "items": {"$ref": "#"}},
                "price": {"$ref": "#/definitions/money"},
                "either": {"oneOf": [{"type": "integer"}, {"$ref": "#/definitions/money"}]},
                "color": {"enum": ["red"]},
            },
            "definitions": {"money": {"properties": {"amount": {"type": "number"}}}},
        }
    )
    assert parsed.fields() == [
        Field("name", "string", "what it is called", '"none"'),
        Field("when", "string | null (date-time)", "", None),
        Field("below", "array<object>", "", None),
        Field("price", "object", "", None),
        Field("price.amount", "number", "", None),
        Field("either", "integer | object", "", None),
        Field("either.amount", "number", "", None),
        Field("color", "enum", "", None),
    ]
    shared = {f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(40)}
    endless = schema({"$ref": "#/definitions/d0", "definitions": {**shared, "d40": {"type": "string"}}})
    assert len(endless.fields()) == 1


def test_patterns_that_the_engine_cannot_match_are_named_and_take_every_text() -> None:
    parsed = schema(
        {
            "properties": {"a": {"pattern": "^(?=x)"}, "b": {"pattern": "^\\u0041\\d$"}},
            "patternProperties": {"(.)\\1": {"type": "integer"}},
            "additionalProperties": False,
        }
    )
    assert set(parsed.unchecked_patterns) == {"^(?=x)", "(.)\\1"}
    assert fault(parsed, {"a": "y", "b": "A1", "zz": "text"}) is None
    assert fault(parsed, {"b": "B1"}) == "/b: does not match '^\\\\u0041\\\\d$'"
    with pytest.raises(SchemaError, match=f"more than {PATTERNS_MAX} patterns"):
        schema({"allOf": [{"pattern": str(number)} for number in range(PATTERNS_MAX + 1)]})
