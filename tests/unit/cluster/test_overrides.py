"""Set, delete, append and subtract, as Kafka's clients expect them."""

import pytest

from penstock.cluster.overrides import (
    ConfigChange,
    ConfigOp,
    ConfigResource,
    altered_configs,
    altered_quotas,
    replaced_configs,
)
from penstock.config.setting import Scope
from penstock.errors import InvalidConfig, InvalidRequest

TOPIC = ConfigResource(Scope.TOPIC, "orders")
USER = frozenset({("user", "eve")})


def test_set_and_delete_touch_what_they_name_and_nothing_else():
    stored = {"retention.ms": "5", "segment.ms": "7"}
    changes = [ConfigChange("retention.ms", ConfigOp.SET, "6"), ConfigChange("segment.ms", ConfigOp.DELETE)]
    assert altered_configs(TOPIC, stored, changes) == {"retention.ms": "6"}
    assert stored == {"retention.ms": "5", "segment.ms": "7"}


def test_append_starts_from_the_default_and_adds_what_is_not_there():
    append = [ConfigChange("cleanup.policy", ConfigOp.APPEND, "compact")]
    assert altered_configs(TOPIC, {}, append) == {"cleanup.policy": "delete,compact"}
    assert altered_configs(TOPIC, {"cleanup.policy": "compact"}, append) == {"cleanup.policy": "compact"}


def test_subtract_takes_items_away():
    subtract = [ConfigChange("cleanup.policy", ConfigOp.SUBTRACT, "delete")]
    assert altered_configs(TOPIC, {"cleanup.policy": "delete,compact"}, subtract) == {"cleanup.policy": "compact"}


def test_what_is_no_list_cannot_be_appended_to():
    with pytest.raises(InvalidConfig):
        altered_configs(TOPIC, {}, [ConfigChange("retention.ms", ConfigOp.APPEND, "5")])


def test_a_setting_named_twice_is_refused():
    twice = [ConfigChange("retention.ms", ConfigOp.SET, "5"), ConfigChange("retention.ms", ConfigOp.DELETE)]
    with pytest.raises(InvalidRequest):
        altered_configs(TOPIC, {}, twice)


@pytest.mark.parametrize("op", [ConfigOp.SET, ConfigOp.APPEND, ConfigOp.SUBTRACT])
def test_a_change_without_a_value_is_refused(op):
    with pytest.raises(InvalidRequest):
        altered_configs(TOPIC, {}, [ConfigChange("cleanup.policy", op, None)])


def test_a_setting_no_longer_known_can_be_deleted_but_not_set():
    stored = {"setting.of.an.older.version": "1"}
    assert altered_configs(TOPIC, stored, [ConfigChange("setting.of.an.older.version", ConfigOp.DELETE)]) == {}
    with pytest.raises(InvalidConfig):
        altered_configs(TOPIC, stored, [ConfigChange("setting.of.an.older.version", ConfigOp.SET, "2")])
    with pytest.raises(InvalidConfig):
        altered_configs(TOPIC, {}, [ConfigChange("setting.never.known", ConfigOp.DELETE)])


def test_a_value_without_measure_is_refused_before_it_is_parsed():
    with pytest.raises(InvalidConfig, match="longer than"):
        altered_configs(TOPIC, {}, [ConfigChange("cleanup.policy", ConfigOp.SET, "x" * 100_001)])


def test_replacing_drops_what_is_not_named_and_what_has_no_value():
    assert replaced_configs(TOPIC, {"retention.ms": "5", "segment.ms": None}) == {"retention.ms": "5"}
    with pytest.raises(InvalidConfig):
        replaced_configs(TOPIC, {"retention.ms": "soon"})


def test_quotas_change_one_by_one():
    stored = {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0}
    changed = altered_quotas(USER, stored, {"producer_byte_rate": None, "request_percentage": 1.5})
    assert changed == {"consumer_byte_rate": 6.0, "request_percentage": 1.5}


@pytest.mark.parametrize(
    ("entity", "changes"),
    [
        (frozenset(), {"producer_byte_rate": 1.0}),
        (frozenset({("group", "g")}), {"producer_byte_rate": 1.0}),
        (frozenset({("user", "a"), ("user", "b")}), {"producer_byte_rate": 1.0}),
        (frozenset({("user", "a"), ("ip", "10.0.0.1")}), {"connection_creation_rate": 1.0}),
        (frozenset({("ip", "10.0.0.1")}), {"producer_byte_rate": 1.0}),
        (USER, {"connection_creation_rate": 1.0}),
        (USER, {"no_such_quota": 1.0}),
        (USER, {"producer_byte_rate": 0.0}),
        (USER, {"producer_byte_rate": -1.0}),
        (USER, {"producer_byte_rate": float("nan")}),
        (USER, {"producer_byte_rate": float("inf")}),
    ],
)
def test_quotas_that_mean_nothing_are_refused(entity, changes):
    with pytest.raises(InvalidRequest):
        altered_quotas(entity, {}, changes)
