"""Client metrics (KIP-714) from librdkafka and Java: they ask what is wanted, push it, and /metrics shows it."""

import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from client import Client, numbered
from confluent_kafka import Consumer, Producer
from roster import clients

from penstock.testing import EmbeddedBroker
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.frame import request_frame
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.primitives import skip_tags

DEADLINE_S = 30
ROUNDS_MAX = 600  # of 50 ms each
CLIENT_METRICS = 16


def ask(broker: EmbeddedBroker, api_key: ApiKey, **body: Any) -> Any:
    """One request on a connection of its own: librdkafka's admin client has no name for these resources."""
    version = BY_KEY[api_key].high
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as wire, wire.makefile("rb") as answers:
        wire.sendall(request_frame(api_key, version, 1, "operator", encode_request(api_key, version, body)))
        answer = answers.read(int.from_bytes(answers.read(4), "big"))
    return decode_response(api_key, version, answer[skip_tags(memoryview(answer), 4) :])


def subscribe(broker: EmbeddedBroker, name: str, **settings: str) -> None:
    changes = [
        {"name": key.replace("_", "."), "config_operation": 0, "value": value} for key, value in settings.items()
    ]
    resources = [{"resource_type": CLIENT_METRICS, "resource_name": name, "configs": changes}]
    answer = ask(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=resources, validate_only=False)
    assert [response.error_code for response in answer.responses] == [0]


def shown(broker: EmbeddedBroker, start: str) -> dict[str, float]:
    """The rows of /metrics that begin like this."""
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=DEADLINE_S) as page:
        lines = page.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith(start)}


@pytest.fixture
def producer(penstock_broker: EmbeddedBroker) -> Iterator[Producer]:
    subscribe(penstock_broker, "billing", metrics="*", interval_ms="100", match="client_id=billing-.*")
    made = Producer({"bootstrap.servers": penstock_broker.bootstrap, "client.id": "billing-1"})
    yield made
    made.flush(DEADLINE_S)


def test_what_librdkafka_measures_is_on_the_page(penstock_broker: EmbeddedBroker, producer: Producer) -> None:
    broker = penstock_broker
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "client.id": "billing-2"})
    stranger = Consumer({**settings, "client.id": "other", "group.id": "strangers"})
    consumer.subscribe(["t"])
    stranger.subscribe(["t"])
    wanted = {
        'mq_client_producer_connection_creation_total{client_id="billing-1"',
        'mq_client_producer_record_queue_time_avg{client_id="billing-1"',
        'mq_client_consumer_coordinator_assigned_partitions{client_id="billing-2"',
        'mq_client_consumer_node_request_latency_max{client_id="billing-2"',
    }
    rows: dict[str, float] = {}
    for _ in range(ROUNDS_MAX):
        producer.produce("t", b"value")
        producer.poll(0.02)
        consumer.poll(0.02)
        stranger.poll(0.01)
        rows = shown(broker, "mq_client_")
        assigned = [value for row, value in rows.items() if "assigned_partitions" in row]
        if all(any(row.startswith(each) for row in rows) for each in wanted) and assigned == [1]:
            break
    consumer.close()  # its last push says that it ends
    stranger.close()
    assert {each for each in wanted if not any(row.startswith(each) for row in rows)} == set()
    assert not any('client_id="other"' in row for row in rows), "nobody subscribed to that one"
    (members,) = [row for row in rows if "assigned_partitions" in row]
    assert 'group_id="readers"' in members
    created = [value for row, value in rows.items() if row.startswith("mq_client_producer_connection_creation_total")]
    assert created[0] >= 1
    refused = {row: count for row, count in shown(broker, "mq_telemetry_pushes_total").items() if "NONE" not in row}
    assert refused == {}
    assert shown(broker, "mq_telemetry_points_left_out_total") == {"mq_telemetry_points_left_out_total": 0}


def test_a_changed_subscription_reaches_a_client_that_runs(penstock_broker: EmbeddedBroker, producer: Producer) -> None:
    def until_rows(is_reached: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        for _ in range(ROUNDS_MAX):
            producer.produce("t", b"value")
            producer.poll(0.05)
            rows = shown(penstock_broker, "mq_telemetry_pushes_total")
            if is_reached(rows):
                return rows
        raise AssertionError("it did not come to that")

    until_rows(lambda rows: rows.get('mq_telemetry_pushes_total{error="NONE"}', 0) >= 2)
    subscribe(penstock_broker, "billing", interval_ms="150", metrics="org.apache.kafka.producer.connection")
    told = 'mq_telemetry_pushes_total{error="UNKNOWN_SUBSCRIPTION_ID"}'
    before = until_rows(lambda rows: told in rows)['mq_telemetry_pushes_total{error="NONE"}']
    after = until_rows(lambda rows: rows['mq_telemetry_pushes_total{error="NONE"}'] >= before + 2)
    assert after[told] == 1


@clients(only=("java-4.4", "java-3.9"))
def test_what_javas_clients_measure_is_on_the_page(penstock_broker: EmbeddedBroker, client: Client) -> None:
    broker = penstock_broker
    subscribe(broker, "java", metrics="*", interval_ms="100", match="client_software_name=apache-kafka-java")
    stranger = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "other"})
    producer = client.producer()
    consumer = client.member("readers", "t", reset="earliest")
    wanted = {
        "mq_client_producer_connection_creation_total",
        "mq_client_producer_topic_record_send_total",
        "mq_client_consumer_coordinator_assigned_partitions",
        "mq_client_consumer_fetch_manager_records_consumed_total",
    }
    rows: dict[str, float] = {}

    def reached() -> set[str]:
        """Of those wanted, which count something already."""
        return wanted.intersection(row.partition("{")[0] for row, value in rows.items() if value >= 1)

    deadline = time.monotonic() + DEADLINE_S
    while reached() != wanted and time.monotonic() < deadline:
        producer.send("t", numbered(1))
        stranger.produce("t", b"value")
        stranger.poll(0.05)
        rows = shown(broker, "mq_client_")
    assert reached() == wanted, sorted(rows)
    assert not any('client_id="other"' in row for row in rows), "the subscription names Java's clients only"
    (sent,) = [row for row in rows if row.startswith("mq_client_producer_topic_record_send_total{")]
    assert 'topic="t"' in sent
    (members,) = [row for row in rows if row.startswith("mq_client_consumer_coordinator_assigned_partitions{")]
    assert 'group_id="readers"' in members
    assert stranger.flush(DEADLINE_S) == 0
    producer.close()
    consumer.close()
    refused = {row: count for row, count in shown(broker, "mq_telemetry_pushes_total").items() if "NONE" not in row}
    assert refused == {}
    assert shown(broker, "mq_telemetry_points_left_out_total") == {"mq_telemetry_points_left_out_total": 0}
