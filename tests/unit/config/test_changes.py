"""Changes of settings over the wire: what may be changed, for whom, and how lists grow and shrink."""

import pytest

from penstock.config import Scope, append_items, subtract_items, validate_change
from penstock.errors import InvalidConfig


def test_a_read_only_setting_cannot_be_changed_over_the_wire():
    for resource in ("", "1"):
        with pytest.raises(InvalidConfig, match="read-only"):
            validate_change(Scope.BROKER, resource, "log.dirs", "/etc")
        with pytest.raises(InvalidConfig, match="read-only"):
            validate_change(Scope.BROKER, resource, "log.dirs", None)


def test_a_setting_of_single_brokers_cannot_be_given_to_all():
    validate_change(Scope.BROKER, "1", "leader.replication.throttled.rate", "5")
    with pytest.raises(InvalidConfig, match="one broker at a time"):
        validate_change(Scope.BROKER, "", "leader.replication.throttled.rate", "5")


def test_taking_away_a_setting_needs_its_name_only():
    validate_change(Scope.TOPIC, "orders", "retention.ms", None)
    with pytest.raises(InvalidConfig, match="did you mean"):
        validate_change(Scope.TOPIC, "orders", "retention.mss", None)


def test_items_are_added_to_and_taken_from_lists_only():
    assert append_items(Scope.TOPIC, "cleanup.policy", None, "compact") == "delete,compact"
    assert append_items(Scope.TOPIC, "cleanup.policy", "compact", "compact") == "compact"
    assert subtract_items(Scope.TOPIC, "cleanup.policy", "compact,delete", "delete, other") == "compact"
    for change in (append_items, subtract_items):
        with pytest.raises(InvalidConfig, match="not a list"):
            change(Scope.TOPIC, "retention.ms", "1", "2")
