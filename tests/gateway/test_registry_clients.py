"""The registry as confluent-kafka sees it: its client, sync and async, and its serializers, through a real topic."""

import logging
from base64 import b64decode
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from penstock.testing import EmbeddedBroker

# confluent-kafka's client of registries asks for it, and does not bring it along.
pytest.importorskip("authlib")

from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

INT = '{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}'
WIDER = '{"type":"record","name":"R","fields":[{"name":"x","type":"int"},{"name":"y","type":"int","default":0}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"z","type":"int"}]}'


@pytest.fixture(autouse=True)
def no_access_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest captures what uvicorn would log, and by that makes it log."""
    monkeypatch.setattr(logging.getLogger("uvicorn.access"), "hasHandlers", lambda: False)


@pytest.fixture
def client(gateway: Any) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": gateway.url, "max.retries": 0})


def through_a_topic(broker: EmbeddedBroker, topic: str, values: list[bytes | None]) -> list[bytes]:
    """What a consumer gets of what a producer sends."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = [consumer.poll(30) for _ in values]
        assert all(message is not None and message.error() is None for message in found)
        return [message.value() for message in found]
    finally:
        consumer.close()


def test_every_call_of_the_client(client: SchemaRegistryClient) -> None:
    subject = "team/orders-value"
    first = Schema(INT, "AVRO")
    assert client.register_schema(subject, first) == 1
    assert client.register_schema_full_response(subject, Schema(WIDER, "AVRO")).version == 2
    assert client.get_schema(1).schema_str == INT
    assert client.get_schema_by_guid(client.get_version(subject, 1).guid or "").schema_str == INT
    assert sorted(client.get_schema_types()) == ["AVRO", "JSON", "PROTOBUF"]
    assert client.get_subjects_by_schema_id(1) == [subject]
    assert [(one.subject, one.version) for one in client.get_schema_versions(1)] == [(subject, 1)]
    assert client.lookup_schema(subject, first).version == 1
    assert client.get_subjects() == [subject]
    assert client.get_subjects(subject_prefix="nobody") == []
    assert client.get_latest_version(subject).version == 2
    assert client.get_version(subject, "latest").schema_id == 2
    assert client.get_versions(subject) == [1, 2]
    assert client.get_referenced_by(subject, 1) == []
    assert client.test_compatibility(subject, Schema(OTHER, "AVRO")) is False
    assert client.test_compatibility_all_versions(subject, Schema(WIDER, "AVRO"), verbose=True) is True
    assert client.get_contexts() == ["."]

    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, Schema(OTHER, "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)

    assert client.set_compatibility(subject, "FULL_TRANSITIVE") == {"compatibility": "FULL_TRANSITIVE"}
    assert client.get_compatibility(subject) == "FULL_TRANSITIVE"
    assert client.get_compatibility() == "BACKWARD"
    client.set_config(subject, ServerConfig(compatibility_group="major"))
    assert client.get_config(subject).compatibility_group == "major"
    client.delete_config(subject)
    client.update_mode(subject, "READONLY")
    assert client.get_mode(subject) == "READONLY"
    client.delete_mode(subject)
    client.update_global_mode("READWRITE")
    assert client.get_global_mode() == "READWRITE"

    assert client.delete_version(subject, 2) == 2
    assert client.get_versions(subject, deleted=True) == [1, 2]
    assert client.delete_subject(subject) == [1]
    assert client.get_subjects(deleted=True) == [subject]
    assert client.delete_subject(subject, permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError) as gone:
        client.get_versions(subject, deleted=True)
    assert gone.value.error_code == 40401


def test_contracts_as_the_client_builds_them(client: SchemaRegistryClient) -> None:
    rule = Rule("r", "", RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None, "message.x > 0", None, None, False)
    metadata = Metadata(None, MetadataProperties({"owner": "us"}), None)
    given = Schema(INT, "AVRO", [], metadata, RuleSet(None, [rule]))
    client.register_schema("a", given)

    found = client.get_latest_version("a").schema
    assert found.metadata is not None
    assert found.metadata.properties == metadata.properties
    assert found.rule_set is not None
    assert found.rule_set.domain_rules is not None
    assert found.rule_set.domain_rules[0].expr == "message.x > 0"
    assert client.get_latest_with_metadata("a", {"owner": "us"}).version == 1


async def test_the_client_that_awaits(gateway: Any) -> None:
    client = AsyncSchemaRegistryClient({"url": gateway.url})
    assert await client.register_schema("a", Schema(INT, "AVRO")) == 1
    assert (await client.get_latest_version("a")).schema.schema_str == INT
    assert await client.get_subjects() == ["a"]
    with pytest.raises(SchemaRegistryError):
        await client.get_schema(99)


def test_avro_values_with_references_through_a_topic(
    client: SchemaRegistryClient, penstock_broker: EmbeddedBroker
) -> None:
    address = '{"type":"record","name":"Address","namespace":"shop","fields":[{"name":"city","type":"string"}]}'
    order = (
        '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"},'
        '{"name":"to","type":["null","shop.Address"]}]}'
    )
    client.register_schema("address", Schema(address, "AVRO"))
    schema = Schema(order, "AVRO", [SchemaReference("shop.Address", "address", 1)])
    context = SerializationContext("orders", MessageField.VALUE)
    values: list[dict[str, Any]] = [{"id": n, "to": {"city": f"city {n}"} if n % 2 else None} for n in range(20)]

    write = AvroSerializer(client, schema)
    read = AvroDeserializer(client)

    sent = through_a_topic(penstock_broker, "orders", [write(value, context) for value in values])
    assert [read(value, context) for value in sent] == values
    assert client.get_subjects() == ["address", "orders-value"]
    assert client.get_referenced_by("address", 1) == [2]

    strict = AvroSerializer(client, schema, conf={"auto.register.schemas": False, "use.latest.version": True})
    assert strict(values[1], context) == sent[1]
    by_record = AvroSerializer(client, schema, conf={"subject.name.strategy": record_subject_name_strategy})
    assert by_record(values[1], context)[:5] == sent[1][:5], "the same schema has the same id under another subject"


def test_json_values_through_a_topic(client: SchemaRegistryClient, penstock_broker: EmbeddedBroker) -> None:
    item = {"$id": "item.json", "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    client.register_schema("item", Schema(orjson.dumps(item).decode(), "JSON"))
    text = orjson.dumps(
        {
            "title": "basket",
            "type": "object",
            "properties": {"items": {"type": "array", "items": {"$ref": "item.json"}}},
        }
    ).decode()
    schema = Schema(text, "JSON", [SchemaReference("item.json", "item", 1)])
    context = SerializationContext("baskets", MessageField.VALUE)
    values = [{"items": [{"name": f"thing {n}"}]} for n in range(10)]

    write = JSONSerializer(schema, client)
    read = JSONDeserializer(None, schema_registry_client=client)

    sent = through_a_topic(penstock_broker, "baskets", [write(value, context) for value in values])
    assert [read(value, context) for value in sent] == values
    assert client.get_latest_version("baskets-value").schema.schema_type == "JSON"
    with pytest.raises(Exception, match="required"):
        write({"items": [{}]}, context)


def messages_of_a_shop() -> tuple[Any, Any]:
    """Item and Order, whose file imports that of Item and one that everybody knows."""
    pool = descriptor_pool.DescriptorPool()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known := descriptor_pb2.FileDescriptorProto())
    pool.Add(known)
    field = descriptor_pb2.FieldDescriptorProto
    item = descriptor_pb2.FileDescriptorProto(name="shop/item.proto", package="shop", syntax="proto3")
    item.message_type.add(name="Item").field.add(name="name", number=1, type=field.TYPE_STRING, label=1)
    pool.Add(item)
    order = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["shop/item.proto", "google/protobuf/timestamp.proto"])
    order.message_type.add(name="Unused")
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=field.TYPE_INT64, label=1)
    message.field.add(name="items", number=2, type=field.TYPE_MESSAGE, type_name=".shop.Item", label=3)
    kind = ".google.protobuf.Timestamp"
    message.field.add(name="at", number=3, type=field.TYPE_MESSAGE, type_name=kind, label=1)
    pool.Add(order)
    found = [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in ("Item", "Order")]
    return found[0], found[1]


def test_protobuf_values_with_imports_through_a_topic(
    client: SchemaRegistryClient, penstock_broker: EmbeddedBroker
) -> None:
    item, order = messages_of_a_shop()
    context = SerializationContext("orders", MessageField.VALUE)
    values = [order(id=n, items=[item(name=f"thing {n}")], at={"seconds": n}) for n in range(10)]
    write = ProtobufSerializer(order, client)
    read = ProtobufDeserializer(order, None, client)

    sent = through_a_topic(penstock_broker, "orders", [write(value, context) for value in values])
    assert [read(value, context) for value in sent] == values
    # The second message of its file.
    assert sent[0][5:7] == bytes([2, 2])
    assert client.get_subjects() == ["orders-value", "shop/item.proto"]

    latest = client.get_latest_version("orders-value")
    assert latest.schema.schema_type == "PROTOBUF"
    assert 'syntax = "proto3";' in (latest.schema.schema_str or "")
    assert latest.schema.references == [SchemaReference("shop/item.proto", "shop/item.proto", 1)]
    fresh = SchemaRegistryClient(client.config())
    described = descriptor_pb2.FileDescriptorProto.FromString(
        b64decode(fresh.get_schema(latest.schema_id or 0, fmt="serialized").schema_str or "")
    )
    assert [one.name for one in described.message_type] == ["Unused", "Order"]
    again = ProtobufSerializer(order, fresh, {"auto.register.schemas": False, "use.latest.version": True})
    assert again(values[3], context) == sent[3]
    assert fresh.lookup_schema("orders-value", latest.schema).version == 1
