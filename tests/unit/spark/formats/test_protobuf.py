"""value.format=protobuf: descriptor sets, a registry's descriptors, and values made to break a parser."""

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fake_registry import FakeRegistry, framed
from google.protobuf import descriptor_pb2, text_format
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema
from raw_rows import decoder, raw_batch, values_of

from penstock.spark.errors import BadOption, DecodeFailed
from penstock.spark.formats.protobuf_schema import message_class
from penstock.spark.formats.registry import RegistryFailed

MONEY = """
name: "shop/money.proto" package: "shop" syntax: "proto3"
message_type { name: "Money" field { name: "cents" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL } }
"""
ORDER = """
name: "shop/order.proto" package: "shop" syntax: "proto3"
dependency: "shop/money.proto" dependency: "google/protobuf/timestamp.proto"
dependency: "google/protobuf/duration.proto" dependency: "google/protobuf/wrappers.proto"
dependency: "google/protobuf/struct.proto"
enum_type { name: "State" value { name: "NEW" number: 0 } value { name: "PAID" number: 1 } }
message_type {
  name: "Order"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "name" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "note" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true oneof_index: 1 }
  field { name: "state" number: 4 type: TYPE_ENUM type_name: ".shop.State" label: LABEL_OPTIONAL }
  field { name: "price" number: 5 type: TYPE_MESSAGE type_name: ".shop.Money" label: LABEL_OPTIONAL }
  field { name: "lines" number: 6 type: TYPE_MESSAGE type_name: ".shop.Order.Line" label: LABEL_REPEATED }
  field { name: "tags" number: 7 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "labels" number: 8 type: TYPE_MESSAGE type_name: ".shop.Order.LabelsEntry" label: LABEL_REPEATED }
  field { name: "card" number: 9 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "cash" number: 10 type: TYPE_BOOL label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "at" number: 11 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
  field { name: "took" number: 12 type: TYPE_MESSAGE type_name: ".google.protobuf.Duration" label: LABEL_OPTIONAL }
  field { name: "tip" number: 13 type: TYPE_MESSAGE type_name: ".google.protobuf.Int32Value" label: LABEL_OPTIONAL }
  field { name: "more" number: 14 type: TYPE_MESSAGE type_name: ".google.protobuf.Struct" label: LABEL_OPTIONAL }
  field { name: "u32" number: 15 type: TYPE_UINT32 label: LABEL_OPTIONAL }
  field { name: "u64" number: 16 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "raw" number: 17 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "ratio" number: 18 type: TYPE_FLOAT label: LABEL_OPTIONAL }
  field { name: "states" number: 19 type: TYPE_ENUM type_name: ".shop.State" label: LABEL_REPEATED }
  field { name: "nothing" number: 20 type: TYPE_MESSAGE type_name: ".shop.Nothing" label: LABEL_OPTIONAL }
  oneof_decl { name: "payment" } oneof_decl { name: "_note" }
  nested_type {
    name: "Line"
    field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "price" number: 2 type: TYPE_MESSAGE type_name: ".shop.Money" label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "LabelsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".shop.Money" label: LABEL_OPTIONAL }
  }
}
message_type { name: "Nothing" }
message_type {
  name: "Tree"
  field { name: "left" number: 1 type: TYPE_MESSAGE type_name: ".shop.Tree" label: LABEL_OPTIONAL }
}
"""


def file_of(text: str) -> descriptor_pb2.FileDescriptorProto:
    return text_format.Parse(text, descriptor_pb2.FileDescriptorProto())


FILES = (file_of(MONEY).SerializeToString(), file_of(ORDER).SerializeToString())


def order(**fields: Any) -> bytes:
    return message_class(FILES, "shop.Order")(**fields).SerializeToString()


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    both = descriptor_pb2.FileDescriptorSet(file=[file_of(MONEY), file_of(ORDER)])
    (tmp_path / "order.desc").write_bytes(both.SerializeToString())
    return str(tmp_path / "order.desc")


def test_every_type_is_read_and_typed(schema_file: str) -> None:
    full = order(
        id=-1,
        name="n",
        note="",
        state=1,
        price={"cents": 5},
        lines=[{"sku": "a", "price": {"cents": 1}}, {"sku": "b"}],
        tags=["x", "y"],
        labels={"k": {"cents": 9}},
        cash=False,
        at={"seconds": 1_700_000_000, "nanos": 123_456_789},
        took={"seconds": -1, "nanos": -500_000_000},
        tip={"value": 0},
        more={"a": "é"},
        u32=4_000_000_000,
        u64=(1 << 64) - 1,
        raw=b"\xff",
        ratio=0.5,
        states=[1, 7],
        nothing={},
    )
    opened = decoder(value_format="protobuf", value_schema_file=schema_file)
    batch = opened.decode(raw_batch([full, b"", None]))
    first, empty, tombstone = batch.column("value").to_pylist()
    assert first == {
        "id": -1,
        "name": "n",
        "note": "",
        "state": "PAID",
        "price": {"cents": 5},
        "lines": [{"sku": "a", "price": {"cents": 1}}, {"sku": "b", "price": None}],
        "tags": ["x", "y"],
        "labels": [("k", {"cents": 9})],
        "card": None,
        "cash": False,
        "at": datetime(2023, 11, 14, 22, 13, 20, 123456, UTC),
        "took": timedelta(seconds=-1.5),
        "tip": 0,
        "more": '{"a": "é"}',
        "u32": 4_000_000_000,
        "u64": Decimal((1 << 64) - 1),
        "raw": b"\xff",
        "ratio": 0.5,
        "states": ["PAID", "7"],
    }
    assert {name: value for name, value in empty.items() if value not in (None, [])} == {
        "id": 0, "name": "", "state": "NEW", "u32": 0, "u64": Decimal(0), "raw": b"", "ratio": 0.0
    }  # fmt: skip
    assert tombstone is None
    value = opened.schema()["value"].dataType
    assert isinstance(value, t.StructType)
    assert value["took"].dataType == t.DayTimeIntervalType()
    expected = to_arrow_schema(opened.schema(), timezone="UTC").field("value").type
    assert str(batch.column("value").type) == str(expected)
    batch.column("value").validate(full=True)


def b64(text: str, rename: str = "") -> str:
    found = file_of(text)
    found.name = rename or found.name
    return base64.b64encode(found.SerializeToString()).decode()


def put_schemas(registry: FakeRegistry) -> int:
    registry.register("money", b64(MONEY, "whatever.proto"), "PROTOBUF")
    references = [{"name": "shop/money.proto", "subject": "money", "version": 1}]
    return registry.register("orders-value", b64(ORDER, "default.proto"), "PROTOBUF", references)


def test_messages_of_a_registry_are_found_by_id_and_indexes(registry: FakeRegistry) -> None:
    number = put_schemas(registry)
    line = message_class(FILES, "shop.Order.Line")(sku="s").SerializeToString()
    values = [framed(number, order(id=4), b"\x00"), framed(number, order(id=5), b"\x02\x00")]
    options = {"value_format": "protobuf", "schema_registry_url": registry.url}
    rows = values_of([*values, framed(number, line, b"\x04\x00\x00")], **options)
    assert [row and row["id"] for row in rows] == [4, 5, None]
    rows = values_of([framed(number, line, b"\x04\x00\x00")], value_message="shop.Order.Line", **options)
    assert rows == [{"sku": "s", "price": None}]
    assert all(path.endswith("?format=serialized") for path in registry.asked)
    assert registry.asked.count(f"/schemas/ids/{number}?format=serialized") == 1


def test_a_registry_that_has_only_source_text_needs_a_descriptor_set(registry: FakeRegistry, schema_file: str) -> None:
    number = registry.register("orders-value", 'syntax = "proto3"; message Order {}', "PROTOBUF")
    options = {"value_format": "protobuf", "schema_registry_url": registry.url}
    with pytest.raises(RegistryFailed, match=r"value\.schema\.file"):
        decoder(**options)
    values = [framed(number, order(id=6), b"\x00"), framed(number, order(id=6), b"\x02\x02")]
    rows = values_of(values, value_schema_file=schema_file, **options)
    assert [row and row["id"] for row in rows] == [6, None]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (lambda number: b"\x0a", "does not begin with a schema registry's header"),
        (lambda number: framed(number, b""), "ends within its schema registry's header"),
        (lambda number: framed(number, b"", b"\xff\xff\xff\xff\xff\xff"), "indexes are malformed"),
        (lambda number: framed(number, b"", b"\x02\x01"), "indexes are malformed"),
        (lambda number: framed(number, b"", b"\x02\x40"), "point to no message"),
        (lambda number: framed(number, b"", b"\x02\x02"), "it holds message shop.Nothing, not shop.Order"),
        (lambda number: framed(77, b"", b"\x00"), "knows no schema id 77"),
        (lambda number: framed(number, b"\x08", b"\x00"), "it is no shop.Order"),
        (lambda number: framed(number, b"\x12\x02\xff\xfe", b"\x00"), "it is no shop.Order"),
        (lambda number: framed(number, b"\x12\xff\xff\xff\xff\x07a", b"\x00"), "it is no shop.Order"),
        (lambda number: framed(number, b"\xa3\x01" * 200_000, b"\x00"), "it is no shop.Order"),
        (lambda number: framed(number, order(at={"seconds": 1 << 62}), b"\x00"), ""),
        (lambda number: framed(number, order(more={"a": float("nan")}), b"\x00"), ""),
    ],
)
def test_a_hostile_value_is_one_bad_record(
    registry: FakeRegistry, payload: Callable[[int], bytes], reason: str
) -> None:
    number = put_schemas(registry)
    options = {"value_format": "protobuf", "schema_registry_url": registry.url}
    fine = framed(number, order(id=1), b"\x00")
    values = [fine, payload(number), fine]
    with pytest.raises(DecodeFailed, match="orders-3 at offset 101: ") as caught:
        decoder(**options).decode(raw_batch(values))
    assert reason in str(caught.value)
    assert [row and row["id"] for row in values_of(values, **options)] == [1, None, 1]


def test_a_schema_that_cannot_be_used_is_refused(tmp_path: Path, schema_file: str) -> None:
    def refuse(why: str, **options: str) -> None:
        with pytest.raises(BadOption, match=why):
            decoder(value_format="protobuf", **options)

    refuse(r"has no message shop\.Ordr \(its messages: Money", value_schema_file=schema_file, value_message="shop.Ordr")
    refuse("refers to itself", value_schema_file=schema_file, value_message="shop.Tree")
    refuse("has no fields", value_schema_file=schema_file, value_message="shop.Nothing")
    refuse("cannot be read", value_schema_file=str(tmp_path / "nothing"))
    (tmp_path / "text").write_text('syntax = "proto3";')
    refuse("is no descriptor set", value_schema_file=str(tmp_path / "text"))
    (tmp_path / "empty").write_bytes(b"")
    refuse("holds no file", value_schema_file=str(tmp_path / "empty"))
    alone = descriptor_pb2.FileDescriptorSet(file=[file_of(ORDER)])
    (tmp_path / "alone").write_bytes(alone.SerializeToString())
    refuse("imports shop/money.proto", value_schema_file=str(tmp_path / "alone"))
