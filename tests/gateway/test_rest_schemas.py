"""Records with schemas over REST: what it writes Confluent's own deserializers read, and the other way round."""

import io
import json
import struct
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.serialization import MessageField, SerializationContext

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "item", "type": "string"},
            {"name": "count", "type": "int", "default": 1},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
JSON_SCHEMA = json.dumps({"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]})
PROTOBUF = 'syntax = "proto3"; package shop; message Order { string item = 1; int32 count = 2; }'
SCHEMAS = {"avro": ("AVRO", AVRO), "jsonschema": ("JSON", JSON_SCHEMA), "protobuf": ("PROTOBUF", PROTOBUF)}


@pytest.fixture
def topic(penstock_broker: Any, gateway: Any) -> str:
    admin = AdminClient({"bootstrap.servers": penstock_broker.bootstrap})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
    return "orders"


def _post(gateway: Any, path: str, body: Any, kind: str) -> Any:
    return gateway.http.post(path, content=json.dumps(body), headers={"content-type": f"application/vnd.kafka.{kind}"})


def _read_all(gateway: Any, written_as: str, count: int) -> list[Any]:
    config = {"name": f"r-{written_as}", "format": written_as, "auto.offset.reset": "earliest"}
    base = _post(gateway, "/consumers/g", config, "v2+json").json()["base_uri"].removeprefix(gateway.url)
    _post(gateway, f"{base}/assignments", {"partitions": [{"topic": "orders", "partition": 0}]}, "v2+json")
    found: list[Any] = []
    while len(found) < count:
        answer = gateway.http.get(f"{base}/records?timeout=5000")
        assert answer.status_code == 200, answer.text
        found += answer.json()
    return found


@pytest.mark.parametrize("written_as", list(SCHEMAS))
def test_what_is_written_with_a_schema_is_read_with_it(gateway: Any, topic: str, written_as: str) -> None:
    kind, text = SCHEMAS[written_as]
    value = {"item": "tea"} if written_as == "jsonschema" else {"item": "tea", "count": 3}
    records = [{"value": {**value, "note": {"string": "hot"}} if written_as == "avro" else value}, {"value": None}]
    body = {"value_schema": text, "records": records}
    answer = _post(gateway, "/topics/orders", body, f"{written_as}.v2+json")
    assert (answer.status_code, [one["error_code"] for one in answer.json()["offsets"]]) == (200, [None, None])
    schema_id = answer.json()["value_schema_id"]
    registered = gateway.http.get("/subjects/orders-value/versions/latest").json()
    assert (registered["id"], registered.get("schemaType", "AVRO")) == (schema_id, kind)
    # By id, and over v3 by the subject's latest.
    again = {"value_schema_id": schema_id, "records": records[:1]}
    assert _post(gateway, "/topics/orders", again, f"{written_as}.v2+json").json()["value_schema_id"] == schema_id
    cluster = gateway.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
    path = f"/v3/clusters/{cluster}/topics/orders/records"
    report = gateway.http.post(path, json={"value": {"data": records[0]["value"]}}).json()
    assert (report["error_code"], report["value"]["schema_id"], report["value"]["type"]) == (
        200,
        schema_id,
        written_as.upper(),
    )
    got = [one["value"] for one in _read_all(gateway, written_as, 4)]
    assert got == [records[0]["value"], None, records[0]["value"], records[0]["value"]]
    with gateway.http.stream("GET", f"{path}:stream?from=earliest&limit=1") as stream:
        event = next(json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
    assert event["value"] == {"type": "SCHEMA", "data": records[0]["value"]}


def test_confluents_serializers_and_rest_understand_each_other(penstock_broker: Any, gateway: Any, topic: str) -> None:
    pytest.importorskip("authlib")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    registry = SchemaRegistryClient({"url": gateway.url})
    context = SerializationContext("orders", MessageField.VALUE)
    theirs = AvroSerializer(registry, AVRO)({"item": "theirs", "count": 2, "note": "cold"}, context)
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap, "log_level": 0})
    producer.produce("orders", theirs)
    assert producer.flush(30) == 0
    record = {"value": {"item": "ours", "note": {"string": "hot"}}}
    _post(gateway, "/topics/orders", {"value_schema": AVRO, "records": [record]}, "avro.v2+json")
    first, second = (one["value"] for one in _read_all(gateway, "avro", 2))
    assert first == {"item": "theirs", "count": 2, "note": {"string": "cold"}}
    assert second == {"item": "ours", "count": 1, "note": {"string": "hot"}}
    consumer = Consumer(
        {"bootstrap.servers": penstock_broker.bootstrap, "group.id": "c", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    read = AvroDeserializer(registry)
    messages = consumer.consume(2, 30)
    consumer.close()
    assert [read(one.value(), context)["item"] for one in messages] == ["theirs", "ours"]
    assert len(registry.get_versions("orders-value")) == 1


def test_fastavro_and_rest_understand_each_other(penstock_broker: Any, gateway: Any, topic: str) -> None:
    """Another implementation of the same bytes, behind the frame written by hand."""
    parsed = fastavro.parse_schema(json.loads(AVRO))
    record = {"value": {"item": "ours", "count": -300, "note": {"string": "hot"}}}
    sent = _post(gateway, "/topics/orders", {"value_schema": AVRO, "records": [record]}, "avro.v2+json").json()
    frame = struct.pack(">bi", 0, sent["value_schema_id"])
    written = io.BytesIO()
    fastavro.schemaless_writer(written, parsed, {"item": "theirs", "count": 2, "note": None})
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap, "log_level": 0})
    producer.produce("orders", frame + written.getvalue())
    assert producer.flush(30) == 0
    assert _read_all(gateway, "avro", 2)[1]["value"] == {"item": "theirs", "count": 2, "note": None}
    consumer = Consumer(
        {"bootstrap.servers": penstock_broker.bootstrap, "group.id": "c", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    (message, _) = consumer.consume(2, 30)
    consumer.close()
    assert message.value()[:5] == frame
    read = fastavro.schemaless_reader(io.BytesIO(message.value()[5:]), parsed, None)
    assert read == {"item": "ours", "count": -300, "note": "hot"}


@pytest.mark.parametrize(
    ("written_as", "body", "status", "code"),
    [
        ("avro", {"records": [{"value": {"item": "x"}}]}, 422, 42202),
        ("avro", {"records": [{"key": 1}]}, 422, 42201),
        ("avro", {"value_schema": "{}", "records": [{"value": 1}]}, 422, 42205),
        ("avro", {"value_schema_id": 999, "records": [{"value": 1}]}, 404, 40403),
        ("avro", {"value_schema": AVRO, "records": [{"value": {"count": 1}}]}, 422, 42203),
        ("avro", {"value_schema": AVRO, "records": [{"value": {"item": "x", "note": "y"}}]}, 422, 42203),
        ("avro", {"value_schema": AVRO, "records": [{"value": {"item": "x", "count": 2**31}}]}, 422, 42203),
        ("jsonschema", {"value_schema": JSON_SCHEMA, "records": [{"value": {}}]}, 422, 42203),
        ("protobuf", {"value_schema": PROTOBUF, "records": [{"value": {"price": 1}}]}, 422, 42203),
        ("protobuf", {"value_schema": PROTOBUF, "records": [{"value": 1}]}, 422, 42203),
        ("protobuf", {"value_schema": 'syntax = "proto3";', "records": [{"value": {}}]}, 422, 42205),
    ],
)
def test_data_that_does_not_fit_is_refused_with_its_number(
    gateway: Any, topic: str, written_as: str, body: Any, status: int, code: int
) -> None:
    answer = _post(gateway, "/topics/orders", body, f"{written_as}.v2+json")
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    assert gateway.http.get("/topics/orders/partitions/0/offsets").json()["end_offset"] == 0


def test_a_schema_of_another_kind_is_not_used(gateway: Any, topic: str) -> None:
    first = _post(
        gateway, "/topics/orders", {"value_schema": AVRO, "records": [{"value": {"item": "x"}}]}, "avro.v2+json"
    )
    wrong = {"value_schema_id": first.json()["value_schema_id"], "records": [{"value": {"item": "x"}}]}
    answer = _post(gateway, "/topics/orders", wrong, "protobuf.v2+json")
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42205)
