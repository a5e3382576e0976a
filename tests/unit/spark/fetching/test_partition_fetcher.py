"""Partitions read to their end from a real broker, through whatever happens to it meanwhile."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.model import TopicPartition
from penstock.spark.arrow import ArrowDecoder
from penstock.spark.errors import Unreachable
from penstock.spark.fetching import (
    Cluster,
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

DEADLINE_S = 30.0
Open = Callable[..., Cluster]


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"t{uuid4().hex[:8]}"
    create(broker, name)
    return name


def create(broker: EmbeddedBroker, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(DEADLINE_S)


def produce(broker: EmbeddedBroker, topic: str, count: int, *, first: int = 0, size: int = 20, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "partitioner": "random", **settings})
    for number in range(first, first + count):
        producer.produce(topic, str(number).zfill(size).encode(), partition=0)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def transact(broker: EmbeddedBroker, topic: str, batches: list[tuple[int, bool | None]]) -> Producer:
    """Transactions of so many records each, committed or not; None leaves the last one open."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(DEADLINE_S)
    for count, is_committed in batches:
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, f"{is_committed}-{number}".encode(), partition=0)
        producer.flush(DEADLINE_S)
        if is_committed is not None:
            (producer.commit_transaction if is_committed else producer.abort_transaction)(DEADLINE_S)
    return producer


def read(
    cluster: Cluster,
    topic: str,
    start: int,
    end: int,
    isolation: str = "read_committed",
    between: Callable[[], None] = lambda: None,
    **options: Any,
) -> list[tuple[int, bytes]]:
    """(offset, value) of [start, end), through the decoder; `between` runs after the first chunk."""
    at = TopicPartition(topic, 0)
    facts = cluster.topics([topic])[topic]
    assert facts is not None
    fetcher = PartitionFetcher(
        cluster, at, facts.topic_id, start, end, isolation, **{"deadline_s": DEADLINE_S, **options}
    )
    decoder = ArrowDecoder(topic, 0, start, end, isolation, has_headers=False)
    rows: list[tuple[int, bytes]] = []
    for number, chunk in enumerate(fetcher):
        for batch in decoder.feed(chunk):
            rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
        if number == 0:
            between()
    for batch in decoder.finish():
        rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    assert not [thread for thread in threading.enumerate() if thread.name == f"penstock-fetch-{at}"]
    return rows


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


def test_a_tail_that_was_compacted_away_does_not_hang(
    broker: EmbeddedBroker, open_cluster: Open, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is readable and nothing comes. A real log keeps its last batch, so the broker's words are changed here."""
    produce(broker, topic, 10)
    answers: list[fetch_steps.Answered] = []
    parse = fetch_steps.parse_fetch

    def parse_and_raise_the_end(*told: Any) -> fetch_steps.Answered:
        answers.append(parse(*told)._replace(high_watermark=12, last_stable=12))
        return answers[-1]

    monkeypatch.setattr(fetch_steps, "parse_fetch", parse_and_raise_the_end)
    rows = read(open_cluster(broker.bootstrap), topic, 5, 12)
    assert [offset for offset, _ in rows] == list(range(5, 10))
    # An empty answer may be a chance of the moment, so it takes some more.
    assert [len(answer.records) for answer in answers[-fetch_steps.SILENCES_MAX :]] == [0] * fetch_steps.SILENCES_MAX


@pytest.mark.parametrize("words", [{"is_there": False, "throttle_ms": 1}, {"preferred_replica": 7}])
def test_an_answer_that_says_nothing_is_not_taken_for_the_end(
    broker: EmbeddedBroker, open_cluster: Open, topic: str, words: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that throttles, or sends its client to another replica, says so without records."""
    produce(broker, topic, 10)
    silences = iter(range(3 * fetch_steps.SILENCES_MAX))
    parse = fetch_steps.parse_fetch

    def parse_late(*told: Any) -> fetch_steps.Answered:
        answered = parse(*told)
        if next(silences, None) is None:
            return answered
        return answered._replace(records=memoryview(b""), **words)

    monkeypatch.setattr(fetch_steps, "parse_fetch", parse_late)
    assert len(read(open_cluster(broker.bootstrap), topic, 0, 10)) == 10


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
