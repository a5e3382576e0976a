"""Options as users write them: all of Spark's names and meanings, and mistakes told in one sentence."""

import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from penstock.model import TopicPartition
from penstock.spark.bounds import EARLIEST_OFFSET, LATEST_OFFSET
from penstock.spark.errors import BadOption
from penstock.spark.fetching.connection import REPLY_BYTES_MAX
from penstock.spark.option_table import OPTIONS
from penstock.spark.options import ReadOptions, read_options, write_options
from penstock.spark.subscription import compile_pattern

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def stream(**more: str) -> ReadOptions:
    return read_options(BASE | more, is_streaming=True)


def batch(**more: str) -> ReadOptions:
    return read_options(BASE | more, is_streaming=False)


def test_defaults_are_sparks_but_for_isolation():
    found = stream()
    assert found.start.everywhere == LATEST_OFFSET
    assert batch().start.everywhere == EARLIEST_OFFSET
    assert batch().end.everywhere == LATEST_OFFSET
    assert found.isolation == "read_committed"
    assert found.fail_on_data_loss
    assert not found.include_headers
    assert found.max_trigger_delay_s == 900
    assert (found.retries, found.retry_interval_s, found.poll_timeout_s) == (3, 0.01, 120)
    assert found.commit_group is None
    assert found.subscription.names == ("orders",)


def test_names_count_whatever_their_case_as_spark_hands_them_over():
    given = CaseInsensitiveDict(
        {"Kafka.Bootstrap.Servers": "h:1", "SUBSCRIBEPATTERN": "or.*", "maxOffsetsPerTrigger": "5"}
    )
    assert "maxoffsetspertrigger" in dict(given)
    found = read_options(given, is_streaming=True)
    assert found.connection.bootstrap == (("h", 1),)
    assert found.subscription.pattern == "or.*"
    assert found.max_offsets_per_trigger == 5


def test_a_time_wins_over_times_and_those_over_offsets():
    each = '{"orders":{"0":5}}'
    everything = {"startingTimestamp": "7", "startingOffsetsByTimestamp": each, "startingOffsets": "earliest"}
    assert (stream(**everything).start.everywhere, stream(**everything).start.is_time) == (7, True)
    del everything["startingTimestamp"]
    assert stream(**everything).start.each == {TopicPartition("orders", 0): 5}
    assert stream(**everything).start.is_time
    del everything["startingOffsetsByTimestamp"]
    assert stream(**everything).start.everywhere == EARLIEST_OFFSET


def test_what_is_parsed_goes_to_workers_whole_and_shows_no_secret():
    secret = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "someone",
        "kafka.sasl.password": "hunter2",
        "kafka.ssl.key.password": "hunter3",
        "kafka.ssl.keystore.key": "-----BEGIN hunter4",
        "kafka.ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE",
    }
    for found in (stream(**secret), write_options({"kafka.bootstrap.servers": "h:1", "topic": "t"} | secret)):
        assert pickle.loads(pickle.dumps(found)) == found
        assert found.connection.password == "hunter2"
        assert found.librdkafka["sasl.password"] == "hunter2"
        assert "hunter" not in repr(found)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"startingOffset": "earliest"}, "unknown option startingOffset: did you mean startingOffsets?"),
        ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger?"),
        ({"value.fromat": "json"}, "did you mean value.format?"),
        ({"kafka.secruity.protocol": "SSL"}, "did you mean kafka.security.protocol?"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset is not supported: set startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer is not supported"),
        ({"kafka.value.deserializer": "x"}, "kafka.value.deserializer is not supported"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit is not supported"),
        ({"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes is not supported"),
        ({"assign": '{"a":[0]}'}, "one of subscribe, subscribePattern, assign is needed, not subscribe and assign"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"endingOffsets": "latest"}, "endingOffsets is for batches"),
        ({"endingTimestamp": "5"}, "endingTimestamp is for batches"),
        ({"startingTimestamp": "today"}, "startingTimestamp is today; it must be a number of milliseconds"),
        ({"startingTimestamp": "9" * 20}, "it must be a number of milliseconds"),
        (
            {"startingOffsetsByTimestamp": '{"orders":{"0":%s}}' % ("9" * 20)},
            "the largest number is 9223372036854775807",
        ),
        ({"startingOffsets": '{"orders":{"0":%s}}' % ("9" * 20)}, "the largest number is 9223372036854775807"),
        ({"startingOffsets": "earliset"}, "startingOffsets must be JSON like"),
        ({"startingOffsetsByTimestampStrategy": "maybe"}, "is maybe; there are error, latest"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss is yes; there are true, false"),
        ({"minPartitions": "0"}, "minPartitions is 0; it must be a whole number of at least 1"),
        ({"maxOffsetsPerTrigger": "-5"}, "maxOffsetsPerTrigger is -5"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger 9 is above"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is soon; write a duration such as 30s"),
        ({"isolation.level": "committed"}, "isolation.level is committed; there are read_committed, read_uncommitted"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is needed"),
    ],
)
def test_a_mistake_in_a_stream_is_told(more: dict[str, str], said: str):
    with pytest.raises(BadOption) as told:
        stream(**more)
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "startingOffsets cannot be latest (-1) for orders-0"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest in a batch"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "endingOffsets cannot be earliest (-2) for orders-0"),
        (
            {"startingOffsets": '{"orders":{"0":9}}', "endingOffsets": '{"orders":{"0":5}}'},
            "orders-0 would start at 9 and end at 5",
        ),
        (
            {"startingOffsets": '{"orders":{"0":1}}', "endingOffsets": '{"orders":{"0":5,"1":5}}'},
            "must name the same partitions",
        ),
    ],
)
def test_a_mistake_in_a_batch_is_told(more: dict[str, str], said: str):
    with pytest.raises(BadOption) as told:
        batch(**more)
    assert said in str(told.value)


def test_no_option_at_all_asks_for_the_brokers_or_a_topic():
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers is needed"):
        read_options({"subscribe": "a"}, is_streaming=True)
    with pytest.raises(BadOption, match="one of subscribe, subscribePattern, assign is needed"):
        read_options({"kafka.bootstrap.servers": "h:1"}, is_streaming=True)


def test_a_bad_pattern_is_told_and_a_java_pattern_understood():
    with pytest.raises(BadOption, match="is not a regular expression"):
        read_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": "(a"}, is_streaming=True)
    pattern = compile_pattern(r"(?!internal)(?<kind>orders|bills)-\d++")
    assert pattern.fullmatch("orders-12")
    assert not pattern.fullmatch("orders-12x"), "a pattern matches whole names"
    assert not compile_pattern("orders").fullmatch("orders-1")


@pytest.mark.parametrize(
    ("more", "group"),
    [
        ({}, None),
        ({"queryName": "daily"}, "spark-daily"),
        # Named for its ACLs, and perhaps the group of others: Spark's own source never commits to it.
        ({"kafka.group.id": "mine"}, None),
        ({"queryName": "daily", "kafka.group.id": "mine"}, "spark-daily"),
        ({"kafka.group.id": "mine", "commit.group.id": "theirs"}, "theirs"),
        ({"commit.group.id": "None"}, "none"),
    ],
)
def test_the_group_that_shows_lag(more: dict[str, str], group: str | None):
    assert stream(**more).commit_group == group


def test_isolation_in_both_spellings():
    assert stream(**{"kafka.isolation.level": "read_uncommitted"}).isolation == "read_uncommitted"
    assert stream(**{"isolation.level": "read_uncommitted"}).isolation == "read_uncommitted"


def test_no_more_is_fetched_at_a_time_than_a_reply_can_hold():
    assert stream(**{"kafka.max.partition.fetch.bytes": "1000"}).fetch_bytes == 1000
    assert stream(**{"kafka.max.partition.fetch.bytes": "2000000000"}).fetch_bytes == 256 << 20 < REPLY_BYTES_MAX


def test_durations():
    assert stream(maxTriggerDelay="30s").max_trigger_delay_s == 30
    assert stream(maxTriggerDelay="2 h").max_trigger_delay_s == 7200
    assert stream(maxTriggerDelay="250").max_trigger_delay_s == 0.25


def test_what_has_no_meaning_here_is_accepted():
    assert stream(groupIdPrefix="x", **{"kafka.max.poll.records": "500", "kafka.some.future.setting": "1"})
    assert batch(maxOffsetsPerTrigger="5")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.gzip.level", "6"),
        ("compression.lz4.level", "9"),
        ("compression.zstd.level", "3"),
        ("fetch.wait.max.ms", "100"),
        ("message.copy.max.bytes", "65535"),
        ("reconnect.backoff.jitter.ms", "100"),
        ("socket.receive.buffer.bytes", "65536"),
        ("socket.send.buffer.bytes", "65536"),
    ],
)
def test_names_that_exist_are_no_slips_of_the_pen(name: str, value: str):
    assert stream(**{f"kafka.{name}": value})
    assert write_options({"kafka.bootstrap.servers": "h:1", f"kafka.{name}": value})


def test_write_options():
    found = write_options(
        {
            "kafka.bootstrap.servers": "h:1",
            "topic": " t ",
            "checkpointLocation": "/c",
            "queryName": "q",
            "kafka.linger.ms": "5",
        }
    )
    assert (found.topic, found.delivery, found.query_name) == ("t", "exactly-once", "q")
    assert found.librdkafka["linger.ms"] == "5"
    with pytest.raises(BadOption, match="delivery is twice; there are exactly-once, at-least-once"):
        write_options({"kafka.bootstrap.servers": "h:1", "delivery": "twice"})
    with pytest.raises(BadOption, match=r"kafka\.key\.serializer is not supported"):
        write_options({"kafka.bootstrap.servers": "h:1", "kafka.key.serializer": "x"})


def test_every_option_is_described_once():
    names = [option.name.lower() for option in OPTIONS]
    assert len(set(names)) == len(names)
    assert all(option.doc.endswith(".") or option.doc.endswith("}") for option in OPTIONS)
