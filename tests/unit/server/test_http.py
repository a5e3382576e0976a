"""server.http: what Prometheus and whoever restarts the broker read, and what happens to those who send rubbish."""

import json
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest

from penstock.errors import StorageFailed
from penstock.server import http
from penstock.testing import EmbeddedBroker
from penstock.wire.apis import ApiKey


def get(broker: EmbeddedBroker, path: str, method: str = "GET") -> tuple[int, Any, str]:
    request = urllib.request.Request(broker.http + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def values(broker: EmbeddedBroker) -> dict[str, float]:
    """Every line of /metrics by its name and labels."""
    pairs = (line.rpartition(" ") for line in get(broker, "/metrics")[2].splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def test_metrics_are_in_the_text_format_of_prometheus(penstock_broker: EmbeddedBroker) -> None:
    status, headers, body = get(penstock_broker, "/metrics")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert int(headers["Content-Length"]) == len(body.encode())
    for name in ("mq_connections", "mq_messages_in_per_sec", "mq_disk_free_bytes", "process_resident_memory_bytes"):
        assert f"# HELP {name} " in body
        assert f"# TYPE {name} " in body


def test_what_goes_in_and_out_is_counted_by_topic(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any
) -> None:
    create(penstock_broker, "orders")
    wire = connect(penstock_broker)
    for number in range(3):
        wire.send(frames.produce(number, "orders"))
        wire.receive_frame()
    for offset in (0, 3):
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topics = [{"topic": "orders", "partitions": [partition]}]
        wire.ask(ApiKey.FETCH, 11, max_wait=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics)
    wire.send(frames.produce(9, "nowhere"))
    wire.receive_frame()
    page = values(penstock_broker)
    assert page['mq_messages_in_total{topic="orders"}'] == 3
    assert page['mq_bytes_in_total{topic="orders"}'] == page['mq_bytes_out_total{topic="orders"}'] > 0
    assert page['mq_requests_total{api="Produce"}'] == 4
    assert page['mq_requests_total{api="Fetch"}'] == 2
    assert page["mq_produce_latency_ms_count"] == 4
    assert page['mq_request_latency_ms_count{api="Fetch"}'] == 2
    assert page['mq_request_errors_total{api="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"}'] == 1
    assert page['mq_log_end_offset{topic="orders",partition="0"}'] == 3
    assert page['mq_high_watermark{topic="orders",partition="0"}'] == 3
    assert page["mq_topics"] >= 1
    assert page["mq_offline_partitions"] == 0


def test_messages_out_are_counted_once_the_consumer_asks_for_what_follows_them(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any
) -> None:
    create(penstock_broker, "orders")
    wire = connect(penstock_broker)
    for number in range(4):
        wire.send(frames.produce(number, "orders"))
        wire.receive_frame()
    for offset in (0, 2):
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topics = [{"topic": "orders", "partitions": [partition]}]
        wire.ask(ApiKey.FETCH, 11, max_wait=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics)
    assert values(penstock_broker)['mq_messages_out_total{topic="orders"}'] == 2


def test_a_running_broker_is_alive_and_ready(penstock_broker: EmbeddedBroker) -> None:
    for path in ("/health/live", "/health/ready"):
        status, headers, body = get(penstock_broker, path)
        assert (status, json.loads(body)) == (200, {"status": "ok", "problems": []})
        assert headers["Content-Type"] == "application/json; charset=utf-8"


def test_a_broker_with_a_failed_log_is_alive_but_not_ready_and_says_why(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, inside: Any
) -> None:
    create(penstock_broker, "orders")
    log = inside(penstock_broker).read(lambda: penstock_broker.broker.replicas.find("orders", 0).log)
    log.failure = StorageFailed("orders-0: fsync failed")
    status, _, body = get(penstock_broker, "/health/ready")
    assert (status, json.loads(body)) == (503, {"status": "not ready", "problems": ["orders-0: fsync failed"]})
    assert get(penstock_broker, "/health/live")[0] == 200
    assert values(penstock_broker)["mq_offline_partitions"] == 1
    log.failure = None


def test_a_head_request_gets_the_head_alone(penstock_broker: EmbeddedBroker) -> None:
    status, headers, body = get(penstock_broker, "/health/live", "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 0


def test_a_query_does_not_hide_the_page(penstock_broker: EmbeddedBroker) -> None:
    assert get(penstock_broker, "/health/live?verbose=1")[0] == 200


def test_other_paths_and_methods_are_refused_with_what_there_is(penstock_broker: EmbeddedBroker) -> None:
    status, _, body = get(penstock_broker, "/admin")
    assert status == 404
    assert "/metrics" in body
    assert get(penstock_broker, "/metrics", "POST")[0] == 405


@pytest.mark.parametrize(
    "rubbish",
    [b"\r\n\r\n", b"\x00\x01\x02\x03\r\n\r\n", b"GET\r\n\r\n", b"GET  \r\n\r\n", b"A" * 8000 + b"\r\n\r\n"],
    ids=["nothing", "binary", "no-path", "empty-path", "long"],
)
def test_rubbish_gets_an_answer_that_is_http(penstock_broker: EmbeddedBroker, rubbish: bytes) -> None:
    assert send(penstock_broker, rubbish).startswith(b"HTTP/1.1 40")


def test_a_head_without_end_is_hung_up_on(penstock_broker: EmbeddedBroker) -> None:
    assert send(penstock_broker, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000) == b""
    assert get(penstock_broker, "/health/live")[0] == 200


def test_a_request_that_does_not_end_in_time_is_hung_up_on(
    penstock_broker_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "REQUEST_DEADLINE_S", 0.05)
    broker = penstock_broker_factory()
    assert send(broker, b"GET /metrics HT") == b""


def test_connections_past_the_limit_are_hung_up_on_and_the_others_served(penstock_broker: EmbeddedBroker) -> None:
    host, port = penstock_broker.http.removeprefix("http://").split(":")
    held = [socket.create_connection((host, int(port)), 30) for _ in range(http.CONNECTIONS_MAX)]
    for one in held:
        one.sendall(b"GET /health/live HTTP/1.1\r\n")
    assert send(penstock_broker, b"GET /health/live HTTP/1.1\r\n\r\n") == b""
    held[0].sendall(b"\r\n")
    assert held[0].recv(100).startswith(b"HTTP/1.1 200")
    for one in held:
        one.close()


def test_without_an_address_there_is_no_door(penstock_broker_factory: Any) -> None:
    broker = penstock_broker_factory({"penstock.http.listen": ""})
    assert broker.broker.http_endpoint is None


def send(broker: EmbeddedBroker, data: bytes) -> bytes:
    """All that comes back until the broker hangs up."""
    host, port = broker.http.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        answer = b""
        try:
            connection.sendall(data)
            while part := connection.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer
