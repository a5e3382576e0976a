"""One partition's log: what is appended is read back in order, and a failed disk ends the writing for good."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import AT, HOUR, NOW, TOPIC_ID, all_values, append, make_batch, open_at, values_in

from penstock.disk import Buffer, Disk, File, RealDisk
from penstock.errors import CorruptMessage, OffsetOutOfRange, StorageFailed, UnknownTopicOrPartition
from penstock.log.partition_log import TOPIC_ID_FILE, PartitionLog, read_topic_id, write_topic_id
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import read_header


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / str(AT)


def fill(log: PartitionLog, count: int, size: int = 40, **batch: Any) -> list[str]:
    """Append `count` batches of two records; gives the values in order."""
    values = [f"{number:04}".ljust(size, "x") for number in range(count * 2)]
    for number in range(count):
        append(log, *values[number * 2 : number * 2 + 2], **batch)
    return values


# Appending


def test_nothing_is_on_disk_before_the_first_record(directory: Path) -> None:
    log = open_at(directory)
    assert log.next_offset == 0
    assert log.read(Offset(0), 1000, Offset(0)) == b""
    assert not directory.exists()
    append(log, "a")
    assert sorted(path.name for path in directory.iterdir()) == ["00000000000000000000.log", TOPIC_ID_FILE]


def test_offsets_count_records_and_are_stamped_with_the_epoch_into_what_was_sent(directory: Path) -> None:
    log = open_at(directory)
    assert append(log, "a", "b", "c", leader_epoch=4)[:2] == (0, 3)
    batch, header = make_batch("d")
    assert log.append(batch, header, LeaderEpoch(5), NOW)[:2] == (3, 4)
    assert (read_header(batch).base_offset, read_header(batch).leader_epoch) == (3, 5)
    assert log.epochs.epoch_at(Offset(2)) == 4
    assert log.epochs.epoch_at(Offset(3)) == 5
    stored = directory.joinpath("00000000000000000000.log").read_bytes()
    assert stored.endswith(bytes(batch))


def test_a_segment_is_full_before_it_is_too_large(directory: Path) -> None:
    batch, _ = make_batch("0".ljust(40), "1".ljust(40))
    log = open_at(directory, segment_bytes=len(batch) * 3)
    values = fill(log, 10)
    assert [segment.base_offset for segment in log.segments] == [0, 6, 12, 18]
    assert all(segment.size <= len(batch) * 3 for segment in log.segments)
    assert all_values(log) == values


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(directory: Path) -> None:
    log = open_at(directory, segment_bytes=500)
    append(log, "a")
    append(log, "b" * 2000)
    append(log, "c")
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    assert all_values(log) == ["a", "b" * 2000, "c"]


def test_a_segment_is_closed_when_its_records_span_too_long_a_time(directory: Path) -> None:
    log = open_at(directory, segment_ms=HOUR)
    append(log, "a", timestamp=NOW)
    append(log, "b", timestamp=NOW + HOUR)
    assert len(log.segments) == 1
    append(log, "c", timestamp=NOW + HOUR + 1)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_records_without_a_time_roll_by_the_clock(directory: Path) -> None:
    log = open_at(directory, segment_ms=HOUR)
    append(log, "a", timestamp=-1, now_ms=NOW)
    append(log, "b", timestamp=-1, now_ms=NOW + HOUR)
    assert len(log.segments) == 1
    append(log, "c", timestamp=-1, now_ms=NOW + HOUR + 1)
    assert len(log.segments) == 2


def test_a_segment_never_holds_offsets_that_do_not_fit_its_index(directory: Path) -> None:
    log = open_at(directory)
    append(log, "a")
    log.segments[-1].next_offset = log.next_offset = Offset(2**31 - 1)
    append(log, "b")
    assert len(log.segments) == 1
    append(log, "c")
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]


def test_a_closed_segment_has_its_indexes_on_disk(directory: Path) -> None:
    log = open_at(directory, segment_bytes=600, index_interval_bytes=100)
    fill(log, 10)
    closed = log.segments[0]
    assert (directory / "00000000000000000000.index").read_bytes() == closed.offset_index.encode()
    assert (directory / "00000000000000000000.timeindex").read_bytes() == closed.time_index.encode()


# Idempotent producers


def test_a_batch_sent_again_is_answered_with_its_first_offset_and_not_written(directory: Path) -> None:
    log = open_at(directory)
    append(log, "first")
    for sequence in range(0, 10, 2):
        append(log, "a", "b", producer=7, sequence=sequence)
    size, end = log.size, log.next_offset
    for sequence in range(0, 10, 2):
        again = append(log, "a", "b", producer=7, sequence=sequence)
        assert again == (1 + sequence, 3 + sequence, True)
    assert (log.size, log.next_offset) == (size, end)


def test_a_batch_below_the_log_start_is_still_known_when_it_is_sent_again(directory: Path) -> None:
    log = open_at(directory)
    append(log, "a", "b", producer=7, sequence=0)
    log.advance_start(Offset(1))
    assert append(log, "a", "b", producer=7, sequence=0).is_duplicate
    log.advance_start(Offset(2))
    assert append(log, "a", "b", producer=7, sequence=0).is_duplicate


# Reading


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


@pytest.mark.parametrize("size", [0, 155, 4 * 155])
def test_a_closed_segment_that_has_lost_its_end_is_an_error_and_not_a_gap(directory: Path, size: int) -> None:
    log = open_at(directory, segment_bytes=900, index_interval_bytes=150)
    values = fill(log, 12)
    first = log.segments[0]
    assert first.next_offset == 10
    first.file.truncate(size)
    first.size = size
    lost = size // 155 * 2
    for offset in range(lost, 10):
        for cached_only in (True, False):
            log._damage_is_told = False  # each is the first to meet it
            with pytest.raises(CorruptMessage, match=f"byte {size} of"):
                log.read(Offset(offset), 1000, log.next_offset, cached_only=cached_only)
    assert values_in(log.read(Offset(10), 1000, log.next_offset, cached_only=False))[0] == values[10]
    if lost:
        assert values_in(log.read(Offset(0), 1000, log.next_offset, cached_only=False)) == values[:lost]
    assert log.read(Offset(8), 1000, Offset(8), cached_only=False) == b""


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


# What is in memory and what is not


class ColdFile:
    """A file none of which, or only the beginning of which, is in memory."""

    def __init__(self, file: File, warm: Callable[[], int]) -> None:
        self._file = file
        self._warm = warm
        self.write_at, self.sync, self.size = file.write_at, file.sync, file.size
        self.truncate, self.close, self.read = file.truncate, file.close, file.read

    def read_cached(self, position: int, size: int) -> memoryview | None:
        size = min(size, self._warm() - position)
        return self._file.read_cached(position, size) if size > 0 else None


class ColdDisk(RealDisk):
    def __init__(self) -> None:
        super().__init__()
        self.warm_bytes = 0

    def open(self, path: Path, *, create: bool = False) -> File:
        return ColdFile(super().open(path, create=create), lambda: self.warm_bytes)


@pytest.mark.parametrize("warm_bytes", [0, 30, 61, 100, 155, 156, 400, 1000])
def test_what_is_not_in_memory_is_left_to_whoever_may_wait(directory: Path, warm_bytes: int) -> None:
    disk = ColdDisk()
    disk.warm_bytes = 10**6
    log = open_at(directory, disk=disk, index_interval_bytes=100)
    values = fill(log, 10)
    disk.warm_bytes = warm_bytes
    for offset in range(0, 20, 2):
        for end in (20, 15):
            fast = log.read(Offset(offset), 300, Offset(end))
            slow = log.read(Offset(offset), 300, Offset(end), cached_only=False)
            assert slow is not None
            if offset < end - 1:
                assert values_in(slow)[0] == values[offset]
            # Less may be in memory than was asked for, but never nothing, and never something else.
            assert fast is None or (bytes(slow).startswith(bytes(fast)) and (len(fast) or not len(slow)))


def test_a_segment_that_was_never_read_is_not_opened_on_the_loop(directory: Path) -> None:
    log = open_at(directory, segment_bytes=700)
    values = fill(log, 10)
    log.close()
    acts: list[Act] = []
    again = open_at(directory, disk=WatchedDisk(RealDisk(), acts.append), segment_bytes=700)
    for segment in again.segments:
        segment.close()
        segment.drop_index_cache()
    acts.clear()
    assert again.read(Offset(0), 300, again.next_offset) is None
    assert acts == [], "opening files and reading indexes may wait for the disk"
    assert values_in(again.read(Offset(0), 300, again.next_offset, cached_only=False))[0] == values[0]
    assert values_in(again.read(Offset(0), 300, again.next_offset))[0] == values[0]


# Damage that a read meets


def damaged(directory: Path, position: int, content: bytes) -> PartitionLog:
    """Ten batches of 155 bytes, then these bytes written over them behind the log's back."""
    log = open_at(directory, index_interval_bytes=400)
    fill(log, 10)
    assert log.size == 1550
    with (directory / "00000000000000000000.log").open("r+b") as file:
        file.seek(position)
        file.write(content)
    return log


@pytest.mark.parametrize(
    ("position", "content"),
    [
        (155 * 7, b"\0" * 155),
        (155 * 7 + 8, (-12).to_bytes(4, "big", signed=True)),
        (155 * 7 + 8, (10**6).to_bytes(4, "big")),
        (155 * 7, (2**60).to_bytes(8, "big")),
        (155 * 7 + 23, (-1).to_bytes(4, "big", signed=True)),
    ],
    ids=["zeroes", "no length", "too long", "far offset", "no records"],
)
def test_a_broken_batch_is_an_error_and_not_an_endless_search(
    directory: Path, position: int, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log = damaged(directory, position, content)
    assert values_in(log.read(Offset(13), 155, Offset(20)))[0].startswith("0012")
    for end in (20, 17):
        for _ in range(2):
            with pytest.raises(CorruptMessage, match=f"byte {position // 155 * 155}"):
                log.read(Offset(14), 1000, Offset(end), cached_only=False)
    assert caplog.text.count("no record batch at byte 1085") == 1, "said once, not with every fetch"


@pytest.mark.parametrize("asked", [0, 5, 6])
def test_a_bit_that_flipped_in_an_old_segment_is_found_when_it_is_read_from_the_disk(
    directory: Path, asked: int
) -> None:
    log = open_at(directory, segment_bytes=155 * 4)
    values = fill(log, 10)
    told: list[object] = []
    log.on_damage = told.append
    content = bytearray((directory / "00000000000000000000.log").read_bytes())
    content[155 * 3 + 100] ^= 1  # in a record of the batch that holds offset 6
    (directory / "00000000000000000000.log").write_bytes(content)
    assert log.read(Offset(asked), 1000, Offset(20)), "what the page cache has is not checked"
    with pytest.raises(CorruptMessage, match=r"the batch at offset 6 of 0{20}\.log"):
        log.read(Offset(asked), 1000, Offset(20), cached_only=False)
    assert len(told) == 1
    assert log.read(Offset(asked), 1000, Offset(20)) is None, "now the page cache has it, and it is checked every time"
    with pytest.raises(CorruptMessage):
        log.read(Offset(asked), 1000, Offset(20), cached_only=False)
    assert len(told) == 1
    assert values_in(log.read(Offset(8), 1000, Offset(20), cached_only=False))[:2] == values[8:10]


def test_a_batch_cut_short_at_the_end_of_a_read_from_the_disk_is_not_held_against_its_checksum(directory: Path) -> None:
    log = open_at(directory)
    values = fill(log, 10)
    for size_max in range(155, 155 * 3):
        chunk = log.read(Offset(4), size_max, Offset(20), cached_only=False)
        assert chunk is not None
        assert len(chunk) == size_max
        assert values_in(chunk) == values[4 : 4 + size_max // 155 * 2]


def test_a_length_that_cannot_be_is_found_behind_the_first_batch_of_a_read_from_the_disk(directory: Path) -> None:
    log = damaged(directory, 155 * 7 + 8, (-12).to_bytes(4, "big", signed=True))
    with pytest.raises(CorruptMessage, match=r"offset 14 .* cannot be 0 bytes long"):
        log.read(Offset(8), 1000, Offset(20), cached_only=False)


def test_a_file_that_ends_early_is_an_error_and_not_silence(directory: Path) -> None:
    log = damaged(directory, 0, b"")
    for size in (155 * 7 + 100, 155 * 7 + 30, 155 * 7):
        os.truncate(directory / "00000000000000000000.log", size)
        assert log.read(Offset(14), 1000, Offset(20)) is None
        with pytest.raises(CorruptMessage):
            log.read(Offset(14), 1000, Offset(20), cached_only=False)


def test_an_index_that_points_to_the_wrong_batch_hides_nothing(directory: Path) -> None:
    log = open_at(directory, index_interval_bytes=100)
    values = fill(log, 10)
    index = log.segments[0].offset_index
    # The batch at 155 * 5 ends at offset 11; the entry says 5, so whoever looks for 6 to 11 would begin too late.
    slot = list(index.positions).index(155 * 5)
    index.offsets[slot] = 5
    del index.offsets[slot - 3 : slot], index.positions[slot - 3 : slot]
    assert log.read(Offset(6), 155, Offset(20)) is None
    assert values_in(log.read(Offset(6), 155, Offset(20), cached_only=False)) == values[6:8]
    assert values_in(log.read(Offset(6), 155, Offset(20))) == values[6:8], "and the index is no longer asked"


def test_an_index_that_is_wrong_about_the_end_shows_nothing_above_it(directory: Path) -> None:
    log = open_at(directory, index_interval_bytes=100)
    values = fill(log, 10)
    index = log.segments[0].offset_index
    slot = list(index.positions).index(155 * 5)
    index.offsets[slot] = 7
    del index.offsets[slot - 2 : slot], index.positions[slot - 2 : slot]
    for cached_only in (True, False, True):
        chunk = log.read(Offset(0), 10_000, Offset(8), cached_only=cached_only)
        assert chunk is None or values_in(chunk) == values[:8]


def test_a_lost_index_is_made_anew_when_the_way_without_it_is_long(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.reading._WALK_BYTES_MAX", 500)
    log = open_at(directory, index_interval_bytes=100)
    values = fill(log, 20)
    log.segments[0].offset_index.truncate(0)
    assert values_in(log.read(Offset(2), 155, Offset(40))) == values[2:4], "near the beginning nobody misses it"
    assert log.read(Offset(38), 155, Offset(40)) is None
    assert values_in(log.read(Offset(38), 155, Offset(40), cached_only=False)) == values[38:40]
    assert values_in(log.read(Offset(38), 155, Offset(40))) == values[38:40]


# Durability and failure


class Counting:
    """Counts syncs of segments; refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.syncs = 0
        self.refuse: str | None = None
        self.refused = 0

    def __call__(self, act: Act) -> None:
        if act.path.suffix != ".log":
            return
        if act.kind == self.refuse:
            self.refused += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if act.kind == "sync":
            self.syncs += 1


def counted(directory: Path, **settings: Any) -> tuple[PartitionLog, Counting]:
    counting = Counting()
    return open_at(directory, disk=WatchedDisk(RealDisk(), counting), **settings), counting


async def test_many_appends_share_one_fsync(directory: Path) -> None:
    log, counting = counted(directory)
    for _ in range(100):
        append(log, "a")
        wait = log.sync.wait_for(log.next_offset)
    assert counting.syncs == 0
    await wait
    assert counting.syncs == 1
    assert log.durable_offset == 100


async def test_every_segment_that_was_written_is_synced_before_anyone_is_told(directory: Path) -> None:
    log, counting = counted(directory, segment_bytes=400)
    fill(log, 10)
    await log.sync.wait_for(log.next_offset)
    assert counting.syncs == len(log.segments) > 2
    append(log, "a")
    await log.sync.wait_for(log.next_offset)
    assert counting.syncs == len(log.segments) + 1


async def test_the_directory_is_synced_with_the_first_batch_of_a_new_file_and_only_then(directory: Path) -> None:
    acts: list[Act] = []
    log = open_at(directory, disk=WatchedDisk(RealDisk(), acts.append), segment_bytes=400)

    async def synced_by(*values: str) -> list[str]:
        acts.clear()
        append(log, *values)
        await log.sync.wait_for(log.next_offset)
        return [act.path.name for act in acts if act.kind == "sync_directory"]

    # The epoch's file replaces itself; then the log's own names, and its directory's in the one above.
    assert await synced_by("a") == [directory.name, directory.name, directory.parent.name]
    assert await synced_by("b") == []
    assert await synced_by("c" * 400) == [directory.name, directory.parent.name]


async def test_a_new_epoch_is_on_disk_before_its_first_batch_is_durable(directory: Path) -> None:
    acts: list[Act] = []
    log = open_at(directory, disk=WatchedDisk(RealDisk(), acts.append))
    append(log, "a", leader_epoch=3)
    await log.sync.wait_for(log.next_offset)
    order = [act.path.name for act in acts if act.kind in ("sync", "rename")]
    assert order.index("leader-epoch-checkpoint.tmp") < order.index("00000000000000000000.log")
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"


async def test_a_failed_fsync_ends_the_writing_and_hides_what_is_not_durable(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, counting = counted(directory)
    values = fill(log, 3)
    await log.sync.wait_for(log.next_offset)
    append(log, "lost")
    counting.refuse = "sync"
    with pytest.raises(StorageFailed, match="fsync failed"):
        await log.sync.wait_for(log.next_offset)
    counting.refuse = None
    with pytest.raises(StorageFailed):
        append(log, "never")
    with pytest.raises(StorageFailed):
        await log.sync.wait_for(log.next_offset)
    assert counting.refused == 1, "an fsync that succeeds after one that failed proves nothing"
    assert counting.syncs == 1
    assert values_in(log.read(Offset(0), 10_000, log.next_offset)) == values
    assert log.read(Offset(6), 10_000, log.next_offset) == b""
    with pytest.raises(StorageFailed):
        log.read(Offset(7), 10_000, log.next_offset)
    assert "orders-0: fsync failed" in caplog.text


async def test_a_failed_write_ends_the_writing_and_what_was_written_stays_readable(directory: Path) -> None:
    log, counting = counted(directory)
    values = fill(log, 3)
    wait = log.sync.wait_for(log.next_offset)
    counting.refuse = "write"
    with pytest.raises(StorageFailed, match="write failed"):
        append(log, "torn")
    counting.refuse = None
    with pytest.raises(StorageFailed, match="write failed"):
        append(log, "never")
    with pytest.raises(StorageFailed):
        await wait
    assert log.next_offset == 6
    assert all_values(log) == values
    assert counting.refused == 1


class HalfDisk(RealDisk):
    """Full after so many bytes: a write that does not fit is cut short."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def open(self, path: Path, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        return HalfFile(self, file) if path.suffix == ".log" else file


class HalfFile:
    def __init__(self, disk: HalfDisk, file: File) -> None:
        self._disk, self._file = disk, file
        self.read_cached, self.sync, self.size = file.read_cached, file.sync, file.size
        self.truncate, self.close, self.read = file.truncate, file.close, file.read

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        content = b"".join(buffers)
        self._file.write_at(position, (content[: self._disk.room],))
        if len(content) > self._disk.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._disk.room -= len(content)


async def test_a_disk_that_is_full_in_the_middle_of_a_batch_costs_that_batch_only(directory: Path) -> None:
    disk: Disk = HalfDisk(155 * 3 + 80)
    log = open_at(directory, disk=disk)
    with pytest.raises(StorageFailed, match="No space left"):
        fill(log, 5)
    assert len(all_values(log)) == 6
    assert (directory / "00000000000000000000.log").stat().st_size == 155 * 3 + 80
    log.close()
    again = open_at(directory)
    assert len(all_values(again)) == 6
    assert again.next_offset == 6
    append(again, "room again")
    assert all_values(again)[6:] == ["room again"]


async def test_a_log_that_cannot_get_a_new_segment_takes_no_more(directory: Path) -> None:
    log, counting = counted(directory, segment_bytes=400)
    append(log, "a" * 300)
    counting.refuse = "create"
    with pytest.raises(StorageFailed):
        append(log, "b" * 300)
    assert all_values(log) == ["a" * 300]


async def test_whoever_waits_for_a_deleted_log_is_told_and_nothing_more_is_written(directory: Path) -> None:
    log, counting = counted(directory)
    append(log, "a")
    wait = log.sync.wait_for(log.next_offset)
    log.end(UnknownTopicOrPartition("orders-0 was deleted"))
    with pytest.raises(UnknownTopicOrPartition):
        await wait
    with pytest.raises(UnknownTopicOrPartition):
        append(log, "b")
    assert counting.syncs == 0


async def test_a_sync_that_fails_because_the_log_was_deleted_is_no_failure_of_the_disk(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, counting = counted(directory)
    append(log, "a")
    counting.refuse = "sync"
    log.sync.wait_for(log.next_offset)
    work = log._prepare_sync()
    log.end(UnknownTopicOrPartition("orders-0 was deleted"))
    work.job()
    assert isinstance(log._sync_failed(OSError("gone")), UnknownTopicOrPartition)
    assert caplog.text == ""


# Cutting


def test_segments_below_the_start_are_handed_out_once_and_the_active_one_never(directory: Path) -> None:
    log = open_at(directory, segment_bytes=400)
    values = fill(log, 10)
    start = log.segments[3].base_offset
    log.advance_start(Offset(start + 1))
    taken = log.take_segments_before_start()
    assert [segment.base_offset for segment in taken] == [0, 4, 8]
    assert log.take_segments_before_start() == []
    assert all_values(log) == values[start:]
    log.advance_start(log.next_offset)
    log.take_segments_before_start()
    assert len(log.segments) == 1


# Whose directory it is


def test_a_directory_says_which_topic_it_belongs_to(tmp_path: Path) -> None:
    assert read_topic_id(RealDisk(), tmp_path) is None
    write_topic_id(RealDisk(), tmp_path, TOPIC_ID)
    assert read_topic_id(RealDisk(), tmp_path) == TOPIC_ID
    assert f"topic_id: {TOPIC_ID}" in (tmp_path / TOPIC_ID_FILE).read_text()


def test_a_damaged_topic_id_is_not_taken_for_another_topic(tmp_path: Path) -> None:
    write_topic_id(RealDisk(), tmp_path, TOPIC_ID)
    content = (tmp_path / TOPIC_ID_FILE).read_bytes()
    for bit in range(len(content) * 8):
        damaged_content = bytearray(content)
        damaged_content[bit // 8] ^= 1 << bit % 8
        (tmp_path / TOPIC_ID_FILE).write_bytes(damaged_content)
        assert read_topic_id(RealDisk(), tmp_path) is None
    (tmp_path / TOPIC_ID_FILE).write_bytes(b"\0" * len(content))
    assert read_topic_id(RealDisk(), tmp_path) is None
