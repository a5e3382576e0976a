"""Opening a log: no scan after a clean stop, a check of the tail after a crash, a refusal where it is damaged."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulation.loop import World
from tests.simulation.node_disk import NodeDisk
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import AT, NOW, TOPIC_ID, all_values, append, make_batch, open_at

from penstock.disk import RealDisk
from penstock.errors import StorageFailed
from penstock.log.checkpoints import LEADER_EPOCHS
from penstock.log.partition_log import PartitionLog, read_topic_id, sync_topic_id
from penstock.log.recovery import REWRITE_BYTES_MAX, SNAPSHOT_SUFFIX, CleanEnd, write_snapshot
from penstock.model import LeaderEpoch, Offset

BATCH = 155  # bytes of each batch that `fill` appends
SEGMENT = BATCH * 4
DISK = RealDisk()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / str(AT)


def fill(directory: Path, batches: int, *, producer: int = -1, leader_epoch: int = 0) -> list[str]:
    """Batches of two records each, four to a segment, all of them synced; gives their values."""
    log = open_at(directory, segment_bytes=SEGMENT)
    values = [f"{number:04}".ljust(40, "x") for number in range(batches * 2)]
    for number in range(batches):
        sequence = number * 2 if producer >= 0 else -1
        pair = values[number * 2 : number * 2 + 2]
        append(log, *pair, producer=producer, sequence=sequence, leader_epoch=leader_epoch)
    sync(log)
    log.close()
    return values


def sync(log: PartitionLog) -> None:
    async def wait() -> None:
        await log.sync.wait_for(log.next_offset)

    asyncio.run(wait())


def log_file(directory: Path, base: int = 0) -> Path:
    return directory / f"{base:020d}.log"


def flip(path: Path, byte: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


def clean_end(log: PartitionLog) -> CleanEnd:
    active = log.segments[-1]
    write_snapshot(RealDisk(), log.directory, log.next_offset, log.producers.encode())
    return CleanEnd(active.base_offset, active.size, active.next_offset, active.first_timestamp, active.max_timestamp)


# After a clean stop


def test_after_a_clean_stop_no_byte_of_a_segment_is_read(directory: Path) -> None:
    values = fill(directory, 10, producer=7)
    first = open_at(directory, segment_bytes=SEGMENT)
    end = clean_end(first)
    first.close()
    acts: list[Act] = []
    log = open_at(directory, disk=WatchedDisk(RealDisk(), acts.append), clean_end=end, segment_bytes=SEGMENT)
    touched = [act for act in acts if act.kind in ("read", "write", "sync")]
    assert [act for act in touched if act.path.suffix in (".log", ".index", ".timeindex")] == []
    assert log.next_offset == log.durable_offset == 20
    assert log.segments[-1].max_timestamp == NOW
    assert append(log, *values[18:], producer=7, sequence=18) == (18, 20, True)
    assert all_values(log) == values


def test_a_clean_stop_keeps_the_producers(directory: Path) -> None:
    values = fill(directory, 6, producer=7)
    first = open_at(directory)
    end = clean_end(first)
    log = open_at(directory, clean_end=end)
    again = append(log, *values[10:12], producer=7, sequence=10)
    assert (again.base_offset, again.is_duplicate) == (10, True)


@pytest.mark.parametrize("lost", ["lost", "torn", "flipped"])
def test_a_clean_stop_without_a_sound_snapshot_reads_the_producers_from_the_log(directory: Path, lost: str) -> None:
    values = fill(directory, 6, producer=7)
    end = clean_end(open_at(directory))
    (snapshot,) = directory.glob(f"*{SNAPSHOT_SUFFIX}")
    match lost:
        case "lost":
            snapshot.unlink()
        case "torn":
            os.truncate(snapshot, snapshot.stat().st_size - 3)
        case _:
            flip(snapshot, 20)
    log = open_at(directory, clean_end=end, recovery_point=12)
    again = append(log, *values[10:12], producer=7, sequence=10)
    assert (again.base_offset, again.is_duplicate) == (10, True)


def test_a_mark_that_is_of_an_earlier_stop_is_not_believed(directory: Path) -> None:
    fill(directory, 2)
    end = clean_end(open_at(directory))
    log = open_at(directory)
    append(log, "later")
    log.close()
    assert open_at(directory, clean_end=end).next_offset == 5


def test_the_time_a_segment_began_survives_a_clean_stop(directory: Path) -> None:
    fill(directory, 2)
    end = clean_end(open_at(directory))
    log = open_at(directory, clean_end=end, segment_ms=1000)
    append(log, "much later", timestamp=NOW + 1001)
    assert len(log.segments) == 2


# After a crash


@pytest.mark.parametrize("cut", [1, 5, 60, 61, 62, 100, 140])
def test_a_torn_tail_is_cut_back_to_the_last_whole_batch(
    directory: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    values = fill(directory, 3)
    os.truncate(log_file(directory), 3 * BATCH - cut)
    log = open_at(directory)
    assert log.next_offset == 4
    assert all_values(log) == values[:4]
    assert log_file(directory).stat().st_size == 2 * BATCH
    assert f"torn at byte {2 * BATCH}" in caplog.text
    assert "the log ends at offset 4" in caplog.text
    assert (directory / f"{log_file(directory).name}.{2 * BATCH}.torn").stat().st_size == BATCH - cut
    append(log, "next")
    assert all_values(log) == [*values[:4], "next"]


def test_zeroes_behind_the_end_are_cut_and_not_kept(directory: Path) -> None:
    values = fill(directory, 3)
    os.truncate(log_file(directory), 3 * BATCH + 4096)
    log = open_at(directory)
    assert all_values(log) == values
    assert not list(directory.glob("*.torn"))


def test_a_zero_filled_last_page_takes_the_batches_it_hit(directory: Path) -> None:
    values = fill(directory, 4)
    with log_file(directory).open("r+b") as file:
        file.seek(BATCH + 20)
        file.write(b"\0" * (3 * BATCH - 20))
    assert all_values(open_at(directory)) == values[:2]


@pytest.mark.parametrize("byte", range(2 * BATCH, 3 * BATCH, 7))
def test_a_flipped_bit_above_the_recovery_point_ends_the_log_there(
    directory: Path, byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    values = fill(directory, 4)
    flip(log_file(directory), byte, bit=6)
    log = open_at(directory, recovery_point=4)
    assert all_values(log) == values[:4]
    assert f"torn at byte {2 * BATCH}" in caplog.text
    torn = directory / f"{log_file(directory).name}.{2 * BATCH}.torn"
    assert torn.stat().st_size == 2 * BATCH, "the sound batch behind it is kept too"


@pytest.mark.parametrize("byte", range(2 * BATCH, 3 * BATCH, 7))
def test_a_flipped_bit_below_the_recovery_point_keeps_the_log_closed(directory: Path, byte: int) -> None:
    fill(directory, 4)
    flip(log_file(directory), byte, bit=6)
    before = log_file(directory).read_bytes()
    with pytest.raises(StorageFailed, match=rf"damaged at byte {2 * BATCH} .*below the recovery point 8"):
        open_at(directory, recovery_point=8)
    assert log_file(directory).read_bytes() == before, "nothing is cut, nothing is thrown away"


@pytest.mark.parametrize("size", [0, BATCH, 3 * BATCH])
def test_a_log_that_ends_below_its_recovery_point_stays_closed(directory: Path, size: int) -> None:
    fill(directory, 4)
    os.truncate(log_file(directory), size)
    with pytest.raises(StorageFailed, match="below the recovery point 8"):
        open_at(directory, recovery_point=8)


def test_a_closed_segment_that_lost_its_end_below_the_recovery_point_keeps_the_log_closed(
    directory: Path,
) -> None:
    fill(directory, 10)
    os.truncate(log_file(directory), 3 * BATCH)
    with pytest.raises(StorageFailed, match="ends at offset 6, below the recovery point 20"):
        open_at(directory, recovery_point=20)


def test_segments_behind_a_cut_are_set_aside(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = fill(directory, 12)
    os.truncate(log_file(directory, 8), 2 * BATCH + 50)
    log = open_at(directory, segment_bytes=SEGMENT)
    assert all_values(log) == values[:12]
    assert f"{log_file(directory, 16).name} lies behind the cut" in caplog.text
    assert (directory / f"{log_file(directory, 16).name}.torn").exists()
    append(log, "next")
    assert all_values(open_at(directory)) == [*values[:12], "next"]


def test_a_segment_that_does_not_follow_the_one_before_it_is_set_aside(directory: Path) -> None:
    values = fill(directory, 12)
    os.truncate(log_file(directory, 8), 2 * BATCH)  # at a batch's end: every batch that is left is whole
    log = open_at(directory, segment_bytes=SEGMENT)
    assert all_values(log) == values[:12]
    assert log.next_offset == 12


def test_what_a_killed_process_left_in_memory_is_synced_before_it_counts_as_durable(directory: Path) -> None:
    log = open_at(directory)
    append(log, "a")
    log.close()
    acts: list[Act] = []
    again = open_at(directory, disk=WatchedDisk(RealDisk(), acts.append))
    assert again.durable_offset == 1
    synced = [act.path.name for act in acts if act.kind in ("sync", "sync_directory")]
    assert {log_file(directory).name, directory.name, directory.parent.name} <= set(synced)


def test_a_recovery_leaves_no_file_open(directory: Path) -> None:
    fill(directory, 12)
    before = len(os.listdir("/dev/fd"))
    logs = [open_at(directory, disk=DISK) for _ in range(5)]
    flip(log_file(directory, 16), 80)
    with pytest.raises(StorageFailed):
        open_at(directory, disk=DISK, recovery_point=24)
    assert len(os.listdir("/dev/fd")) == before
    assert all(log.next_offset == 24 for log in logs)


def test_a_scan_begins_at_the_recovery_point(directory: Path) -> None:
    fill(directory, 12)
    log = open_at(directory)
    for segment in log.segments:
        segment.write_indexes(segment.encode_indexes())
    write_snapshot(RealDisk(), directory, Offset(20), log.producers.encode())
    acts: list[Act] = []
    open_at(directory, disk=WatchedDisk(RealDisk(), acts.append), recovery_point=20)
    read = {act.path.name for act in acts if act.kind == "read" and act.path.suffix == ".log"}
    assert read == {log_file(directory, 16).name}


# Offsets and epochs, which no CRC covers


def rewrite(directory: Path, batch: int, *, offset: int | None = None, epoch: int | None = None) -> None:
    with log_file(directory).open("r+b") as file:
        if offset is not None:
            file.seek(batch * BATCH)
            file.write(offset.to_bytes(8, "big", signed=True))
        if epoch is not None:
            file.seek(batch * BATCH + 12)
            file.write(epoch.to_bytes(4, "big", signed=True))


@pytest.mark.parametrize("offset", [-1, 0, 3, 5, 6, 2**40])
def test_a_batch_with_a_wrong_offset_ends_the_log(directory: Path, offset: int) -> None:
    values = fill(directory, 4)
    rewrite(directory, 2, offset=offset)
    log = open_at(directory, recovery_point=4)
    assert all_values(log) == values[:4]
    assert log.next_offset == 4


@pytest.mark.parametrize("offset", [-1, 0, 3, 5, 6, 2**40])
def test_a_batch_with_a_wrong_offset_below_the_recovery_point_keeps_the_log_closed(
    directory: Path, offset: int
) -> None:
    fill(directory, 4)
    rewrite(directory, 2, offset=offset)
    with pytest.raises(StorageFailed, match=f"damaged at byte {2 * BATCH}"):
        open_at(directory, recovery_point=8)


def test_the_last_batch_of_a_closed_segment_cannot_reach_into_the_next(directory: Path) -> None:
    values = fill(directory, 6)
    rewrite(directory, 3, offset=7)
    assert all_values(open_at(directory)) == values[:6]


def test_offsets_that_compaction_left_out_are_no_damage(directory: Path) -> None:
    values = fill(directory, 6)
    content = bytearray(log_file(directory).read_bytes())
    del content[BATCH : 2 * BATCH]
    log_file(directory).write_bytes(content)
    for point in (0, 12):
        assert all_values(open_at(directory, recovery_point=point)) == values[:2] + values[4:]


@pytest.mark.parametrize("epoch", [-1, 2, 9, 2**31 - 1])
def test_a_batch_with_an_epoch_that_cannot_be_ends_the_log(directory: Path, epoch: int) -> None:
    values = fill(directory, 4, leader_epoch=5)
    rewrite(directory, 2, epoch=epoch)
    log = open_at(directory, recovery_point=4)
    assert all_values(log) == values[:4]
    assert log.epochs.latest == 5


@pytest.mark.parametrize("content", [None, b"garbage", b"0\n2\n3 0\n"])
@pytest.mark.parametrize("point", [0, 8])
def test_leader_epochs_come_from_the_log_where_their_file_is_lost_or_damaged(
    directory: Path, content: bytes | None, point: int
) -> None:
    log = open_at(directory, segment_bytes=100)  # a segment for each batch: most lie below the recovery point
    for epoch in (3, 3, 4, 7):
        append(log, "a", "b", leader_epoch=epoch)
    sync(log)
    (directory / LEADER_EPOCHS).unlink()
    if content is not None:
        (directory / LEADER_EPOCHS).write_bytes(content)
    if point:
        write_snapshot(RealDisk(), directory, Offset(point), log.producers.encode())
    again = open_at(directory, recovery_point=point)
    assert [again.epochs.epoch_at(Offset(offset)) for offset in range(8)] == [3, 3, 3, 3, 4, 4, 7, 7]
    assert (directory / LEADER_EPOCHS).read_text() == "0\n3\n3 0\n4 4\n7 6\n", "also for the next start"


def test_leader_epochs_come_from_the_log_also_after_a_clean_stop(directory: Path) -> None:
    log = open_at(directory)
    for epoch in (3, 7):
        append(log, "a", leader_epoch=epoch)
    sync(log)
    (directory / LEADER_EPOCHS).unlink()
    again = open_at(directory, recovery_point=2, clean_end=clean_end(log))
    assert [again.epochs.epoch_at(Offset(offset)) for offset in range(2)] == [3, 7]


def test_epochs_of_batches_that_were_cut_off_are_forgotten(directory: Path) -> None:
    log = open_at(directory)
    append(log, "a", leader_epoch=1)
    size = log.size
    append(log, "b", leader_epoch=2)
    sync(log)
    os.truncate(log_file(directory), size + 10)
    again = open_at(directory)
    assert again.epochs.latest == 1
    append(again, "c", leader_epoch=3)
    assert again.epochs.end_of(LeaderEpoch(2), again.next_offset) == (1, 1)


# Producers


def test_producers_are_rebuilt_from_the_snapshot_and_what_follows_it(directory: Path) -> None:
    values = fill(directory, 10, producer=7)
    log = open_at(directory)
    write_snapshot(RealDisk(), directory, Offset(20), log.producers.encode())
    append(log, "u", "v", producer=7, sequence=20)
    log.close()
    again = open_at(directory, recovery_point=20)
    assert append(again, *values[18:20], producer=7, sequence=18)[0] == 18
    assert append(again, "u", "v", producer=7, sequence=20) == (20, 22, True)
    assert append(again, "w", "x", producer=7, sequence=22) == (22, 24, False)


def test_a_snapshot_of_records_above_the_recovery_point_is_not_taken(directory: Path) -> None:
    fill(directory, 4, producer=7)
    log = open_at(directory)
    write_snapshot(RealDisk(), directory, Offset(8), log.producers.encode())
    os.truncate(log_file(directory), 3 * BATCH)
    again = open_at(directory)
    assert not append(again, "a", "b", producer=7, sequence=6).is_duplicate


def test_a_checkpoint_that_was_interrupted_leaves_the_snapshot_that_its_recovery_point_needs(
    directory: Path,
) -> None:
    fill(directory, 6, producer=7)
    log = open_at(directory)
    for path in directory.glob(f"*{SNAPSHOT_SUFFIX}"):
        path.unlink()
    for offset in (4, 8, 12):  # the recovery point of the last one was never written
        write_snapshot(RealDisk(), directory, Offset(offset), log.producers.encode())
    assert sorted(path.stem for path in directory.glob(f"*{SNAPSHOT_SUFFIX}")) == [f"{8:020d}", f"{12:020d}"]
    acts: list[Act] = []
    open_at(directory, disk=WatchedDisk(RealDisk(), acts.append), recovery_point=8)
    assert not any(act.path.name == f"{12:020d}{SNAPSHOT_SUFFIX}" and act.kind == "read" for act in acts)
    assert (directory / f"{8:020d}{SNAPSHOT_SUFFIX}").exists()


def test_a_recovery_leaves_a_snapshot_for_the_next_start(directory: Path) -> None:
    fill(directory, 3, producer=7)
    open_at(directory)
    assert [path.stem for path in directory.glob(f"*{SNAPSHOT_SUFFIX}")] == [f"{6:020d}"]


# Where the log starts


def test_segments_that_were_deleted_and_came_back_are_removed(directory: Path) -> None:
    values = fill(directory, 12)
    log_file(directory, 8).unlink()  # of three deleted segments one deletion was not undone by the power failure
    log = open_at(directory, log_start=17, recovery_point=4)
    assert (log.log_start, log.next_offset) == (17, 24)
    assert all_values(log) == values[16:]
    assert sorted(path.name for path in directory.glob("*.log")) == [log_file(directory, 16).name]


def test_a_log_starts_where_its_first_segment_starts(directory: Path) -> None:
    fill(directory, 12)
    log_file(directory, 0).unlink()
    assert open_at(directory, recovery_point=24).log_start == 8


def test_offsets_of_deleted_records_are_not_given_out_again(directory: Path) -> None:
    fill(directory, 4)
    os.truncate(log_file(directory), 2 * BATCH)
    log = open_at(directory, log_start=8)
    assert (log.log_start, log.next_offset) == (8, 8)
    append(log, "next")
    assert all_values(log) == ["next"]
    assert [path.name for path in directory.glob("*.log")] == [log_file(directory, 8).name]
    again = open_at(directory, log_start=8)
    assert (again.log_start, again.next_offset) == (8, 9)


def test_an_emptied_log_whose_new_segment_was_lost_is_no_damage(directory: Path) -> None:
    fill(directory, 4)  # all of it deleted; the empty segment that was to follow has not come back
    os.truncate(log_file(directory), 2 * BATCH)
    log = open_at(directory, log_start=8, recovery_point=8)
    assert (log.log_start, log.next_offset) == (8, 8)


def test_a_log_whose_files_are_gone_goes_on_after_what_was_safe_and_says_so(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_at(directory, log_start=3, recovery_point=9)
    assert (log.log_start, log.next_offset) == (9, 9)
    assert "records 3 to 8 are gone" in caplog.text
    directory.mkdir()
    caplog.clear()
    assert open_at(directory, log_start=3, recovery_point=9).next_offset == 9
    assert "records 3 to 8 are gone" in caplog.text


# After a sync that failed


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    yield world
    world.close()


@pytest.mark.parametrize("synced", [0, 2, 5])
def test_what_a_failed_sync_left_to_the_page_cache_alone_is_on_the_disk_once_a_log_is_open(
    world: World, synced: int
) -> None:
    root = Path("/data")
    for seed in range(10):
        disk = NodeDisk(world, seed, root)
        log = open_at(root / str(AT), disk=disk, segment_bytes=SEGMENT)
        values = [f"{number:04}".ljust(40, "x") for number in range(20)]
        for number in range(10):
            if number == synced > 0:
                for segment in log.segments:
                    segment.file.sync()
                sync_topic_id(disk, log.directory)
            append(log, *values[number * 2 : number * 2 + 2])
        disk.sync_directory(log.directory)
        for parent in (root, root.parent):
            disk.sync_directory(parent)
        disk.syncs_failing = len(log.segments) + 1
        for segment in log.segments:
            with pytest.raises(OSError, match="Input/output"):
                segment.file.sync()
        if not synced:
            with pytest.raises(OSError, match="Input/output"):
                sync_topic_id(disk, log.directory)
        disk.syncs_failing = 0
        # The process is started again, the machine was not.
        again = open_at(log.directory, disk=disk, recovery_point=synced * 2, segment_bytes=SEGMENT)
        assert again.durable_offset == 20
        disk.power_loss()
        assert all_values(open_at(log.directory, disk=disk, recovery_point=20, segment_bytes=SEGMENT)) == values
        assert read_topic_id(disk, log.directory) == TOPIC_ID


def test_only_what_lies_above_the_recovery_point_is_written_again(directory: Path) -> None:
    fill(directory, 10)
    for point, batches in ((0, 10), (6, 7), (8, 6), (20, 0)):
        for snapshot in directory.glob(f"*{SNAPSHOT_SUFFIX}"):
            snapshot.unlink()  # else the scan would begin at the point anyway
        before = {path: path.read_bytes() for path in directory.glob("*.log")}
        acts: list[Act] = []
        open_at(directory, disk=WatchedDisk(RealDisk(), acts.append), recovery_point=point, segment_bytes=SEGMENT)
        written = [act.size for act in acts if act.kind == "write" and act.path.suffix == ".log"]
        assert sum(written) == batches * BATCH
        assert {path: path.read_bytes() for path in directory.glob("*.log")} == before


def test_a_large_batch_is_written_again_in_pieces_before_its_file_is_synced(directory: Path) -> None:
    log = open_at(directory)
    append(log, os.urandom(5 << 18).hex())
    log.close()
    content = log_file(directory).read_bytes()
    acts: list[Act] = []
    open_at(directory, disk=WatchedDisk(RealDisk(), acts.append))
    effects = [act for act in acts if act.kind in ("write", "sync") and act.path.suffix == ".log"]
    assert [act.kind for act in effects] == ["write", "write", "write", "sync"]
    assert max(act.size for act in effects) == REWRITE_BYTES_MAX
    assert log_file(directory).read_bytes() == content


# Indexes and times


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["lost", "empty", "zeroed", "garbage", "older"])
def test_indexes_are_no_part_of_the_truth(directory: Path, suffix: str, how: str) -> None:
    values = fill(directory, 12)
    log = open_at(directory)
    for segment in log.segments:
        segment.write_indexes(segment.encode_indexes())
    for path in directory.glob(f"*{suffix}"):
        content = path.read_bytes()
        match how:
            case "lost":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case "zeroed":
                path.write_bytes(bytes(len(content)))
            case "garbage":
                path.write_bytes(bytes(range(1, 200)))
            case _:
                path.write_bytes(content[:12])
    for point in (0, 5, 24):
        again = open_at(directory, recovery_point=point)
        assert all_values(again) == values
        for offset in range(24):
            chunk = again.read(Offset(offset), 1, Offset(24), cached_only=False)
            assert chunk is not None
            assert int.from_bytes(chunk[:8], "big") == offset // 2 * 2
        for segment in again.segments:
            segment.load_max_timestamp()
            assert segment.max_timestamp == NOW


def test_a_scan_from_the_middle_knows_the_times_before_it(directory: Path) -> None:
    log = open_at(directory, index_interval_bytes=100)
    for number, timestamp in enumerate((NOW, NOW + 9, NOW + 1, NOW + 2)):
        append(log, f"{number}".ljust(40), "x" * 40, timestamp=timestamp)
    active = log.segments[0]
    active.write_indexes(active.encode_indexes())
    write_snapshot(RealDisk(), directory, Offset(6), log.producers.encode())
    log.close()
    again = open_at(directory, recovery_point=6, index_interval_bytes=100).segments[0]
    assert again.max_timestamp == NOW + 9
    assert again.first_timestamp == NOW


# Room to keep what is cut off


class Full(RealDisk):
    def replace_file(self, path: Path, content: bytes) -> None:
        if path.suffix == ".torn":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().replace_file(path, content)


def test_a_batch_that_a_full_disk_tore_does_not_keep_the_log_closed(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = fill(directory, 3)
    os.truncate(log_file(directory), 3 * BATCH - 50)
    assert all_values(open_at(directory, disk=Full())) == values[:4]
    assert "too full to keep them" in caplog.text


def test_whole_batches_are_not_thrown_away_because_there_is_no_room_to_keep_them(directory: Path) -> None:
    fill(directory, 3)
    flip(log_file(directory), BATCH + 100)
    with pytest.raises(OSError, match="No space left"):
        open_at(directory, disk=Full())
    assert log_file(directory).stat().st_size == 3 * BATCH


def test_the_batches_of_these_tests_have_the_size_they_say() -> None:
    batch, _ = make_batch("0000".ljust(40, "x"), "0001".ljust(40, "x"))
    assert len(batch) == BATCH
