"""The two sparse indexes: where to look, and what is left of one that was damaged."""

import pytest

from penstock.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex


def offset_index(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex()
    for offset, position in entries:
        index.append(offset, position)
    return index


def time_index(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex()
    for timestamp, offset in entries:
        index.append(timestamp, offset)
    return index


@pytest.mark.parametrize(
    ("offset", "window"),
    [(0, (0, 100)), (8, (0, 100)), (9, (100, 250)), (15, (100, 250)), (19, (250, None)), (1000, (250, None))],
)
def test_a_search_begins_at_the_last_entry_that_ends_at_or_before_the_offset(
    offset: int, window: tuple[int, int | None]
) -> None:
    assert offset_index((9, 100), (19, 250)).window(offset) == window


def test_an_empty_index_sends_every_search_to_the_beginning() -> None:
    assert OffsetIndex().window(5) == (0, None)
    assert TimeIndex().offset_before(5) == 0


def test_an_entry_says_which_offset_it_promises() -> None:
    index = offset_index((9, 100), (19, 250))
    assert [index.last_offset_at(100), index.last_offset_at(250)] == [9, 19]


def test_what_lies_at_or_behind_a_cut_is_forgotten() -> None:
    index = offset_index((9, 100), (19, 250), (29, 400))
    index.truncate(250)
    assert list(index.positions) == [100]
    times = time_index((5, 1), (7, 9), (9, 12))
    times.truncate(9)
    assert list(times.offsets) == [1]


def test_both_indexes_read_what_they_wrote() -> None:
    index = offset_index((9, 100), (19, 250), (2**31 - 1, 2**31 - 2))
    assert OffsetIndex.decode(index.encode()).encode() == index.encode()
    assert index.encode()[:OFFSET_ENTRY_BYTES] == bytes([0, 0, 0, 9, 0, 0, 0, 100])
    times = time_index((-1, 0), (2**40, 7))
    assert TimeIndex.decode(times.encode()).encode() == times.encode()
    assert len(times.encode()) == 2 * TIME_ENTRY_BYTES


@pytest.mark.parametrize("rest", [b"\0" * 24, b"\0\0\0", bytes([0, 0, 0, 5, 0, 0, 1, 200])])
def test_zeroes_a_torn_entry_and_entries_that_go_back_end_an_offset_index(rest: bytes) -> None:
    whole = offset_index((9, 100), (19, 250))
    assert OffsetIndex.decode(whole.encode() + rest).encode() == whole.encode()


@pytest.mark.parametrize("rest", [b"\0" * 24, b"\0" * 5, time_index((6, 30)).encode(), time_index((99, 2)).encode()])
def test_zeroes_a_torn_entry_and_entries_that_go_back_end_a_time_index(rest: bytes) -> None:
    whole = time_index((5, 1), (7, 9))
    assert TimeIndex.decode(whole.encode() + rest).encode() == whole.encode()


def test_time_that_stands_still_or_goes_back_makes_no_entry() -> None:
    assert list(time_index((5, 1), (5, 2), (4, 3), (6, 4)).offsets) == [1, 4]


@pytest.mark.parametrize(("timestamp", "offset"), [(4, 0), (5, 0), (6, 1), (7, 1), (8, 9)])
def test_a_time_is_looked_for_behind_the_last_record_that_was_surely_earlier(timestamp: int, offset: int) -> None:
    assert time_index((5, 1), (7, 9)).offset_before(timestamp) == offset
