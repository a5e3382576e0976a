"""Reading a log: from any offset, up to any end, whole batches in order and nothing else."""

from pathlib import Path

import pytest
from tests.unit.log.making import append, fill, open_at, values_in

from penstock.errors import OffsetOutOfRange
from penstock.model import Offset
from penstock.records.batch import read_header


@pytest.mark.parametrize("cached_only", [True, False])
def test_a_read_begins_with_the_batch_that_holds_the_offset(directory: Path, cached_only: bool) -> None:
    log = open_at(directory, segment_bytes=900, index_interval_bytes=150)
    fill(log, 30)
    assert len(log.segments) > 3
    for offset in range(log.next_offset):
        for size_max in (1, 61, 200, 1000):
            chunk = log.read(Offset(offset), size_max, log.next_offset, cached_only=cached_only)
            assert chunk is not None
            header = read_header(chunk)
            assert header.base_offset == offset // 2 * 2
            assert len(chunk) <= max(size_max, header.size)


def test_small_reads_one_after_the_other_see_everything_once(directory: Path) -> None:
    log = open_at(directory, segment_bytes=700, index_interval_bytes=64)
    values = fill(log, 25)
    seen: list[str] = []
    offset = 0
    while offset < log.next_offset:
        chunk = log.read(Offset(offset), 250, log.next_offset)
        seen += values_in(chunk)
        offset = len(seen)
    assert seen == values


def test_at_the_end_there_is_nothing_and_beyond_either_end_an_error(directory: Path) -> None:
    log = open_at(directory)
    fill(log, 3)
    assert log.read(Offset(6), 1000, Offset(6)) == b""
    log.advance_start(Offset(3))
    for offset in (0, 2, 7):
        with pytest.raises(OffsetOutOfRange):
            log.read(Offset(offset), 1000, Offset(6))
    assert values_in(log.read(Offset(3), 1000, Offset(6)))[0].startswith("0002"), "batches are given whole"


def test_nothing_at_or_above_the_end_is_read_wherever_it_lies(directory: Path) -> None:
    log = open_at(directory, segment_bytes=900, index_interval_bytes=150)
    values = fill(log, 20)
    for cached_only in (True, False):
        for end in range(41):
            for offset in range(0, end, 3):
                chunk = log.read(Offset(offset), 100_000, Offset(end), cached_only=cached_only)
                found = values_in(chunk)
                first = offset // 2 * 2
                # Whole batches only: one that reaches past the end is not given.
                assert found == values[first : first + len(found)]
                assert first + len(found) <= end
                assert found or end - first < 2


def test_a_batch_too_large_for_the_limit_is_given_only_if_it_would_be_the_only_one(directory: Path) -> None:
    log = open_at(directory)
    append(log, "a" * 500)
    assert values_in(log.read(Offset(0), 10, Offset(1))) == ["a" * 500]
    assert log.read(Offset(0), 10, Offset(1), at_least_one=False) == b""
    assert values_in(log.read(Offset(0), 1000, Offset(1), at_least_one=False)) == ["a" * 500]


def test_a_batch_too_large_for_the_limit_is_not_passed_over_for_a_small_one_in_the_next_segment(
    directory: Path,
) -> None:
    log = open_at(directory, segment_bytes=500)
    append(log, "a" * 450)
    append(log, "b")
    assert len(log.segments) == 2
    assert log.read(Offset(0), 100, Offset(2), at_least_one=False) == b""
    assert values_in(log.read(Offset(0), 100, Offset(2))) == ["a" * 450]


def test_an_offset_that_compaction_removed_leads_to_the_next_batch(directory: Path) -> None:
    log = open_at(directory, segment_bytes=900, index_interval_bytes=150)
    values = fill(log, 12)
    log.close()
    path = directory / "00000000000000000000.log"
    content = path.read_bytes()
    path.write_bytes(content[:155] + content[3 * 155 :])  # the last batch of a segment always stays
    again = open_at(directory, segment_bytes=900, index_interval_bytes=150)
    for offset in (2, 3, 4, 5):
        for cached_only in (False, True):
            chunk = again.read(Offset(offset), 1000, again.next_offset, cached_only=cached_only)
            assert values_in(chunk)[0] == values[6]


def test_a_read_on_a_thread_keeps_its_place_when_segments_go_meanwhile(directory: Path) -> None:
    log = open_at(directory, segment_bytes=700, index_interval_bytes=150)
    values = fill(log, 40)
    bases = log._bases

    class Shrinking(list[int]):
        """The loop takes segments away while a reader looks for its slot in the old list."""

        def __len__(self) -> int:
            log.advance_start(log.segments[2].base_offset)
            log.take_segments_before_start()
            return super().__len__()

    offset = log.segments[4].base_offset
    log._bases = Shrinking(bases)
    assert values_in(log.read(offset, 100, log.next_offset))[0] == values[offset]
    # Or the reader comes between the two assignments, and the list of bases is the old one.
    log._bases = bases
    assert values_in(log.read(offset, 100, log.next_offset))[0] == values[offset]
