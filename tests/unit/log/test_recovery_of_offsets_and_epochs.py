"""Offsets and epochs when a log is opened: no CRC covers them, so one that cannot be ends the log."""

import os
from pathlib import Path

import pytest
from tests.unit.log.making import all_values, append, open_at
from tests.unit.log.recovering import BATCH, clean_end, fill, log_file, sync

from penstock.disk import RealDisk
from penstock.errors import StorageFailed
from penstock.log.checkpoints import LEADER_EPOCHS
from penstock.log.recovery import write_snapshot
from penstock.model import LeaderEpoch, Offset


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
