"""value.format=avro: given schemas, writers' schemas from a registry, and values made to break a decoder."""

import io
import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from fake_registry import FakeRegistry, framed
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema
from raw_rows import decoder, raw_batch, values_of

from penstock.spark.errors import BadOption, DecodeFailed
from penstock.spark.formats.registry import RegistryFailed


def record(*fields: tuple[str, Any], name: str = "shop.Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


LINE = record(
    ("sku", "string"), ("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}]), name="shop.Line"
)
WIDE = record(
    ("id", "long"),
    ("name", ["null", "string"]),
    ("small", "int"),
    ("ratio", "float"),
    ("ok", "boolean"),
    ("day", {"type": "int", "logicalType": "date"}),
    ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
    ("us", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    ("loc", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("fee", {"type": "fixed", "name": "Fee", "size": 4, "logicalType": "decimal", "precision": 5, "scale": 1}),
    ("token", {"type": "string", "logicalType": "uuid"}),
    ("token16", {"type": "fixed", "name": "Token", "size": 16, "logicalType": "uuid"}),
    ("hash", {"type": "fixed", "name": "Hash", "size": 2}),
    ("raw", "bytes"),
    ("state", {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}),
    ("lines", {"type": "array", "items": LINE}),
    ("labels", {"type": "map", "values": ["null", "int"]}),
    ("first", ["null", "Line"]),
    ("any", ["null", "string", {"type": "array", "items": "int"}, "Line"]),
    ("number", ["int", "null", "long"]),
)
ROW = {
    "id": 1 << 40,
    "name": None,
    "small": -7,
    "ratio": 0.5,
    "ok": True,
    "day": date(2024, 2, 29),
    "ms": datetime(2024, 1, 1, 0, 0, 0, 123000, UTC),
    "us": datetime(2024, 1, 1, 0, 0, 0, 123456, UTC),
    "loc": datetime(2024, 1, 1, 5),
    "price": Decimal("-12.34"),
    "fee": Decimal("1.5"),
    "token": uuid.UUID(int=7),
    "token16": uuid.UUID(int=9).bytes,
    "hash": b"\x00\xff",
    "raw": b"\x80",
    "state": "PAID",
    "lines": [{"sku": "a", "at": None}, {"sku": "b", "at": datetime(1999, 1, 1, tzinfo=UTC)}],
    "labels": {"x": 1, "y": None},
    "first": {"sku": "c", "at": None},
    "any": [4, 5],
    "number": 3,
}


def test_every_type_is_read_and_typed_as_spark_would() -> None:
    others = [ROW | {"any": one} for one in ("text", None, {"sku": "u", "at": None})]
    opened = decoder(value_format="avro", value_schema=json.dumps(WIDE))
    batch = opened.decode(raw_batch([*(encoded(WIDE, row) for row in (ROW, *others)), None]))
    first, *rest, tombstone = batch.column("value").to_pylist()
    assert first == ROW | {
        "token": str(uuid.UUID(int=7)),
        "token16": str(uuid.UUID(int=9)),
        "labels": [("x", 1), ("y", None)],
        "any": {"member0": None, "member1": [4, 5], "member2": None},
    }
    assert [row["any"] for row in rest] == [
        {"member0": "text", "member1": None, "member2": None},
        None,
        {"member0": None, "member1": None, "member2": {"sku": "u", "at": None}},
    ]
    assert tombstone is None
    value = opened.schema()["value"].dataType
    assert isinstance(value, t.StructType)
    assert value["us"].dataType == t.TimestampType()
    assert value["loc"].dataType == t.TimestampNTZType()
    assert value["fee"].dataType == t.DecimalType(5, 1)
    assert value["number"].dataType == t.LongType()
    expected = to_arrow_schema(opened.schema(), timezone="UTC").field("value").type
    assert str(batch.column("value").type) == str(expected)
    batch.column("value").validate(full=True)


def test_old_and_new_writers_are_read_with_the_latest_schema(registry: FakeRegistry) -> None:
    old = record(("id", "int"), ("gone", "string"), ("u", ["string", {"type": "array", "items": "int"}]))
    new = record(("id", "long"), ("u", [{"type": "array", "items": "int"}, "null", "string"]))
    new["fields"].append({"name": "added", "type": "string", "default": "none"})
    first, second = registry.register("orders-value", old), registry.register("orders-value", new)
    values = [
        framed(first, encoded(old, {"id": 1, "gone": "x", "u": "s"})),
        framed(second, encoded(new, {"id": 2, "u": None, "added": "y"})),
        framed(first, encoded(old, {"id": 3, "gone": "x", "u": [8]})),
    ]
    rows = values_of(values, value_format="avro", schema_registry_url=registry.url)
    assert rows == [
        {"id": 1, "u": {"member0": None, "member1": "s"}, "added": "none"},
        {"id": 2, "u": None, "added": "y"},
        {"id": 3, "u": {"member0": [8], "member1": None}, "added": "none"},
    ]
    assert registry.asked.count(f"/schemas/ids/{first}") == 1


def test_times_of_another_unit_are_refused_inside_unions_of_several_branches(registry: FakeRegistry) -> None:
    def shop(at: str, left: str) -> dict[str, Any]:
        units = {unit: {"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros")}
        sides = [record(("at", units[left]), name="shop.Left"), record(("at", units["millis"]), name="shop.Right")]
        return record(("u", ["null", "string", *sides, units[at]]))

    reader, same = shop("micros", "micros"), shop("micros", "micros")
    same["fields"][0]["type"].reverse()
    numbers = [
        registry.register("orders-value", one)
        for one in (same, shop("millis", "micros"), shop("micros", "millis"), reader)
    ]
    opened = decoder(value_format="avro", schema_registry_url=registry.url)
    batch = opened.decode(raw_batch([framed(numbers[3], b"\x08\x02"), framed(numbers[0], b"\x00\x02")]))
    moment = datetime(1970, 1, 1, 0, 0, 0, 1, UTC)
    assert [row["u"]["member3"] for row in batch.column("value").to_pylist()] == [moment, moment]
    for number, where in ((numbers[1], "u"), (numbers[2], "u.at")):
        with pytest.raises(DecodeFailed) as caught:
            opened.decode(raw_batch([framed(number, b"\x08\x02")]))
        assert f"{where} is timestamp-millis there and timestamp-micros in the reader's" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (["string", "int"], "d", {"member0": "d", "member1": None}),
        (["string", "null", "int"], "d", {"member0": "d", "member1": None}),
        (["null", "string", "int"], None, None),
        # Since Avro 1.12 a default may be of any branch.
        (["null", "string", "int"], 7, {"member0": None, "member1": 7}),
        ({"type": "array", "items": ["int", "string"]}, [7], [{"member0": 7, "member1": None}]),
        ({"type": "map", "values": ["boolean", "int"]}, {"k": True}, [("k", {"member0": True, "member1": None})]),
        (
            ["null", record(("v", ["int", "string"]), name="shop.Inner")],
            {"v": 7},
            {"v": {"member0": 7, "member1": None}},
        ),
    ],
)
def test_a_new_field_of_a_complex_union_has_its_default(
    registry: FakeRegistry, kind: Any, default: Any, expected: Any
) -> None:
    old, new = record(("id", "int")), record(("id", "int"))
    new["fields"].append({"name": "u", "type": kind, "default": default})
    first = registry.register("orders-value", old)
    registry.register("orders-value", new)
    rows = values_of([framed(first, b"\x02")], value_format="avro", schema_registry_url=registry.url)
    assert rows == [{"id": 1, "u": expected}]


IN = record(("a", "int"), name="In")
IN_LATER = record(("a", "long"), name="In") | {"aliases": ["shop.Old"]}
DATE = {"type": "int", "logicalType": "date"}


@pytest.mark.parametrize(
    ("was", "value", "kind", "expected"),
    [
        ("string", "s", ["string", "int"], {"member0": "s", "member1": None}),
        (["null", "string"], "s", ["null", "string", "int"], {"member0": "s", "member1": None}),
        (["null", "string"], None, ["null", "string", "int"], None),
        ("int", 5, ["string", "long"], {"member0": None, "member1": 5}),
        (["string", "int"], 5, ["null", "string", "double"], {"member0": None, "member1": 5.0}),
        # The same type before a wider one, wherever it stands.
        ("int", 5, ["long", "int", "string"], {"member0": None, "member1": 5, "member2": None}),
        # Two of the writer's belong to one of the reader's.
        (["int", "long", "string"], 5, ["string", "long"], {"member0": None, "member1": 5}),
        (["bytes", "boolean"], b"text", ["boolean", "string"], {"member0": None, "member1": "text"}),
        (IN, {"a": 3}, ["string", IN_LATER], {"member0": None, "member1": {"a": 3}}),
        (
            ["null", IN | {"name": "shop.Old"}],
            {"a": 3},
            ["null", "string", IN_LATER],
            {"member0": None, "member1": {"a": 3}},
        ),
        (DATE, date(1970, 1, 4), ["string", DATE], {"member0": None, "member1": date(1970, 1, 4)}),
        (
            {"type": "array", "items": "int"},
            [1],
            {"type": "array", "items": ["string", "long"]},
            [{"member0": None, "member1": 1}],
        ),
        # A union of several, read as one type, beside others that are structs of members.
        (["string", "int"], "s", ["null", "string"], "s"),
    ],
)
def test_a_type_that_became_one_of_several_is_read_as_the_member_it_is(
    registry: FakeRegistry, was: Any, value: Any, kind: Any, expected: Any
) -> None:
    old, new = record(("u", was), ("other", ["int", "string"])), record(("u", kind), ("other", ["int", "string"]))
    first = registry.register("orders-value", old)
    registry.register("orders-value", new)
    written = framed(first, encoded(old, {"u": value, "other": 1}))
    (row,) = values_of([written], value_format="avro", schema_registry_url=registry.url)
    assert row == {"u": expected, "other": {"member0": 1, "member1": None}}


@pytest.mark.parametrize("name", ["Order", "shop.Order"])
def test_a_record_used_in_several_places_is_read_in_each_as_the_reader_has_it(
    registry: FakeRegistry, name: str
) -> None:
    """Defined where nobody reads it, then inside a union, then plainly: by name wherever it was defined before."""
    used = record(("v", "int"), name="Used")
    old = record(("gone", used), ("u", ["null", "Used"]), ("plain", "Used"), ("again", "Used"), name=name)
    later = record(("v", ["string", "long"]), name="Used")
    new = record(
        ("u", ["null", "string", later]),
        ("plain", "Used"),
        ("again", ["Used", "int"]),
        ("more", ["int", "Used"]),
        name=name,
    )
    new["fields"][3]["default"] = 0
    first, second = registry.register("orders-value", old), registry.register("orders-value", new)
    values = [
        framed(first, encoded(old, {"gone": {"v": 1}, "u": {"v": 2}, "plain": {"v": 3}, "again": {"v": 0}})),
        framed(second, encoded(new, {"u": {"v": 4}, "plain": {"v": "five"}, "again": 7, "more": {"v": 6}})),
    ]

    def v(number: int) -> dict[str, Any]:
        return {"v": {"member0": None, "member1": number}}

    assert values_of(values, value_format="avro", schema_registry_url=registry.url) == [
        {
            "u": {"member0": None, "member1": v(2)},
            "plain": v(3),
            "again": {"member0": v(0), "member1": None},
            "more": {"member0": 0, "member1": None},
        },
        {
            "u": {"member0": None, "member1": v(4)},
            "plain": {"v": {"member0": "five", "member1": None}},
            "again": {"member0": None, "member1": 7},
            "more": {"member0": None, "member1": v(6)},
        },
    ]


def test_a_given_schema_reads_what_the_registry_names(registry: FakeRegistry) -> None:
    wide = record(("id", "long"), ("name", "string"))
    number = registry.register("other", wide)
    rows = values_of(
        [framed(number, encoded(wide, {"id": 5, "name": "n"}))],
        value_format="avro",
        value_schema=json.dumps(record(("name", "string"))),
        schema_registry_url=registry.url,
    )
    assert rows == [{"name": "n"}]


def test_schemas_may_refer_to_others(registry: FakeRegistry) -> None:
    money = {"name": "shop.Money", "subject": "money", "version": 1}
    line = {"name": "shop.Line", "subject": "line", "version": 1}
    registry.register("money", record(("cents", "long"), name="shop.Money"))
    registry.register("line", record(("price", "shop.Money"), name="shop.Line"), references=[money])
    order = record(("line", "shop.Line"), ("tip", ["null", "shop.Money"]))
    number = registry.register("orders-value", order, references=[line, money])
    rows = values_of([framed(number, b"\x06\x02\x08")], value_format="avro", schema_registry_url=registry.url)
    assert rows == [{"line": {"price": {"cents": 3}}, "tip": {"cents": 4}}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "does not begin with a schema registry's header"),
        (b'{"id":1}', "does not begin with a schema registry's header"),
        (b"\x00\x00\x00\x00", "does not begin with a schema registry's header"),
        (framed(99, b"\x02"), "the schema registry knows no schema id 99"),
        (framed(1, b"\x02\x06ab"), "it ends too early"),
        (framed(1, b"\x02\x04\xff\xfe\x00"), "codec can't decode"),
        (framed(1, b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01ab"), "it"),
        (framed(1, b"\x02\x02a\x01\x00tail"), "bytes are left over"),
        (framed(2, b"\x02"), "which is JSON and not AVRO"),
        (framed(3, b"\x02" * 500_000 + b"\x00"), "refers to itself"),
        (framed(4, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "items take no bytes"),
        (framed(5, b"\x02\x02a\x00"), "at is timestamp-millis there and timestamp-micros in the reader's schema"),
        (framed(6, b"\x02"), "does not fit its schema"),
    ],
)
def test_a_hostile_value_is_one_bad_record(registry: FakeRegistry, value: bytes, reason: str) -> None:
    def shop(unit: str) -> dict[str, Any]:
        return record(("id", "int"), ("name", "string"), ("at", {"type": "long", "logicalType": f"timestamp-{unit}"}))

    good = registry.register("orders-value", shop("micros"))
    registry.register("json", {"type": "object"}, "JSON")
    registry.register("list", record(("next", ["null", "shop.List"]), name="shop.List"))
    registry.register("nulls", record(("nulls", {"type": "array", "items": "null"})))
    registry.register("unit", shop("millis"))
    registry.register("other", record(("id", "string")))
    options = {
        "value_format": "avro",
        "schema_registry_url": registry.url,
        "value_schema": json.dumps(shop("micros")),
    }
    fine = framed(good, b"\x02\x02a\x00")
    with pytest.raises(DecodeFailed, match=r"orders-3 at offset 101: ") as caught:
        decoder(**options).decode(raw_batch([fine, value, fine]))
    assert reason in str(caught.value)
    rows = values_of([fine, value, fine], **options)
    assert [row and row["id"] for row in rows] == [1, None, 1]


def test_a_value_beyond_its_decimal_or_time_is_bad_and_alone() -> None:
    schema = record(
        ("d", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}),
        ("t", {"type": "long", "logicalType": "timestamp-millis"}),
    )
    fine, wide, late = b"\x02\x05\x00", b"\x06\x7f\x7f\x7f\x00", b"\x02\x05" + b"\xfe" + b"\xff" * 8 + b"\x01"
    year_12000 = b"\x02\x05" + encoded("long", 316_500_000_000_000)
    values = [fine, wide, late, year_12000, fine]
    rows = values_of(values, value_format="avro", value_schema=json.dumps(schema))
    assert [row and row["d"] for row in rows] == [Decimal("0.5"), None, None, None, Decimal("0.5")]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "no JSON"),
        ('{"type":"record"}', "not valid"),
        ('{"type":"nonsense"}', "not valid"),
        (json.dumps(record(("next", ["null", "shop.Order"]))), "refers to itself"),
        (json.dumps(record(("x", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}))), "no bytes"),
        ('{"type":"array","items":' * 300 + '"int"' + "}" * 300, "nested deeper"),
        ('{"type":"array","items":' * 100_000, "no JSON"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: str, why: str) -> None:
    with pytest.raises(BadOption, match=why):
        decoder(value_format="avro", value_schema=schema)


def test_a_schema_that_explodes_when_written_out_is_refused() -> None:
    kind: Any = "int"
    for level in range(20):
        inner = record(("a", kind), name=f"R{level}")
        inner["fields"].append({"name": "b", "type": "int" if level == 0 else f"R{level - 1}"})
        kind = inner
    with pytest.raises(BadOption, match="more than 10000 columns"):
        decoder(value_format="avro", value_schema=json.dumps(kind))


def test_a_registry_that_is_down_fails_the_task_and_blames_no_record(registry: FakeRegistry) -> None:
    schema = record(("id", "int"))
    number = registry.register("orders-value", schema)
    opened = decoder(
        value_format="avro", schema_registry_url=registry.url, schema_registry_retries="0", on_bad_record="null"
    )
    registry.instead = [(503, b"", {})]
    with pytest.raises(RegistryFailed, match="503"):
        opened.decode(raw_batch([framed(number, b"\x02")]))
    assert opened.decode(raw_batch([framed(number, b"\x02")])).column("value").to_pylist() == [{"id": 1}]
