"""The source, the sink, dead letters and the lag's group on brokers that are not penstock's (mock_cluster.py)."""

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from mock_cluster import MockCluster
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock import model
from penstock.spark.arrow import ArrowDecoder
from penstock.spark.batch_reader import BatchReader
from penstock.spark.connections import drop_cluster
from penstock.spark.fetching import Cluster, PartitionFetcher
from penstock.spark.formats.dead_letters import DeadLetters, DeadRecord
from penstock.spark.group_client import LibrdkafkaGroups
from penstock.spark.options import ReadOptions, read_options
from penstock.spark.sink import marker_topic
from penstock.spark.sink.failures import MarkersUnusable
from penstock.spark.sink.marker import PARTITIONS, QUERY_MARKERS
from penstock.spark.stream_reader import StreamReader

# A worker's life without Spark, as the sink's own tests have it.
sys.path.insert(0, str(Path(__file__).parent / "sink"))

from sink_world import end_worker, options_for, read, rows_of, task_of, write

DEADLINE_S = 30.0
EPOCH_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_names = (f"topic-{number}" for number in count())


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with MockCluster(brokers=3) as running:
        yield running


@pytest.fixture
def topic(cluster: MockCluster) -> str:
    return cluster.make_topic(next(_names), partitions=4)


def options(cluster: MockCluster, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": topic,
        "kafka.request.timeout.ms": "5000",
        **more,
    }


def produce(cluster: MockCluster, topic: str, rows: list[dict[str, Any]], codec: str = "none", **more: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "log_level": 0, **more})
    failed: list[KafkaError] = []
    for row in rows:
        producer.produce(topic, on_delivery=lambda error, _: error and failed.append(error), **row)
    assert producer.flush(DEADLINE_S) == 0
    assert not failed, failed[0]


def read_batches(reader: BatchReader | StreamReader, parts: Any) -> list[dict[str, Any]]:
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


@pytest.fixture
def reading(cluster: MockCluster, topic: str) -> Iterator[ReadOptions]:
    made = read_options(options(cluster, topic, includeHeaders="true", minPartitions="9"), is_streaming=False)
    yield made
    drop_cluster(made.connection)


def test_a_batch_reads_every_codec_from_every_partition(cluster: MockCluster, topic: str, reading: ReadOptions) -> None:
    sent: list[dict[str, Any]] = []
    for index, codec in enumerate(CODECS):
        rows = [
            {
                "value": f"{codec}-{number}".encode() * 20 if number % 7 else None,
                "key": f"k{number}".encode() if number % 5 else None,
                "partition": number % 4,
                "timestamp": EPOCH_MS + 1000 * index + number,
                "headers": [("codec", codec.encode()), ("none", None)] if number % 3 else None,
            }
            for number in range(100)
        ]
        produce(cluster, topic, rows, codec)
        sent += rows
    reader = BatchReader(reading)
    parts = reader.partitions()
    assert len(parts) >= 9
    found = read_batches(reader, parts)
    wanted = [row for partition in range(4) for row in sent if row["partition"] == partition]
    assert [row["offset"] for row in found] == [*range(125)] * 4
    assert [(row["partition"], row["key"], row["value"]) for row in found] == [
        (row["partition"], row["key"], row["value"]) for row in wanted
    ]
    assert [int(row["timestamp"].timestamp() * 1000) for row in found] == [row["timestamp"] for row in wanted]
    assert [[(one["key"], one["value"]) for one in row["headers"] or []] for row in found] == [
        row["headers"] or [] for row in wanted
    ]


def test_a_stream_goes_on_from_where_it_stood(cluster: MockCluster, topic: str) -> None:
    given = options(
        cluster, topic, startingOffsets="earliest", **{"commit.group.id": "none", "latestOffsetCacheMs": "0"}
    )
    reader = StreamReader(read_options(given, is_streaming=True))
    produce(cluster, topic, [{"value": b"a", "partition": number} for number in range(4)])
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    produce(cluster, topic, [{"value": b"b", "partition": 2}, {"value": b"c", "partition": 3}])
    assert [row["value"] for row in read_batches(reader, reader.partitions(start, first))] == [b"a"] * 4
    second = reader.latestOffset(first, ReadAllAvailable())
    assert [(row["value"], row["offset"]) for row in read_batches(reader, reader.partitions(first, second))] == [
        (b"b", 1),
        (b"c", 1),
    ]
    assert reader.latestOffset(second, ReadAllAvailable()) == second
    reader.stop()


def test_a_fetch_goes_on_when_its_leader_moves_and_when_a_broker_goes_down(cluster: MockCluster, topic: str) -> None:
    # Many small batches, so that fetches of few bytes bring the partition piece by piece.
    rows = [{"value": f"{number:04}".encode() * 100, "partition": 0} for number in range(600)]
    produce(cluster, topic, rows, **{"batch.num.messages": 5})
    connection = read_options(options(cluster, topic), is_streaming=False).connection
    brokers = Cluster(connection)
    at = model.TopicPartition(topic, 0)
    try:
        facts = brokers.topics([topic])[topic]
        assert facts is not None
        decoder = ArrowDecoder(topic, 0, 0, 600, "read_committed", has_headers=False)
        fetcher = PartitionFetcher(
            brokers, at, facts.topic_id, 0, 600, "read_committed", max_bytes=4096, deadline_s=DEADLINE_S
        )
        batches: list[pa.RecordBatch] = []
        chunks = 0
        for chunk in fetcher:
            chunks += 1
            batches += decoder.feed(chunk)
            if chunks == 3:
                cluster.move_leader(topic, 0, facts.leaders[0] % 3 + 1)
            elif chunks == 10:
                cluster.move_leader(topic, 0, (facts.leaders[0] + 1) % 3 + 1)
                cluster.take_down(facts.leaders[0] % 3 + 1)
        batches += decoder.finish()
        moved = brokers.topics([topic])[topic]
    finally:
        cluster.bring_up(facts.leaders[0] % 3 + 1)
        brokers.close()
    assert chunks > 20
    assert moved is not None
    assert moved.leaders[0] == (facts.leaders[0] + 1) % 3 + 1
    values = [row["value"] for batch in batches for row in batch.to_pylist()]
    assert values == [row["value"] for row in rows]


def test_rows_are_written_once_where_topics_cannot_be_made_but_by_hand(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = cluster.make_topic(next(_names), partitions=2)
    chosen = options_for(cluster.bootstrap, topic=target)
    monkeypatch.setattr(marker_topic, "DEADLINE_S", 1.0)
    monkeypatch.setattr(marker_topic, "CHECK_S", 1.0)
    try:
        # While no controller is known nobody answers; the one that there is makes no topics. Both are one sentence.
        for why in ("Timed out", "not supported"):
            with pytest.raises(MarkersUnusable, match=rf"cannot be made \(.*{why}.*make it by hand with {PARTITIONS}"):
                write(chosen, task_of(0))
            end_worker(chosen)
            if why == "Timed out":
                cluster.set_controller(1)
        cluster.make_topic(QUERY_MARKERS.name, PARTITIONS)
        # Nor does anybody tell the topic's settings, which is no reason not to write.
        for controller in (-1, 1):
            cluster.set_controller(controller)
            marker_topic._checked.clear()
            assert not write(chosen, task_of(0, task=controller + 1)).is_skipped
        end_worker(chosen)
        again = write(chosen, task_of(0, run="run-2"))
        assert (again.is_skipped, again.is_replay) == (True, True)
        assert not write(chosen, task_of(1, run="run-2")).is_skipped
    finally:
        end_worker(chosen)
    assert read(cluster.bootstrap, target) == sorted(rows_of(0, 0) + rows_of(0, 2) + rows_of(1, 0))


def test_dead_letters_and_the_progress_of_a_query_arrive(cluster: MockCluster, topic: str) -> None:
    librdkafka = read_options(options(cluster, topic), is_streaming=True).librdkafka
    letters = DeadLetters(topic, librdkafka)
    letters.send(DeadRecord("orders", 1, 7, EPOCH_MS, b"k", b"poison", [("trace", b"t")]), "no JSON", "value")
    letters.flush()
    (letter,) = read_batches(*_whole(options(cluster, topic, includeHeaders="true")))
    assert (letter["key"], letter["value"]) == (b"k", b"poison")
    assert ("penstock.dead.reason", b"no JSON") in [(one["key"], one["value"]) for one in letter["headers"]]

    groups = LibrdkafkaGroups(librdkafka)
    groups.commit("spark-orders", {model.TopicPartition(topic, 0): 5, model.TopicPartition(topic, 3): 8}, "token")
    groups.close()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "spark-orders", "log_level": 0})
    try:
        stored = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 3)], DEADLINE_S)
    finally:
        consumer.close()
    assert [(one.offset, one.metadata) for one in stored] == [(5, "token"), (8, "token")]


def _whole(given: dict[str, str]) -> tuple[BatchReader, Any]:
    reader = BatchReader(read_options(given, is_streaming=False))
    return reader, reader.partitions()
