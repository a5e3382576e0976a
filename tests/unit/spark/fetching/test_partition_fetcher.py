"""Partitions read to their end from a real broker, through whatever happens to it meanwhile."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from partition_world import DEADLINE_S, Open, create, produce, read, transact

from penstock.model import TopicPartition
from penstock.spark.errors import Unreachable
from penstock.spark.fetching import (
    FetchRefused,
    NotYetReadable,
    OffsetGone,
    PartitionFetcher,
    TopicGone,
    fetch_steps,
)
from penstock.spark.fetching import cluster as cluster_module
from penstock.spark.fetching import patience as patience_module
from penstock.spark.fetching.metadata import Leader
from penstock.testing.embedded import EmbeddedBroker


def test_every_offset_of_the_range_is_read_once_and_nothing_else(
    broker: EmbeddedBroker, open_cluster: Open, topic: str
) -> None:
    produce(broker, topic, 5000, size=100)
    cluster = open_cluster(broker.bootstrap)
    for start, end, max_bytes in ((0, 5000, 1 << 20), (17, 4321, 1 << 16), (4999, 5000, 1 << 20), (10, 10, 1)):
        rows = read(cluster, topic, start, end, max_bytes=max_bytes)
        assert rows == [(offset, str(offset).zfill(100).encode()) for offset in range(start, end)]


@pytest.mark.parametrize("version", [*range(4, 18)])
def test_every_version_of_fetch_gives_the_same_records(
    broker: EmbeddedBroker, open_cluster: Open, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact(broker, topic, [(3, False), (3, True)])
    monkeypatch.setattr(fetch_steps, "VERSION_MAX", version)
    monkeypatch.setattr(fetch_steps, "NAMED_VERSION_MAX", min(version, 12))
    rows = read(open_cluster(broker.bootstrap), topic, 0, 8)
    assert rows == [(4, b"True-0"), (5, b"True-1"), (6, b"True-2")]


def test_a_batch_larger_than_what_is_asked_for_comes_whole(
    broker: EmbeddedBroker, open_cluster: Open, topic: str
) -> None:
    produce(broker, topic, 3, size=500_000)
    rows = read(open_cluster(broker.bootstrap), topic, 0, 3, max_bytes=1000)
    assert [(offset, len(value)) for offset, value in rows] == [(0, 500_000), (1, 500_000), (2, 500_000)]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_range_that_ends_in_markers_and_aborted_records_ends(
    broker: EmbeddedBroker, open_cluster: Open, topic: str, isolation: str
) -> None:
    transact(broker, topic, [(2, True), (2, False)])  # 0 1, marker 2, 3 4, marker 5
    rows = read(open_cluster(broker.bootstrap), topic, 0, 6, isolation)
    seen = [0, 1] if isolation == "read_committed" else [0, 1, 3, 4]
    assert [offset for offset, _ in rows] == seen


def test_a_transaction_that_stays_open_is_waited_for_and_then_told(
    broker: EmbeddedBroker, open_cluster: Open, topic: str
) -> None:
    cluster = open_cluster(broker.bootstrap)
    producer = transact(broker, topic, [(1, True), (2, None)])  # 0, marker 1, 2 3 open
    with pytest.raises(NotYetReadable, match="up to offset 2 only, where 4 was wanted") as told:
        read(cluster, topic, 0, 4, deadline_s=1.0)
    assert told.value.readable_end == 2
    assert [offset for offset, _ in read(cluster, topic, 0, 4, "read_uncommitted")] == [0, 2, 3]
    # The reader waits at the open transaction; it is committed under its eyes.
    assert [
        offset for offset, _ in read(cluster, topic, 0, 4, between=lambda: producer.commit_transaction(DEADLINE_S))
    ] == [
        0,
        2,
        3,
    ]


def test_offsets_that_were_deleted_are_told_with_what_is_left(
    broker: EmbeddedBroker, open_cluster: Open, topic: str
) -> None:
    from confluent_kafka import TopicPartition as Partition

    produce(broker, topic, 50)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([Partition(topic, 0, 20)]).values():
        future.result(DEADLINE_S)
    cluster = open_cluster(broker.bootstrap)
    with pytest.raises(OffsetGone) as told:
        read(cluster, topic, 5, 50)
    assert (told.value.wanted, told.value.log_start, told.value.end) == (5, 20, 50)
    assert len(read(cluster, topic, 20, 50)) == 30


def test_offsets_beyond_the_end_are_told(
    broker: EmbeddedBroker, open_cluster: Open, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_steps, "BEYOND_END_PATIENCE_S", 0.2)
    produce(broker, topic, 5)
    with pytest.raises(OffsetGone) as told:
        read(open_cluster(broker.bootstrap), topic, 100, 110)
    assert (told.value.wanted, told.value.log_start, told.value.end) == (100, 0, 5)


def test_a_partition_without_a_leader_is_waited_for_not_given_up(
    broker: EmbeddedBroker, open_cluster: Open, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "GONE_AFTER_S", 0.0)
    produce(broker, topic, 10)
    answers = iter(range(8))
    ask = cluster_module.ask_metadata

    def ask_while_nobody_leads(*asked: Any) -> Any:
        answer = ask(*asked)
        if next(answers, None) in (None, 0):  # the first is asked by this test itself
            return answer
        for known in answer.topics.values():
            known.leaders.update({partition: Leader(-1, -1, known.topic_id) for partition in known.leaders})
        return answer

    monkeypatch.setattr(cluster_module, "ask_metadata", ask_while_nobody_leads)
    cluster = open_cluster(broker.bootstrap)
    assert cluster.topics([topic])[topic] is not None
    cluster.forget([TopicPartition(topic, 0)])
    fetcher = PartitionFetcher(cluster, TopicPartition(topic, 0), None, 0, 10, "read_committed", deadline_s=DEADLINE_S)
    assert sum(len(chunk.records) for chunk in fetcher) > 0
    assert next(answers, None) is None


def test_the_time_a_reader_takes_is_not_counted_against_the_broker(
    open_cluster: Open, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LaterClock:
        later_s = 0.0

        @classmethod
        def monotonic(cls) -> float:
            return time.monotonic() + cls.later_s

    monkeypatch.setattr(patience_module, "time", LaterClock)
    with EmbeddedBroker(tmp_path) as broker:
        create(broker, "orders")
        produce(broker, "orders", 100, size=1000, **{"batch.size": 20_000})
        # Its steps, without the thread: that one stands still while the reader does.
        steps = fetch_steps.FetchSteps(
            open_cluster(broker.bootstrap),
            TopicPartition("orders", 0),
            None,
            0,
            100,
            is_committed=True,
            max_bytes=1,
            deadline_s=DEADLINE_S,
            is_closed=threading.Event(),
        )
        assert steps.step() is not None
        LaterClock.later_s = 3600.0
        broker.crash_and_restart()
        while steps.step() is not None:
            pass
        assert steps.position == 100


@pytest.mark.parametrize("version", [12, 17])
def test_a_topic_made_anew_under_the_same_name_is_not_read(
    broker: EmbeddedBroker, open_cluster: Open, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_steps, "VERSION_MAX", version)
    monkeypatch.setattr(cluster_module, "GONE_AFTER_S", 0.3)
    produce(broker, topic, 100, size=1000, **{"batch.size": 5000})

    def make_anew() -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics([topic])[topic].result(DEADLINE_S)
        create(broker, topic)
        produce(broker, topic, 200, size=1000)

    with pytest.raises(TopicGone, match=topic):
        read(open_cluster(broker.bootstrap), topic, 0, 200, between=make_anew, max_bytes=1)


def test_a_deleted_topic_is_told(
    broker: EmbeddedBroker, open_cluster: Open, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "GONE_AFTER_S", 0.3)
    cluster = open_cluster(broker.bootstrap)
    assert cluster.topics([topic, "never-was"])["never-was"] is None
    fetcher = PartitionFetcher(cluster, TopicPartition(topic, 0), None, 0, 10, "read_committed", deadline_s=DEADLINE_S)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    with pytest.raises(TopicGone):
        list(fetcher)
    with pytest.raises(TopicGone):
        cluster.list_offsets({TopicPartition(topic, 0): -1}, "read_committed")


def test_reading_goes_on_through_a_crash_of_the_broker(open_cluster: Open, tmp_path: Any) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        create(broker, "orders")
        produce(broker, "orders", 3000, size=1000, **{"batch.size": 20_000})
        cluster = open_cluster(broker.bootstrap)
        rows = read(cluster, "orders", 0, 3000, between=broker.crash_and_restart, max_bytes=50_000)
        assert [offset for offset, _ in rows] == list(range(3000))


def test_a_reader_that_leaves_early_leaves_no_thread(broker: EmbeddedBroker, open_cluster: Open, topic: str) -> None:
    produce(broker, topic, 2000, size=1000, **{"batch.size": 20_000})
    at = TopicPartition(topic, 0)
    cluster = open_cluster(broker.bootstrap)
    # One that is still full, and one that waits at the end of the log for what has not been written.
    for _chunk in PartitionFetcher(cluster, at, None, 0, 2000, "read_committed", max_bytes=50_000):
        break
    waiting = PartitionFetcher(cluster, at, None, 2000, 2001, "read_committed")
    with ThreadPoolExecutor(1) as readers:
        reading = readers.submit(list, waiting)
        waiting.close()
        with pytest.raises(FetchRefused, match="closed while it was read"):
            reading.result(DEADLINE_S)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock-fetch")]


def test_a_broker_that_is_gone_for_good_is_named_with_the_reason(open_cluster: Open, tmp_path: Any) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        create(broker, "orders")
        bootstrap = broker.bootstrap
        cluster = open_cluster(bootstrap, deadline_s=0.5)
        cluster.topics(["orders"])
    fetcher = PartitionFetcher(cluster, TopicPartition("orders", 0), None, 0, 10, "read_committed", deadline_s=0.5)
    with pytest.raises(Unreachable, match=rf"reading orders-0 at offset 0 .*{bootstrap}: .*refused"):
        list(fetcher)
    with pytest.raises(Unreachable, match=rf"asking for topics .*{bootstrap}: .*refused"):
        cluster.topics(None)


def test_topics_and_offsets_are_listed(broker: EmbeddedBroker, open_cluster: Open) -> None:
    name = f"t{uuid4().hex[:8]}"
    create(broker, name, partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(name, b"x", partition=1, timestamp=1000 + number)
    producer.flush(DEADLINE_S)
    transact(broker, f"{name}", [(1, None)])  # opens a transaction in partition 0
    cluster = open_cluster(broker.bootstrap)
    every = cluster.topics(None)
    assert not [topic for topic in every if topic.startswith("__")]
    facts = every[name]
    assert facts is not None
    assert facts.topic_id is not None
    assert set(facts.leaders) == {0, 1, 2}
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    found = cluster.list_offsets({first: -1, second: -1}, "read_uncommitted")
    assert found == {first: (1, -1), second: (10, -1)}
    assert cluster.list_offsets({first: -1}, "read_committed")[first][0] == 0
    assert cluster.list_offsets({second: -2}, "read_committed")[second][0] == 0
    assert cluster.list_offsets({second: 1004}, "read_committed")[second] == (4, 1004)
    assert cluster.list_offsets({second: 5000}, "read_committed")[second][0] == -1
