"""Typed columns through the source: JSON with a poison record to a dead-letter topic, Avro and protobuf."""

import base64
import io
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from helpers import Row, Topics

from penstock.spark.errors import reason
from penstock.testing.embedded import EmbeddedBroker

# The registry lies beside the unit tests of the formats.
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "spark" / "formats"))

from fake_registry import FakeRegistry, framed
from google.protobuf import descriptor_pb2, text_format

from penstock.spark.formats.protobuf_schema import message_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_json_becomes_columns_and_the_poison_goes_to_the_dead_letters(
    spark: "SparkSession", broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    source, dead = topics.make(partitions=2), topics.make()
    rows = [Row(b'{"id":%d,"at":"2024-01-01T00:00:%02dZ","more":1}' % (n, n), b"k%d" % n, n % 2) for n in range(20)]
    rows[7] = Row(b"poison", b"k7", 1, headers=[("trace", b"t")])
    rows[8] = Row(None, b"k8", 0)
    topics.produce(source, rows)
    stream = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("key.format", "string")
        .option("value.format", "json")
        .option("value.schema", "id INT, at TIMESTAMP, tags ARRAY<STRING>")
        .option("on.bad.record", "deadletter")
        .option("deadletter.topic", dead)
        .load()
    )
    assert stream.schema["value"].dataType.simpleString() == "struct<id:int,at:timestamp,tags:array<string>>"
    query = (
        stream.selectExpr("key", "value.id", "value.at", "value.tags", "value IS NULL AS is_null", "offset")
        .writeStream.format("memory")
        .queryName("typed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)
    found = {row["key"]: row for row in spark.table("typed").collect()}
    assert set(found) == {f"k{n}" for n in range(20) if n != 7}
    assert (found["k3"]["id"], found["k3"]["tags"]) == (3, None)
    assert found["k3"]["at"].astimezone(UTC) == datetime(2024, 1, 1, 0, 0, 3, tzinfo=UTC)
    assert found["k8"]["is_null"]
    (letter,) = topics.read(dead)
    assert (letter.key(), letter.value()) == (b"k7", b"poison")
    headers = dict(letter.headers() or [])
    assert headers["trace"] == b"t"
    assert headers["penstock.dead.topic"] == source.encode()
    assert (headers["penstock.dead.partition"], headers["penstock.dead.offset"]) == (b"1", b"3")
    assert (headers["penstock.dead.reason"] or b"").startswith(b"value: it is no JSON")


def test_avro_is_read_with_the_registrys_schemas_and_a_poison_record_fails_the_query(
    spark: "SparkSession", broker: EmbeddedBroker, topics: Topics
) -> None:
    def encoded(schema: Any, value: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
        return stream.getvalue()

    old: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    new = old | {
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "price", "type": ["null", price], "default": None},
            {"name": "lines", "type": {"type": "map", "values": "int"}, "default": {}},
        ]
    }
    source = topics.make()
    with FakeRegistry() as registry:
        first, second = registry.register(f"{source}-value", old), registry.register(f"{source}-value", new)
        later = {"id": 2, "price": b"\x01\x00", "lines": {"a": 1}}
        plain = new | {"fields": [new["fields"][0], {"name": "price", "type": ["null", "bytes"]}, new["fields"][2]]}
        topics.produce(source, [framed(first, encoded(old, {"id": 1})), framed(second, encoded(plain, later))])
        read = (
            spark.read.format("penstock")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", source)
            .option("value.format", "avro")
            .option("schema.registry.url", registry.url)
        )
        frame = read.load()
        assert frame.schema["value"].dataType.simpleString() == (
            "struct<id:bigint,price:decimal(9,2),lines:map<string,int>>"
        )
        rows = (
            frame.selectExpr("value.id", "CAST(value.price AS STRING) AS price", "value.lines").orderBy("id").collect()
        )
        assert [tuple(row) for row in rows] == [(1, None, {}), (2, "2.56", {"a": 1})]
        topics.produce(source, [b"poison"])
        with pytest.raises(Exception, match="offset 2") as caught:
            read.load().select("value.id").collect()
        assert reason(caught.value).startswith(f"{source}-0 at offset 2: the value does not decode as avro: ")
        kept = read.option("on.bad.record", "null").load().selectExpr("value.id", "offset").orderBy("offset").collect()
        assert [row["id"] for row in kept] == [1, 2, None]
        missing = read.option("schema.registry.subject", "nobody")
        with pytest.raises(Exception, match="knows no subject nobody"):
            missing.load()


CLICK = """
name: "click.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
message_type { name: "Other" field { name: "id" number: 1 type: TYPE_BOOL label: LABEL_OPTIONAL } }
message_type {
  name: "Click"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "tags" number: 2 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "at" number: 3 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
}
"""


def test_protobuf_is_read_with_a_descriptor_file_and_with_the_registrys_schema(
    spark: "SparkSession", broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    file = text_format.Parse(CLICK, descriptor_pb2.FileDescriptorProto())
    make: Any = message_class((file.SerializeToString(),), "shop.Click")
    clicks = [make(id=number, tags=["a"] * number, at={"seconds": 1_700_000_000}) for number in range(3)]
    (tmp_path / "click.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    given, registered = topics.make(), topics.make()
    topics.produce(given, [click.SerializeToString() for click in clicks])
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("value.format", "protobuf").option("value.message", "shop.Click")

    def check(frame: Any) -> None:
        assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,tags:array<string>,at:timestamp>"
        rows = frame.selectExpr("value.id", "value.tags", "CAST(value.at AS LONG) AS at").orderBy("id").collect()
        assert [tuple(row) for row in rows] == [(number, ["a"] * number, 1_700_000_000) for number in range(3)]

    with FakeRegistry() as registry:
        serialized = base64.b64encode(file.SerializeToString()).decode()
        number = registry.register(f"{registered}-value", serialized, "PROTOBUF")
        # The second message of the file: one index, 1, behind their count.
        topics.produce(registered, [framed(number, click.SerializeToString(), b"\x02\x02") for click in clicks])
        check(reader.option("subscribe", given).option("value.schema.file", str(tmp_path / "click.desc")).load())
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
        reader = reader.option("value.format", "protobuf").option("value.message", "shop.Click")
        check(reader.option("subscribe", registered).option("schema.registry.url", registry.url).load())
        with pytest.raises(Exception, match="offset 0") as caught:
            reader.option("value.message", "shop.Other").load().select("value.id").collect()
        assert reason(caught.value).startswith(f"{registered}-0 at offset 0: the value does not decode as protobuf: ")
