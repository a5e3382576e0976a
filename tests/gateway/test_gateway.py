"""What stands before every request: limits, hosts, origins, JSON for whatever goes wrong. Over real sockets."""

import json
import socket
import threading
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer

from penstock.testing import EmbeddedBroker

V2_BINARY = "application/vnd.kafka.binary.v2+json"


@pytest.fixture
def nowhere(gateway_factory: Any) -> Any:
    """A gateway whose cluster is not there."""
    return gateway_factory("127.0.0.1:1")


def test_it_waits_for_a_cluster_that_is_not_there_yet(gateway_factory: Any, tmp_path: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    gateway = gateway_factory(f"127.0.0.1:{port}")
    assert gateway.http.get("/health/live").status_code == 200
    answer = gateway.http.get("/health/ready")
    assert (answer.status_code, answer.json()["error_code"]) == (503, 503)
    assert str(port) in answer.json()["message"]
    answer = gateway.http.get("/topics")
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50003)
    assert answer.headers["retry-after"]
    with EmbeddedBroker(tmp_path / "late", {"listeners": f"127.0.0.1:{port}"}):
        gateway.wait_until_ready()
        assert "mq_gateway_cluster_connected 1" in gateway.http.get("/metrics").text


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("GET", "/nothing/here", {}, 404),
        ("GET", "/%ff%00", {}, 404),
        ("DELETE", "/topics", {}, 405),
        ("PUT", "/v3/clusters", {}, 405),
        ("GET", "/topics", {"headers": {"accept": "text/html"}}, 406),
        ("POST", "/topics/t", {"content": "{}", "headers": {"content-type": "text/plain"}}, 415),
        ("POST", "/topics/t", {"content": "{", "headers": {"content-type": V2_BINARY}}, 400),
        ("POST", "/topics/t", {"content": "[1]", "headers": {"content-type": V2_BINARY}}, 422),
        ("POST", "/topics/t", {"content": "[" * 100_000, "headers": {"content-type": V2_BINARY}}, 400),
        ("GET", "/topics/" + "x" * 9000, {}, 414),
        ("GET", "/topics", {"headers": [(f"h{number}", "v") for number in range(101)]}, 431),
        ("GET", "/topics", {"headers": {"host": "evil.example"}}, 421),
        ("GET", "/health/live", {"headers": {"host": "localhost:99"}}, 200),
        ("GET", "/health/live", {"headers": {"host": "[::1]:99"}}, 200),
        ("POST", "/topics/t", {"headers": {"origin": "http://evil.example"}}, 403),
        ("DELETE", "/v3/clusters/c/topics/t", {"headers": {"origin": "null"}}, 403),
        ("DELETE", "/v3/clusters/c/topics/t", {"headers": {"origin": "http://["}}, 403),
    ],
)
def test_whatever_is_wrong_is_answered_as_json(
    nowhere: Any, method: str, path: str, options: dict[str, Any], status: int
) -> None:
    answer = nowhere.http.request(method, path, **options)
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    if status != 200:
        assert answer.headers["content-type"] in ("application/json", "application/vnd.kafka.v2+json")
        assert set(answer.json()) == {"error_code", "message"}
        assert "Traceback" not in answer.text
    if status == 405:
        assert "GET" in answer.headers["allow"]


def test_only_pages_of_allowed_origins_may_read_and_write(gateway_factory: Any) -> None:
    friend = "https://friend.example"
    gateway = gateway_factory("127.0.0.1:1", allowed_origins=(friend,), allowed_hosts=("gate.example",))
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    answer = gateway.http.options("/topics/t", headers={"origin": friend, **asked})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, friend)
    answer = gateway.http.options("/topics/t", headers={"origin": "https://foe.example", **asked})
    assert "access-control-allow-origin" not in answer.headers
    for origin, allowed in ((friend, friend), ("https://foe.example", None), (None, None)):
        headers = {"origin": origin} if origin else {}
        answer = gateway.http.get("/health/live", headers=headers)
        assert answer.headers.get("access-control-allow-origin") == allowed
    own = {"origin": "http://gate.example", "host": "gate.example", "content-type": "application/json"}
    assert gateway.http.post("/topics/t", headers=own, content="{}").status_code == 422
    assert gateway.http.post("/topics/t", headers={**own, "origin": friend}, content="{}").status_code == 422


def test_a_body_is_refused_while_it_arrives(gateway_factory: Any) -> None:
    gateway = gateway_factory("127.0.0.1:1", body_bytes_max=1000)
    headers = {"content-type": V2_BINARY}
    answer = gateway.http.post("/topics/t", content=b" " * 1001, headers=headers)
    assert (answer.status_code, answer.json()["error_code"]) == (413, 413)
    head = b"POST /topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + b"9" * 18 + b"\r\n\r\n"
    assert b" 413 " in _converse(gateway, head).split(b"\r\n")[0]
    taken = 0

    def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield b" " * 500

    # It is refused in the middle: the caller sees the answer, or that nobody listens any more.
    try:
        answer = gateway.http.post("/topics/t", content=endless(), headers=headers)
        assert answer.status_code == 413
    except httpx.TransportError:
        pass
    assert taken < 100_000


def test_a_body_that_never_comes_is_not_waited_for(gateway_factory: Any) -> None:
    gateway = gateway_factory("127.0.0.1:1", body_timeout_s=0.2)
    head = (
        b"POST /topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{"
    )
    assert b"408" in _converse(gateway, head).split(b"\r\n")[0]


def test_headers_are_bounded(nowhere: Any) -> None:
    answer = _converse(nowhere, b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: " + b"y" * 500_000)
    assert b" 431 " in answer.split(b"\r\n")[0]
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error_code"] == 431
    answer = _converse(nowhere, b"\x16\x03\x01 this is no HTTP\r\n\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error_code"] == 400


def test_more_requests_than_allowed_are_told_to_come_back(gateway_factory: Any) -> None:
    gateway = gateway_factory("127.0.0.1:1", requests_max=1)
    with socket.create_connection((gateway.endpoint.host, gateway.endpoint.port)) as first:
        first.sendall(b"POST /topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
        first.sendall(b"content-length: 2\r\n\r\n{")
        _wait_for(gateway, "mq_gateway_requests_running 2")  # the held one, and the one that looks
        answer = gateway.http.get("/nothing")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert gateway.http.get("/health/live").status_code == 200
        first.sendall(b"}")
        assert b" 422 " in first.recv(1000)
    assert gateway.http.get("/nothing").status_code == 404


def test_back_pressure_reaches_the_caller_as_429(penstock_broker: EmbeddedBroker, gateway_factory: Any) -> None:
    gateway = gateway_factory(penstock_broker.bootstrap, queue_records_max=10).wait_until_ready()
    gateway.http.post(f"/v3/clusters/{_cluster(gateway)}/topics", json={"topic_name": "t", "partitions_count": 1})
    headers = {"content-type": "application/vnd.kafka.json.v2+json"}
    body = json.dumps({"records": [{"value": number} for number in range(11)]})
    answer = gateway.http.post("/topics/t", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error_code"], answer.headers["retry-after"]) == (429, 429, "1")
    body = json.dumps({"records": [{"value": number} for number in range(10)]})
    assert gateway.http.post("/topics/t", content=body, headers=headers).status_code == 200
    # Refused as a whole: nothing of the first request was written.
    consumer = Consumer(
        {"bootstrap.servers": penstock_broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    assert [message.value() for message in consumer.consume(10, 30)] == [b"%d" % number for number in range(10)]
    consumer.close()
    page = gateway.http.get("/metrics").text
    assert "mq_gateway_busy_total 1" in page
    assert 'mq_gateway_records_produced_total{interface="rest-v2"} 10' in page
    assert 'mq_gateway_requests_total{method="POST",route="/topics/{topic}",status="429"} 1' in page


def test_a_request_that_is_under_way_is_answered_before_the_gateway_ends(gateway_factory: Any) -> None:
    gateway = gateway_factory("127.0.0.1:1")
    with socket.create_connection((gateway.endpoint.host, gateway.endpoint.port)) as caller:
        caller.sendall(b"POST /topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
        caller.sendall(b"content-length: 2\r\n\r\n{")
        _wait_for(gateway, "mq_gateway_requests_running 2")
        stopping = threading.Thread(target=gateway.stop)
        stopping.start()
        caller.sendall(b"}")
        assert b" 422 " in caller.recv(1000)
        stopping.join()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((gateway.endpoint.host, gateway.endpoint.port))


def _cluster(gateway: Any) -> str:
    return gateway.http.get("/v3/clusters").json()["data"][0]["cluster_id"]


def _converse(gateway: Any, sent: bytes) -> bytes:
    """What comes back until the gateway closes."""
    with socket.create_connection((gateway.endpoint.host, gateway.endpoint.port), timeout=30) as connection:
        heard = b""
        try:
            connection.sendall(sent)
            while piece := connection.recv(10_000):
                heard += piece
        except ConnectionResetError:
            pass
        return heard


def _wait_for(gateway: Any, line: str) -> None:
    while line not in gateway.http.get("/metrics").text:
        pass
