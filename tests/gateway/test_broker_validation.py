"""Validation at the broker as its users meet it: a real registry, real serializers, real producers and consumers."""

import logging
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer
from kafka.errors import InvalidRecordError

from penstock.testing import EmbeddedBroker
from penstock.testing.plugin import ClusterFactory

# confluent-kafka's client of registries asks for it, and does not bring it along.
pytest.importorskip("authlib")

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2

AVRO = '{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}'
JSON = '{"title":"R","type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}'
BURIES = {"penstock.schema.validation": "full", "penstock.schema.validation.on.failure": "dead-letter"}
DEADLINE_S = 30.0
# What librdkafka says of the records that were refused, and of those which were refused with them.
BROKEN, OTHERS = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD


@pytest.fixture(autouse=True)
def no_access_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest captures what uvicorn would log, and by that makes it log."""
    monkeypatch.setattr(logging.getLogger("uvicorn.access"), "hasHandlers", lambda: False)


def create(bootstrap: str, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(list(topics)).values():
        made.result(DEADLINE_S)


class Deliveries:
    """A producer of one batch after the other, and what became of each record."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 20, "message.timeout.ms": 30_000, **named}
        )
        self._told: list[tuple[int, int | None]] = []

    def send(self, topic: str, *values: bytes | None, partition: int = 0) -> list[tuple[int, int | None]]:
        """Error codes and offsets, in order."""
        self._told = []
        for value in values:
            self.producer.produce(topic, value, key=b"k", headers=[("h", b"1")], partition=partition, on_delivery=self)
        assert self.producer.flush(DEADLINE_S) == 0
        return self._told

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self._told.append((0, message.offset()) if error is None else (error.code(), None))


class Tail:
    """A consumer that stays at the end of one partition; an error of it fails the test."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tail", "enable.partition.eof": True})
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def read(self, end: int) -> list[Message]:
        """All that is new, up to this end of the log."""
        found: list[Message] = []
        while True:
            message = self._consumer.poll(DEADLINE_S)
            assert message is not None
            error = message.error()
            if error is None:
                found.append(message)
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            if message.offset() == end:
                return found

    def close(self) -> None:
        self._consumer.close()


def test_what_serializers_write_passes_and_what_they_did_not_write_is_refused(
    penstock_broker: EmbeddedBroker, gateway: Any
) -> None:
    bootstrap = penstock_broker.bootstrap
    registry = SchemaRegistryClient({"url": gateway.url, "max.retries": 0})
    full = {"penstock.schema.validation": "full"}
    create(bootstrap, *(NewTopic(name, 1, 1, config=full) for name in ("avro", "json", "protobuf")))
    proto = {"use.deprecated.format": False}
    written = {
        "avro": AvroSerializer(registry, AVRO)({"x": 1}, SerializationContext("avro", MessageField.VALUE)),
        "json": JSONSerializer(JSON, registry)({"x": 1}, SerializationContext("json", MessageField.VALUE)),
        "protobuf": ProtobufSerializer(timestamp_pb2.Timestamp, registry, proto)(
            timestamp_pb2.Timestamp(seconds=5), SerializationContext("protobuf", MessageField.VALUE)
        ),
    }
    for topic, value in written.items():
        assert value is not None
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            deliveries = Deliveries(bootstrap, compression_type=codec, acks=1)
            assert [code for code, _ in deliveries.send(topic, value, None)] == [0, 0], (topic, codec)
            broken = value[:-1] + b"\xff\xff"
            refused = deliveries.send(topic, value, broken, b"plain", None)
            assert [code for code, _ in refused] == [OTHERS, BROKEN, BROKEN, OTHERS], (topic, codec)
        tail = Tail(bootstrap, topic)
        assert [message.value() for message in tail.read(10)] == [value, None] * 5
        tail.close()

    # A producer that counts goes on after a refusal, with the next record.
    counting = Deliveries(bootstrap, enable_idempotence=True)
    assert [code for code, _ in counting.send("avro", b"plain")] == [BROKEN]
    assert counting.send("avro", written["avro"]) == [(0, 10)]

    kafka_python = KafkaProducer(bootstrap_servers=bootstrap)
    with pytest.raises(InvalidRecordError, match="the value does not begin with a schema id"):
        kafka_python.send("avro", b"plain").get(DEADLINE_S)
    kafka_python.close()


def test_bad_records_are_buried_while_good_ones_flow_through_transactions_and_crashes(
    penstock_broker: EmbeddedBroker, gateway: Any
) -> None:
    bootstrap = penstock_broker.bootstrap
    registry = SchemaRegistryClient({"url": gateway.url, "max.retries": 0})
    create(bootstrap, NewTopic("orders", 1, 1, config=BURIES))
    good = AvroSerializer(registry, AVRO)({"x": 1}, SerializationContext("orders", MessageField.VALUE))
    bad = b"plain"
    tail = Tail(bootstrap, "orders")
    counting = Deliveries(bootstrap, enable_idempotence=True, compression_type="zstd")
    assert counting.send("orders", good, bad, good) == [(0, 0), (0, 1), (0, 2)]
    assert [message.offset() for message in tail.read(3)] == [0, 2]
    # librdkafka asks for twice as much after each answer without a record, and gives up after some ten of them.
    for place in range(3, 18):
        assert counting.send("orders", bad) == [(0, place)]
        assert tail.read(place + 1) == []
    assert counting.send("orders", good) == [(0, 18)]
    assert [message.offset() for message in tail.read(19)] == [18]
    tail.close()

    penstock_broker.crash_and_restart()
    assert counting.send("orders", bad) == [(0, 19)], "the sequence was kept, without a record"
    assert counting.send("orders", good) == [(0, 20)]

    moving = Deliveries(bootstrap, transactional_id="t")
    moving.producer.init_transactions(DEADLINE_S)
    for end in (moving.producer.abort_transaction, moving.producer.commit_transaction):
        moving.producer.begin_transaction()
        assert [code for code, _ in moving.send("orders", bad)] == [0]
        assert [code for code, _ in moving.send("orders", good, bad)] == [0, 0]
        end(DEADLINE_S)
    committed = Tail(bootstrap, "orders")
    assert [message.offset() for message in committed.read(29)] == [0, 2, 18, 20, 26]
    committed.close()

    buried = Tail(bootstrap, "orders.dead-letter")
    letters = buried.read(21)
    buried.close()
    assert [letter.value() for letter in letters] == [bad] * (1 + 15 + 1 + 4)
    assert letters[0].key() == b"k"
    told = dict(letters[0].headers() or [])
    assert (told["h"], told["penstock.dead.topic"], told["penstock.dead.partition"]) == (b"1", b"orders", b"0")
    assert told["penstock.dead.batch.index"] == b"1"


def test_schemas_and_dead_letters_may_be_led_by_other_brokers(
    penstock_cluster_factory: ClusterFactory, gateway_factory: Any
) -> None:
    cluster = penstock_cluster_factory(nodes=2, overrides={"default.replication.factor": "1"})
    bootstrap = cluster.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    compacted, buried_in = {"cleanup.policy": "compact"}, {"penstock.schema.dead.letter.topic": "graves"}
    create(
        bootstrap,
        NewTopic("_schemas", 1, replica_assignment=[[1]], config=compacted),
        NewTopic("graves", 2, replica_assignment=[[1], [2]]),
        NewTopic("orders", 2, replica_assignment=[[2], [1]], config={**BURIES, **buried_in}),
    )
    gateway = gateway_factory(bootstrap).wait_until_ready()
    registry = SchemaRegistryClient({"url": gateway.url, "max.retries": 0})
    good = AvroSerializer(registry, AVRO)({"x": 1}, SerializationContext("orders", MessageField.VALUE))
    deliveries = Deliveries(bootstrap, acks="all")
    for partition in (0, 1):  # one led beside the schemas, one on the other broker, both with their graves elsewhere
        assert deliveries.send("orders", good, b"plain", partition=partition) == [(0, 0), (0, 1)]
    assert admin.list_topics(timeout=DEADLINE_S).topics["graves"].partitions[0].leader == 1
    for partition in (0, 1):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("graves", partition, 0)])
        letter = consumer.poll(DEADLINE_S)
        consumer.close()
        assert letter is not None
        assert letter.value() == b"plain"
        assert dict(letter.headers() or [])["penstock.dead.partition"] == str(partition).encode()

    # The broker of the schemas dies: what is known is judged by, what is not has to wait for it.
    cluster.kill(1)
    patient = Deliveries(bootstrap, acks="all")
    assert patient.send("orders", good) == [(0, 2)]
    impatient = Deliveries(bootstrap, acks="all", message_timeout_ms=3000)
    unknown = impatient.send("orders", b"\0\0\0\0\x63x")
    assert [code for code, _ in unknown] == [KafkaError._MSG_TIMED_OUT], "tried again until its time was up"
