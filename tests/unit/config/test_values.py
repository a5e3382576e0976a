"""Values of settings: what is taken, what is refused and with which words."""

import pytest

from penstock.config import SETTINGS, BrokerConfig, Kind, Scope, Setting, validate
from penstock.errors import ErrorCode, InvalidConfig


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "x"),
        ("retention.ms", ""),
        ("retention.ms", "1_000"),
        ("retention.ms", "1.5"),
        ("retention.ms", "\u0663"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "9" * 5000),
        ("retention.ms", "-2"),
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "1023"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("cleanup.policy", "delete,shred"),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", "delete,"),
        ("compression.type", "LZ4"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("message.timestamp.type", "createtime"),
        ("remote.storage.enable", "true"),
    ],
)
def test_a_bad_value_is_refused_with_the_setting_and_what_is_allowed(name: str, value: str):
    with pytest.raises(InvalidConfig) as refusal:
        validate(Scope.TOPIC, name, value)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert name in str(refusal.value)
    assert SETTINGS[Scope.TOPIC][name].allowed in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", " +5 "),
        ("preallocate", "TRUE"),
        ("cleanup.policy", "compact, delete"),
        ("cleanup.policy", ""),
        ("compression.gzip.level", "-1"),
        ("min.cleanable.dirty.ratio", "1"),
    ],
)
def test_a_value_kafka_takes_is_taken(name: str, value: str):
    validate(Scope.TOPIC, name, value)


def test_an_unknown_name_is_answered_with_the_nearest_right_one():
    with pytest.raises(InvalidConfig, match=r"did you mean cleanup\.policy\?"):
        validate(Scope.TOPIC, "clean.policy", "delete")
    with pytest.raises(InvalidConfig, match=r"did you mean log\.retention\.ms\?"):
        BrokerConfig({"log.retenton.ms": "1"})


def test_a_topics_name_given_to_a_broker_is_answered_with_the_brokers_name_for_it():
    with pytest.raises(InvalidConfig, match=r"one of topics; its default for all topics is log\.segment\.bytes"):
        BrokerConfig({"segment.bytes": "1048576"})
    with pytest.raises(InvalidConfig, match=r"for a topic it is retention\.ms"):
        validate(Scope.TOPIC, "log.retention.hours", "1")


def test_a_name_of_a_megabyte_is_refused_with_a_short_answer():
    with pytest.raises(InvalidConfig) as refusal:
        validate(Scope.TOPIC, "x" * 1_000_000, "1")
    assert len(str(refusal.value)) < 400


def test_all_that_is_wrong_at_start_is_told_at_once():
    with pytest.raises(InvalidConfig) as refusal:
        BrokerConfig({"node.id": "one", "log.dir": "here", "num.partitions": "0"})
    assert [name for name in ("node.id", "log.dir", "num.partitions") if name in str(refusal.value)] == [
        "node.id",
        "log.dir",
        "num.partitions",
    ]


def test_values_right_alone_and_wrong_together_are_refused():
    with pytest.raises(
        InvalidConfig, match=r"min\.compaction\.lag\.ms \(5\) is more than max\.compaction\.lag\.ms \(4\)"
    ):
        BrokerConfig().check_topic({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    with pytest.raises(InvalidConfig, match=r"group\.min\.session"):
        BrokerConfig({"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "9"})
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms"):
        BrokerConfig({"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"})


def test_a_secret_that_fails_its_check_does_not_come_back_in_the_error():
    secret = Setting(
        name="x.password", kind=Kind.PASSWORD, default=None, doc="", sensitive=True, check=lambda _: "too short"
    )
    with pytest.raises(InvalidConfig) as refusal:
        secret.parse("hunter2")
    assert "hunter2" not in str(refusal.value)
