"""How many and how long, over real sockets: slow headers, connections, streams; what a read-only gateway refuses."""

import contextlib
import json
import logging
import socket
from typing import Any

import httpx
import pytest

from penstock.gateway import server
from penstock.testing import EmbeddedBroker

DEADLINE_S = 30
JSON_V2 = {"content-type": "application/vnd.kafka.json.v2+json"}


def connect(gateway: Any) -> socket.socket:
    return socket.create_connection((gateway.endpoint.host, gateway.endpoint.port), DEADLINE_S)


def answer_on(channel: socket.socket) -> tuple[int, Any]:
    """The status and the JSON of the one answer before the gateway hangs up."""
    said = b""
    while piece := channel.recv(65_536):
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_headers_that_never_end_are_not_waited_for(gateway_factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADER_TIMEOUT_S", 0.2)
    gateway = gateway_factory("127.0.0.1:1")
    with connect(gateway) as silent, connect(gateway) as slow:
        slow.sendall(b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nx-half: ")
        for channel in (silent, slow):
            status, told = answer_on(channel)
            assert (status, told["error_code"]) == (408, 408)
            assert "did not arrive in time" in told["message"]
    # Also those of the second request of a connection.
    with connect(gateway) as again:
        again.sendall(b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /health/live HTTP/1.1\r\n")
        said = b""
        while piece := again.recv(65_536):
            said += piece
    assert said.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in said


def test_one_connection_too_many_is_told_so_and_the_others_stay(gateway_factory: Any) -> None:
    gateway = gateway_factory("127.0.0.1:1", connections_max=2)
    with connect(gateway) as first, connect(gateway) as second:
        with connect(gateway) as third:
            status, told = answer_on(third)
        assert (status, told["error_code"]) == (503, 503)
        assert "too many connections" in told["message"]
        for channel in (first, second):
            channel.sendall(b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            assert answer_on(channel) == (200, {"status": "live"})


def test_one_stream_too_many_is_told_to_come_back(penstock_broker: EmbeddedBroker, gateway_factory: Any) -> None:
    gateway = gateway_factory(penstock_broker.bootstrap, streams_max=1).wait_until_ready()
    cluster = gateway.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
    topics = f"/v3/clusters/{cluster}/topics"
    assert gateway.http.post(topics, json={"topic_name": "t"}).status_code == 201
    path = f"{topics}/t/records:stream"
    with contextlib.ExitStack() as closing:
        other = closing.enter_context(httpx.Client(base_url=gateway.url, timeout=DEADLINE_S))
        with gateway.http.stream("GET", path) as stream:
            assert stream.status_code == 200
            with other.stream("GET", path) as refused:
                assert (refused.status_code, refused.headers.get("retry-after")) == (503, "1")
                refused.read()
            assert "1 streams are open" in refused.json()["message"]
            # Requests that are none have places of their own.
            assert other.get(topics).status_code == 200
            assert "mq_gateway_streams_open 1" in other.get("/metrics").text


def test_a_page_has_each_of_its_headers_once(gateway_factory: Any) -> None:
    gateway = gateway_factory("127.0.0.1:1")
    for path in ("/", "/health/live", "/nothing"):
        names = [name.lower() for name, _ in gateway.http.get(path).headers.multi_items()]
        assert len(names) == len(set(names)), path
        assert {"x-content-type-options", "x-frame-options", "referrer-policy", "cache-control"} <= set(names)
    page = gateway.http.get("/").headers
    assert page["content-security-policy"].startswith("default-src 'none'")
    assert page["cache-control"] == "no-cache"


def test_a_path_that_cannot_be_spelled_is_answered_whoever_listens_to_uvicorn(gateway_factory: Any) -> None:
    gateway = gateway_factory("127.0.0.1:1")
    listening = logging.NullHandler()
    logging.getLogger("uvicorn.access").addHandler(listening)
    try:
        # A slash in a name is kept apart from others as half a surrogate pair.
        assert gateway.http.get("/subjects/a%2Fb/nothing").status_code == 404
    finally:
        logging.getLogger("uvicorn.access").removeHandler(listening)


def test_a_read_only_gateway_shows_everything_and_changes_nothing(
    penstock_broker: EmbeddedBroker, gateway_factory: Any
) -> None:
    writing = gateway_factory(penstock_broker.bootstrap).wait_until_ready()
    cluster = writing.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
    topics = f"/v3/clusters/{cluster}/topics"
    schema = {"schema": '"string"'}
    assert writing.http.post(topics, json={"topic_name": "t"}).status_code == 201
    assert writing.http.post("/subjects/a%2Fb/versions", json=schema).status_code == 200
    showing = gateway_factory(penstock_broker.bootstrap, read_only=True).wait_until_ready().http
    for method, path in (
        ("POST", topics),
        ("DELETE", f"{topics}/t"),
        ("POST", f"{topics}/t/records"),
        ("POST", f"{topics}/t/configs:alter"),
        ("POST", "/topics/t"),
        ("POST", "/consumers/g"),
        ("DELETE", "/subjects/a%2Fb"),
        ("POST", "/subjects/a%2Fb/versions"),
        ("POST", "/contexts/.c/subjects/s/versions"),
        ("PUT", "/config"),
        ("PUT", "/mode/s"),
        ("POST", "/api/topic/create"),
        ("POST", "/api/messages/produce"),
        ("POST", "/no/such/route"),
    ):
        refused = showing.request(method, path, json={"records": [{"value": 1}]}, headers=JSON_V2)
        assert (refused.status_code, refused.json()["error_code"]) == (403, 40303), (method, path)
        assert "--read-only" in refused.json()["message"]
    socket_head = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    refused = showing.get(f"{topics}/t/records:socket", headers={**socket_head, "sec-websocket-key": "a" * 22 + "=="})
    assert refused.status_code == 403
    assert "records:stream" in refused.json()["message"]
    # Questions, also those that are posted.
    assert showing.get(topics).json()["data"]
    assert showing.get("/api/session").json()["is_readonly"]
    assert showing.post("/subjects/a%2Fb", json=schema).json()["version"] == 1
    for subject in ("/compatibility/subjects/a%2Fb/versions", "/compatibility/subjects/a%2Fb/versions/latest"):
        assert showing.post(subject, json=schema).json() == {"is_compatible": True}
    assert showing.post("/api/doctor/run", json={}).status_code == 200
    with showing.stream("GET", f"{topics}/t/records:stream") as stream:
        assert stream.status_code == 200
