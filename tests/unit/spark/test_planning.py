"""Ranges cut into tasks and limits shared out: what holds for all numbers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import TopicPartition
from penstock.spark.planning import OffsetRange, cut_ranges, share_limit

AT = TopicPartition("t", 0)

ranges = st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(-3, 5000)), max_size=8).map(
    lambda found: [
        OffsetRange(TopicPartition("t", i), None, start, start + size) for i, (start, size) in enumerate(found)
    ]
)
lags = st.lists(st.integers(-2, 1 << 62), max_size=30).map(
    lambda found: {TopicPartition("t", i): lag for i, lag in enumerate(found)}
)


@settings(deadline=None)
@given(ranges, st.none() | st.integers(1, 60), st.none() | st.integers(1, 1000))
def test_pieces_hold_every_offset_once_and_none_is_empty(whole, least, most):
    pieces = cut_ranges(whole, least, most)
    assert all(piece.size > 0 for piece in pieces)
    for one in whole:
        mine = sorted((piece.start, piece.end) for piece in pieces if piece.at == one.at)
        edges = [one.start, *(end for _, end in mine)]
        assert [start for start, _ in mine] == edges[:-1]
        assert edges[-1] == max(one.end, one.start)
        assert bool(mine) == (one.size > 0)


@settings(deadline=None)
@given(ranges, st.none() | st.integers(1, 60), st.none() | st.integers(1, 1000))
def test_there_are_as_many_pieces_as_asked_for_and_none_is_too_big(whole, least, most):
    pieces = cut_ranges(whole, least, most)
    offsets = sum(max(one.size, 0) for one in whole)
    assert len(pieces) >= min(least or 0, offsets)
    assert all(piece.size <= most for piece in pieces if most is not None)


@settings(deadline=None)
@given(ranges, st.integers(1, 60))
def test_no_more_pieces_are_cut_than_needed_and_the_plan_is_always_the_same(whole, least):
    pieces = cut_ranges(whole, least, None)
    offsets = [one for one in whole if one.size > 0]
    assert len(pieces) == max(len(offsets), min(least, sum(one.size for one in offsets)))
    assert pieces == cut_ranges(reversed(whole), least, None)


def test_big_ranges_come_first():
    sizes = [3, 100, 50]
    whole = [OffsetRange(TopicPartition("t", i), None, 0, size) for i, size in enumerate(sizes)]
    assert [piece.size for piece in cut_ranges(whole, None, None)] == [100, 50, 3]


def test_the_biggest_range_is_cut_before_the_others():
    whole = [OffsetRange(TopicPartition("t", 0), None, 0, 90), OffsetRange(TopicPartition("t", 1), None, 0, 10)]
    pieces = cut_ranges(whole, 4, None)
    assert [(piece.at.partition, piece.start, piece.end) for piece in pieces] == [
        (0, 0, 30),
        (0, 30, 60),
        (0, 60, 90),
        (1, 0, 10),
    ]


@settings(deadline=None)
@given(st.integers(1, 1 << 62), lags)
def test_a_limit_is_kept_but_for_one_offset_to_each_small_partition(limit, behind):
    shares = share_limit(limit, behind)
    lagging = [at for at, lag in behind.items() if lag > 0]
    assert shares.keys() == behind.keys()
    assert all(1 <= shares[at] <= behind[at] for at in lagging)
    assert all(shares[at] == 0 for at in behind if at not in lagging)
    assert sum(shares.values()) <= limit + len(lagging)
    if sum(behind[at] for at in lagging) <= limit:
        assert all(shares[at] == behind[at] for at in lagging)


def test_a_limit_is_shared_out_in_proportion_to_lag():
    behind = {TopicPartition("t", 0): 900, TopicPartition("t", 1): 90, TopicPartition("t", 2): 10}
    assert list(share_limit(100, behind).values()) == [90, 9, 1]
