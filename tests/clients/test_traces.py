"""Traces of a real broker, sent to a collector that reads OTLP: what librdkafka began goes on in the broker."""

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.testing import EmbeddedBroker, PenstockCluster
from penstock.tracing import exporting

DEADLINE_S = 30
START_DEADLINE_S = 90  # of a process, on a machine that is busy with others
ROUNDS_MAX = 600  # of 50 ms each
SERVER, CLIENT, INTERNAL = 2, 3, 1
USAGE_ERROR = 2


def has_sdk() -> bool:
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace
    except ImportError:
        return False
    return bool(opentelemetry.sdk.trace and opentelemetry.exporter.otlp.proto.http)


needs_sdk = pytest.mark.skipif(not has_sdk(), reason="penstock[tracing] is not installed")


class Received(NamedTuple):
    broker: str
    span: Any

    @property
    def attributes(self) -> dict[str, Any]:
        return {each.key: each.value.string_value or each.value.int_value for each in self.span.attributes}


class Collector:
    """OTLP/HTTP on the loopback: keeps every span it is sent, or refuses them all."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.is_refusing = False
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
                if not collector.is_refusing:
                    collector.spans += read_spans(body)
                self.send_response(400 if collector.is_refusing else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> list[Received]:
        return [each for each in self.spans if each.span.name == name]

    def one(self, name: str) -> Received:
        (found,) = self.named(name)
        return found


def read_spans(body: bytes) -> Iterator[Received]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        about = {each.key: each.value.string_value for each in resource.resource.attributes}
        assert about["service.name"] == "orders-kafka"
        for scope in resource.scope_spans:
            yield from (Received(about["service.instance.id"], span) for span in scope.spans)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def tracing(endpoint: str, ratio: str) -> dict[str, str]:
    return {
        "penstock.tracing.endpoint": endpoint,
        "penstock.tracing.sample.ratio": ratio,
        "penstock.tracing.service.name": "orders-kafka",
    }


def traceparent(trace: int, *, sampled: bool = True) -> list[tuple[str, bytes]]:
    return [("traceparent", b"00-%032x-%016x-%02x" % (trace, trace + 1, sampled)), ("tracestate", b"shop=7")]


def produce(bootstrap: str, topic: str, *headers: list[tuple[str, bytes]], **settings: str) -> None:
    """A request for each, acknowledged before the next; acks=all."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop", "linger.ms": 0, **named})
    failures: list[object] = []
    for each in headers:
        producer.produce(topic, b"do not tell", partition=0, headers=each, on_delivery=lambda e, _: failures.append(e))
        assert producer.flush(DEADLINE_S) == 0
    assert failures == [None] * len(headers)


def consume(bootstrap: str, topic: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "client.id": "till", "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read: list[Any] = []
    while len(read) < count:
        got = consumer.consume(count - len(read), DEADLINE_S)
        assert got, "nothing came"
        read += got
    consumer.close()


def ids(trace: int) -> tuple[bytes, bytes]:
    return trace.to_bytes(16, "big"), (trace + 1).to_bytes(8, "big")


@needs_sdk
def test_a_producers_trace_goes_on_in_the_broker_and_is_complete_after_a_clean_stop(
    tmp_path: Path, collector: Collector
) -> None:
    broker = EmbeddedBroker(tmp_path, tracing(collector.endpoint, "0")).start()
    untold = [*traceparent(3, sampled=False)]
    produce(broker.bootstrap, "t", traceparent(1), [], untold)
    produce(broker.bootstrap, "packed", traceparent(2), compression_codec="lz4")
    consume(broker.bootstrap, "t", 3)
    broker.stop()

    trace_id, span_id = ids(1)
    root = collector.one("produce t")
    assert (root.span.kind, root.span.trace_id, root.span.parent_span_id) == (SERVER, trace_id, span_id)
    assert root.span.trace_state == "shop=7"
    assert root.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "produce",
        "messaging.operation.type": "send",
        "messaging.client.id": "shop",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.batch.message_count": 1,
    }
    for name in ("append t", "sync t"):
        child = collector.one(name).span
        assert (child.kind, child.trace_id, child.parent_span_id) == (INTERNAL, trace_id, root.span.span_id)
        assert root.span.start_time_unix_nano <= child.start_time_unix_nano <= child.end_time_unix_nano
    assert collector.one("sync t").span.start_time_unix_nano == collector.one("append t").span.end_time_unix_nano
    assert collector.one("produce packed").span.trace_id == ids(2)[0], "a small compressed batch is looked into"
    fetches = collector.named("fetch t")
    assert fetches, "the consumer was given what a sampled trace wrote"
    assert all(each.span.kind == SERVER and not each.span.parent_span_id for each in fetches)
    assert ids(1) in [(link.trace_id, link.span_id) for link in fetches[0].span.links]
    assert fetches[0].attributes["messaging.client.id"] == "till"
    assert len(collector.named("append t")) == 1, "neither the one without a trace nor the one not sampled has a span"
    assert b"do not tell" not in b"".join(each.span.SerializeToString() for each in collector.spans)


@needs_sdk
def test_replication_is_seen_at_the_leader_and_at_each_follower(tmp_path: Path, collector: Collector) -> None:
    with PenstockCluster(tmp_path, overrides=tracing(collector.endpoint, "0")) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        made = admin.create_topics([NewTopic("t", 1, 3, config={"min.insync.replicas": "3"})])
        made["t"].result(DEADLINE_S)
        # Three in sync are asked for, so every follower has what is acknowledged.
        produce(cluster.bootstrap, "t", traceparent(1))
    trace_id, span_id = ids(1)
    root = collector.one("produce t")
    assert root.span.parent_span_id == span_id
    replicates = collector.named("replicate t")
    (leader,) = [each for each in replicates if each.span.kind == INTERNAL]
    assert (leader.broker, leader.span.parent_span_id) == (root.broker, root.span.span_id)
    assert leader.span.start_time_unix_nano == collector.one("append t").span.end_time_unix_nano
    followers = [each for each in replicates if each.span.kind == CLIENT]
    assert {each.broker for each in followers} == {"1", "2", "3"} - {root.broker}
    for each in followers:
        assert (each.span.trace_id, each.span.parent_span_id) == (trace_id, span_id)
        assert each.attributes["penstock.leader.id"] == int(root.broker)
        (fetched,) = each.span.events
        assert each.span.start_time_unix_nano <= fetched.time_unix_nano <= each.span.end_time_unix_nano


@needs_sdk
@pytest.mark.parametrize("is_away", [True, False], ids=["away", "refusing"])
def test_a_collector_that_takes_nothing_costs_spans_and_nothing_else(
    tmp_path: Path, collector: Collector, is_away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "EXPORT_TIMEOUT_S", 0.5)
    collector.is_refusing = True
    if is_away:
        collector.close()
    with EmbeddedBroker(tmp_path, tracing(collector.endpoint, "1")) as broker:
        for _ in range(ROUNDS_MAX):
            produce(broker.bootstrap, "t", [], [])
            with urllib.request.urlopen(f"{broker.http}/metrics", timeout=DEADLINE_S) as page:
                lines = page.read().decode().splitlines()
            (dropped,) = [line for line in lines if line.startswith("mq_trace_spans_dropped_total ")]
            if int(dropped.split()[1]) > 0:
                break
        assert int(dropped.split()[1]) > 0
        assert "mq_trace_spans_total 0" in lines


def test_without_the_packages_the_broker_says_so_and_does_not_start(tmp_path: Path) -> None:
    hiding = tmp_path / "hiding" / "opentelemetry"
    hiding.mkdir(parents=True)
    (hiding / "__init__.py").touch()  # a package of that name that has nothing in it
    command = [
        sys.executable,
        "-m",
        "penstock",
        "serve",
        "--data-dir",
        str(tmp_path / "data"),
        "--listen",
        "127.0.0.1:0",
    ]
    command += ["--http", "", "-o", "penstock.tracing.endpoint=http://127.0.0.1:4318"]
    paths = [str(hiding.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=START_DEADLINE_S, check=False
    )
    assert ended.returncode == USAGE_ERROR
    (said,) = ended.stderr.splitlines()
    assert 'pip install "penstock[tracing]"' in said
    assert not (tmp_path / "data").exists(), "nothing was begun"


def test_a_broker_without_traces_imports_nothing_for_them() -> None:
    look = "import sys, penstock.cli.main, penstock.cli.serve, penstock.broker; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=START_DEADLINE_S, check=True
    )
    names = {name.partition(".")[0] for name in ran.stdout.split()} | {
        ".".join(n.split(".")[:2]) for n in ran.stdout.split()
    }
    assert not names & {"opentelemetry", "penstock.tracing", "requests"}
