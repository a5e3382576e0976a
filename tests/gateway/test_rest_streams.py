"""Following a topic by Server-Sent Events and by WebSocket, and sending over the socket. Real HTTP, real broker."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect


@pytest.fixture
def producer(penstock_broker: Any) -> Producer:
    return Producer({"bootstrap.servers": penstock_broker.bootstrap, "log_level": 0})


@pytest.fixture
def path(penstock_broker: Any, gateway: Any) -> str:
    admin = AdminClient({"bootstrap.servers": penstock_broker.bootstrap})
    admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
    cluster = gateway.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
    return f"/v3/clusters/{cluster}/topics/orders/records"


def _send(producer: Producer, *values: bytes | None, partition: int = 0, **how: Any) -> None:
    for value in values:
        producer.produce("orders", value, partition=partition, **how)
    assert producer.flush(30) == 0


def _events(lines: Iterator[str], count: int) -> list[dict[str, Any]]:
    """So many events, each with its fields; `data` as what it means."""
    found: list[dict[str, Any]] = []
    event: dict[str, Any] = {}
    while len(found) < count:
        line = next(lines)
        if line.startswith((":", "retry")):
            continue
        if line:
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value
        elif event:
            found.append(event)
            event = {}
    return found


def test_records_come_as_events_and_a_reader_goes_on_after_the_last_one(
    gateway: Any, path: str, producer: Producer
) -> None:
    _send(producer, b'{"n":1}', "grün".encode(), b"\xff\x00", None, key=b"k", headers=[("h", b"\x01")])
    with gateway.http.stream("GET", f"{path}:stream?from=earliest") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        first = _events(lines, 4)
        assert [(one["event"], one["id"], one["data"]["offset"]) for one in first] == [
            ("record", f"0:{offset + 1}", offset) for offset in range(4)
        ]
        assert [one["data"]["value"] for one in first] == [
            {"type": "JSON", "data": {"n": 1}},
            {"type": "STRING", "data": "grün"},
            {"type": "BINARY", "data": "/wA="},
            {"type": "NULL", "data": None},
        ]
        assert first[0]["data"]["key"] == {"type": "STRING", "data": "k"}
        assert first[0]["data"]["headers"] == [{"name": "h", "value": "AQ=="}]
        _send(producer, b"5", partition=1)
        (fresh,) = _events(lines, 1)
        assert (fresh["id"], fresh["data"]["partition_id"]) == ("0:4,1:1", 1)
    _send(producer, b"6")
    with gateway.http.stream(
        "GET", f"{path}:stream?from=earliest", headers={"last-event-id": first[1]["id"]}
    ) as answer:
        # Partition 1 is not in that id: it is read from where the request says.
        found = [one["data"] for one in _events(answer.iter_lines(), 4)]
    places = {(one["partition_id"], one["offset"]) for one in found}
    assert places == {(0, 2), (0, 3), (0, 4), (1, 0)}


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("from=offset&offset=3&partition=0", [3, 4]),
        ("from=timestamp&timestamp=3000&partition=0", [3, 4]),
        ("from=earliest&partition=0&limit=2", [0, 1]),
        ("from=earliest&format=string&partition=0&limit=1", [0]),
        ("last_event_id=0:2&partition=0", [2, 3, 4]),
    ],
)
def test_a_stream_begins_where_it_is_told(
    gateway: Any, path: str, producer: Producer, query: str, offsets: list[int]
) -> None:
    for number in range(5):
        _send(producer, b"%d" % number, timestamp=number * 1000 or 1)
    with gateway.http.stream("GET", f"{path}:stream?{query}") as answer:
        lines = answer.iter_lines()
        assert [one["data"]["offset"] for one in _events(lines, len(offsets))] == offsets
        if "limit" in query:
            # It ends by itself.
            assert [line for line in lines if line] == []


def test_latest_means_from_the_answer_on(gateway: Any, path: str, producer: Producer) -> None:
    _send(producer, b"before")
    with gateway.http.stream("GET", f"{path}:stream") as answer:
        _send(producer, b"after")
        (event,) = _events(answer.iter_lines(), 1)
        assert event["data"]["value"]["data"] == "after"


@pytest.mark.parametrize(
    "query",
    ["from=now", "from=offset", "from=timestamp", "format=xml", "limit=0", "partition=x", "last_event_id=1",
     "last_event_id=a:b", "group=g&from=offset&offset=1", "group=", "offset=99999999999999999999&from=offset"],
)  # fmt: skip
def test_a_stream_that_cannot_be_is_refused_before_it_begins(gateway: Any, path: str, query: str) -> None:
    answer = gateway.http.get(f"{path}:stream?{query}")
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)
    assert gateway.services.kafka.consumers_open == 0


def test_a_group_shares_a_stream_and_commits_what_was_sent(
    penstock_broker: Any, gateway: Any, path: str, producer: Producer
) -> None:
    _send(producer, b"1", b"2", b"3")
    with gateway.http.stream("GET", f"{path}:stream?group=sales&from=earliest&limit=2") as answer:
        lines = answer.iter_lines()
        assert [one["data"]["offset"] for one in _events(lines, 2)] == [0, 1]
        assert list(lines) == []
    client = Consumer({"bootstrap.servers": penstock_broker.bootstrap, "group.id": "sales"})
    assert client.committed([TopicPartition("orders", 0)], 30)[0].offset == 2
    client.close()


def test_a_reader_that_leaves_or_does_not_read_costs_nothing(gateway: Any, path: str, producer: Producer) -> None:
    """Who does not read is not read for: what waits for him stays bounded. Who leaves is noticed."""
    value = json.dumps("x" * 100_000).encode()
    _send(producer, *[value] * 300)
    request = f"GET {path}:stream?from=earliest HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    with socket.create_connection((gateway.endpoint.host, gateway.endpoint.port)) as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.sendall(request)
        assert idle.recv(12) == b"HTTP/1.1 200"
        _wait_for(gateway, "mq_gateway_streams_open 1")
        # 30 MB wait for him; the kernel's buffers take a few, the gateway two batches.
        consumed = _metric(gateway, 'mq_gateway_records_consumed_total{interface="events"}')
        while (now := _metric(gateway, 'mq_gateway_records_consumed_total{interface="events"}')) != consumed:
            consumed = now
        assert consumed < 250
    _wait_for(gateway, "mq_gateway_streams_open 0")
    _wait_for(gateway, "mq_gateway_consumers_open 0")


def test_streams_end_with_the_gateway(gateway: Any, path: str) -> None:
    with gateway.http.stream("GET", f"{path}:stream") as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        with _socket(gateway, path) as client:
            gateway.http.close = lambda: None
            gateway.stop()
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(timeout=30)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001
        assert [line for line in lines if line] == []


def test_new_partitions_join_a_stream(
    gateway: Any, path: str, producer: Producer, penstock_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.gateway.rest.tail.LOOK_FOR_PARTITIONS_S", 0.0)
    monkeypatch.setattr("penstock.gateway.kafka.TOPIC_FRESH_S", 0.0)
    with gateway.http.stream("GET", f"{path}:stream") as answer:
        lines = answer.iter_lines()
        next(lines)
        admin = AdminClient({"bootstrap.servers": penstock_broker.bootstrap})
        admin.create_partitions([NewPartitions("orders", 3)])["orders"].result(30)
        fresh = Producer({"bootstrap.servers": penstock_broker.bootstrap, "log_level": 0})
        fresh.list_topics("orders", 30)
        _send(fresh, b"new", partition=2)
        assert _events(lines, 1)[0]["data"]["partition_id"] == 2


def _socket(gateway: Any, path: str, query: str = "", **how: Any) -> ClientConnection:
    return connect(f"ws://{gateway.endpoint}{path}:socket{query}", **how)


def test_a_socket_gives_and_takes_records(gateway: Any, path: str, producer: Producer) -> None:
    _send(producer, b"1")
    with _socket(gateway, path, "?from=earliest") as client:
        first = json.loads(client.recv(timeout=30))
        assert (first["type"], first["offset"], first["value"]) == ("record", 0, {"type": "JSON", "data": 1})
        for number in range(20):
            record = {"id": number, "partition_id": 0, "value": {"type": "JSON", "data": number}}
            client.send(json.dumps(record if number != 7 else {"id": 7, "value": {"type": "BINARY", "data": "%"}}))
        heard = [json.loads(client.recv(timeout=30)) for _ in range(20 + 19)]
        reports = [one for one in heard if one["type"] == "report"]
        assert [(one["id"], one["error_code"]) for one in reports] == [
            (number, 400 if number == 7 else 200) for number in range(20)
        ]
        offsets = [one["offset"] for one in reports if one["error_code"] == 200]
        assert offsets == list(range(1, 20))
        assert [one["offset"] for one in heard if one["type"] == "record"] == offsets
        client.send("no json")
        error = json.loads(client.recv(timeout=30))
        assert (error["type"], error["error_code"]) == ("error", 400)
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=30)
    _wait_for(gateway, "mq_gateway_streams_open 0")


def test_a_socket_may_only_send(gateway: Any, path: str) -> None:
    with _socket(gateway, path, "?read=false") as client:
        client.send(json.dumps({"value": {"type": "STRING", "data": "x"}}))
        report = json.loads(client.recv(timeout=30))
        assert (report["type"], report["id"], report["error_code"]) == ("report", None, 200)
        assert gateway.services.kafka.consumers_open == 0


def test_sockets_of_foreign_pages_and_to_nowhere_are_refused(gateway: Any, path: str) -> None:
    refusals: list[tuple[str, dict[str, Any], int]] = [
        (path, {"origin": "http://evil.example"}, 403),
        (path.replace("orders", "nope"), {}, 404),
        ("/v3/nothing", {}, 404),
    ]
    for where, how, status in refusals:
        with pytest.raises(InvalidStatus) as refused:
            _socket(gateway, where, **how)
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body)["message"]
    with _socket(gateway, path, origin=gateway.url):
        pass


def _metric(gateway: Any, name: str) -> float:
    for line in gateway.http.get("/metrics").text.splitlines():
        if line.startswith(name + " "):
            return float(line.rpartition(" ")[2])
    return 0


def _wait_for(gateway: Any, line: str) -> None:
    while line not in gateway.http.get("/metrics").text:
        pass
