"""Avro's rules on what a schema is, and the text in which it is kept."""

import json
from typing import Any

import pytest

from penstock.schemas import Field, ParsedSchema, SchemaError, parse


def avro(value: Any, *references: ParsedSchema, is_new: bool = True) -> ParsedSchema:
    named = [(f"reference{number}", schema) for number, schema in enumerate(references)]
    return parse("AVRO", json.dumps(value), named, is_new=is_new)


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(type_: Any, name: str = "f", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def enum(*symbols: Any, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


REFUSED: list[tuple[Any, str]] = [
    (5, "not 5"),
    ("strin", "'strin' is no type"),
    ({"name": "R"}, 'needs a "type"'),
    ({"type": {"type": "string"}}, 'needs a "type" that is a name'),
    ({"type": "rekord", "name": "R"}, "'rekord' is no type"),
    ({"type": "array"}, '"items" is missing'),
    ({"type": "map"}, '"values" is missing'),
    ({"type": "record", "fields": []}, 'needs a "name"'),
    ({"type": "record", "name": "R"}, 'R: a record needs a list of "fields"'),
    (record(5), "R: field 0 is no object"),
    (record({"type": "int"}), "R: field 0 has the name None"),
    (record({"name": "f"}), 'R.f: "type" is missing'),
    (record(field("int"), field("int")), "R: the field 'f' stands there twice"),
    (record(field("int", order="up")), 'R.f: "order" is one of'),
    (record(field("int", aliases="x")), 'R.f: "aliases" is a list'),
    (record(field("int", aliases=["1x"])), "R.f: the alias '1x'"),
    (record(field(record(field("nope"), name="S"))), "R.f.f: 'nope' is no type"),
    # Names.
    (record(name="1R"), "'1R' is no Avro name"),
    (record(name="R-S"), "no Avro name"),
    (record(name="Größe"), "no Avro name"),
    (record(name="a..R"), "'a.' is no Avro namespace"),
    (record(namespace="a.1"), "'a.1' is no Avro namespace"),
    (record(namespace=5), "the namespace 5 is no text"),
    (record(name="string"), "named 'string' like one of Avro's own"),
    (record(aliases=["a b"]), "the alias 'a b'"),
    (record(field(record(name="S"), "a"), field(record(name="S"), "b")), "R.b: 'S' is defined twice"),
    # Unions.
    ([["int"]], "another union"),
    (["int", "int"], "'int' twice"),
    ([{"type": "array", "items": "int"}, {"type": "array", "items": "long"}], "'array' twice"),
    ([record(), "R"], "'R' twice"),
    # Enums and fixed.
    ({"type": "enum", "name": "E"}, 'E: an enum needs a list of "symbols"'),
    (enum("A", "A"), "'A' stands there twice"),
    (enum("A-B"), "'A-B' is no Avro name"),
    (enum(5), "the symbol 5"),
    (enum("A", default="B"), "the default 'B' is none"),
    ({"type": "fixed", "name": "F"}, '"size" in bytes, not None'),
    ({"type": "fixed", "name": "F", "size": -1}, "not -1"),
    ({"type": "fixed", "name": "F", "size": True}, "not True"),
    ({"type": "fixed", "name": "F", "size": 1 << 31}, "not 2147483648"),
    # Defaults that are no value of their type.
    (record(field("int", default="1")), "R.f: the default '1' is no int"),
    (record(field("int", default=1.0)), "is no int"),
    (record(field("int", default=True)), "is no int"),
    (record(field("int", default=1 << 31)), "is no int"),
    (record(field("long", default=1 << 63)), "is no long"),
    (record(field("null", default=0)), "is no null"),
    (record(field("boolean", default=0)), "is no boolean"),
    (record(field("double", default="1")), "is no double"),
    (record(field("string", default=None)), "is no string"),
    (record(field("bytes", default="Ā")), "is no bytes"),
    (record(field({"type": "fixed", "name": "F", "size": 2}, default="abc")), "is no fixed"),
    (record(field(enum("A"), default="B")), "is no enum"),
    (record(field({"type": "array", "items": "int"}, default=["a"])), "is no array<int>"),
    (record(field({"type": "map", "values": "int"}, default=[])), "is no map<int>"),
    (record(field(record(field("int"), name="S"), default={})), "is no record S"),
    (record(field(["string", "null"], default=None)), "put the branch of the default first"),
    (record(field(["null", "string"], default=5)), "5 is no null . string$"),
]


@pytest.mark.parametrize(("value", "reason"), REFUSED, ids=lambda value: json.dumps(value)[:60])
def test_what_avro_forbids_is_refused_with_the_place(value: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        avro(value)


TAKEN: list[Any] = [
    *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
    [],
    record(),
    record(field(["null", "R"], default=None)),
    record(field("float", default=1)),
    record(field("bytes", default="\u00ff")),
    record(field({"type": "fixed", "name": "F", "size": 0}, default="")),
    record(field(record(field("int", default=1), name="S"), default={})),
    record(field({"type": "array", "items": ["null", "int"]}, default=[None])),
    record(field("int", order="descending")),
    {"type": "error", "name": "Oops", "fields": []},
    {"type": "int", "logicalType": "date"},
    # A logical type that does not fit is no logical type, and no mistake.
    {"type": "bytes", "logicalType": "decimal", "precision": 0},
    {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 4},
    {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 3},
    {"type": "string", "logicalType": 5},
]


@pytest.mark.parametrize("value", TAKEN, ids=lambda value: json.dumps(value)[:60])
def test_what_avro_allows_is_taken_and_kept_as_it_is(value: Any) -> None:
    schema = avro(value)
    assert schema.canonical == json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    assert parse("AVRO", schema.canonical).canonical == schema.canonical
    assert schema.differences(avro(value)) == []


def test_what_a_registry_has_taken_stays_readable() -> None:
    for value in (record(field(["string", "null"], default=None)), record(name="Größe", namespace="a-b")):
        assert avro(value, is_new=False).canonical
        with pytest.raises(SchemaError):
            avro(value)


def test_the_text_has_one_order_of_attributes_and_loses_nothing() -> None:
    given = {
        "doc": "an order", "owner": {"z": 1, "a": 2}, "name": "shop.Order", "aliases": ["shop.Old", "other.Old"],
        "fields": [
            {"default": None, "doc": "who", "pii": True, "type": ["null", {"type": "string", "x": 1}], "name": "who"},
            {"type": {"symbols": ["A"], "name": "Kind", "type": "enum", "default": "A"}, "name": "kind"},
            {"type": {"items": "Kind", "type": "array"}, "name": "kinds", "order": "ignore", "aliases": ["k"]},
            {"type": {"type": "fixed", "size": 2, "namespace": "", "name": "Two"}, "name": "two"},
            {"type": "shop.Kind", "name": "again"},
        ],
        "type": "record",
    }  # fmt: skip
    schema = avro(given)
    assert schema.canonical == (
        '{"type":"record","name":"Order","namespace":"shop","doc":"an order","fields":['
        '{"name":"who","type":["null",{"type":"string","x":1}],"doc":"who","default":null,"pii":true},'
        '{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["A"],"default":"A"}},'
        '{"name":"kinds","type":{"type":"array","items":"Kind"},"order":"ignore","aliases":["k"]},'
        '{"name":"two","type":{"type":"fixed","name":"Two","namespace":"","size":2}},'
        '{"name":"again","type":"Kind"}],"owner":{"z":1,"a":2},"aliases":["Old","other.Old"]}'
    )
    assert parse("AVRO", schema.canonical).canonical == schema.canonical


def test_normalized_texts_differ_only_where_meanings_do() -> None:
    one = record(field("int", b=1, a={"y": 1, "x": 2}), doc="", aliases=["B", "A"], name="n.R")
    two = record(field({"type": "int"}, a={"x": 2, "y": 1}, b=1), aliases=["n.A", "n.B"], namespace="n")
    assert avro(one).canonical != avro(two).canonical
    assert avro(one).normalized().canonical == avro(two).normalized().canonical
    assert avro(one).normalized().normalized().canonical == avro(one).normalized().canonical
    other = avro(record(field("long", b=1, a={"y": 1, "x": 2}), aliases=["B", "A"], name="n.R"))
    assert other.normalized().canonical != avro(one).normalized().canonical


def test_types_of_references_are_used_by_name_and_stay_names_in_the_text() -> None:
    money = avro(record(field("long"), name="shop.Money"))
    line = avro(record(field("shop.Money"), name="shop.Line"), money)
    order = avro(record(field({"type": "array", "items": "Line"}), field("Money", "sum"), name="shop.Order"), line)
    assert order.canonical == (
        '{"type":"record","name":"Order","namespace":"shop","fields":['
        '{"name":"f","type":{"type":"array","items":"Line"}},{"name":"sum","type":"Money"}]}'
    )
    wider = avro(record(field("string"), name="shop.Money"))
    newer = avro(json.loads(order.canonical), avro(json.loads(line.canonical), wider))
    assert [each.path for each in newer.differences(order)] == ["/fields/0/type/items/fields/0/type/fields/0/type"]
    # Two references that bring the same type agree, unless they do not.
    assert avro(record(field("shop.Money"), field("shop.Line", "g"), name="X"), money, line)
    with pytest.raises(SchemaError, match=r"'shop.Money' is defined differently by 'reference1'"):
        avro(record(field("shop.Line"), name="X"), line, wider)
    with pytest.raises(SchemaError, match="defined here and in a reference"):
        avro(record(name="shop.Money"), money)
    with pytest.raises(SchemaError, match=r"'shop\.Money' is no type"):
        avro(record(field("shop.Money"), name="X"))


def test_a_name_is_looked_for_in_its_namespace_and_then_in_none() -> None:
    schema = avro(
        record(
            field(record(name="Out", namespace=""), "a"),
            field("Out", "b"),
            field(record(field("long"), name="Out"), "c"),
            field("Out", "d"),
            name="n.R",
        )
    )
    assert [each.type for each in schema.fields()] == [
        "record Out",
        "record Out",
        "record n.Out",
        "long",
        "record n.Out",
        "long",
    ]


def test_the_fields_for_people_are_flat_and_end() -> None:
    stamp = {"type": "long", "logicalType": "timestamp-millis"}
    tree = record(
        field("string", "name", doc="what it is called", default="none"),
        field({"type": "array", "items": "R"}, "below"),
        field(["null", {"type": "map", "values": record(field(stamp), name="S")}], "at"),
        field({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "cost"),
    )
    assert avro(tree).fields() == [
        Field("name", "string", "what it is called", '"none"'),
        Field("below", "array<record R>", "", None),
        Field("at", "null | map<record S>", "", None),
        Field("at{}.f", "long (timestamp-millis)", "", None),
        Field("cost", "bytes (decimal 4,2)", "", None),
    ]
    assert avro("string").fields() == [Field("", "string", "", None)]
