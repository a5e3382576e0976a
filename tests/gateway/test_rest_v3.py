"""REST v3: cluster, topics, settings, records, groups; over real HTTP with a real broker."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer


class _Cluster:
    """Paths below the cluster, and what they answer."""

    def __init__(self, gateway: Any) -> None:
        self.http = gateway.http
        self.id = self.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
        self.url = f"{gateway.url}/v3/clusters/{self.id}"

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.http.request(method, f"/v3/clusters/{self.id}{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None


@pytest.fixture
def cluster(gateway: Any) -> _Cluster:
    return _Cluster(gateway)


@pytest.fixture
def topic(cluster: _Cluster) -> str:
    cluster.ask("POST", "/topics", {"topic_name": "orders", "partitions_count": 2}, 201)
    return "orders"


def _read(bootstrap: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found = consumer.consume(count, 30)
    consumer.close()
    return found


def test_the_callers_trace_is_handed_on_to_its_records(cluster: _Cluster, topic: str, penstock_broker: Any) -> None:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "shop=1"}
    own, v2 = [{"name": "own", "value": "AQI="}], {"content-type": "application/vnd.kafka.json.v2+json"}
    sent = [
        (f"{cluster.url}/topics/orders/records", {"headers": own, "value": {"type": "JSON", "data": 1}}, trace),
        ("/topics/orders", {"records": [{"value": 2}]}, trace | v2),
        ("/topics/orders", {"records": [{"value": 3}]}, v2),
        (f"{cluster.url}/topics/orders/records", {"value": {"type": "JSON", "data": 4}}, {"traceparent": "0" * 513}),
    ]
    for url, body, headers in sent:
        assert cluster.http.post(url, json=body, headers=headers).status_code == 200
    handed_on = [(name, text.encode()) for name, text in trace.items()]
    found = {message.value(): message.headers() for message in _read(penstock_broker.bootstrap, 4)}
    assert found == {b"1": [*handed_on, ("own", b"\x01\x02")], b"2": handed_on, b"3": None, b"4": None}


def test_resources_have_their_envelope_and_their_links_lead_somewhere(cluster: _Cluster, topic: str) -> None:
    """Every link that a resource gives is followed, from the cluster down."""
    seen: dict[str, str] = {}
    waiting = [f"{cluster.url}/topics/orders/partitions", cluster.url]
    while waiting:
        url = waiting.pop()
        if url in seen or url.endswith("/acls"):
            continue
        answer = cluster.http.get(url)
        # A partition whose replicas stay has no reassignment to show.
        if url.endswith("/reassignment") and answer.status_code == 404:
            continue
        assert answer.status_code == 200, url
        found = answer.json()
        seen[url] = found["kind"]
        assert found["metadata"]["self"] == url
        for resource in found.get("data", [found]):
            assert resource["cluster_id"] == cluster.id
            assert resource["metadata"]["resource_name"].startswith(f"crn:///kafka={cluster.id}")
            waiting.append(resource["metadata"]["self"])
            waiting += [
                value["related"] for value in resource.values() if isinstance(value, dict) and "related" in value
            ]
    kinds = set(seen.values())
    assert kinds >= {
        "KafkaCluster",
        "KafkaBroker",
        "KafkaBrokerList",
        "KafkaTopicList",
        "KafkaPartition",
        "KafkaPartitionList",
    }
    assert kinds >= {"KafkaReplica", "KafkaReplicaList", "KafkaTopicConfigList", "KafkaBrokerConfigList"}
    assert kinds >= {"KafkaClusterConfigList", "KafkaConsumerGroupList", "KafkaReassignmentList"}


def test_topics_are_made_grown_and_deleted(cluster: _Cluster) -> None:
    made = {"topic_name": "t", "partitions_count": 2, "replication_factor": 1}
    made["configs"] = [{"name": "retention.ms", "value": "1000"}]
    checked = cluster.ask("POST", "/topics", {**made, "validate_only": True})
    assert checked["partitions_count"] == 2
    cluster.ask("GET", "/topics/t", status=404)
    told = cluster.ask("POST", "/topics", made, 201)
    assert (told["topic_name"], told["partitions_count"], told["replication_factor"]) == ("t", 2, 1)
    assert cluster.ask("POST", "/topics", made, 400)["error_code"] == 40002
    assert cluster.ask("GET", "/topics/t") == told
    assert cluster.ask("GET", "/topics/t/configs/retention.ms")["value"] == "1000"
    assert cluster.ask("PATCH", "/topics/t", {"partitions_count": 3})["partitions_count"] == 3
    assert cluster.ask("PATCH", "/topics/t", {"partitions_count": 1}, 400)["error_code"] == 40002
    placed = {"topic_name": "placed", "replicas_assignments": [{"partition_id": 0, "broker_ids": [1]}]}
    assert cluster.ask("POST", "/topics", placed, 201)["partitions_count"] == 1
    assert cluster.ask("POST", "/topics", {"topic_name": "by-default"}, 201)["partitions_count"] >= 1
    cluster.ask("DELETE", "/topics/t", status=204)
    assert cluster.ask("DELETE", "/topics/t", status=404)["error_code"] == 40403


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"topic_name": "a/b"}, 400),
        ({"topic_name": "t", "partitions_count": 0}, 422),
        ({"topic_name": "t", "replication_factor": 5}, 400),
        ({"topic_name": "t", "colour": "red"}, 422),
        ({"topic_name": "t", "configs": [{"name": "no.such.setting", "value": "1"}]}, 400),
        ({"topic_name": "t", "configs": [{"name": "retention.ms", "value": "\0"}]}, 422),
        ({"topic_name": "t", "replicas_assignments": [{"partition_id": 1, "broker_ids": [1]}]}, 422),
        ({"topic_name": "t", "replicas_assignments": [{"partition_id": 0, "broker_ids": [9]}]}, 400),
    ],
)
def test_a_topic_that_cannot_be_is_not_made(cluster: _Cluster, body: Any, status: int) -> None:
    assert cluster.ask("POST", "/topics", body, status)["message"]
    assert cluster.http.get("/topics").json().count("t") == 0


def test_settings_are_seen_set_and_put_back(cluster: _Cluster, topic: str) -> None:
    for owner, name, other in (
        ("/topics/orders/configs", "retention.ms", "cleanup.policy"),
        ("/brokers/1/configs", "log.retention.ms", "log.cleaner.threads"),
        ("/broker-configs", "log.retention.ms", "log.cleaner.threads"),
    ):
        cluster.ask("PUT", f"{owner}/{name}", {"value": "123456"}, 204)
        found = cluster.ask("GET", f"{owner}/{name}")
        assert (found["name"], found["value"], found["is_default"]) == (name, "123456", False)
        assert found["source"].startswith("DYNAMIC_")
        assert {"name": name, "value": "123456", "source": found["source"]} in found["synonyms"]
        cluster.ask("DELETE", f"{owner}/{name}", status=204)
        if owner != "/broker-configs":
            assert cluster.ask("GET", f"{owner}/{name}")["value"] != "123456"
        assert cluster.ask("GET", f"{owner}/no.such", status=404)["error_code"] == 40404
        bad = {"data": [{"name": name, "value": "soon"}]}
        assert cluster.ask("POST", f"{owner}:alter", bad, 400)["error_code"] == 40002
        only_checked = {
            "data": [{"name": name, "value": "7"}, {"name": other, "operation": "DELETE"}],
            "validate_only": True,
        }
        cluster.ask("POST", f"{owner}:alter", only_checked, 204)
        assert all(one["value"] != "7" for one in cluster.ask("GET", owner)["data"] if one["name"] == name)
    cluster.ask("GET", "/brokers/99/configs", status=404)
    cluster.ask("GET", "/topics/nope/configs", status=404)


def test_a_record_is_produced_with_all_it_has(penstock_broker: Any, cluster: _Cluster, topic: str) -> None:
    record = {
        "partition_id": 1,
        "key": {"type": "STRING", "data": "clé"},
        "value": {"type": "JSON", "data": {"a": [1]}},
        "headers": [{"name": "trace", "value": "AQI="}, {"name": "none", "value": None}],
        "timestamp": "2021-02-05T19:14:42.123Z",
    }
    told = cluster.ask("POST", "/topics/orders/records", record)
    assert told == {
        "error_code": 200,
        "cluster_id": cluster.id,
        "topic_name": "orders",
        "partition_id": 1,
        "offset": 0,
        "timestamp": "2021-02-05T19:14:42.123Z",
        "key": {"type": "STRING", "size": 4},
        "value": {"type": "JSON", "size": 9},
    }
    (got,) = _read(penstock_broker.bootstrap, 1)
    assert (got.key(), got.value()) == ("clé".encode(), b'{"a":[1]}')
    assert got.headers() == [("trace", b"\x01\x02"), ("none", None)]
    assert got.timestamp()[1] == 1612552482123


@pytest.mark.parametrize(
    ("record", "status"),
    [
        ([], 400),
        ({"value": {"type": "BINARY", "data": "%"}}, 400),
        ({"value": {"type": "XML", "data": "x"}}, 400),
        ({"value": {"type": "STRING", "data": 1}}, 400),
        ({"partition_id": 2, "value": {"type": "JSON", "data": 1}}, 404),
        ({"partition_id": -1}, 400),
        ({"timestamp": "yesterday"}, 400),
        ({"timestamp": -5}, 400),
        ({"headers": [{"value": "AA=="}]}, 400),
        ({"headers": [{"name": "a\0b", "value": "AA=="}]}, 400),
        ({"colour": "red"}, 400),
    ],
)
def test_a_wrong_record_is_refused(cluster: _Cluster, topic: str, record: Any, status: int) -> None:
    assert cluster.ask("POST", "/topics/orders/records", record, status)["message"]


def test_records_stream_in_and_their_reports_stream_out(cluster: _Cluster, topic: str) -> None:
    """Concatenated JSON, cut anywhere; each report comes without waiting for the end of the body."""
    documents = [
        json.dumps({"partition_id": 0, "value": {"type": "STRING", "data": f'n {n} "}}{{'}}) for n in range(50)
    ]
    documents[20] = json.dumps({"value": {"type": "BINARY", "data": "%"}})
    text = "\n".join(documents).encode()

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(text), 37):
            yield text[start : start + 37]

    path = f"/v3/clusters/{cluster.id}/topics/orders/records"
    answer = cluster.http.post(path, content=pieces(), headers={"content-type": "application/json"})
    reports = [json.loads(line) for line in answer.text.splitlines()]
    assert [report["error_code"] for report in reports] == [200] * 20 + [400] + [200] * 29
    assert [report["offset"] for report in reports if report["error_code"] == 200] == list(range(49))

    def broken() -> Iterator[bytes]:
        yield documents[0].encode()
        yield b'{"value": '

    answer = cluster.http.post(path, content=broken(), headers={"content-type": "application/json"})
    reports = [json.loads(line) for line in answer.text.splitlines()]
    assert [report["error_code"] for report in reports] == [200, 400]
    # Without chunks, too, and answered as one.
    answer = cluster.http.post(path, content="".join(documents[:2]), headers={"content-type": "application/json"})
    assert [json.loads(line)["error_code"] for line in answer.text.splitlines()] == [200, 200]


def test_a_report_comes_while_the_body_is_still_open(gateway: Any, cluster: _Cluster, topic: str) -> None:
    import socket

    with socket.create_connection((gateway.endpoint.host, gateway.endpoint.port), timeout=30) as caller:
        path = f"/v3/clusters/{cluster.id}/topics/orders/records"
        caller.sendall(f"POST {path} HTTP/1.1\r\nhost: localhost\r\n".encode())
        caller.sendall(b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        heard = b""
        for number in range(3):
            record = json.dumps({"partition_id": 0, "value": {"type": "JSON", "data": number}}).encode()
            caller.sendall(b"%x\r\n%s\r\n" % (len(record), record))
            while f'"offset":{number},'.encode() not in heard:
                heard += caller.recv(10_000)


def test_a_batch_tells_successes_and_failures_apart(cluster: _Cluster, topic: str) -> None:
    entries = [
        {"id": "good", "partition_id": 0, "value": {"type": "JSON", "data": 1}},
        {"id": "bad", "value": {"type": "BINARY", "data": "%"}},
    ]
    told = cluster.ask("POST", "/topics/orders/records:batch", {"entries": entries}, 207)
    assert [(one["id"], one["offset"]) for one in told["successes"]] == [("good", 0)]
    assert [(one["id"], one["error_code"]) for one in told["failures"]] == [("bad", 400)]
    for wrong in ({"entries": []}, {"entries": [{"id": "a"}, {"id": "a"}]}, {"entries": [{}]}, {}):
        cluster.ask("POST", "/topics/orders/records:batch", wrong, 422)


def test_groups_members_and_lags_are_told(penstock_broker: Any, cluster: _Cluster, topic: str) -> None:
    for number in range(5):
        record = {"partition_id": number % 2, "value": {"type": "JSON", "data": number}}
        cluster.ask("POST", "/topics/orders/records", record)
    config = {"bootstrap.servers": penstock_broker.bootstrap, "group.id": "sales", "client.id": "me"}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    messages = consumer.consume(5, 30)
    assert len(messages) == 5
    first = min(one.offset() for one in messages if one.partition() == 0)
    from confluent_kafka import TopicPartition

    consumer.commit(
        offsets=[TopicPartition("orders", 0, first + 1), TopicPartition("orders", 1, 2)], asynchronous=False
    )
    at = "/consumer-groups/sales"
    assert [one["consumer_group_id"] for one in cluster.ask("GET", "/consumer-groups")["data"]] == ["sales"]
    group = cluster.ask("GET", at)
    assert (group["state"], group["is_simple"]) == ("STABLE", False)
    (member,) = cluster.ask("GET", f"{at}/consumers")["data"]
    assert member["client_id"] == "me"
    named = f"{at}/consumers/{member['consumer_id']}"
    assert cluster.ask("GET", named) == member
    held = cluster.ask("GET", f"{named}/assignments")["data"]
    assert [one["partition_id"] for one in held] == [0, 1]
    assert cluster.ask("GET", f"{named}/assignments/orders/partitions/1") == held[1]
    lags = cluster.ask("GET", f"{at}/lags")["data"]
    assert [(one["partition_id"], one["current_offset"], one["log_end_offset"], one["lag"]) for one in lags] == [
        (0, 1, 3, 2),
        (1, 2, 2, 0),
    ]
    assert lags[0]["consumer_id"] == member["consumer_id"]
    assert cluster.ask("GET", f"{at}/lags/orders/partitions/0") == lags[0]
    summary = cluster.ask("GET", f"{at}/lag-summary")
    assert (summary["total_lag"], summary["max_lag"], summary["max_lag_partition_id"]) == (2, 2, 0)
    consumer.close()
    for missing in ("/consumer-groups/nobody", f"{at}/consumers/nobody", f"{at}/lags/orders/partitions/9"):
        cluster.ask("GET", missing, status=404)


def test_another_cluster_is_not_served_and_access_rules_are_not_there(cluster: _Cluster) -> None:
    answer = cluster.http.get("/v3/clusters/other/topics")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)
    assert cluster.ask("GET", "/acls", status=501)["error_code"] == 50101
