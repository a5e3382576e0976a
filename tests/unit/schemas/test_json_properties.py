"""Random JSON Schemas: the `jsonschema` library judges values, and every schema gets along with itself."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schemas import ParsedSchema, parse

CLASSES: dict[str, tuple[int, Any]] = {
    "http://json-schema.org/draft-04/schema#": (4, jsonschema.Draft4Validator),
    "http://json-schema.org/draft-06/schema#": (6, jsonschema.Draft6Validator),
    "http://json-schema.org/draft-07/schema#": (7, jsonschema.Draft7Validator),
    "https://json-schema.org/draft/2019-09/schema": (2019, jsonschema.Draft201909Validator),
    "https://json-schema.org/draft/2020-12/schema": (2020, jsonschema.Draft202012Validator),
}


def schema(value: Any) -> ParsedSchema:
    return parse("JSON", json.dumps(value))


def fault(parsed: ParsedSchema, value: Any) -> str | None:
    return parsed.validate(memoryview(json.dumps(value).encode()))


NAMES = st.sampled_from(["a", "b", "ab", "c1"])
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.sampled_from([0.5, 1.0, 2.5, 1e20])
    | st.text("abc1", max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
COUNTS = st.integers(0, 3)


def keywords(inner: st.SearchStrategy[Any], number: int) -> dict[str, st.SearchStrategy[Any]]:
    """What each keyword of a draft may hold."""
    schemas = st.dictionaries(NAMES, inner, max_size=3)
    some = st.lists(inner, min_size=1, max_size=3)
    names = st.lists(NAMES, min_size=1, max_size=2, unique=True)
    found: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(JSON_VALUES, min_size=1, max_size=4, unique_by=json.dumps),
        "minimum": st.integers(-1, 2), "maximum": st.integers(1, 3), "multipleOf": st.integers(1, 3),
        "minLength": COUNTS, "maxLength": COUNTS, "pattern": st.sampled_from(["^a", "b$", "[0-9]+", "^(a|b)*$"]),
        "minItems": COUNTS, "maxItems": COUNTS, "uniqueItems": st.booleans(),
        "minProperties": COUNTS, "maxProperties": COUNTS, "required": names, "properties": schemas,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$", "1"]), inner, max_size=2),
        "additionalProperties": inner, "allOf": some, "anyOf": some, "oneOf": some, "not": inner, "items": inner,
        "format": st.just("date"), "title": st.just("t"),
    }  # fmt: skip
    if number < 2020:
        # The library that judges fails on `additionalItems` beside `items` that is a boolean.
        found |= {"items": inner.filter(lambda value: not isinstance(value, bool)) | some, "additionalItems": inner}
    if number < 2019:
        found |= {"dependencies": st.dictionaries(NAMES, inner | names, max_size=2)}
    if number == 4:
        found |= {"exclusiveMinimum": st.booleans(), "exclusiveMaximum": st.booleans()}
    if number >= 6:
        found |= {"const": JSON_VALUES, "contains": inner, "propertyNames": inner}
        found |= {"exclusiveMinimum": st.integers(-1, 2), "exclusiveMaximum": st.integers(1, 3)}
    if number >= 7:
        found |= {"if": inner, "then": inner, "else": inner}
    if number >= 2019:
        found |= {"dependentRequired": st.dictionaries(NAMES, names, max_size=2), "dependentSchemas": schemas}
        found |= {"minContains": COUNTS, "maxContains": COUNTS}
        found |= {"unevaluatedProperties": inner, "unevaluatedItems": inner, "$ref": st.just("#/$defs/x")}
    if number == 2019:
        # In this draft the judge takes a schema under `additionalProperties` for a list of names.
        del found["additionalProperties"]
    if number >= 2020:
        found |= {"prefixItems": some}
    return found


def schemas(number: int, depth: int = 2) -> st.SearchStrategy[Any]:
    booleans = st.just({}) if number == 4 else st.booleans()
    if depth == 0:
        return booleans | TYPES.map(lambda name: {"type": name})
    held = keywords(st.deferred(lambda: schemas(number, depth - 1)), number)
    # The draft says that a bound's `true` needs the bound; so does its metaschema.
    needed = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} if number == 4 else {}

    def complete(made: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in made.items() if needed.get(key, key) in made}

    chosen = st.lists(st.sampled_from(sorted(held)), max_size=4, unique=True)
    objects = chosen.flatmap(lambda names: st.fixed_dictionaries({name: held[name] for name in names})).map(complete)
    return objects | booleans


SHARED = {"x": {"properties": {"a": {"type": "integer"}}, "maxItems": 2}}


@pytest.mark.parametrize("uri", CLASSES)
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_verdict_is_that_of_the_jsonschema_library(uri: str, data: st.DataObject) -> None:
    number, judges = CLASSES[uri]
    made = data.draw(schemas(number).filter(lambda value: isinstance(value, dict)))
    made = {"$schema": uri, **made, "$defs": SHARED}
    judge = judges(made)
    judge.check_schema(made)
    parsed = schema(made)
    for _ in range(4):
        value = data.draw(JSON_VALUES)
        found = fault(parsed, value)
        assert (found is None) == judge.is_valid(value), (made, value, found)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(sorted(CLASSES)), st.data())
def test_every_schema_gets_along_with_itself(uri: str, data: st.DataObject) -> None:
    made = data.draw(schemas(CLASSES[uri][0]).filter(lambda value: isinstance(value, dict)))
    made = {"$schema": uri, **made, "$defs": SHARED}
    # Another word in it, so that it is really compared.
    other = schema({**made, "x-note": "the same"})
    assert other.differences(schema(made)) == schema(made).differences(other) == []
    assert other.normalized().differences(other) == []
