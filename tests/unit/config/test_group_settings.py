"""Settings of consumer groups: a group's own over the broker's, and within the limits of the broker."""

import pytest
from tests.unit.config.entries import entry_of

from penstock.config import BrokerConfig, ConfigSource, describe_group
from penstock.errors import InvalidConfig


def test_a_groups_entries_show_its_own_values_over_the_defaults():
    entries = describe_group(BrokerConfig(), {"consumer.session.timeout.ms": "9000"})
    own = entry_of(entries, "consumer.session.timeout.ms")
    assert (own.value, own.source) == ("9000", ConfigSource.GROUP)
    assert entry_of(entries, "share.auto.offset.reset").source is ConfigSource.DEFAULT


def test_a_group_without_values_of_its_own_has_the_brokers():
    broker = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    shown = entry_of(describe_group(broker, {}), "consumer.session.timeout.ms")
    assert (shown.value, shown.source) == ("50000", ConfigSource.STATIC_BROKER)
    assert broker.group({}).consumer_session_timeout_ms == 50_000
    own = {"consumer.session.timeout.ms": "55000", "a.newer.setting": "1"}
    assert broker.group(own).consumer_session_timeout_ms == 55_000


def test_a_groups_values_stay_within_limits_that_came_later():
    broker = BrokerConfig()
    group = broker.group({"consumer.session.timeout.ms": "61000", "consumer.heartbeat.interval.ms": "100"})
    assert (group.consumer_session_timeout_ms, group.consumer_heartbeat_interval_ms) == (60_000, 5_000)


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("consumer.session.timeout.ms", "44999", "group.consumer.min.session.timeout.ms"),
        ("consumer.session.timeout.ms", "60001", "group.consumer.max.session.timeout.ms"),
        ("consumer.heartbeat.interval.ms", "4999", "group.consumer.min.heartbeat.interval.ms"),
        ("consumer.heartbeat.interval.ms", "15001", "group.consumer.max.heartbeat.interval.ms"),
    ],
)
def test_a_group_may_not_ask_for_more_than_the_broker_allows(name: str, value: str, limit: str):
    with pytest.raises(InvalidConfig, match=limit):
        BrokerConfig().check_group({name: value})
    BrokerConfig().check_group({"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": "15000"})


def test_a_session_must_outlast_a_heartbeat():
    wide = {"group.consumer.min.session.timeout.ms": "1"}
    with pytest.raises(InvalidConfig, match="time out between two reports"):
        BrokerConfig(wide).check_group({"consumer.session.timeout.ms": "5000"})
    with pytest.raises(InvalidConfig, match="time out between two reports"):
        BrokerConfig({**wide, "group.consumer.session.timeout.ms": "5000"})


def test_the_brokers_own_times_for_groups_lie_within_its_limits():
    with pytest.raises(InvalidConfig, match=r"group\.consumer\.min\.session"):
        BrokerConfig({"group.consumer.session.timeout.ms": "9000"})
    with pytest.raises(InvalidConfig, match=r"group\.consumer\.max\.heartbeat"):
        BrokerConfig({"group.consumer.heartbeat.interval.ms": "20000"})


def test_a_broker_needs_an_assignor():
    with pytest.raises(InvalidConfig, match="needs an assignor"):
        BrokerConfig({"group.consumer.assignors": ""})
    assert BrokerConfig({"group.consumer.assignors": "range"}).group_consumer_assignors == ("range",)
