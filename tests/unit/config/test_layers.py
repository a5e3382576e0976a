"""Which layer wins: the topic, this broker, the cluster, the file, the default; and what is never obeyed."""

from pathlib import Path

import pytest
from tests.unit.config.entries import entry_of

from penstock.config import BrokerConfig, ConfigSource, describe_topic
from penstock.errors import InvalidConfig


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
    ],
)
def test_the_finer_unit_of_retention_wins(static: dict[str, str], retention_ms: int):
    assert BrokerConfig(static).topic_defaults.retention_ms == retention_ms


def test_a_topics_own_setting_wins_over_the_brokers():
    config = BrokerConfig({"log.segment.bytes": "2000000", "log.roll.hours": "1"})
    topic = config.topic({"segment.bytes": "3000000"})
    assert (topic.segment_bytes, topic.segment_ms) == (3_000_000, 3_600_000)
    assert config.topic({}) is config.topic_defaults


def test_this_brokers_dynamic_setting_wins_over_the_clusters_and_that_over_the_file():
    config = BrokerConfig({"log.retention.ms": "1", "message.max.bytes": "1000"})
    assert config.change_dynamic({"log.retention.ms": "2", "message.max.bytes": "2000"}, {"log.retention.ms": "3"}) == {
        "log.retention.ms",
        "message.max.bytes",
    }
    assert (config.topic_defaults.retention_ms, config.topic_defaults.max_message_bytes) == (3, 2000)
    assert config.change_dynamic({"log.retention.ms": "2"}, {}) == {"log.retention.ms", "message.max.bytes"}
    assert (config.topic_defaults.retention_ms, config.topic_defaults.max_message_bytes) == (2, 1000)
    assert config.change_dynamic({"log.retention.ms": "2"}, {}) == frozenset()
    assert config.change_dynamic({}, {}) == {"log.retention.ms"}
    assert config.log_retention_ms == 1


def test_a_read_only_setting_found_in_the_metadata_is_not_obeyed():
    config = BrokerConfig()
    assert config.change_dynamic({"log.dirs": "/etc"}, {"listeners": "evil.example:1"}) == frozenset()
    assert config.data_dir == Path("penstock-data")
    assert config.listen.host == "127.0.0.1"


def test_stored_settings_of_another_version_are_left_out_and_the_rest_is_obeyed():
    config = BrokerConfig()
    stored = {"a.newer.setting": "1", "segment.bytes": "huge", "retention.ms": "5"}
    assert config.topic(stored).retention_ms == 5
    assert config.topic(stored).segment_bytes == 1 << 30
    assert entry_of(describe_topic(config, stored), "segment.bytes").source is ConfigSource.DEFAULT
    assert config.change_dynamic({"a.newer.setting": "1", "log.segment.bytes": "huge"}, {}) == frozenset()
    with pytest.raises(InvalidConfig):
        config.check_topic({"a.newer.setting": "1"})
