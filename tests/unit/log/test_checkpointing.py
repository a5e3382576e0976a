"""All logs of a data directory checkpointed together: how far each is safe, whatever else happens meanwhile."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.data_directory import A, B, fill, start, until
from tests.unit.log.making import NOW, all_values, append

from penstock.config import TopicConfig
from penstock.disk import RealDisk
from penstock.log.checkpoints import LOG_STARTS, RECOVERY_POINTS, read_offsets, read_saved_offsets
from penstock.log.directory import LogRequest
from penstock.model import Offset


async def test_a_checkpoint_syncs_and_writes_down_how_far_each_log_is_safe(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 5)
    logs.logs[A].advance_start(Offset(2))
    await logs.checkpoint()
    assert logs.logs[A].durable_offset == 5
    assert read_offsets(RealDisk(), tmp_path / RECOVERY_POINTS) == {A: 5}
    assert read_offsets(RealDisk(), tmp_path / LOG_STARTS) == {A: 2}
    assert (tmp_path / "a-0" / f"{5:020d}.snapshot").exists()


async def test_a_log_with_many_batches_is_checkpointed_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.checkpointing.BUSY_BATCHES", 5)
    logs = await start(tmp_path)
    fill(logs.logs[A], 5)
    fill(logs.logs[B], 4)
    await logs.checkpoint_busy()
    assert read_offsets(RealDisk(), tmp_path / RECOVERY_POINTS) == {A: 5}
    fill(logs.logs[A], 4)
    fill(logs.logs[B], 1)
    await logs.checkpoint_busy()
    assert read_offsets(RealDisk(), tmp_path / RECOVERY_POINTS) == {A: 5, B: 5}


async def test_what_one_log_cannot_do_does_not_keep_the_others_from_their_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(act: Act) -> None:
        if act.path.name.startswith(f"{5:020d}.snapshot"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    logs = await start(tmp_path, disk=WatchedDisk(RealDisk(), refuse))
    fill(logs.logs[A], 5)
    fill(logs.logs[B], 4)
    await logs.checkpoint()
    assert read_offsets(RealDisk(), tmp_path / RECOVERY_POINTS) == {B: 4}
    assert "a-0: indexes and producers could not be written" in caplog.text


async def test_a_log_without_segments_does_not_trouble_a_checkpoint(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 5)
    logs.logs[A].advance_start(Offset(5))
    await logs.save_points()
    logs.release()
    for path in (tmp_path / "a-0").iterdir():
        path.unlink()
    (tmp_path / "a-0").rmdir()
    again = await start(tmp_path)
    assert (again.logs[A].log_start, again.logs[A].next_offset) == (5, 5)
    fill(again.logs[B], 1)
    await again.checkpoint()
    assert read_offsets(RealDisk(), tmp_path / RECOVERY_POINTS) == {B: 1}


class Held(RealDisk):
    """Holds work of one name until the test lets it go; counts how often any of it was begun."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.begun = 0
        self.go_on = asyncio.Event()

    def run(self, work: Any, *arguments: Any) -> Any:
        if work.__name__ != self._name:
            return super().run(work, *arguments)
        self.begun += 1
        return asyncio.ensure_future(self._hold(work, arguments))

    async def _hold(self, work: Any, arguments: Any) -> Any:
        # As on a thread: whoever asked for it may be cancelled, the work is not.
        return await asyncio.shield(asyncio.ensure_future(self._work(work, arguments)))

    async def _work(self, work: Any, arguments: Any) -> Any:
        await self.go_on.wait()
        return await super().run(work, *arguments)


async def test_a_topic_made_again_during_a_checkpoint_gets_nothing_of_the_old_one(tmp_path: Path) -> None:
    disk = Held("write")
    logs = await start(tmp_path, A, disk=disk)
    fill(logs.logs[A], 5)
    running = asyncio.ensure_future(logs.checkpoint())
    await until(lambda: disk.begun)
    logs.delete(A)
    new_id = UUID(int=0xC)
    log = logs.open_one(LogRequest(A, new_id, TopicConfig()))
    values = fill(log, 2)
    await asyncio.shield(log.sync.wait_for(Offset(2)))
    disk.go_on.set()
    await running
    assert A not in read_offsets(RealDisk(), tmp_path / RECOVERY_POINTS)
    assert not list((tmp_path / "a-0").glob("*.snapshot"))
    logs.release()
    again = await start(tmp_path, A, ids={A: new_id})
    assert all_values(again.logs[A]) == values


async def test_indexes_of_a_segment_that_was_closed_during_a_checkpoint_are_whole(tmp_path: Path) -> None:
    disk = Held("write")
    logs = await start(tmp_path, A, disk=disk, index_interval_bytes=1)
    log = logs.logs[A]
    append(log, "first", timestamp=NOW)
    active = log.segments[-1]
    running = asyncio.ensure_future(logs.checkpoint())
    await until(lambda: disk.begun)  # it has taken the indexes as they were
    append(log, "second", timestamp=NOW + 5)
    append(log, "x" * 400, timestamp=NOW + 9)
    assert log.segments[-1] is not active
    disk.go_on.set()
    await running
    assert (tmp_path / "a-0" / f"{0:020d}.index").read_bytes() == active.offset_index.encode() != b""
    assert (tmp_path / "a-0" / f"{0:020d}.timeindex").read_bytes() == active.time_index.encode()


async def test_points_are_saved_one_after_the_other_even_when_somebody_gives_up_waiting(tmp_path: Path) -> None:
    disk = Held("write_saved_offsets")
    logs = await start(tmp_path, disk=disk)
    fill(logs.logs[A], 5)
    tasks = [asyncio.ensure_future(logs.save_points()) for _ in range(10)]
    await until(lambda: disk.begun)
    tasks[0].cancel()
    for _ in range(100):
        await asyncio.sleep(0)
    assert disk.begun == 1, "the first is still being written, whoever waits for it"
    disk.go_on.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    await logs.checkpoint()
    assert read_offsets(RealDisk(), tmp_path / RECOVERY_POINTS) == {A: 5}


async def test_points_of_logs_that_are_gone_are_not_carried_along_for_ever(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 3)
    fill(logs.logs[B], 3)
    await logs.close()
    for path in (tmp_path / "a-0").iterdir():
        path.unlink()
    (tmp_path / "a-0").rmdir()
    again = await start(tmp_path, B)
    fill(again.logs[B], 1)
    await again.checkpoint()
    assert set(read_saved_offsets(RealDisk(), tmp_path / RECOVERY_POINTS)) == {B}
