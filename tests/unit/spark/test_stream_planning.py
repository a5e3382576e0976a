"""What a stream reads next, against everything a cluster can do to its topics in between."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import TopicPartition
from penstock.spark.offsets import Position
from penstock.spark.stream_planning import OtherSource, Step, View, next_step, plan_ranges

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OLD, NEW = UUID(int=1), UUID(int=2)


def step(
    start: Position, view: View, earliest: dict[TopicPartition, int] | None = None, limit: int | None = None
) -> Step:
    first = earliest or {}
    return next_step(
        start, view, lambda asked: {at: first.get(at, 0) for at in asked}, lambda at: at.topic != "left", limit
    )


def planned(start: Position, end: Position) -> dict[TopicPartition, tuple[int, int]]:
    return {one.at: (one.start, one.end) for one in plan_ranges(start, end)}


def test_with_nothing_new_the_very_same_position_comes_back():
    start = Position({A0: 5}, {"a": OLD}, begins={A0: 2}, query="q")
    assert step(start, View({A0: 5}, {"a": OLD})).position is start


def test_an_old_checkpoint_without_ids_makes_no_empty_batch():
    start = Position({A0: 5})
    assert step(start, View({A0: 5}, {"a": OLD})).position is start


def test_new_records_are_read_and_ids_and_the_token_kept():
    start = Position({A0: 5}, {"a": OLD}, begins={A0: 2}, query="q")
    found = step(start, View({A0: 9}, {"a": OLD}))
    assert found == Step(Position({A0: 9}, {"a": OLD}, query="q"), (), 4)
    assert planned(start, found.position) == {A0: (5, 9)}


def test_a_new_partition_starts_at_its_first_offset_even_while_empty():
    start = Position({A0: 5}, {"a": OLD})
    found = step(start, View({A0: 5, A1: 0}, {"a": OLD}))
    assert found.position.offsets == {A0: 5, A1: 0}
    assert not found.losses
    again = step(found.position, View({A0: 5, A1: 3}, {"a": OLD}))
    assert planned(found.position, again.position) == {A1: (0, 3)}


def test_a_topic_added_later_starts_where_its_log_does_without_an_alarm():
    start = Position({A0: 5}, {"a": OLD})
    found = step(start, View({A0: 5, B0: 50}, {"a": OLD, "b": NEW}), {B0: 40})
    assert not found.losses
    assert planned(start, found.position) == {B0: (40, 50)}


def test_a_new_partition_that_retention_has_cut_already_is_a_loss():
    start = Position({A0: 5}, {"a": OLD})
    found = step(start, View({A0: 5, A1: 9}, {"a": OLD}), {A1: 4})
    assert found.losses == ("a-1 begins at offset 4 now: offsets 0 to 3 (4) were removed unread",)
    assert planned(start, found.position) == {A1: (4, 9)}


def test_what_retention_removed_is_counted_and_left_behind_whatever_the_limit():
    start = Position({A0: 100}, {"a": OLD})
    found = step(start, View({A0: 1_000_020}, {"a": OLD}), {A0: 1_000_000}, limit=10)
    assert found.losses == ("a-0 begins at offset 1000000 now: offsets 100 to 999999 (999900) were removed unread",)
    assert planned(start, found.position) == {A0: (1_000_000, 1_000_010)}


def test_when_all_is_gone_the_query_stands_at_the_end():
    start = Position({A0: 100}, {"a": OLD})
    found = step(start, View({A0: 200}, {"a": OLD}), {A0: 200})
    assert len(found.losses) == 1
    assert found.position.offsets == {A0: 200}
    assert planned(start, found.position) == {}
    assert step(found.position, View({A0: 200}, {"a": OLD})).position is found.position


def test_a_topic_made_anew_is_known_by_its_id_and_read_from_its_beginning():
    start = Position({A0: 5, A1: 7, B0: 1}, {"a": OLD, "b": OLD})
    # It has more records than were read of the old one: offsets alone would not tell.
    found = step(start, View({A0: 9, B0: 1}, {"a": NEW, "b": OLD}))
    assert found.losses == ("topic a was deleted and made anew; what was not read of the old one is gone",)
    assert found.position.offsets == {A0: 9, B0: 1}
    assert found.position.topic_ids == {"a": NEW, "b": OLD}
    assert planned(start, found.position) == {A0: (0, 9)}
    assert plan_ranges(start, found.position)[0].topic_id == NEW


def test_a_topic_that_is_gone_keeps_its_place():
    start = Position({A0: 5, B0: 1}, {"a": OLD, "b": OLD})
    found = step(start, View({B0: 1}, {"b": OLD}))
    assert found.losses == ("a-0 is gone; what was not read from offset 5 on is lost",)
    assert found.position is start
    moved = step(start, View({B0: 4}, {"b": OLD}))
    assert moved.position.offsets == {A0: 5, B0: 4}
    assert moved.position.topic_ids == {"a": OLD, "b": OLD}
    assert planned(start, moved.position) == {B0: (1, 4)}


def test_a_topic_no_longer_subscribed_to_is_let_go_without_an_alarm():
    left = TopicPartition("left", 0)
    found = step(Position({A0: 5, left: 3}, {"a": OLD, "left": OLD}), View({A0: 5}, {"a": OLD}))
    assert found == Step(Position({A0: 5}, {"a": OLD}), (), 0)


def test_a_checkpoint_of_another_source_is_refused_not_begun_anew():
    left = TopicPartition("left", 0)
    with pytest.raises(OtherSource, match="checkpoint is of another source: it has offsets of left, none of which"):
        step(Position({left: 3}, {"left": OLD}), View({A0: 5}, {"a": OLD}))
    # A pattern that had found no topic yet has no offsets, and binds nobody.
    assert planned(Position({}), step(Position({}), View({A0: 5}, {"a": OLD})).position) == {A0: (0, 5)}


def test_an_end_before_the_position_is_a_loss_and_nothing_is_read_twice():
    start = Position({A0: 100}, {"a": OLD})
    found = step(start, View({A0: 60}, {"a": OLD}))
    assert "ends at offset 60, but the query has read up to 100" in found.losses[0]
    assert planned(start, found.position) == {}
    assert planned(found.position, step(found.position, View({A0: 70}, {"a": OLD})).position) == {A0: (60, 70)}


def test_without_ids_an_end_before_the_position_is_a_topic_made_anew():
    start = Position({A0: 100})
    found = step(start, View({A0: 60}, {}), {A0: 10})
    assert len(found.losses) == 1
    assert planned(start, found.position) == {A0: (10, 60)}


def test_a_batch_that_does_not_move_reads_nothing():
    position = Position({A0: 9}, {"a": OLD}, begins={A0: 2})
    assert planned(position, position) == {}


def test_a_replayed_batch_of_sparks_own_source_begins_new_partitions_at_nought():
    assert planned(Position({A0: 1}), Position({A0: 3, A1: 2})) == {A0: (1, 3), A1: (0, 2)}


numbers = st.integers(0, 50)
logs = st.dictionaries(st.sampled_from([A0, A1, B0, TopicPartition("left", 0)]), st.tuples(numbers, numbers))


@settings(deadline=None)
@given(st.lists(logs, max_size=6), st.none() | st.integers(1, 20), st.sampled_from([OLD, NEW]))
def test_whatever_the_cluster_does_the_query_comes_to_rest(history, limit, final_id):
    """Once the cluster rests, so does the query, at its ends, and says so by the same position."""
    position = Position({A0: 3, B0: 0}, {"a": OLD, "b": OLD}, query="q")
    for index, log in enumerate(history):
        is_last = index == len(history) - 1
        view = View(
            {at: first + more for at, (first, more) in log.items()}, {"a": final_id if is_last else OLD, "b": OLD}
        )
        earliest = {at: first for at, (first, _) in log.items()}
        for _ in range(500 if is_last else 1):
            found = step(position, view, earliest, limit)
            for one in plan_ranges(position, found.position):
                assert earliest[one.at] <= one.start < one.end <= view.latest[one.at]
            if found.position is position:
                break
            position = found.position
        else:
            assert not is_last, "it never came to rest"
        if is_last:
            assert all(position.offsets[at] == latest for at, latest in view.latest.items())
