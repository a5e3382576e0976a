"""Whole rows: options, what happens to bad records, dead letters on a real broker."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient, NewTopic
from fake_registry import FakeRegistry, framed
from pyspark.sql import types as t
from raw_rows import AT, decoder, raw_batch

from penstock.spark.errors import BadOption, DecodeFailed
from penstock.spark.formats import FORMAT_OPTION_NAMES, format_options, open_decoder, resolve
from penstock.spark.formats.dead_letters import DeadLetterFailed, DeadLetters, DeadRecord
from penstock.testing.embedded import EmbeddedBroker

RAW = t.StructType().add("key", t.BinaryType()).add("value", t.BinaryType()).add("topic", t.StringType())
JSON = {"value_format": "json", "value_schema": "a INT"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def test_bytes_need_no_decoder() -> None:
    assert open_decoder(format_options({"subscribe": "t"})) is None
    assert open_decoder(format_options({"subscribe": "t", "value.format": "BYTES", "includeHeaders": "true"})) is None


def test_key_and_value_are_typed_and_other_columns_stay() -> None:
    opened = decoder(key_format="string", **JSON)
    batch = raw_batch([b'{"a":1}', None], keys=[b"k", None])
    typed = opened.decode(batch)
    assert typed.schema.names == batch.schema.names
    assert typed.drop_columns(["key", "value"]).equals(batch.drop_columns(["key", "value"]))
    assert typed.select(["key", "value"]).to_pylist() == [{"key": "k", "value": {"a": 1}}, {"key": None, "value": None}]
    assert opened.row_schema(RAW) == (
        t.StructType()
        .add("key", t.StringType())
        .add("value", t.StructType().add("a", t.IntegerType()))
        .add("topic", t.StringType())
    )


def test_text_that_is_no_utf8_fails_with_its_place_or_becomes_null() -> None:
    with pytest.raises(
        DecodeFailed, match=r"orders-3 at offset 101: the key does not decode as string: it is no UTF-8"
    ):
        decoder(key_format="string").decode(raw_batch([b"v"] * 3, keys=[b"k", b"\xff", b"\xfe"]))
    typed = decoder(key_format="string", on_bad_record="null").decode(raw_batch([b"v"] * 2, keys=[b"k", b"\xff"]))
    assert typed.select(["key", "value"]).to_pylist() == [{"key": "k", "value": b"v"}, {"key": None, "value": b"v"}]


def test_the_schema_of_the_driver_is_the_schema_of_every_task(registry: FakeRegistry) -> None:
    number = registry.register("orders-value", {"type": "object", "properties": {"a": {"type": "integer"}}}, "JSON")
    named = {
        "subscribe": "orders",
        "Value.Format": "json",
        "schema.registry.url": registry.url.replace("://", "://me:secret@"),
        "kafka.sasl.password": "hidden",
    }
    resolved = resolve(format_options(named))
    assert "secret" not in repr(resolved)
    assert "hidden" not in repr(resolved)
    assert registry.url in repr(resolved)
    registry.register("orders-value", {"type": "object", "properties": {"b": {"type": "integer"}}}, "JSON")
    opened = open_decoder(pickle.loads(pickle.dumps(resolved)))
    assert opened is not None
    typed = opened.decode(raw_batch([framed(number, b'{"a":1}'), b'{"a":2,"b":3}']))
    assert typed.column("value").to_pylist() == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"value.format": "xml"}, "value.format is 'xml'; it can be bytes, string, json, avro, protobuf"),
        ({"value.format": "avro"}, "value.format=avro needs a schema"),
        ({"value.format": "string", "value.schema": "a INT"}, "value.schema has no meaning with value.format=string"),
        ({"value.schema": "a INT"}, "value.schema has no meaning with value.format=bytes"),
        ({"value.format": "json", "value.schema": "a INT", "value.message": "x"}, "value.message has no meaning"),
        ({"value.format": "json", "value.schema": "a INT", "value.schema.file": "x"}, "not both"),
        ({"value.format": "protobuf", "value.schema": "x"}, "protobuf takes no value.schema"),
        (
            {"subscribe": "a,b", "value.format": "avro", "schema.registry.url": "http://h"},
            "give schema.registry.subject",
        ),
        ({"value.format": "avro", "schema.registry.url": "h:8081"}, "must be http://"),
        ({"schema.registry.url": "http://h", "schema.registry.basic.auth.user.info": "me"}, "must be user:password"),
        ({"schema.registry.url": "http://h", "schema.registry.timeout.ms": "soon"}, "whole number"),
        ({"on.bad.record": "skip"}, "on.bad.record is 'skip'"),
        ({"on.bad.record": "deadletter"}, "belong together"),
        ({"deadletter.topic": "d"}, "belong together"),
        ({"on.bad.record": "deadletter", "deadletter.topic": "orders"}, "come round for ever"),
        (
            {"subscribe": "", "subscribePattern": "d.*", "on.bad.record": "deadletter", "deadletter.topic": "dead"},
            "round",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(BadOption) as caught:
        format_options({"subscribe": "orders"} | options)
    assert why in str(caught.value)
    assert {name for name in options if not name.startswith("subscribe")} <= FORMAT_OPTION_NAMES


def test_a_registry_of_another_kind_of_schema_is_told(registry: FakeRegistry) -> None:
    registry.register("orders-value", {"type": "object"}, "JSON")
    with pytest.raises(BadOption, match=r"holds a schema of type JSON, but value\.format is avro"):
        decoder(value_format="avro", schema_registry_url=registry.url)


def create_topic(broker: EmbeddedBroker, topic: str) -> None:
    # The future dies with its client.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def read_all(broker: EmbeddedBroker, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        found = consumer.consume(count, 30)
        assert len(found) == count
        return found
    finally:
        consumer.close()


def test_a_bad_record_goes_to_the_dead_letter_topic_as_it_was(broker: EmbeddedBroker) -> None:
    create_topic(broker, "dead")
    opened = decoder(
        on_bad_record="deadletter", deadletter_topic="dead", kafka_bootstrap_servers=broker.bootstrap, **JSON
    )
    batch = raw_batch([b'{"a":1}', b"poison", None, b'{"a":"x"}'], keys=[b"k"] * 4, headers=[("h", b"1"), ("n", None)])
    typed = opened.decode(batch)
    opened.flush()
    assert "headers" not in typed.schema.names
    assert typed.column("offset").to_pylist() == [100, 102]
    first, second = read_all(broker, "dead", 2)
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"k", b"poison", int(AT.timestamp() * 1000))
    headers = first.headers()
    assert headers is not None
    assert headers[:2] == [("h", b"1"), ("n", None)]
    added = dict(headers[2:])
    assert (added.pop("penstock.dead.reason") or b"").startswith(b"value: it is no JSON")
    assert added == {
        "penstock.dead.topic": b"orders",
        "penstock.dead.partition": b"3",
        "penstock.dead.offset": b"101",
        "penstock.dead.timestamp": str(int(AT.timestamp() * 1000)).encode(),
        "penstock.dead.format": b"json",
    }
    assert second.value() == b'{"a":"x"}'


def test_a_bad_record_with_a_time_past_the_year_9999_is_buried_too(broker: EmbeddedBroker) -> None:
    """As a producer makes them that gives microseconds for milliseconds."""
    create_topic(broker, "late")
    opened = decoder(
        on_bad_record="deadletter", deadletter_topic="late", kafka_bootstrap_servers=broker.bootstrap, **JSON
    )
    batch = raw_batch([b"poison", b'{"a":1}'], headers=())
    at = batch.schema.get_field_index("timestamp")
    late = pa.array([1_700_000_000_000_000 * 1000] * 2, batch.schema.field(at).type)
    typed = opened.decode(batch.set_column(at, batch.schema.field(at), late))
    opened.flush()
    assert typed.column("offset").to_pylist() == [101]
    (letter,) = read_all(broker, "late", 1)
    assert letter.value() == b"poison"
    assert dict(letter.headers() or ())["penstock.dead.timestamp"] == b"1700000000000000"


def test_a_dead_letter_that_no_broker_takes_fails_the_task(broker: EmbeddedBroker) -> None:
    letters = DeadLetters(
        "no/such/topic", {"bootstrap.servers": broker.bootstrap, "topic.metadata.propagation.max.ms": "100"}, flush_s=5
    )
    letters.send(DeadRecord("orders", 0, 1, 5, None, b"v", ()), "why", "json")
    with pytest.raises(DeadLetterFailed, match="could not be written to no/such/topic"):
        letters.flush()


def test_dead_letters_without_headers_asked_for_still_need_them() -> None:
    named = {"subscribe": "orders", "on.bad.record": "deadletter", "deadletter.topic": "d", "value.format": "string"}
    assert format_options(named).needs_headers
    assert not format_options(named | {"value.format": "bytes"}).needs_headers
    assert format_options({"includeHeaders": "true"}).needs_headers


def test_a_schema_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "schema").write_text("a INT")
    opened = decoder(value_format="json", value_schema_file=str(tmp_path / "schema"))
    assert opened.decode(raw_batch([b'{"a":1}'])).column("value").to_pylist() == [{"a": 1}]
