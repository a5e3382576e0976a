"""Positions as text, in a checkpoint of ours or of Spark's own source."""

import json
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import TopicPartition
from penstock.spark.offsets import BadPosition, Position, parse_assignment, parse_per_partition

topics = st.text("abcXYZ019._-", min_size=1, max_size=12)
per_partition = st.dictionaries(st.builds(TopicPartition, topics, st.integers(0, 200)), st.integers(0, 1 << 62))
positions = st.builds(
    Position,
    per_partition,
    st.dictionaries(topics, st.uuids()),
    per_partition,
    st.text("0123456789abcdef", max_size=32),
)


@settings(deadline=None)
@given(positions)
def test_a_position_comes_back_from_its_text_and_equal_ones_have_equal_text(position):
    text = json.dumps(position.to_json())
    assert Position.from_json(json.loads(text)) == position
    shuffled = Position(
        dict(reversed(position.offsets.items())),
        dict(reversed(position.topic_ids.items())),
        dict(reversed(position.begins.items())),
        position.query,
    )
    assert json.dumps(shuffled.to_json()) == text


def test_a_checkpoint_of_sparks_own_source_is_read():
    position = Position.from_json({"orders": {"10": 7, "2": 5}, "x": {"0": 1}})
    assert position.offsets == {
        TopicPartition("orders", 2): 5,
        TopicPartition("orders", 10): 7,
        TopicPartition("x", 0): 1,
    }
    assert json.dumps(position.to_json()) == '{"orders": {"2": 5, "10": 7}, "x": {"0": 1}}'


def test_the_text_is_sparks_own_with_one_more_key():
    position = Position({TopicPartition("orders", 0): 5}, {"orders": UUID(int=1)}, query="abc")
    assert position.to_json() == {
        "@penstock": {"ids": {"orders": "00000000-0000-0000-0000-000000000001"}, "query": "abc"},
        "orders": {"0": 5},
    }


@pytest.mark.parametrize("value", [[1], "no", {"orders": 5}, {"orders": {"x": 1}}, {"@penstock": 3}, 7])
def test_a_checkpoint_of_another_source_is_refused_in_one_sentence(value):
    with pytest.raises(BadPosition, match="another source"):
        Position.from_json(value)


def test_offsets_per_partition_are_parsed_and_mistakes_are_named():
    assert parse_per_partition("startingOffsets", '{"a":{"0":23,"1":-2}}', -2) == {
        TopicPartition("a", 0): 23,
        TopicPartition("a", 1): -2,
    }
    for bad in (
        "",
        "earliset",
        "[]",
        "{}",
        '{"a":{}}',
        '{"a":[0]}',
        '{"a":{"x":1}}',
        '{"a":{"0":-3}}',
        '{"a":{"0":true}}',
    ):
        with pytest.raises(ValueError, match="startingOffsets must be JSON like"):
            parse_per_partition("startingOffsets", bad, -2)


def test_an_assignment_is_parsed_and_mistakes_are_named():
    assert parse_assignment('{"a":[0,2]}') == {TopicPartition("a", 0), TopicPartition("a", 2)}
    for bad in ("", "a", "[]", "{}", '{"a":[]}', '{"a":0}', '{"a":["0"]}', '{"a":[-1]}'):
        with pytest.raises(ValueError, match="assign must be JSON like"):
            parse_assignment(bad)
