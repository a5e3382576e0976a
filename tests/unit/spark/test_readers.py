"""The readers of batches and streams against a cluster at the world's edge, without Spark's JVM."""

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from penstock.model import TopicPartition
from penstock.spark import batch_reader, stream_reader
from penstock.spark.batch_reader import BatchReader
from penstock.spark.errors import BadOption, DataLost
from penstock.spark.fetching import TopicFacts, TopicGone
from penstock.spark.options import read_options
from penstock.spark.reading import ReadPartition
from penstock.spark.stream_reader import StreamReader

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OLD, NEW = UUID(int=1), UUID(int=2)
ALL = ReadAllAvailable()


@dataclass
class FakeCluster:
    """A cluster as the planners see it: topics, ids, first and last offsets, times. No sockets."""

    logs: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    ids: dict[str, UUID] = field(default_factory=dict)
    # Where an open transaction begins, if one is open.
    stable: dict[TopicPartition, int] = field(default_factory=dict)
    # Of each partition, times of records by offset.
    times: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    questions: int = 0
    # Topics that brokers still name, and no longer have.
    deleted: set[str] = field(default_factory=set)
    # How much is written between two questions.
    growth: int = 0

    def topics(self, names: Sequence[str] | None) -> dict[str, TopicFacts | None]:
        self.questions += 1
        there: dict[str, dict[int, int]] = {}
        for at in self.logs:
            there.setdefault(at.topic, {})[at.partition] = 1
        facts = {topic: TopicFacts(topic, self.ids.get(topic), leaders) for topic, leaders in there.items()}
        return dict(facts) if names is None else {name: facts.get(name) for name in names}

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: str
    ) -> dict[TopicPartition, tuple[int, int]]:
        self.questions += 1
        for at in wanted:
            if at.topic in self.deleted:
                raise TopicGone(at)
        self.logs = {at: (first, end + self.growth) for at, (first, end) in self.logs.items()}
        return {at: (self._offset(at, what, isolation), -1) for at, what in wanted.items()}

    def _offset(self, at: TopicPartition, what: int, isolation: str) -> int:
        first, end = self.logs[at]
        if what == -2:
            return first
        if what == -1:
            return self.stable.get(at, end) if isolation == "read_committed" else end
        return next((offset for offset, time in sorted(self.times.get(at, {}).items()) if time >= what), -1)

    def close(self) -> None:
        pass


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster({A0: (0, 100), A1: (10, 30)}, {"a": OLD, "b": OLD})
    for module in (batch_reader, stream_reader):
        monkeypatch.setattr(module, "cluster_for", lambda _: fake)
        monkeypatch.setattr(module, "drop_cluster", lambda _: None)
    return fake


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [1000.0]

    class Time:
        @staticmethod
        def monotonic() -> float:
            return now[0]

        @staticmethod
        def sleep(seconds: float) -> None:
            now[0] += seconds

    monkeypatch.setattr(stream_reader, "time", Time)
    return Time.sleep


BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "commit.group.id": "none", "latestOffsetCacheMs": "0"}


def stream(**options: str) -> StreamReader:
    return StreamReader(read_options(BASE | options, is_streaming=True))


def batch(**options: str) -> dict[TopicPartition, list[tuple[int, int]]]:
    found: dict[TopicPartition, list[tuple[int, int]]] = {}
    for part in BatchReader(read_options(BASE | options, is_streaming=False)).partitions():
        assert isinstance(part, ReadPartition)
        if part.range is not None:
            found.setdefault(part.range.at, []).append((part.range.start, part.range.end))
    return found


def ranges(reader: StreamReader, start: Any, end: Any) -> set[tuple[TopicPartition, int, int]]:
    found: set[tuple[TopicPartition, int, int]] = set()
    for part in reader.partitions(start, end):
        assert isinstance(part, ReadPartition)
        assert part.range is not None
        found.add((part.range.at, part.range.start, part.range.end))
    return found


# Batches


def test_a_batch_reads_all_there_is(cluster: FakeCluster):
    assert batch() == {A0: [(0, 100)], A1: [(10, 30)]}


def test_a_batch_between_offsets(cluster: FakeCluster):
    assert batch(startingOffsets='{"a":{"0":20,"1":-2}}', endingOffsets='{"a":{"0":-1,"1":25}}') == {
        A0: [(20, 100)],
        A1: [(10, 25)],
    }


def test_a_batch_between_times(cluster: FakeCluster):
    cluster.times = {A0: {0: 1000, 50: 2000, 90: 3000}, A1: {10: 1500, 20: 2500}}
    assert batch(startingTimestamp="2000", endingTimestamp="2600") == {A0: [(50, 90)], A1: [(20, 30)]}
    with pytest.raises(BadOption, match="a-1 has no record as young as 2600"):
        batch(startingTimestamp="2600")
    assert batch(startingTimestamp="2600", startingOffsetsByTimestampStrategy="latest") == {A0: [(90, 100)]}
    with pytest.raises(BadOption, match="the start lies behind the end"):
        batch(startingTimestamp="2600", endingTimestamp="1000", startingOffsetsByTimestampStrategy="latest")


def test_a_batch_of_nothing_is_one_empty_task(cluster: FakeCluster):
    cluster.logs = {A0: (5, 5)}
    (only,) = BatchReader(read_options(BASE, is_streaming=False)).partitions()
    assert isinstance(only, ReadPartition)
    assert only.range is None
    assert pickle.loads(pickle.dumps(only)).range is None


def test_a_batch_is_cut_into_tasks(cluster: FakeCluster):
    assert sum(len(parts) for parts in batch(minPartitions="7").values()) == 7
    assert batch(maxRecordsPerPartition="50") == {A0: [(0, 50), (50, 100)], A1: [(10, 30)]}


def test_a_batch_that_asks_for_what_is_gone_fails_or_reads_the_rest(cluster: FakeCluster):
    wanted = {"startingOffsets": '{"a":{"0":0,"1":3}}', "endingOffsets": '{"a":{"0":120,"1":-1}}'}
    with pytest.raises(DataLost, match=r"a-0 ends at offset 100; offsets 100 to 119 are not there \(and 1 more"):
        batch(**wanted)
    assert batch(**wanted, failOnDataLoss="false") == {A0: [(0, 100)], A1: [(10, 30)]}


def test_what_an_open_transaction_holds_back_is_no_loss_to_a_batch(cluster: FakeCluster):
    cluster.stable = {A0: 80}
    written = {"startingOffsets": '{"a":{"0":0,"1":-2}}'}
    assert batch(**written, endingOffsets='{"a":{"0":100,"1":-1}}') == {A0: [(0, 100)], A1: [(10, 30)]}
    with pytest.raises(DataLost, match="a-0 ends at offset 100; offsets 100 to 100 are not there"):
        batch(**written, endingOffsets='{"a":{"0":101,"1":-1}}')
    assert batch(startingOffsets='{"a":{"0":90,"1":-2}}') == {A1: [(10, 30)]}
    with pytest.raises(BadOption, match="a-0 would start at offset 101 and end at 80"):
        batch(startingOffsets='{"a":{"0":101,"1":-2}}')


def test_a_batch_that_names_too_few_partitions_or_a_topic_that_is_not_there(cluster: FakeCluster):
    with pytest.raises(BadOption, match="startingOffsets leaves out a-1"):
        batch(startingOffsets='{"a":{"0":0}}')
    with pytest.raises(BadOption, match="nope is not there"):
        batch(subscribe="a,nope")
    with pytest.raises(BadOption, match="a-7 is not there"):
        BatchReader(
            read_options({"kafka.bootstrap.servers": "h:1", "assign": '{"a":[0,7]}'}, is_streaming=False)
        ).partitions()


def test_a_pattern_reads_the_topics_whose_whole_name_matches(cluster: FakeCluster):
    cluster.logs |= {B0: (0, 1), TopicPartition("ab", 0): (0, 1)}
    options = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "[ab]"}
    parts = BatchReader(read_options(options, is_streaming=False)).partitions()
    assert {part.range.at.topic for part in parts if isinstance(part, ReadPartition) and part.range} == {"a", "b"}


# Streams


def test_a_stream_starts_at_the_end_and_reads_what_comes(cluster: FakeCluster):
    reader = stream()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) is start
    cluster.logs[A0] = (0, 110)
    end = reader.latestOffset(start, ALL)
    assert ranges(reader, start, end) == {(A0, 100, 110)}
    again = json.loads(json.dumps(end))
    assert json.dumps(reader.latestOffset(again, ALL)) == json.dumps(end)


def test_a_restarted_stream_plans_the_same_batch(cluster: FakeCluster):
    reader = stream(startingOffsets="earliest", minPartitions="5")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    cluster.logs = {A0: (70, 500), A1: (10, 900)}
    other = stream(startingOffsets="latest", minPartitions="5")
    assert ranges(other, json.loads(json.dumps(start)), json.loads(json.dumps(end))) == ranges(reader, start, end)


def test_a_limit_is_shared_out_by_lag(cluster: FakeCluster):
    reader = stream(startingOffsets="earliest", maxOffsetsPerTrigger="12")
    assert reader.getDefaultReadLimit() == ReadMaxRows(12)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(12))
    assert ranges(reader, start, end) == {(A0, 0, 10), (A1, 10, 12)}
    assert ranges(reader, start, reader.latestOffset(start, ALL)) == {(A0, 0, 100), (A1, 10, 30)}


def test_a_batch_waits_for_enough_records_but_not_for_ever(cluster: FakeCluster, clock: Callable[[float], None]):
    reader = stream(startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="60s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(50)
    first = reader.latestOffset(reader.initialOffset(), limit)
    cluster.logs[A0] = (0, 140)
    assert reader.latestOffset(first, limit) is first
    cluster.logs[A0] = (0, 150)
    second = reader.latestOffset(first, limit)
    assert second is not first
    cluster.logs[A0] = (0, 151)
    assert reader.latestOffset(second, limit) is second
    clock(60)
    assert ranges(reader, second, reader.latestOffset(second, limit)) == {(A0, 150, 151)}


def test_an_idle_query_leaves_the_brokers_alone(cluster: FakeCluster, clock: Callable[[float], None]):
    reader = stream(latestOffsetCacheMs="200")
    start = reader.initialOffset()
    asked = cluster.questions
    for _ in range(10):
        clock(0.011)
        assert reader.latestOffset(start, ALL) is start
    assert cluster.questions == asked
    cluster.logs[A0] = (0, 101)
    clock(0.2)
    assert reader.latestOffset(start, ALL) is not start


def test_available_now_reads_to_where_the_ends_were(cluster: FakeCluster):
    # The last 20 are fewer than a batch should have, and no more will come.
    reader = stream(startingOffsets="earliest", minOffsetsPerTrigger="100", maxOffsetsPerTrigger="100")
    reader.prepareForTriggerAvailableNow()
    cluster.logs |= {A0: (0, 999), TopicPartition("a", 2): (0, 50)}
    start = reader.initialOffset()
    middle = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert ranges(reader, start, middle) == {(A0, 0, 83), (A1, 10, 26)}
    end = reader.latestOffset(middle, reader.getDefaultReadLimit())
    assert ranges(reader, middle, end) == {(A0, 83, 100), (A1, 26, 30)}
    assert reader.latestOffset(end, ReadMaxRows(100)) is end


def test_available_now_from_the_latest_offset_is_never_behind_its_own_end(cluster: FakeCluster):
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    cluster.logs[A0] = (0, 999)
    start = reader.initialOffset()
    assert start["a"] == {"0": 100, "1": 30}
    assert reader.latestOffset(start, ALL) is start


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_available_now_from_an_offset_written_since_is_no_loss(cluster: FakeCluster, isolation: str):
    reader = stream(startingOffsets='{"a":{"0":105,"1":30}}', **{"isolation.level": isolation})
    reader.prepareForTriggerAvailableNow()
    cluster.logs[A0] = (0, 110)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) is start


def test_new_partitions_and_topics_are_read_from_their_beginning(cluster: FakeCluster):
    reader = StreamReader(
        read_options(
            {
                "kafka.bootstrap.servers": "h:1",
                "subscribePattern": ".",
                "commit.group.id": "none",
                "latestOffsetCacheMs": "0",
            },
            is_streaming=True,
        )
    )
    start = reader.initialOffset()
    cluster.logs |= {TopicPartition("a", 2): (0, 4), B0: (0, 6)}
    end = reader.latestOffset(start, ALL)
    assert ranges(reader, start, end) == {(TopicPartition("a", 2), 0, 4), (B0, 0, 6)}


def test_a_topic_made_anew_fails_the_query_or_is_read_from_its_beginning(cluster: FakeCluster):
    start = stream().initialOffset()
    cluster.ids["a"] = NEW
    cluster.logs = {A0: (0, 500)}
    with pytest.raises(DataLost, match=r"topic a was deleted and made anew.*failOnDataLoss=false would go on"):
        stream().latestOffset(start, ALL)
    lenient = stream(failOnDataLoss="false")
    assert ranges(lenient, start, lenient.latestOffset(start, ALL)) == {(A0, 0, 500)}


def test_what_retention_removed_fails_the_query_or_is_left_out(cluster: FakeCluster):
    start = stream().initialOffset()
    cluster.logs[A0] = (150, 200)
    with pytest.raises(DataLost, match=r"offsets 100 to 149 \(50\) were removed unread"):
        stream().latestOffset(start, ALL)
    lenient = stream(failOnDataLoss="false")
    assert ranges(lenient, start, lenient.latestOffset(start, ALL)) == {(A0, 150, 200)}


def test_a_loss_is_believed_only_when_seen_again(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch):
    reader = stream()
    start = reader.initialOffset()
    real = cluster.list_offsets
    looks: list[int] = []

    def late(wanted, isolation):  # a leader that has just been elected and knows less than it will
        looks.append(1)
        return real(wanted, isolation) if len(looks) > 2 else dict.fromkeys(wanted, (0, -1))

    monkeypatch.setattr(cluster, "list_offsets", late)
    assert reader.latestOffset(start, ALL) is start
    assert len(looks) > 2


def test_standing_behind_an_open_transaction_is_no_loss(cluster: FakeCluster):
    start = stream(**{"isolation.level": "read_uncommitted"}).initialOffset()
    cluster.stable = {A0: 40}
    assert stream().latestOffset(start, ALL) is start
    cluster.stable = {}
    cluster.logs[A0] = (0, 130)
    reader = stream()
    assert ranges(reader, start, reader.latestOffset(start, ALL)) == {(A0, 100, 130)}


def test_a_start_outside_the_log_is_told(cluster: FakeCluster):
    with pytest.raises(BadOption, match="startingOffsets has 101 for a-0, whose offsets are 0 to 100"):
        stream(startingOffsets='{"a":{"0":101,"1":-1}}').initialOffset()
    with pytest.raises(DataLost, match="a-1 begins at offset 10; offsets 5 to 9 are gone"):
        stream(startingOffsets='{"a":{"0":1,"1":5}}').initialOffset()
    with pytest.raises(BadOption, match="nope is not there"):
        stream(subscribe="nope").initialOffset()


def test_the_latest_offset_of_a_busy_topic_is_a_start(cluster: FakeCluster):
    cluster.growth = 1
    reader = stream(startingOffsets='{"a":{"0":-1,"1":12}}')
    start = reader.initialOffset()
    assert start["a"]["0"] > 100
    assert start["a"]["1"] == 12
    assert ranges(reader, start, reader.latestOffset(start, ALL)) > set()


def test_a_start_in_an_open_transaction_is_kept(cluster: FakeCluster):
    cluster.stable = {A0: 40}
    reader = stream(startingOffsets='{"a":{"0":60,"1":-1}}')
    start = reader.initialOffset()
    assert start["a"]["0"] == 60
    assert reader.latestOffset(start, ALL) is start
    cluster.stable = {}
    assert ranges(reader, start, reader.latestOffset(start, ALL)) == {(A0, 60, 100)}


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_topic_deleted_between_two_questions_is_a_loss_and_no_accident(
    cluster: FakeCluster, clock: Callable[[float], None], is_frozen: bool
):
    cluster.logs[B0] = (0, 10)

    def reader_of(**options: str) -> StreamReader:
        reader = stream(subscribe="a,b", **options)
        if is_frozen:
            reader.prepareForTriggerAvailableNow()
        return reader

    start = stream(subscribe="a,b", startingOffsets="earliest").initialOffset()
    strict, lenient = reader_of(), reader_of(failOnDataLoss="false")
    cluster.deleted = {"b"}
    with pytest.raises(DataLost, match="b-0 is gone; what was not read from offset 0 on is lost"):
        strict.latestOffset(start, ALL)
    end = lenient.latestOffset(start, ALL)
    assert ranges(lenient, start, end) == {(A0, 0, 100), (A1, 10, 30)}
    assert lenient.latestOffset(end, ALL) is end


def test_a_topic_is_gone_when_brokers_have_said_so_for_a_while(
    cluster: FakeCluster, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
):
    start = stream(startingOffsets="earliest").initialOffset()
    real, logs, looks = cluster.topics, cluster.logs, iter(range(8))

    def topics_late(names: Sequence[str] | None) -> dict[str, TopicFacts | None]:
        # Brokers that have just started, and have not heard of topics for some seconds.
        cluster.logs = logs if next(looks, None) is None else {}
        return real(names)

    monkeypatch.setattr(cluster, "topics", topics_late)
    reader = stream()
    assert ranges(reader, start, reader.latestOffset(start, ALL)) == {(A0, 0, 100), (A1, 10, 30)}
    cluster.deleted = {"a"}
    with pytest.raises(DataLost, match="a-0 is gone"):
        reader.latestOffset(start, ALL)


def test_only_the_first_piece_of_a_partition_announces_the_query(cluster: FakeCluster):
    reader = StreamReader(
        read_options(
            {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "startingOffsets": "earliest", "minPartitions": "8"},
            is_streaming=True,
        )
    )
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    heralds = [part for part in reader.partitions(start, end) if isinstance(part, ReadPartition) and part.token]
    assert len(heralds) == 1
    assert heralds[0].token == end["@penstock"]["query"]
    assert heralds[0].range is not None
    assert heralds[0].range.start in (0, 10)
    # A run has a token of its own: the query may be called otherwise now.
    again = StreamReader(read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "a"}, is_streaming=True))
    tokens = {part.token for part in again.partitions(start, end) if isinstance(part, ReadPartition) and part.token}
    assert len(tokens) == 1
    assert tokens != {end["@penstock"]["query"]}


def test_a_restarted_query_says_once_that_a_topic_was_never_there(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
):
    start = stream().initialOffset()
    reader = stream(subscribe="a,typo")
    for _ in range(3):
        assert reader.latestOffset(start, ALL) is start
    assert [record.message for record in caplog.records] == [
        "typo is not there; it will be read from its beginning when it is"
    ]


def test_a_reader_goes_to_workers(cluster: FakeCluster):
    assert pickle.loads(pickle.dumps(stream()))
