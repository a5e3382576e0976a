"""What clients are shown of settings: values, where they come from, what is read-only, and never a secret."""

import pytest
from tests.unit.config.entries import entry_of

from penstock.config import (
    SETTINGS,
    BrokerConfig,
    ConfigSource,
    Kind,
    Scope,
    Setting,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_topic,
)
from penstock.config import describe as describe_module


def test_a_list_is_shown_in_the_order_it_was_set():
    shown = entry_of(describe_topic(BrokerConfig(), {"cleanup.policy": "delete, compact"}), "cleanup.policy")
    assert (shown.value, shown.source, shown.type_code) == ("delete,compact", ConfigSource.DYNAMIC_TOPIC, 7)


def test_a_topics_entry_lists_every_place_that_sets_it_the_one_in_force_first():
    config = BrokerConfig({"log.retention.hours": "1"})
    config.change_dynamic({"log.retention.ms": "5"}, {"log.retention.ms": "6"})
    shown = entry_of(describe_topic(config, {"retention.ms": "7"}), "retention.ms")
    assert [(s.name, s.value, s.source) for s in shown.synonyms] == [
        ("retention.ms", "7", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.ms", "6", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    assert not shown.read_only


@pytest.mark.parametrize(
    ("static", "cluster", "value", "source"),
    [
        ({}, {}, "604800000", ConfigSource.DEFAULT),
        ({"log.retention.minutes": "1"}, {}, "60000", ConfigSource.STATIC_BROKER),
        ({"log.retention.minutes": "1"}, {"log.retention.ms": "2"}, "2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
    ],
)
def test_a_topics_value_and_source_follow_the_broker(
    static: dict[str, str], cluster: dict[str, str], value: str, source: ConfigSource
):
    config = BrokerConfig(static)
    config.change_dynamic(cluster, {})
    shown = entry_of(describe_topic(config, {}), "retention.ms")
    assert (shown.value, shown.source) == (value, source)
    assert int(value) == config.topic_defaults.retention_ms


def test_only_the_names_asked_for_are_shown():
    names = [entry.name for entry in describe_topic(BrokerConfig(), {}, ["retention.ms", "no.such", "cleanup.policy"])]
    assert names == ["cleanup.policy", "retention.ms"]
    assert describe_broker(BrokerConfig(), []) == []


def test_a_brokers_entries_say_what_is_read_only_and_what_is_unset():
    entries = describe_broker(BrokerConfig({"node.id": "4"}))
    node = entry_of(entries, "node.id")
    assert (node.value, node.source, node.read_only) == ("4", ConfigSource.STATIC_BROKER, True)
    unset = entry_of(entries, "log.retention.ms")
    assert (unset.value, unset.source, unset.read_only, unset.synonyms) == (None, ConfigSource.DEFAULT, False, ())
    assert len(entries) == len(SETTINGS[Scope.BROKER])


def test_the_cluster_resource_shows_what_was_set_for_all_brokers_and_nothing_else():
    (shown,) = describe_cluster({"log.retention.ms": "5"})
    assert (shown.name, shown.value, shown.source) == ("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_a_sensitive_value_is_never_shown(monkeypatch: pytest.MonkeyPatch):
    secret = Setting(name="x.password", kind=Kind.PASSWORD, default=None, doc="", scope=Scope.GROUP, sensitive=True)
    monkeypatch.setattr(describe_module, "GROUP_SETTINGS", {"x.password": secret})
    (shown,) = describe_group(BrokerConfig(), {"x.password": "hunter2"})
    assert shown.is_sensitive
    assert "hunter2" not in repr(shown)


def test_a_brokers_settings_do_not_show_in_a_repr():
    assert "127.0.0.1" not in repr(BrokerConfig())
