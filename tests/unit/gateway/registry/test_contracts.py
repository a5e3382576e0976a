"""Contracts of several layers made one, and what is refused before it could be merged."""

from typing import Any

import pytest

from penstock.gateway.registry.contracts import (
    CONTRACT_BYTES_MAX,
    RULES_MAX,
    checked_metadata,
    checked_rule_set,
    merged_metadata,
    merged_rule_set,
)
from penstock.gateway.registry.refusals import Refusal


def test_later_metadata_wins_by_property_and_adds_tags_and_sensitive_names() -> None:
    default = {"tags": {"a": ["X"], "b": ["Y"]}, "properties": {"k": "1", "l": "1"}, "sensitive": ["k"]}
    own = {"tags": {"a": ["Z", "X"], "c": ["W"]}, "properties": {"l": "2"}, "sensitive": ["l", "k"], "other": 1}
    assert merged_metadata(None, default, None, own, {"tags": None, "properties": {}}) == {
        "tags": {"a": ["X", "Z"], "b": ["Y"], "c": ["W"]},
        "properties": {"k": "1", "l": "2"},
        "sensitive": ["k", "l"],
    }
    assert default["tags"] == {"a": ["X"], "b": ["Y"]}, "what is merged stays as it was"
    assert merged_metadata(None, own) == own
    assert merged_metadata(None, None) is None


def test_a_later_rule_takes_the_place_of_one_of_its_name_in_its_list() -> None:
    default = {"domainRules": [{"name": "r", "expr": "1"}, {"name": "s"}], "migrationRules": [{"name": "r"}]}
    own = {"domainRules": [{"name": "r", "expr": "2"}], "encodingRules": [{"name": "e"}]}
    assert merged_rule_set(default, None, own) == {
        "domainRules": [{"name": "s"}, {"name": "r", "expr": "2"}],
        "migrationRules": [{"name": "r"}],
        "encodingRules": [{"name": "e"}],
    }
    assert merged_rule_set() is None


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ([], "JSON object of at most"),
        ({"properties": {"k": "x" * CONTRACT_BYTES_MAX}}, "JSON object of at most"),
        ({"tags": ["x"]}, "metadata.tags"),
        ({"tags": {"x": None}}, "metadata.tags"),
        ({"tags": {"x": [["y"]]}}, "metadata.tags"),
        ({"properties": {"k": 1}}, "metadata.properties"),
        ({"sensitive": {"k": 1}}, "metadata.sensitive"),
        ({"sensitive": [{"k": 1}]}, "metadata.sensitive"),
    ],
)
def test_metadata_of_another_shape_is_refused_by_name(metadata: Any, named: str) -> None:
    with pytest.raises(Refusal, match=named):
        checked_metadata(metadata)


@pytest.mark.parametrize(
    ("rule_set", "named"),
    [
        ("x", "JSON object of at most"),
        ({"domainRules": {}}, "domainRules is to be a list"),
        ({"domainRules": [{"name": str(number)} for number in range(RULES_MAX + 1)]}, f"at most {RULES_MAX} rules"),
        ({"migrationRules": [{"kind": "TRANSFORM"}]}, "an object with a name"),
        ({"migrationRules": ["r"]}, "an object with a name"),
        ({"encodingRules": [{"name": "r"}, {"name": "r"}]}, "'r' stands twice in encodingRules"),
    ],
)
def test_rules_of_another_shape_are_refused_by_name(rule_set: Any, named: str) -> None:
    with pytest.raises(Refusal, match=named):
        checked_rule_set(rule_set)


def test_what_is_nested_too_deeply_to_be_kept_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"x": deep}
    for check in (checked_metadata, checked_rule_set):
        with pytest.raises(Refusal, match="JSON object of at most"):
            check(deep)


def test_what_is_null_or_left_out_is_not_given() -> None:
    assert checked_metadata(None) is None
    assert checked_rule_set(None) is None
    assert checked_metadata({"tags": None, "sensitive": None, "note": 1}) == {
        "tags": None,
        "sensitive": None,
        "note": 1,
    }
    assert checked_rule_set({"domainRules": None}) == {"domainRules": None}
