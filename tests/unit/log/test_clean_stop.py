"""The mark of a clean stop: left only when every log is safe, gone before the next start touches one."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.data_directory import A, B, fill, start
from tests.unit.log.making import NOW, all_values

from penstock.disk import RealDisk
from penstock.errors import StorageFailed
from penstock.log.directory import CLEAN_STOP
from penstock.model import Offset


async def test_a_clean_stop_is_marked_and_the_next_start_reads_no_segment(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    values = fill(logs.logs[A], 9, producer=7, sequence=-1)
    assert not logs.was_clean
    await logs.close()
    assert (tmp_path / CLEAN_STOP).exists()
    acts: list[Act] = []
    again = await start(tmp_path, disk=WatchedDisk(RealDisk(), acts.append))
    assert again.was_clean
    assert not [act for act in acts if act.kind == "read" and act.path.suffix in (".log", ".index", ".timeindex")]
    assert all_values(again.logs[A]) == values
    assert again.logs[B].next_offset == 0


async def test_the_mark_of_a_clean_stop_is_gone_for_good_before_the_first_log_is_opened(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 3)
    await logs.close()
    acts: list[Act] = []
    await start(tmp_path, disk=WatchedDisk(RealDisk(), acts.append))
    names = [(act.kind, act.path.name) for act in acts]
    removed = names.index(("remove", CLEAN_STOP))
    assert names[removed + 1] == ("sync_directory", tmp_path.name)
    assert not any("a-0" in str(act.path) for act in acts[: removed + 2])
    assert not (tmp_path / CLEAN_STOP).exists()


async def test_a_crash_after_a_clean_stop_was_undone_is_no_clean_stop(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 3)
    await logs.close()
    logs = await start(tmp_path)
    values = fill(logs.logs[A], 2)
    logs.release()
    again = await start(tmp_path)
    assert not again.was_clean
    assert all_values(again.logs[A])[3:] == values


async def test_a_damaged_mark_is_no_mark(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    values = fill(logs.logs[A], 3)
    await logs.close()
    content = (tmp_path / CLEAN_STOP).read_bytes()
    for byte in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[byte] ^= 1
        (tmp_path / CLEAN_STOP).write_bytes(damaged)
        again = await start(tmp_path)
        assert all_values(again.logs[A]) == values
        assert again.logs[A].next_offset == 3
        assert again.logs[A].segments[-1].max_timestamp == NOW
        again.release()


async def test_a_log_that_failed_leaves_no_mark(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 3)
    logs.logs[A].failure = StorageFailed("the disk is gone")
    await logs.close()
    assert not (tmp_path / CLEAN_STOP).exists()


async def test_a_stop_on_a_full_disk_ends_without_a_mark_and_without_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(act: Act) -> None:
        if is_full and act.kind in ("write", "create"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    is_full = False
    logs = await start(tmp_path, disk=WatchedDisk(RealDisk(), full))
    values = fill(logs.logs[A], 3)
    await asyncio.shield(logs.logs[A].sync.wait_for(Offset(3)))
    is_full = True
    await logs.close()
    assert not (tmp_path / CLEAN_STOP).exists()
    assert "No space left" in caplog.text
    again = await start(tmp_path)
    assert all_values(again.logs[A]) == values
