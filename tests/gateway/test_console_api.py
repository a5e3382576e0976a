"""The console's API on a real broker: what it shows, what it changes, what it refuses."""

import io
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import EmbeddedBroker

JSON = {"content-type": "application/json"}


class Api:
    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def get(self, path: str, status: int = 200, **parameters: Any) -> Any:
        answer = self.http.get(f"/api/{path}", params=parameters)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, body: Any, status: int = 200, **headers: str) -> Any:
        answer = self.http.post(f"/api/{path}", content=json.dumps(body), headers={**JSON, **headers})
        assert answer.status_code == status, answer.text
        return answer.json()

    def browse(self, topic: str, **parameters: Any) -> tuple[list[Any], dict[str, Any]]:
        answer = self.http.get("/api/messages", params={"topic": topic, **parameters})
        assert answer.status_code == 200, answer.text
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert "end" in lines[-1], lines[-1]
        return [line["message"] for line in lines if "message" in line], lines[-1]["end"]


@pytest.fixture
def api(gateway: Any) -> Api:
    return Api(gateway.http)


@pytest.fixture
def producer(penstock_broker: EmbeddedBroker) -> Iterator[Producer]:
    made = Producer({"bootstrap.servers": penstock_broker.bootstrap})
    yield made
    made.flush(10)


def offsets_of(messages: list[Any]) -> list[tuple[int, int]]:
    return [(one["partition"], one["offset"]) for one in messages]


def test_a_topic_is_made_shown_changed_and_deleted(api: Api, producer: Producer) -> None:
    api.post("topic/create", {"name": "orders", "partitions": 2, "configs": {"retention.ms": "3600000"}})
    listed = api.get("topics")
    assert [(row["name"], row["partitions"]) for row in listed["topics"]] == [("orders", 2)]
    assert api.get("topics", internal=1)["total"] > 1
    for _ in range(5):
        producer.produce("orders", b"x", partition=1)
    producer.flush()
    shown = api.get("topic", name="orders")
    assert [(row["partition"], row["start"], row["end"]) for row in shown["rows"]] == [(0, 0, 0), (1, 0, 5)]
    configs = {one["name"]: one for one in api.get("configs", name="orders")["configs"]}
    assert configs["retention.ms"]["value"] == "3600000"
    assert configs["retention.ms"]["is_overridden"]
    assert not configs["cleanup.policy"]["is_overridden"]
    api.post("configs/change", {"name": "orders", "set": {"cleanup.policy": "compact"}, "unset": ["retention.ms"]})
    configs = {one["name"]: one for one in api.get("configs", name="orders")["configs"]}
    assert (configs["cleanup.policy"]["value"], configs["retention.ms"]["is_overridden"]) == ("compact", False)
    api.post("topic/partitions", {"name": "orders", "partitions": 3})
    assert api.get("topic", name="orders")["partitions"] == 3
    assert "cleanup.policy" in api.post("topic/empty", {"name": "orders"}, 400)["message"]
    api.post("configs/change", {"name": "orders", "unset": ["cleanup.policy"]})
    api.post("topic/empty", {"name": "orders"})
    assert [(row["start"], row["end"]) for row in api.get("topic", name="orders")["rows"]][1] == (5, 5)
    api.post("topic/delete", {"name": "orders"})
    assert api.get("topics")["total"] == 0
    api.get("topic", 404, name="orders")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("topic/create", {"name": "no good name"}, 400),
        ("topic/create", {"name": "x", "partitions": 10**9}, 400),
        ("topic/create", {"name": "x", "partitions": "2"}, 400),
        ("topic/create", {"name": "x", "configs": {"retention.ms": "soon"}}, 400),
        ("topic/create", {"name": "x", "configs": {"retention.ms": 5}}, 400),
        ("topic/create", [], 400),
        ("topic/delete", {"name": "none"}, 404),
        ("topic/partitions", {"name": "none", "partitions": 3}, 404),
        ("topic/empty", {"name": "none"}, 404),
        ("configs/change", {"name": "none", "set": {"retention.ms": "1"}}, 404),
        ("configs/change", {"name": "none"}, 400),
        ("messages/produce", {"topic": "none", "value": {"format": "text", "data": "x"}}, 404),
        ("group/delete", {"name": "none"}, 404),
        ("group/reset", {"name": "none", "to": "moon"}, 400),
        ("group/reset", {"name": "none", "to": "earliest"}, 400),
        ("group/reset", {"name": "none", "to": "earliest", "topic": "none"}, 404),
        ("subject/register", {"name": "s", "kind": "XML", "text": "x"}, 400),
        ("subject/register", {"name": "s", "kind": "AVRO", "text": "{"}, 422),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(api: Api, path: str, body: Any, status: int) -> None:
    answer = api.post(path, body, status)
    assert answer["message"]
    assert "Traceback" not in answer["message"]


@pytest.mark.parametrize(
    ("path", "parameters", "status"),
    [
        ("messages", {"topic": "none"}, 404),
        ("messages", {}, 400),
        ("message", {"topic": "none", "partition": 0, "offset": 0}, 404),
        ("topics", {"sort": "colour"}, 400),
        ("topics", {"per_page": 100_000}, 400),
        ("topics", {"page": "x"}, 400),
        ("topic", {"name": "x" * 5000}, 400),
        ("topic", {"name": "../../etc/passwd"}, 404),
        ("configs", {"kind": "planet", "name": "x"}, 400),
        ("configs", {"name": "none"}, 404),
        ("group", {"name": "none/such?<b>"}, 404),
        ("subject", {"name": "none"}, 404),
        ("live", {"scope": "moon"}, 400),
        ("nothing", {}, 404),
    ],
)
def test_what_is_not_there_is_told_so(api: Api, path: str, parameters: dict[str, Any], status: int) -> None:
    assert api.get(path, status, **parameters)["message"]


def test_messages_are_browsed_from_everywhere_page_by_page(api: Api, producer: Producer) -> None:
    api.post("topic/create", {"name": "t", "partitions": 2})
    for one in range(10):
        body = json.dumps({"n": one, "even": one % 2 == 0})
        producer.produce("t", body, key=f"k{one}", partition=one % 2, timestamp=1000 + one, headers=[("h", f"v{one}")])
    producer.flush()
    newest, end = api.browse("t", limit=4)
    assert [json.loads(one["value"]["text"])["n"] for one in newest] == [9, 8, 7, 6]
    assert newest[0]["headers"][0]["text"] == "v9"
    cursor = ",".join(f"{one}:{at}" for one, at in end["positions"].items())
    older, _ = api.browse("t", limit=4, cursor=cursor)
    assert [json.loads(one["value"]["text"])["n"] for one in older] == [5, 4, 3, 2]
    oldest, end = api.browse("t", **{"from": "oldest"}, limit=500)
    assert [json.loads(one["value"]["text"])["n"] for one in oldest] == list(range(10))
    assert end["ended_by"] == "end"
    assert offsets_of(api.browse("t", **{"from": "offset"}, offset=3, partition=1)[0]) == [(1, 3), (1, 4)]
    timed, _ = api.browse("t", **{"from": "time"}, time=1008)
    assert [one["timestamp_ms"] for one in timed] == [1008, 1009]
    found, end = api.browse("t", filter="$.even == true", filter_kind="json", filter_in="value", limit=3)
    assert [json.loads(one["value"]["text"])["n"] for one in found] == [8, 6, 4]
    assert offsets_of(api.browse("t", filter="^h: v3$", filter_kind="regex", filter_in="headers")[0]) == [(1, 1)]
    nothing, end = api.browse("t", filter="no such thing")
    assert (nothing, end["scanned"], end["ended_by"]) == ([], 10, "start")


def test_hostile_records_are_shown_cut_and_told_for_what_they_are(api: Api, producer: Producer) -> None:
    api.post("topic/create", {"name": "t", "partitions": 1, "configs": {"max.message.bytes": "20000000"}})
    values: list[bytes | None] = [
        b"<script>alert(1)</script>",
        b"\xff\xfe\x00",
        None,
        b"",
        b"\x00\x00\x00\x00\x63rest",  # framed, by a schema that nobody has
        b'{"deep":' * 1000,
        b"x" * 900_000,
    ]
    for value in values:
        producer.produce("t", value, key=b"\x80", headers=[("<b>", b"\xff"), ("null", None)])
    producer.flush()
    shown, _ = api.browse("t", **{"from": "oldest"})
    assert [one["value"]["kind"] for one in shown] == ["text", "hex", "null", "empty", "hex", "text", "text"]
    assert shown[0]["headers"] == [
        {"name": "<b>", "kind": "hex", "text": "ff", "size": 1, "cut": False},
        {"name": "null", "kind": "null", "text": "", "size": 0, "cut": False},
    ]
    assert "schema 99" in shown[4]["value"]["note"]
    assert (len(shown[6]["value"]["text"]), shown[6]["value"]["cut"]) == (2000, True)
    whole = api.get("message", topic="t", partition=0, offset=6)
    assert (len(whole["value"]["text"]), whole["value"]["cut"]) == (900_000, False)
    raw = api.http.get("/api/message", params={"topic": "t", "partition": 0, "offset": 1, "raw": "value"})
    assert raw.content == b"\xff\xfe\x00"
    assert raw.headers["content-disposition"].startswith("attachment")
    api.get("message", 404, topic="t", partition=0, offset=99)


def test_downloads_lose_nothing(api: Api, producer: Producer) -> None:
    api.post("topic/create", {"name": "t", "partitions": 1})
    producer.produce("t", b"=cmd()", key=b"\xff", headers=[("a", b"1")])
    producer.produce("t", None)
    producer.flush()

    def load(form: str) -> httpx.Response:
        return api.http.get("/api/messages/download", params={"topic": "t", "from": "oldest", "format": form})

    lines = [json.loads(line) for line in load("jsonl").text.splitlines()]
    assert (lines[0]["key"], lines[0]["value"]) == ({"base64": "/w=="}, {"text": "=cmd()"})
    assert lines[1]["value"] == {"text": None}
    rows = load("csv").text.splitlines()
    assert rows[0] == "partition,offset,timestamp_ms,key,value,headers"
    assert rows[1].split(",")[3:5] == ["ff", "'=cmd()"]
    assert load("raw").content == b"=cmd()\n\n"


@pytest.mark.parametrize("fault", ["aborted", "open"])
def test_committed_only_leaves_out_what_no_transaction_has_committed(
    api: Api, penstock_broker: EmbeddedBroker, fault: str
) -> None:
    api.post("topic/create", {"name": "t", "partitions": 1})
    writer = Producer({"bootstrap.servers": penstock_broker.bootstrap, "transactional.id": "writer"})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce("t", b"good")
    writer.commit_transaction()
    writer.begin_transaction()
    writer.produce("t", b"bad")
    writer.flush()
    if fault == "aborted":
        writer.abort_transaction()
    assert [one["value"]["text"] for one in api.browse("t")[0]] == ["bad", "good"]
    assert [one["value"]["text"] for one in api.browse("t", committed=1)[0]] == ["good"]
    listed = api.get("transactions")["transactions"]
    assert [(one["name"], one["state"]) for one in listed] == [
        ("writer", "CompleteAbort" if fault == "aborted" else "Ongoing")
    ]
    held = api.get("transactions/held")["held"]
    assert [one["standing"] for one in held] == ([] if fault == "aborted" else ["ongoing"])


def test_a_record_is_produced_by_hand_and_by_schema_and_decoded(api: Api) -> None:
    api.post("topic/create", {"name": "t", "partitions": 2})
    text = '{"type":"record","name":"P","fields":[{"name":"id","type":"long"}]}'
    registered = api.post("subject/register", {"name": "t-value", "kind": "AVRO", "text": text})
    record = {
        "topic": "t",
        "partition": 1,
        "key": {"format": "text", "data": "ключ"},
        "headers": [{"name": "a", "value": "b"}],
    }
    first = api.post("messages/produce", {**record, "value": {"format": "schema", "data": '{"id": 9007199254740993}'}})
    assert (first["partition"], first["offset"]) == (1, 0)
    api.post("messages/produce", {**record, "value": {"format": "base64", "data": "AP8="}})
    api.post("messages/produce", {**record, "value": {"format": "json", "data": '{"id": 1e2}'}})
    api.post("messages/produce", {**record, "value": {"format": "null"}})
    for wrong in (
        {"format": "schema", "data": '{"id": "x"}'},
        {"format": "json", "data": "{"},
        {"format": "base64", "data": "§"},
        {"format": "colour", "data": ""},
        {"format": "schema", "data": "1", "subject": "nobody"},
    ):
        assert api.http.post("/api/messages/produce", json={**record, "value": wrong}).status_code in (400, 404, 422)
    shown = [one["value"] for one in api.browse("t", **{"from": "oldest"})[0]]
    assert shown[0]["kind"] == "avro"
    assert (shown[0]["text"], shown[0]["schema_id"]) == ('{"id":9007199254740993}', registered["id"])
    assert [one["kind"] for one in shown[1:]] == ["hex", "json", "null"]
    assert shown[2]["text"] == '{"id": 1e2}'


def test_framed_values_of_every_kind_are_decoded(api: Api, producer: Producer) -> None:
    api.post("topic/create", {"name": "t", "partitions": 1})
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    key = {"type": "record", "name": "Money", "fields": [{"name": "amount", "type": amount}]}
    avro = api.post("subject/register", {"name": "money", "kind": "AVRO", "text": json.dumps(key)})["id"]
    order = '{"type":"record","name":"Order","fields":[{"name":"price","type":"Money"}]}'
    uses = [{"name": "Money", "subject": "money", "version": 1}]
    nested = api.post("subject/register", {"name": "order", "kind": "AVRO", "text": order, "references": uses})["id"]
    plain = api.post("subject/register", {"name": "j", "kind": "JSON", "text": '{"type":"object"}'})["id"]
    proto = 'syntax = "proto3"; message Click { string page = 1; int64 at = 2; }'
    click = api.post("subject/register", {"name": "p", "kind": "PROTOBUF", "text": proto})["id"]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(key), {"amount": Decimal("12.50")})
    for schema_id, payload in (
        (avro, out.getvalue()),
        (nested, out.getvalue()),
        (plain, b'{"a":[1,2]}'),
        (click, b"\x00" + b"\x0a\x02/a\x10\x07"),
        (avro, b"\xff" * 20),
        (avro, b"\x80\x80\x80\x80\x80\x80\x80\x80\x7f"),
    ):
        producer.produce("t", struct.pack(">bi", 0, schema_id) + payload)
    producer.flush()
    shown = [one["value"] for one in api.browse("t", **{"from": "oldest"})[0]]
    assert [one["kind"] for one in shown] == ["avro", "avro", "jsonschema", "protobuf", "hex", "hex"]
    assert json.loads(shown[0]["text"]) == {"amount": "12.50"}
    assert json.loads(shown[1]["text"]) == {"price": {"amount": "12.50"}}
    assert json.loads(shown[2]["text"]) == {"a": [1, 2]}
    assert json.loads(shown[3]["text"])["page"] == "/a"
    assert "schema" in shown[4]["note"]
    # What was decoded is what a filter sees.
    assert len(api.browse("t", filter='$.price.amount == "12.50"', filter_kind="json")[0]) == 1


def test_groups_are_shown_moved_and_deleted(api: Api, penstock_broker: EmbeddedBroker, producer: Producer) -> None:
    api.post("topic/create", {"name": "t", "partitions": 2})
    for one in range(20):
        producer.produce("t", b"x", partition=one % 2, timestamp=10_000 + one)
    producer.flush()
    group = "odd/group name?"
    settings = {"bootstrap.servers": penstock_broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["t"])
    assert len(consumer.consume(20, 30)) == 20
    consumer.commit(offsets=[TopicPartition("t", 0, 4), TopicPartition("t", 1, 10)], asynchronous=False)
    shown = api.get("group", name=group)
    assert (shown["state"], shown["lag"], len(shown["members"])) == ("stable", 6, 1)
    assert shown["members"][0]["assignment"] == {"t": [0, 1]}
    assert [(one["committed"], one["end"], one["lag"]) for one in shown["partitions"]] == [(4, 10, 6), (10, 10, 0)]
    assert shown["partitions"][0]["behind_s"] > 1_000_000
    assert shown["partitions"][1]["behind_s"] == 0
    refused = api.post("group/reset", {"name": group, "to": "earliest", "execute": True}, 409)
    assert "stop them first" in refused["message"]
    api.post("group/delete", {"name": group}, 409)
    consumer.close()

    def moved(**how: Any) -> list[Any]:
        return [one["new"] for one in api.post("group/reset", {"name": group, **how})["partitions"]]

    assert moved(to="earliest") == [0, 0]
    assert moved(to="latest") == [10, 10]
    assert moved(to="shift", amount=-3) == [1, 7]
    assert moved(to="shift", amount=1000) == [10, 10]
    assert moved(to="offset", amount=5, topic="t", partitions=[1]) == [5]
    assert moved(to="time", amount=10_006) == [3, 3]
    # Until now nothing was changed.
    assert api.get("group", name=group)["lag"] == 6
    assert moved(to="shift", amount=-3, execute=True) == [1, 7]
    assert api.get("group", name=group)["lag"] == 12
    listed = api.get("groups")["groups"]
    assert [(one["name"], one["lag"]) for one in listed] == [(group, 12)]
    assert api.get("groups/delays", name=group)[group] > 1_000_000
    assert api.get("topic", name="t")["groups"][0]["lag"] == 12
    api.post("group/delete", {"name": group})
    assert api.get("groups")["total"] == 0


def test_schemas_are_listed_compared_and_checked(api: Api) -> None:
    first = '{"type":"record","name":"P","fields":[{"name":"id","type":"long"}]}'
    second = '{"type":"record","name":"P","fields":[{"name":"id","type":"long"},{"name":"n","type":"int","default":0}]}'
    broken = '{"type":"record","name":"P","fields":[{"name":"other","type":"long"}]}'
    name = "odd/subject-value"
    assert api.post("subject/check", {"name": name, "kind": "AVRO", "text": first})["is_compatible"]
    for text in (first, second):
        api.post("subject/register", {"name": name, "kind": "AVRO", "text": text})
    shown = api.get("subject", name=name)
    assert [(one["version"], one["text"]) for one in shown["versions"]] == [(2, second), (1, first)]
    assert [one["name"] for one in shown["fields"]] == ["id", "n"]
    verdict = api.post("subject/check", {"name": name, "kind": "AVRO", "text": broken})
    assert (verdict["is_compatible"], verdict["against"]) == (False, 2)
    assert verdict["differences"][0]["kind"] == "READER_FIELD_MISSING_DEFAULT_VALUE"
    assert not api.post("subject/check", {"name": name, "kind": "AVRO", "text": "{"})["is_valid"]
    api.post("subject/register", {"name": name, "kind": "AVRO", "text": broken}, 409)
    assert api.post("subject/level", {"name": name, "level": "NONE"}) == {"level": "NONE"}
    api.post("subject/level", {"name": name, "level": "LOW"}, 400)
    assert api.post("subject/level", {"name": name, "level": None}) == {"level": "BACKWARD"}
    assert [(one["name"], one["versions"], one["kind"]) for one in api.get("subjects")["subjects"]] == [
        (name, 2, "AVRO")
    ]
    assert api.post("subject/delete", {"name": name})["versions"] == [1, 2]
    assert api.get("subjects")["total"] == 0


def test_a_read_only_console_shows_and_changes_nothing(api: Api, gateway: Any) -> None:
    api.post("topic/create", {"name": "t"})
    gateway.services.console.is_readonly = True
    assert api.get("session")["is_readonly"]
    for path in (
        "topic/delete",
        "topic/create",
        "configs/change",
        "messages/produce",
        "group/reset",
        "subject/register",
    ):
        assert "only shows" in api.post(path, {"name": "t"}, 403)["message"]
    assert api.get("topics")["total"] == 1
    assert api.post("doctor/run", {})["is_running"]


def test_changes_from_another_origin_are_refused(api: Api) -> None:
    api.post("topic/create", {"name": "t"}, 403, origin="http://evil.example")
    answer = api.http.post("/api/topic/create", content='{"name":"t"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    assert api.get("topics")["total"] == 0


def test_the_overview_counts_and_the_stream_tells_each_moment(
    api: Api, gateway: Any, penstock_broker: EmbeddedBroker, producer: Producer
) -> None:
    gateway.services.console.watcher.metrics = (penstock_broker.http + "/metrics",)
    api.post("topic/create", {"name": "t", "partitions": 3})
    view = api.get("overview")
    # Until two looks lie apart there is no rate, and nobody may call that silence.
    assert view["is_measured"] or view["busiest"] == []
    assert (len(view["brokers"]), view["topics"] - view["internal_topics"], view["offline"]) == (1, 1, 0)
    moments: list[Any] = []
    with api.http.stream("GET", "/api/live", params={"scope": "cluster"}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        kind = ""
        for line in stream.iter_lines():
            producer.produce("t", b"x" * 100)
            producer.poll(0)
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: ") and kind == "moment":
                moments.append(json.loads(line[6:])["values"])
                if moments[-1]["produce_p99"] is not None:
                    break
            else:
                producer.flush()
    assert moments[-1]["messages_in"] > 0
    assert moments[-1]["bytes_in"] > 0
    assert moments[-1]["produce_p50"] <= moments[-1]["produce_p99"]
    history = api.get("history", scope="topic", name="t")
    assert len(history["times"]) == len(history["series"]["messages_in"]) >= 1
    assert max(history["series"]["messages_in"]) > 0


def test_the_doctor_reports(api: Api, gateway: Any) -> None:
    api.post("topic/create", {"name": "t"})
    assert api.post("doctor/run", {})["is_running"]
    for task in list(gateway.services.console.tasks):
        gateway.run(_wait(task))
    report = api.get("doctor")["report"]
    assert report["findings"] == []
    assert any("partitions" in line for line in report["sound"])


async def _wait(task: Any) -> None:
    await task
