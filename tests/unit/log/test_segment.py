"""One segment: batches one behind the other, and indexes that are believed only as far as they are right."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.unit.log.making import NOW, make_batch

from penstock.disk import Disk, File, RealDisk
from penstock.errors import CorruptMessage
from penstock.log.index import TimeIndex
from penstock.log.segment import (
    INDEX_SUFFIX,
    NO_TIMESTAMP,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
)
from penstock.model import Offset

INTERVAL = 100


def fill(directory: Path, times: list[int], base_offset: int = 0) -> Segment:
    """A new segment with a batch of two records for each of these times; every batch but the first has an entry."""
    segment = Segment(RealDisk(), directory, Offset(base_offset), NOW)
    segment.create()
    for number, timestamp in enumerate(times):
        batch, header = make_batch(f"a{number}".ljust(30), "b" * 30, timestamp=timestamp)
        segment.append(header, segment.next_offset, stamped(batch, segment.next_offset), INTERVAL)
    return segment


def stamped(batch: memoryview, offset: int) -> memoryview:
    batch[:8] = offset.to_bytes(8, "big")
    return batch


def reopened(segment: Segment) -> Segment:
    """The same files as a later run finds them when it knows their ends, as after a clean stop."""
    again = Segment(RealDisk(), segment.directory, segment.base_offset, NOW)
    again.size, again.next_offset = segment.size, segment.next_offset
    return again


def save_indexes(segment: Segment) -> None:
    segment.write_indexes(segment.encode_indexes())


def test_batches_lie_one_behind_the_other(tmp_path: Path) -> None:
    segment = fill(tmp_path, [NOW, NOW + 1, NOW + 2], base_offset=40)
    assert segment.path().name == "00000000000000000040.log"
    assert segment.path().stat().st_size == segment.size
    assert segment.next_offset == 46
    position, offsets = 0, list[int]()
    while position < segment.size:
        header = segment.header_at(position)
        offsets.append(header.base_offset)
        position += header.size
    assert offsets == [40, 42, 44]


@pytest.mark.parametrize("offset", range(40, 60))
def test_every_offset_is_found_with_and_without_an_index(tmp_path: Path, offset: int) -> None:
    segment = fill(tmp_path, [NOW] * 10, base_offset=40)
    assert len(segment.offset_index.offsets) == 9
    expected = (offset - 40) // 2 * (segment.size // 10)
    assert segment.position_of(Offset(offset)) == expected
    assert reopened(segment).position_of(Offset(offset)) == expected
    assert segment.position_of(Offset(60)) == segment.size


def test_indexes_are_read_back_as_they_were(tmp_path: Path) -> None:
    segment = fill(tmp_path, [NOW, NOW + 2, NOW + 1, NOW + 9])
    save_indexes(segment)
    again = reopened(segment)
    assert again.offset_index.encode() == segment.offset_index.encode()
    assert again.time_index.encode() == segment.time_index.encode()
    assert list(again.time_index.timestamps) == [NOW + 2, NOW + 9]


def test_a_shorter_index_replaces_a_longer_one_of_the_same_name(tmp_path: Path) -> None:
    save_indexes(fill(tmp_path, [NOW + n for n in range(20)]))
    shorter = fill(tmp_path, [NOW])
    save_indexes(shorter)
    assert (tmp_path / file_name(0, INDEX_SUFFIX)).read_bytes() == b""
    assert len((tmp_path / file_name(0, TIME_INDEX_SUFFIX)).read_bytes()) == 12


def test_index_entries_beyond_the_end_are_not_taken(tmp_path: Path) -> None:
    segment = fill(tmp_path, [NOW + n for n in range(6)])
    save_indexes(segment)
    again = Segment(RealDisk(), tmp_path, Offset(0), NOW)
    again.size, again.next_offset = segment.size // 2, Offset(6)
    assert max(again.offset_index.positions) < again.size
    assert max(again.time_index.offsets) < 6


@pytest.mark.parametrize("bit", range(0, 64, 5))
def test_an_index_with_a_flipped_bit_leads_nobody_astray(tmp_path: Path, bit: int) -> None:
    segment = fill(tmp_path, [NOW + n for n in range(8)])
    save_indexes(segment)
    path = tmp_path / file_name(0, INDEX_SUFFIX)
    content = bytearray(path.read_bytes())
    content[24 + bit // 8] ^= 1 << bit % 8  # in the fourth entry
    path.write_bytes(content)
    for offset in range(16):
        again = reopened(segment)
        assert again.position_of(Offset(offset)) == segment.position_of(Offset(offset))


def test_a_damaged_batch_is_not_taken_for_one(tmp_path: Path) -> None:
    segment = fill(tmp_path, [NOW, NOW])
    with segment.path().open("r+b") as file:
        file.seek(16)
        file.write(b"\x07")
    with pytest.raises(CorruptMessage, match="byte 0"):
        segment.header_at(0)
    with pytest.raises(CorruptMessage):
        segment.header_at(segment.size - 10)


@pytest.mark.parametrize("times", [[5, 9, 7], [9, 5, 7], [5, 7, 9], [7, 7, 7]])
def test_the_largest_time_of_a_closed_segment_is_learnt_from_its_files(tmp_path: Path, times: list[int]) -> None:
    segment = fill(tmp_path, times)
    save_indexes(segment)
    again = reopened(segment)
    assert again.max_timestamp == NO_TIMESTAMP
    again.load_max_timestamp()
    assert (again.max_timestamp, again.max_timestamp_offset) == (max(times), times.index(max(times)) * 2 + 1)


def test_the_largest_time_is_found_without_a_time_index_with_an_old_and_with_a_damaged_one(tmp_path: Path) -> None:
    segment = fill(tmp_path, [NOW, NOW + 1])
    save_indexes(segment)
    old = (tmp_path / file_name(0, TIME_INDEX_SUFFIX)).read_bytes()
    for timestamp in (NOW + 5, NOW + 3):
        batch, header = make_batch("late", "later", timestamp=timestamp)
        segment.append(header, segment.next_offset, stamped(batch, segment.next_offset), INTERVAL)
    lie = TimeIndex()
    lie.append(NOW + 10**9, 3)
    for content in (None, b"", old, lie.encode()):
        path = tmp_path / file_name(0, TIME_INDEX_SUFFIX)
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        again = reopened(segment)
        again.load_max_timestamp()
        assert (again.max_timestamp, again.max_timestamp_offset) == (NOW + 5, 5)


def test_a_segment_that_is_only_asked_for_its_age_is_not_left_open(tmp_path: Path) -> None:
    segment = fill(tmp_path, [NOW, NOW + 1])
    save_indexes(segment)
    again = reopened(segment)
    again.load_max_timestamp()
    assert again.max_timestamp == NOW + 1
    assert not again.is_loaded


def test_rebuilt_indexes_are_those_that_were_lost(tmp_path: Path) -> None:
    segment = fill(tmp_path, [NOW + n for n in range(8)])
    expected = segment.encode_indexes()
    again = reopened(segment)
    assert not again.offset_index.offsets
    again.rebuild_indexes(INTERVAL)
    assert again.encode_indexes() == expected


def test_a_cut_segment_ends_where_it_was_cut_and_forgets_what_came_after(tmp_path: Path) -> None:
    segment = fill(tmp_path, [NOW + n for n in (0, 5, 9, 1)])
    position = segment.position_of(Offset(4))
    segment.truncate(position, Offset(4))
    assert segment.path().stat().st_size == segment.size == position
    assert segment.next_offset == 4
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (NOW + 5, 3)
    assert segment.first_timestamp == NOW
    assert max(segment.offset_index.offsets) < 4
    batch, header = make_batch("new", timestamp=NOW + 2)
    segment.append(header, Offset(4), stamped(batch, 4), INTERVAL)
    assert segment.header_at(position).base_offset == 4


def test_deleted_files_leave_the_namespace_at_once_and_the_disk_later(tmp_path: Path) -> None:
    segment = fill(tmp_path, [NOW, NOW])
    save_indexes(segment)
    segment.mark_deleted()
    assert {path.suffix for path in tmp_path.iterdir()} == {".deleted"}
    assert segment.header_at(0).base_offset == 0, "whoever has it open reads on"
    segment.remove_deleted()
    assert list(tmp_path.iterdir()) == []


class SlowToOpen(RealDisk):
    """Two threads are inside `open` before either comes out of it."""

    def __init__(self) -> None:
        super().__init__()
        self.both_inside = threading.Barrier(2)
        self.opened: list[File] = []

    def open(self, path: Path, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        self.both_inside.wait(10)
        self.opened.append(file)
        return file


async def test_two_who_open_a_segment_at_once_share_one_file(tmp_path: Path) -> None:
    written = fill(tmp_path, [NOW])
    written.close()
    disk: Disk = SlowToOpen()
    segment = Segment(disk, tmp_path, Offset(0), NOW)
    segment.size = written.size
    first, second = await asyncio.gather(*(asyncio.to_thread(lambda: segment.file) for _ in range(2)))
    assert first is second
    assert isinstance(disk, SlowToOpen)
    (spare,) = [file for file in disk.opened if file is not first]
    with pytest.raises(OSError, match="Bad file descriptor"):
        spare.size()
