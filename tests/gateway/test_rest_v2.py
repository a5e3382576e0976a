"""REST v2 as existing callers use it: real HTTP, a real broker, real clients on the other side."""

import base64
import json
import os
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

V2 = "application/vnd.kafka.v2+json"
BINARY, JSON = "application/vnd.kafka.binary.v2+json", "application/vnd.kafka.json.v2+json"


@pytest.fixture
def topic(penstock_broker: Any, gateway: Any) -> str:
    admin = AdminClient({"bootstrap.servers": penstock_broker.bootstrap})
    admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
    return "orders"


def _post(gateway: Any, path: str, body: Any, kind: str = V2, **headers: str) -> Any:
    content = body if isinstance(body, str) else json.dumps(body)
    return gateway.http.post(path, content=content, headers={"content-type": kind, **headers})


def test_topics_partitions_and_brokers_are_told(gateway: Any, topic: str) -> None:
    assert topic in gateway.http.get("/topics").json()
    found = gateway.http.get("/topics/orders", headers={"accept": V2})
    assert found.headers["content-type"] == V2
    assert found.json()["configs"]["cleanup.policy"] == "delete"
    replica = {"broker": 1, "leader": True, "in_sync": True}
    assert found.json()["partitions"][1] == {"partition": 1, "leader": 1, "replicas": [replica]}
    assert gateway.http.get("/topics/orders/partitions").json() == found.json()["partitions"]
    assert gateway.http.get("/topics/orders/partitions/1").json() == found.json()["partitions"][1]
    plain = gateway.http.get("/brokers", headers={"accept": "application/json"})
    assert (plain.json(), plain.headers["content-type"]) == ({"brokers": [1]}, "application/json")
    _post(gateway, "/topics/orders/partitions/1", {"records": [{"value": "AA=="}] * 3}, BINARY)
    offsets = gateway.http.get("/topics/orders/partitions/1/offsets").json()
    assert offsets == {"beginning_offset": 0, "end_offset": 3}


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/nope", 404, 40401),
        ("/topics/no%20such%2Ftopic", 404, 40401),
        ("/topics/nope/partitions", 404, 40401),
        ("/topics/orders/partitions/2", 404, 40402),
        ("/topics/orders/partitions/-1", 404, 40402),
        ("/topics/orders/partitions/x/offsets", 404, 40402),
        ("/consumers/g/instances/nobody/records", 404, 40403),
    ],
)
def test_what_does_not_exist_has_its_number(gateway: Any, topic: str, path: str, status: int, code: int) -> None:
    answer = gateway.http.get(path)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    # Being asked for did not make it.
    assert gateway.http.get("/topics").json().count("nope") == 0


def test_records_arrive_as_they_were_sent(penstock_broker: Any, gateway: Any, topic: str) -> None:
    key, value = b"\x00key", b"\xff\x00value"
    encoded = {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode(), "partition": 1}
    answer = _post(gateway, "/topics/orders", {"records": [encoded, {"key": encoded["key"], "partition": 1}]}, BINARY)
    assert (answer.status_code, answer.headers["content-type"]) == (200, V2)
    sent = [{"partition": 1, "offset": offset, "error_code": None, "error": None} for offset in (0, 1)]
    assert answer.json() == {"offsets": sent, "key_schema_id": None, "value_schema_id": None}
    answer = _post(gateway, "/topics/orders", {"records": [{"key": "k", "value": {"ü": [1, None]}}]}, JSON)
    # The partition is the one that Java's clients would have chosen for the same key bytes: murmur2.
    chosen = answer.json()["offsets"][0]["partition"]
    consumer = Consumer(
        {"bootstrap.servers": penstock_broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    got = {(one.partition(), one.key(), one.value()) for one in consumer.consume(3, 30)}
    consumer.close()
    assert got == {(1, key, value), (1, key, None), (chosen, b'"k"', '{"ü":[1,null]}'.encode())}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"records": []}, 422, 422),
        ({}, 422, 422),
        ({"records": [{"value": "AA==", "colour": 1}]}, 422, 422),
        ({"records": [1]}, 422, 422),
        ({"records": [{"value": "no base64"}]}, 422, 42203),
        ({"records": [{"value": 1}]}, 422, 42203),
        ({"records": [{"value": "AA==", "partition": "0"}]}, 422, 422),
        ({"records": [{"value": "AA==", "partition": True}]}, 422, 422),
        ({"records": [{"value": "AA==", "partition": 2}]}, 404, 40402),
        ({"records": [{"value": "AA=="}], "key_schema_id": "x"}, 422, 422),
        ({"records": [{"value": "AA=="}] * 10_001}, 422, 422),
    ],
)
def test_a_wrong_record_is_named_and_none_is_sent(gateway: Any, topic: str, body: Any, status: int, code: int) -> None:
    answer = _post(gateway, "/topics/orders", body, BINARY)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    for partition in (0, 1):
        assert gateway.http.get(f"/topics/orders/partitions/{partition}/offsets").json()["end_offset"] == 0


def test_producing_to_a_topic_that_is_not_there_does_not_make_it(gateway: Any) -> None:
    answer = _post(gateway, "/topics/nope", {"records": [{"value": "AA=="}]}, BINARY)
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)
    assert "nope" not in gateway.http.get("/topics").json()


def test_a_record_kafka_refuses_has_its_own_error(gateway: Any, topic: str) -> None:
    large = base64.b64encode(os.urandom(2_000_000)).decode()
    answer = _post(gateway, "/topics/orders/partitions/0", {"records": [{"value": "AA=="}, {"value": large}]}, BINARY)
    good, bad = answer.json()["offsets"]
    assert (answer.status_code, good["offset"]) == (200, 0)
    assert (bad["partition"], bad["offset"], bad["error_code"]) == (None, None, 50002)
    assert bad["error"]


class _Instance:
    """One consumer instance, as a caller sees it."""

    def __init__(self, gateway: Any, group: str, **config: Any) -> None:
        answer = _post(gateway, f"/consumers/{group}", {"auto.offset.reset": "earliest", **config})
        assert answer.status_code == 200, answer.text
        self._gateway = gateway
        base = answer.json()["base_uri"]
        assert base.startswith(gateway.url)
        self.path = base.removeprefix(gateway.url)

    def post(self, what: str, body: Any) -> Any:
        return _post(self._gateway, f"{self.path}/{what}", body)

    def get(self, what: str, body: Any = None, accept: str = "*/*") -> Any:
        content = None if body is None else json.dumps(body)
        headers = {"accept": accept, "content-type": V2}
        return self._gateway.http.request("GET", f"{self.path}/{what}", content=content, headers=headers)

    def read(self, count: int, query: str = "timeout=5000") -> list[Any]:
        """Exactly so many, however many answers they come in; an answer without any is asked for again."""
        found: list[Any] = []
        for _ in range(20):
            answer = self.get(f"records?{query}")
            assert answer.status_code == 200, answer.text
            found += answer.json()
            if len(found) >= count:
                break
        return found


def test_an_instance_subscribes_reads_commits_and_goes_on(penstock_broker: Any, gateway: Any, topic: str) -> None:
    records = [{"value": number, "partition": number % 2} for number in range(10)]
    _post(gateway, "/topics/orders", {"records": records}, JSON)
    first = _Instance(gateway, "sales", format="json", **{"auto.commit.enable": "false"})
    assert first.get("records").json()["error_code"] == 40903
    assert first.post("subscription", {"topics": ["orders"]}).status_code == 204
    assert first.get("subscription").json() == {"topics": ["orders"]}
    got = first.read(10)
    assert sorted(one["value"] for one in got) == list(range(10))
    assert {key for one in got for key in one} == {"topic", "key", "value", "partition", "offset"}
    assert first.get("records", accept=BINARY).json()["error_code"] == 40601
    places = [{"topic": "orders", "partition": number} for number in (0, 1)]
    assert first.get("assignments").json() == {"partitions": places}
    # Offsets are those of the last records read, as Confluent counts; Kafka keeps the next.
    committed = [{**places[0], "offset": 1}]
    assert first.post("offsets", {"offsets": committed}).json() == []
    kept = first.get("offsets", {"partitions": places}).json()["offsets"]
    assert kept == [{**places[0], "offset": 2, "metadata": ""}]
    assert gateway.http.delete(first.path).status_code == 204
    assert first.get("records").json()["error_code"] == 40403
    second = _Instance(gateway, "sales", format="json")
    second.post("subscription", {"topic_pattern": "ord.*"})
    got = second.read(8)
    assert sorted(one["value"] for one in got) == [1, 3, 4, 5, 6, 7, 8, 9]
    # This one commits by itself, at the latest when it is closed.
    gateway.http.delete(second.path)
    client = Consumer({"bootstrap.servers": penstock_broker.bootstrap, "group.id": "sales"})
    from confluent_kafka import TopicPartition

    assert [one.offset for one in client.committed([TopicPartition("orders", number) for number in (0, 1)], 30)] == [
        5,
        5,
    ]
    client.close()


def test_an_instance_reads_assigned_partitions_from_where_it_is_told(gateway: Any, topic: str) -> None:
    for batch in range(2):
        records = [{"value": batch * 5 + number, "partition": 0} for number in range(5)]
        _post(gateway, "/topics/orders", {"records": records}, JSON)
    reader = _Instance(gateway, "g%2Fwith%20slash", name="one", format="json")
    place = {"topic": "orders", "partition": 0}
    assert reader.post("assignments", {"partitions": [{**place, "partition": 7}]}).json()["error_code"] == 40402
    assert reader.post("assignments", {"partitions": [place]}).status_code == 204
    assert reader.post("subscription", {"topics": ["orders"]}).json()["error_code"] == 40903
    assert [one["value"] for one in reader.read(10)] == list(range(10))
    assert reader.post("positions", {"offsets": [{**place, "offset": 7}]}).status_code == 204
    assert [one["value"] for one in reader.read(3)] == [7, 8, 9]
    assert reader.post("positions/beginning", {"partitions": [place]}).status_code == 204
    # One byte is less than any record has: the first comes all the same, the others wait.
    assert [[one["value"] for one in reader.read(1, "timeout=5000&max_bytes=1")] for _ in range(3)] == [[0], [1], [2]]
    assert reader.post("positions/end", {"partitions": [place]}).status_code == 204
    _post(gateway, "/topics/orders", {"records": [{"value": "new", "partition": 0}]}, JSON)
    assert [one["value"] for one in reader.read(1)] == ["new"]
    other = {"topic": "orders", "partition": 1}
    assert reader.post("positions/end", {"partitions": [other]}).json()["error_code"] == 40903


def test_instances_have_names_limits_and_an_end(penstock_broker: Any, gateway_factory: Any) -> None:
    gateway = gateway_factory(penstock_broker.bootstrap, consumers_max=2, consumer_idle_s=3600.0).wait_until_ready()
    kept = _Instance(gateway, "g", name="a")
    again = _post(gateway, "/consumers/g", {"name": "a"})
    assert (again.status_code, again.json()["error_code"]) == (409, 40902)
    _Instance(gateway, "g", name="b")
    assert _post(gateway, "/consumers/g", {"name": "c"}).status_code == 429
    for config in ({"format": "xml"}, {"auto.offset.reset": "never"}, {"auto.commit.enable": "maybe"}):
        answer = _post(gateway, "/consumers/g", config)
        assert (answer.status_code, answer.json()["error_code"]) == (422, 42204)
    # As if an hour had passed.
    clock = gateway.services.clock
    (instances,) = (close.__self__ for close in gateway.services.closing)
    later = type("Later", (), {"monotonic": staticmethod(lambda: clock.monotonic() + 3601)})()
    instances._clock = later
    gateway.run(instances.expire())
    answer = kept.get("records")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40403)
    assert _post(gateway, "/consumers/g", {"name": "a"}).status_code == 200


def test_one_request_at_a_time_uses_an_instance(gateway: Any, topic: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    reader = _Instance(gateway, "g", name="a")
    reader.post("assignments", {"partitions": [{"topic": "orders", "partition": 0}]})
    with ThreadPoolExecutor(4) as callers:
        answers = list(callers.map(lambda _: reader.get("records?timeout=1000"), range(4)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes[0] == 200
    assert 409 in codes


def test_a_record_that_does_not_decode_is_named_and_costs_no_other(
    penstock_broker: Any, gateway: Any, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap})
    for value in (b"1", b"no json", b"2"):
        producer.produce("orders", value, partition=0)
    producer.flush(30)
    reader = _Instance(gateway, "g", format="json")
    reader.post("assignments", {"partitions": [{"topic": "orders", "partition": 0}]})
    assert [one["value"] for one in reader.read(1)] == [1]
    answer = reader.get("records?timeout=5000")
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42203)
    assert "orders-0 at offset 1" in answer.json()["message"]
    assert [one["value"] for one in reader.read(1)] == [2]
