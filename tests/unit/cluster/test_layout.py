"""Keys that name people and clients come back as they were, whatever characters they hold."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.layout import Layout, decode, encode, parse_config_path, parse_quota_path

LAYOUT = Layout("test")
ENTITIES = st.dictionaries(
    st.sampled_from(["user", "client-id", "ip"]), st.one_of(st.none(), st.text(max_size=20)), min_size=1
).map(lambda named: frozenset(named.items()))


@given(ENTITIES)
def test_a_quota_entity_is_read_back_from_its_key(entity):
    family, rest = LAYOUT.split(LAYOUT.quota(entity))
    assert family == "quotas"
    assert parse_quota_path(rest) == entity


@given(st.sampled_from(["broker", "group"]), st.text(max_size=20))
def test_a_config_resource_is_read_back_from_its_key(kind, name):
    family, rest = LAYOUT.split(LAYOUT.config(kind, name))
    assert family == "configs"
    assert parse_config_path(rest) == (kind, name)


def test_a_user_named_like_the_stand_in_for_all_others_is_a_user():
    named, others = frozenset({("user", "<default>")}), frozenset({("user", None)})
    assert LAYOUT.quota(named) != LAYOUT.quota(others)


def test_one_cluster_never_sees_the_keys_of_another():
    assert LAYOUT.topic("orders") == "/penstock/test/topics/orders"
    assert LAYOUT.partition(UUID(int=1), 7) == "/penstock/test/partitions/00000000000000000000000000000001/7"
    with pytest.raises(AssertionError):
        LAYOUT.split("/penstock/testing/topics/orders")


def test_the_same_facts_make_the_same_bytes():
    assert encode({"b": 1, "a": [2]}) == encode({"a": (2,), "b": 1}) == b'{"a":[2],"b":1}'
    assert decode(encode({"ü": "☃"})) == {"ü": "☃"}
