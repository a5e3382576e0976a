"""Confluent's rules for JSON Schema as a table: what changed, what the rules call it, and so whether readers break."""

import json
from typing import Any

import pytest

from penstock.schemas import json_differences, parse
from penstock.schemas.json_changes import COMPATIBLE
from penstock.schemas.json_differences import all_changes
from penstock.schemas.json_schema import JsonSchema

TEXT, NUMBER, WHOLE, NULL = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "null"}
D2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
D4 = {"$schema": "http://json-schema.org/draft-04/schema#"}


def schema(value: Any) -> JsonSchema:
    parsed = parse("JSON", json.dumps(value))
    assert isinstance(parsed, JsonSchema)
    return parsed


def closed(**properties: Any) -> dict[str, Any]:
    return {"properties": properties, "additionalProperties": False}


def tuple_of(*items: Any, rest: Any = True) -> dict[str, Any]:
    placed = {"items": list(items)} if items else {}
    return {"type": "array", **placed, "additionalItems": rest}


# older, newer, and every change with its path
CASES: list[tuple[Any, Any, list[str]]] = [
    # Anything, nothing, and what people read.
    ({"properties": {}}, {}, []),
    (False, TEXT, []),
    ({"title": "a"}, {"title": "b"}, ["TITLE_CHANGED #/"]),
    ({"description": "a"}, {}, ["DESCRIPTION_CHANGED #/"]),
    ({"$id": "a"}, {"$id": "b"}, ["ID_CHANGED #/"]),
    ({**TEXT, "default": "a"}, {**TEXT, "default": "b"}, ["DEFAULT_CHANGED #/"]),
    ({"type": "object"}, {"type": "array"}, ["TYPE_CHANGED #/"]),
    ({}, TEXT, ["TYPE_CHANGED #/"]),
    ({"type": "boolean"}, {"type": "boolean"}, []),
    # Strings.
    ({**TEXT, "minLength": 2}, {**TEXT, "minLength": 3}, ["MIN_LENGTH_INCREASED #/minLength"]),
    ({**TEXT, "minLength": 3}, {**TEXT, "minLength": 2}, ["MIN_LENGTH_DECREASED #/minLength"]),
    (TEXT, {**TEXT, "minLength": 1}, ["MIN_LENGTH_ADDED #/minLength"]),
    ({**TEXT, "minLength": 1}, TEXT, ["MIN_LENGTH_REMOVED #/minLength"]),
    ({**TEXT, "maxLength": 2}, {**TEXT, "maxLength": 3}, ["MAX_LENGTH_INCREASED #/maxLength"]),
    ({**TEXT, "maxLength": 3}, {**TEXT, "maxLength": 2}, ["MAX_LENGTH_DECREASED #/maxLength"]),
    (TEXT, {**TEXT, "maxLength": 1}, ["MAX_LENGTH_ADDED #/maxLength"]),
    ({**TEXT, "maxLength": 1}, TEXT, ["MAX_LENGTH_REMOVED #/maxLength"]),
    (TEXT, {**TEXT, "pattern": "^a"}, ["PATTERN_ADDED #/pattern"]),
    ({**TEXT, "pattern": "^a"}, TEXT, ["PATTERN_REMOVED #/pattern"]),
    ({**TEXT, "pattern": "^a"}, {**TEXT, "pattern": "^b"}, ["PATTERN_CHANGED #/pattern"]),
    ({**TEXT, "format": "date"}, {**TEXT, "format": "uuid"}, []),
    # Numbers.
    (NUMBER, {**NUMBER, "maximum": 1}, ["MAXIMUM_ADDED #/maximum"]),
    ({**NUMBER, "maximum": 1}, NUMBER, ["MAXIMUM_REMOVED #/maximum"]),
    ({**NUMBER, "maximum": 1}, {**NUMBER, "maximum": 2}, ["MAXIMUM_INCREASED #/maximum"]),
    ({**NUMBER, "maximum": 2}, {**NUMBER, "maximum": 1}, ["MAXIMUM_DECREASED #/maximum"]),
    (NUMBER, {**NUMBER, "minimum": 1}, ["MINIMUM_ADDED #/minimum"]),
    ({**NUMBER, "minimum": 1}, NUMBER, ["MINIMUM_REMOVED #/minimum"]),
    ({**NUMBER, "minimum": 1}, {**NUMBER, "minimum": 2}, ["MINIMUM_INCREASED #/minimum"]),
    ({**NUMBER, "minimum": 2}, {**NUMBER, "minimum": 1}, ["MINIMUM_DECREASED #/minimum"]),
    (NUMBER, {**NUMBER, "exclusiveMaximum": 1}, ["EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum"]),
    ({**NUMBER, "exclusiveMaximum": 1}, NUMBER, ["EXCLUSIVE_MAXIMUM_REMOVED #/exclusiveMaximum"]),
    (
        {**NUMBER, "exclusiveMaximum": 1},
        {**NUMBER, "exclusiveMaximum": 2},
        ["EXCLUSIVE_MAXIMUM_INCREASED #/exclusiveMaximum"],
    ),
    (
        {**NUMBER, "exclusiveMaximum": 2},
        {**NUMBER, "exclusiveMaximum": 1},
        ["EXCLUSIVE_MAXIMUM_DECREASED #/exclusiveMaximum"],
    ),
    (NUMBER, {**NUMBER, "exclusiveMinimum": 1}, ["EXCLUSIVE_MINIMUM_ADDED #/exclusiveMinimum"]),
    ({**NUMBER, "exclusiveMinimum": 1}, NUMBER, ["EXCLUSIVE_MINIMUM_REMOVED #/exclusiveMinimum"]),
    (
        {**NUMBER, "exclusiveMinimum": 1},
        {**NUMBER, "exclusiveMinimum": 2},
        ["EXCLUSIVE_MINIMUM_INCREASED #/exclusiveMinimum"],
    ),
    (
        {**NUMBER, "exclusiveMinimum": 2},
        {**NUMBER, "exclusiveMinimum": 1},
        ["EXCLUSIVE_MINIMUM_DECREASED #/exclusiveMinimum"],
    ),
    (
        {**D4, **NUMBER, "minimum": 1},
        {**D4, **NUMBER, "minimum": 1, "exclusiveMinimum": True},
        ["MINIMUM_REMOVED #/minimum", "EXCLUSIVE_MINIMUM_ADDED #/exclusiveMinimum"],
    ),
    (NUMBER, {**NUMBER, "multipleOf": 2}, ["MULTIPLE_OF_ADDED #/multipleOf"]),
    ({**NUMBER, "multipleOf": 2}, NUMBER, ["MULTIPLE_OF_REMOVED #/multipleOf"]),
    ({**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 6}, ["MULTIPLE_OF_EXPANDED #/multipleOf"]),
    ({**NUMBER, "multipleOf": 6}, {**NUMBER, "multipleOf": 2}, ["MULTIPLE_OF_REDUCED #/multipleOf"]),
    ({**NUMBER, "multipleOf": 0.3}, {**NUMBER, "multipleOf": 0.1}, ["MULTIPLE_OF_REDUCED #/multipleOf"]),
    ({**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 3}, ["MULTIPLE_OF_CHANGED #/multipleOf"]),
    (NUMBER, WHOLE, ["TYPE_NARROWED #/"]),
    (WHOLE, NUMBER, ["TYPE_EXTENDED #/"]),
    # Values one by one.
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_EXTENDED #/enum"]),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["ENUM_ARRAY_NARROWED #/enum"]),
    ({"enum": ["a", "b"]}, {"enum": ["b", "c"]}, ["ENUM_ARRAY_CHANGED #/enum"]),
    ({"enum": ["a", "b"]}, {"enum": ["b", "a"]}, []),
    ({"const": 1}, {"const": 2}, ["ENUM_ARRAY_CHANGED #/const"]),
    ({"const": 1}, {"const": True}, ["ENUM_ARRAY_CHANGED #/const"]),
    ({"const": 1}, {"enum": [1, 2]}, ["ENUM_ARRAY_EXTENDED #/enum"]),
    ({**TEXT, "enum": ["a"]}, TEXT, ["PRODUCT_TYPE_NARROWED #/"]),
    ({**TEXT, "enum": ["a"]}, {**TEXT, "enum": ["a", "b"]}, ["ENUM_ARRAY_EXTENDED #/enum"]),
    ({**TEXT, "enum": ["a"]}, {**TEXT, "enum": ["b"]}, ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"]),
    # Objects: properties that came and went, by content model.
    ({"properties": {"a": TEXT}}, {"properties": {"a": NUMBER}}, ["TYPE_CHANGED #/properties/a"]),
    ({"properties": {}}, {"properties": {"a": TEXT}}, ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"]),
    (
        {"properties": {}},
        {"properties": {"a": True}},
        ["PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"],
    ),
    ({"properties": {"a": TEXT}}, {"properties": {}}, ["PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/a"]),
    (closed(), closed(a=TEXT), ["OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"]),
    (
        closed(),
        {**closed(a=TEXT), "required": ["a"]},
        ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"],
    ),
    (
        closed(),
        {**closed(a={**TEXT, "default": ""}), "required": ["a"]},
        ["REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"],
    ),
    (closed(a=TEXT), closed(), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a"]),
    (closed(a=False), closed(), ["PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a"]),
    (
        {"additionalProperties": WHOLE},
        {"properties": {"a": NUMBER}, "additionalProperties": WHOLE},
        [
            "TYPE_EXTENDED #/properties/a",
            "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
            "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
        ],
    ),
    (
        {**closed(), "patternProperties": {"^n": TEXT}},
        {**closed(n1=NUMBER), "patternProperties": {"^n": TEXT}},
        [
            "TYPE_CHANGED #/properties/n1",
            "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/n1",
            "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/n1",
        ],
    ),
    (
        closed(n1=WHOLE),
        {**closed(), "patternProperties": {"^n": NUMBER}},
        [
            "TYPE_EXTENDED #/properties/n1",
            "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/n1",
        ],
    ),
    (
        closed(a=NUMBER),
        {"additionalProperties": TEXT},
        [
            "TYPE_CHANGED #/properties/a",
            "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
            "ADDITIONAL_PROPERTIES_ADDED #/additionalProperties",
        ],
    ),
    # A pattern governs only the names it matches; the rest of an object beside it stays as open as it was.
    (
        {"properties": {"a": TEXT}, "patternProperties": {"^n": TEXT}},
        {"patternProperties": {"^n": TEXT}},
        ["PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/a"],
    ),
    ({"patternProperties": {"^": TEXT}}, {"patternProperties": {"^": WHOLE}}, ["TYPE_CHANGED #/patternProperties/^"]),
    # Objects: what must be there, what else may be, how much.
    (
        {"properties": {"a": TEXT}},
        {"properties": {"a": TEXT}, "required": ["a"]},
        ["REQUIRED_ATTRIBUTE_ADDED #/required/a"],
    ),
    (
        {"properties": {"a": {**TEXT, "default": ""}}},
        {"properties": {"a": {**TEXT, "default": ""}}, "required": ["a"]},
        ["REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED #/required/a"],
    ),
    (
        {"properties": {"a": TEXT}, "required": ["a"]},
        {"properties": {"a": TEXT}, "required": ["b"]},
        ["REQUIRED_ATTRIBUTE_REMOVED #/required/a"],
    ),
    ({"additionalProperties": True}, closed(), ["ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"]),
    (
        {"additionalProperties": True},
        {"additionalProperties": TEXT},
        ["ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"],
    ),
    (
        {"additionalProperties": TEXT},
        {"properties": {}},
        ["ADDITIONAL_PROPERTIES_EXTENDED #/additionalProperties"],
    ),
    ({"additionalProperties": TEXT}, {"additionalProperties": NUMBER}, ["TYPE_CHANGED #/additionalProperties"]),
    ({"maxProperties": 1}, {"maxProperties": 2}, ["MAX_PROPERTIES_INCREASED #/maxProperties"]),
    ({"maxProperties": 2}, {"maxProperties": 1}, ["MAX_PROPERTIES_DECREASED #/maxProperties"]),
    ({"properties": {}}, {"maxProperties": 1}, ["MAX_PROPERTIES_ADDED #/maxProperties"]),
    ({"maxProperties": 1}, {"properties": {}}, ["MAX_PROPERTIES_REMOVED #/maxProperties"]),
    ({"minProperties": 1}, {"minProperties": 2}, ["MIN_PROPERTIES_INCREASED #/minProperties"]),
    ({"minProperties": 2}, {"minProperties": 1}, ["MIN_PROPERTIES_DECREASED #/minProperties"]),
    ({"properties": {}}, {"minProperties": 1}, ["MIN_PROPERTIES_ADDED #/minProperties"]),
    ({"minProperties": 1}, {"properties": {}}, ["MIN_PROPERTIES_REMOVED #/minProperties"]),
    ({"dependencies": {}}, {"dependencies": {"a": ["b"]}}, ["DEPENDENCY_ARRAY_ADDED #/dependencies/a"]),
    ({"dependencies": {"a": ["b"]}}, {"dependencies": {}}, ["DEPENDENCY_ARRAY_REMOVED #/dependencies/a"]),
    (
        {"dependencies": {"a": ["b"]}},
        {"dependencies": {"a": ["b", "c"]}},
        ["DEPENDENCY_ARRAY_EXTENDED #/dependencies/a"],
    ),
    (
        {"dependencies": {"a": ["b", "c"]}},
        {"dependencies": {"a": ["b"]}},
        ["DEPENDENCY_ARRAY_NARROWED #/dependencies/a"],
    ),
    ({"dependencies": {"a": ["b"]}}, {"dependencies": {"a": ["c"]}}, ["DEPENDENCY_ARRAY_CHANGED #/dependencies/a"]),
    ({"dependencies": {}}, {"dependencies": {"a": TEXT}}, ["DEPENDENCY_SCHEMA_ADDED #/dependencies/a"]),
    ({"dependencies": {"a": TEXT}}, {"dependencies": {}}, ["DEPENDENCY_SCHEMA_REMOVED #/dependencies/a"]),
    ({"dependencies": {"a": TEXT}}, {"dependencies": {"a": NUMBER}}, ["TYPE_CHANGED #/dependencies/a"]),
    (
        {**D2020, "dependentRequired": {"a": ["b"]}},
        {**D2020, "dependentRequired": {"a": ["b", "c"]}, "dependentSchemas": {"d": TEXT}},
        ["DEPENDENCY_ARRAY_EXTENDED #/dependencies/a", "DEPENDENCY_SCHEMA_ADDED #/dependencies/d"],
    ),
    (
        {**D2020, "properties": {}},
        {**D2020, "unevaluatedProperties": False},
        ["UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties"],
    ),
    (
        {**D2020, "unevaluatedProperties": False},
        {**D2020, "properties": {}},
        ["UNEVALUATED_PROPERTIES_ADDED #/unevaluatedProperties"],
    ),
    (
        {**D2020, "properties": {}},
        {**D2020, "unevaluatedProperties": TEXT},
        ["UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties"],
    ),
    (
        {**D2020, "unevaluatedProperties": TEXT},
        {**D2020, "properties": {}},
        ["UNEVALUATED_PROPERTIES_EXTENDED #/unevaluatedProperties"],
    ),
    # Arrays.
    ({"type": "array"}, {"type": "array", "items": TEXT}, ["SCHEMA_ADDED #/items"]),
    ({"type": "array", "items": TEXT}, {"type": "array"}, ["SCHEMA_REMOVED #/items"]),
    ({"items": TEXT}, {"items": NUMBER}, ["TYPE_CHANGED #/items"]),
    (tuple_of(TEXT), tuple_of(NUMBER), ["TYPE_CHANGED #/items/0"]),
    (tuple_of(TEXT), tuple_of(), ["ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL #/items/0"]),
    (tuple_of(TEXT), tuple_of(TEXT, TEXT), ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"]),
    (tuple_of(TEXT), tuple_of(TEXT, True), ["ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"]),
    (
        tuple_of(TEXT, rest=False),
        tuple_of(TEXT, NUMBER, rest=False),
        ["ITEM_ADDED_TO_CLOSED_CONTENT_MODEL #/items/1"],
    ),
    (
        tuple_of(TEXT, NUMBER, rest=False),
        tuple_of(TEXT, rest=False),
        ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"],
    ),
    (
        tuple_of(TEXT, False, rest=False),
        tuple_of(TEXT, rest=False),
        ["ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"],
    ),
    (
        tuple_of(TEXT, rest=WHOLE),
        tuple_of(TEXT, NUMBER, rest=WHOLE),
        ["TYPE_EXTENDED #/items/1", "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"],
    ),
    (
        tuple_of(rest=TEXT),
        tuple_of(NUMBER, rest=TEXT),
        ["TYPE_CHANGED #/items/0", "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/0"],
    ),
    (
        tuple_of(WHOLE, rest=NUMBER),
        tuple_of(rest=NUMBER),
        ["TYPE_EXTENDED #/items/0", "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/0"],
    ),
    (
        tuple_of(TEXT, rest=NUMBER),
        tuple_of(rest=NUMBER),
        ["TYPE_CHANGED #/items/0", "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/0"],
    ),
    ({"additionalItems": True}, {"additionalItems": False}, ["ADDITIONAL_ITEMS_REMOVED #/additionalItems"]),
    ({"additionalItems": False}, {"additionalItems": True}, ["ADDITIONAL_ITEMS_ADDED #/additionalItems"]),
    ({"additionalItems": TEXT}, {"additionalItems": True}, ["ADDITIONAL_ITEMS_EXTENDED #/additionalItems"]),
    ({"additionalItems": True}, {"additionalItems": TEXT}, ["ADDITIONAL_ITEMS_NARROWED #/additionalItems"]),
    (
        {**D2020, "prefixItems": [TEXT], "items": WHOLE},
        {**D2020, "prefixItems": [TEXT, NUMBER], "items": False},
        [
            "TYPE_EXTENDED #/prefixItems/1",
            "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/prefixItems/1",
            "ADDITIONAL_ITEMS_REMOVED #/items",
        ],
    ),
    ({**D2020, "items": WHOLE}, {**D2020, "items": NUMBER}, ["TYPE_EXTENDED #/items"]),
    (
        {**D2020, "type": "array"},
        {**D2020, "type": "array", "unevaluatedItems": False},
        ["UNEVALUATED_ITEMS_REMOVED #/unevaluatedItems"],
    ),
    (
        {**D2020, "type": "array", "unevaluatedItems": False},
        {**D2020, "type": "array"},
        ["UNEVALUATED_ITEMS_ADDED #/unevaluatedItems"],
    ),
    (
        {**D2020, "type": "array"},
        {**D2020, "type": "array", "unevaluatedItems": TEXT},
        ["UNEVALUATED_ITEMS_NARROWED #/unevaluatedItems"],
    ),
    (
        {**D2020, "type": "array", "unevaluatedItems": TEXT},
        {**D2020, "type": "array"},
        ["UNEVALUATED_ITEMS_EXTENDED #/unevaluatedItems"],
    ),
    ({"maxItems": 1}, {"maxItems": 2}, ["MAX_ITEMS_INCREASED #/maxItems"]),
    ({"maxItems": 2}, {"maxItems": 1}, ["MAX_ITEMS_DECREASED #/maxItems"]),
    ({"type": "array"}, {"type": "array", "maxItems": 1}, ["MAX_ITEMS_ADDED #/maxItems"]),
    ({"type": "array", "maxItems": 1}, {"type": "array"}, ["MAX_ITEMS_REMOVED #/maxItems"]),
    ({"minItems": 1}, {"minItems": 2}, ["MIN_ITEMS_INCREASED #/minItems"]),
    ({"minItems": 2}, {"minItems": 1}, ["MIN_ITEMS_DECREASED #/minItems"]),
    ({"type": "array"}, {"type": "array", "minItems": 1}, ["MIN_ITEMS_ADDED #/minItems"]),
    ({"type": "array", "minItems": 1}, {"type": "array"}, ["MIN_ITEMS_REMOVED #/minItems"]),
    ({"minContains": 1}, {"minContains": 2}, ["MIN_CONTAINS_INCREASED #/minContains"]),
    ({"minContains": 2}, {"minContains": 1}, ["MIN_CONTAINS_DECREASED #/minContains"]),
    ({"type": "array"}, {"type": "array", "minContains": 1}, ["MIN_CONTAINS_ADDED #/minContains"]),
    ({"type": "array", "minContains": 1}, {"type": "array"}, ["MIN_CONTAINS_REMOVED #/minContains"]),
    ({"maxContains": 1}, {"maxContains": 2}, ["MAX_CONTAINS_INCREASED #/maxContains"]),
    ({"maxContains": 2}, {"maxContains": 1}, ["MAX_CONTAINS_DECREASED #/maxContains"]),
    ({"type": "array"}, {"type": "array", "maxContains": 1}, ["MAX_CONTAINS_ADDED #/maxContains"]),
    ({"type": "array", "maxContains": 1}, {"type": "array"}, ["MAX_CONTAINS_REMOVED #/maxContains"]),
    ({"type": "array"}, {"type": "array", "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED #/uniqueItems"]),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}, ["UNIQUE_ITEMS_REMOVED #/uniqueItems"]),
    # Combinations.
    (TEXT, {"oneOf": [NUMBER, TEXT]}, ["SUM_TYPE_EXTENDED #/"]),
    (TEXT, {"type": ["string", "null"]}, ["SUM_TYPE_EXTENDED #/"]),
    ({"type": ["string", "null"]}, TEXT, ["TYPE_CHANGED #/"]),
    ({**TEXT, "maxLength": 3}, {"anyOf": [NULL, TEXT]}, ["MAX_LENGTH_REMOVED #/maxLength", "SUM_TYPE_EXTENDED #/"]),
    ({"oneOf": [TEXT]}, {"oneOf": [NUMBER, TEXT]}, ["SUM_TYPE_EXTENDED #/"]),
    ({"oneOf": [NUMBER, TEXT]}, {"oneOf": [TEXT]}, ["SUM_TYPE_NARROWED #/"]),
    ({"oneOf": [TEXT]}, {"oneOf": [NUMBER]}, ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"]),
    ({"oneOf": [WHOLE, TEXT]}, {"oneOf": [TEXT, NUMBER]}, ["TYPE_EXTENDED #/oneOf/0"]),
    # Each older one needs a newer one of its own: both numbers cannot go to the one that takes fractions.
    (
        {"oneOf": [WHOLE, {**NUMBER, "minimum": 0.5}]},
        {"oneOf": [NUMBER, {**WHOLE, "maximum": 5}]},
        ["TYPE_EXTENDED #/oneOf/0", "COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"],
    ),
    ({"allOf": [TEXT]}, {"allOf": [TEXT, {"maxLength": 5}]}, ["PRODUCT_TYPE_EXTENDED #/"]),
    ({"allOf": [TEXT, {"enum": ["a"]}]}, {"allOf": [TEXT]}, ["PRODUCT_TYPE_NARROWED #/"]),
    ({"allOf": [TEXT, TEXT]}, {"allOf": [TEXT]}, []),
    ({"allOf": [TEXT]}, TEXT, []),
    (TEXT, {"allOf": [TEXT]}, []),
    (TEXT, {"allOf": [TEXT, NUMBER]}, ["TYPE_CHANGED #/"]),
    ({"oneOf": [TEXT]}, {"anyOf": [TEXT]}, ["COMBINED_TYPE_EXTENDED #/"]),
    ({"allOf": [TEXT]}, {"anyOf": [NUMBER, TEXT]}, ["COMBINED_TYPE_EXTENDED #/", "SUM_TYPE_EXTENDED #/"]),
    ({"anyOf": [TEXT]}, {"oneOf": [NUMBER, TEXT]}, ["COMBINED_TYPE_EXTENDED #/", "SUM_TYPE_EXTENDED #/"]),
    ({"anyOf": [TEXT]}, {"allOf": [TEXT]}, ["COMBINED_TYPE_EXTENDED #/"]),
    ({"anyOf": [NUMBER, TEXT]}, {"oneOf": [TEXT]}, ["COMBINED_TYPE_CHANGED #/"]),
    ({"oneOf": [TEXT]}, {"allOf": [NUMBER, TEXT]}, ["COMBINED_TYPE_CHANGED #/"]),
    ({"anyOf": [WHOLE, NUMBER]}, NUMBER, ["COMBINED_TYPE_EXTENDED #/"]),
    ({"not": NUMBER}, {"not": WHOLE}, ["NOT_TYPE_NARROWED #/not"]),
    ({"not": WHOLE}, {"not": NUMBER}, ["NOT_TYPE_EXTENDED #/not"]),
    # Conditions: comparable where both branch alike.
    ({"if": TEXT, "then": {"minLength": 1}}, {"if": TEXT, "then": {}}, []),
    ({"if": TEXT, "then": WHOLE}, {"if": TEXT, "then": NUMBER}, ["TYPE_EXTENDED #/then"]),
    ({"if": TEXT, "then": NUMBER}, {"if": TEXT, "then": WHOLE}, ["TYPE_NARROWED #/then"]),
    ({"if": TEXT, "then": {"maxLength": 1}}, {"if": WHOLE, "then": {"maxLength": 1}}, ["TYPE_CHANGED #/if"]),
    # References stand for what they lead to.
    (TEXT, {"$ref": "#/definitions/t", "definitions": {"t": TEXT}}, []),
    (
        {"items": {"$ref": "#/definitions/t"}, "definitions": {"t": TEXT}},
        {"items": {"$ref": "#/definitions/t"}, "definitions": {"t": NUMBER}},
        ["TYPE_CHANGED #/items"],
    ),
]  # fmt: skip

# Every kind that can break a reader, as Confluent's registry names them.
INCOMPATIBLE = """
    SCHEMA_ADDED TYPE_NARROWED TYPE_CHANGED MAX_LENGTH_ADDED MAX_LENGTH_DECREASED MIN_LENGTH_ADDED MIN_LENGTH_INCREASED
    PATTERN_ADDED PATTERN_CHANGED MAXIMUM_ADDED MAXIMUM_DECREASED MINIMUM_ADDED MINIMUM_INCREASED
    EXCLUSIVE_MAXIMUM_ADDED EXCLUSIVE_MAXIMUM_DECREASED EXCLUSIVE_MINIMUM_ADDED EXCLUSIVE_MINIMUM_INCREASED
    MULTIPLE_OF_ADDED MULTIPLE_OF_EXPANDED MULTIPLE_OF_CHANGED REQUIRED_ATTRIBUTE_ADDED
    MAX_PROPERTIES_ADDED MAX_PROPERTIES_DECREASED MIN_PROPERTIES_ADDED MIN_PROPERTIES_INCREASED
    ADDITIONAL_PROPERTIES_REMOVED ADDITIONAL_PROPERTIES_NARROWED UNEVALUATED_PROPERTIES_REMOVED
    UNEVALUATED_PROPERTIES_NARROWED DEPENDENCY_ARRAY_ADDED DEPENDENCY_ARRAY_EXTENDED DEPENDENCY_ARRAY_CHANGED
    DEPENDENCY_SCHEMA_ADDED PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
    PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL MAX_ITEMS_ADDED MAX_ITEMS_DECREASED MIN_ITEMS_ADDED
    MIN_ITEMS_INCREASED MAX_CONTAINS_ADDED MAX_CONTAINS_DECREASED MIN_CONTAINS_ADDED MIN_CONTAINS_INCREASED
    UNIQUE_ITEMS_ADDED ADDITIONAL_ITEMS_REMOVED ADDITIONAL_ITEMS_NARROWED UNEVALUATED_ITEMS_REMOVED
    UNEVALUATED_ITEMS_NARROWED ITEM_ADDED_TO_OPEN_CONTENT_MODEL ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL
    ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ENUM_ARRAY_NARROWED ENUM_ARRAY_CHANGED COMBINED_TYPE_CHANGED PRODUCT_TYPE_EXTENDED SUM_TYPE_NARROWED
    COMBINED_TYPE_SUBSCHEMAS_CHANGED NOT_TYPE_EXTENDED
"""


@pytest.mark.parametrize(("older", "newer", "changes"), CASES, ids=lambda value: json.dumps(value)[:60])
def test_a_change_has_the_name_and_the_verdict_of_the_published_rules(
    older: Any, newer: Any, changes: list[str]
) -> None:
    before, after = schema(older), schema(newer)
    found = [f"{change.kind} {change.path}" for change in all_changes(before._root, after._root)]
    assert sorted(found) == sorted(changes)
    breaking = [change for change in changes if change.split()[0] not in COMPATIBLE]
    differences = after.differences(before)
    assert sorted(f"{each.kind} {each.path}" for each in differences) == sorted(breaking)
    assert all(each.path in each.message for each in differences)


def test_the_table_has_every_kind() -> None:
    named = {change.split()[0] for _, _, changes in CASES for change in changes}
    assert named == COMPATIBLE | set(INCOMPATIBLE.split())


NODE = {"properties": {"value": WHOLE, "next": {"$ref": "#"}}, "additionalProperties": False}


def test_recursive_schemas_are_compared_to_their_end() -> None:
    wider = {"properties": {"value": NUMBER, "next": {"$ref": "#"}}, "additionalProperties": False}
    assert schema(wider).differences(schema(NODE)) == []
    found = schema(NODE).differences(schema(wider))
    assert [(each.kind, each.path) for each in found] == [("TYPE_NARROWED", "#/properties/value")]


def test_a_verdict_on_a_recursive_pair_does_not_outlive_the_guess_it_leans_on() -> None:
    """Two types that hold one another: the inner pair looks fine only as long as the outer one is taken for fine."""
    older = {
        "properties": {"x": {"oneOf": [{"$ref": "#/definitions/a"}]}, "y": {"$ref": "#/definitions/b"}},
        "definitions": {
            "a": closed(b={"$ref": "#/definitions/b"}, z=TEXT),
            "b": closed(a={"$ref": "#/definitions/a"}),
        },
    }
    newer = json.loads(json.dumps(older))
    newer["definitions"]["a"]["properties"]["z"] = NUMBER
    found = schema(newer).differences(schema(older))
    assert {each.path for each in found} >= {"#/properties/x", "#/properties/y/properties/a/properties/z"}


def test_large_comparisons_are_refused_instead_of_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    many = {"oneOf": [{**TEXT, "minLength": number} for number in range(40)]}
    more = {"oneOf": [{**TEXT, "minLength": number, "maxLength": 5000} for number in range(40)]}
    monkeypatch.setattr(json_differences, "COMPARISONS_MAX", 1000)
    assert [each.kind for each in schema(more).differences(schema(many))] == ["COMPARISON_TOO_LARGE"]
    # The same schema needs no comparison, however large it is.
    assert schema(many).differences(schema(many)) == []


def test_long_chains_of_references_are_refused_instead_of_running_out_of_stack() -> None:
    def chain(end: Any) -> JsonSchema:
        definitions: dict[str, Any] = {
            f"d{number}": {"properties": {"p": {"$ref": f"#/definitions/d{number + 1}"}}} for number in range(400)
        }
        return schema({"$ref": "#/definitions/d0", "definitions": {**definitions, "d400": end}})

    assert [each.kind for each in chain(TEXT).differences(chain(NUMBER))] == ["COMPARISON_TOO_LARGE"]
