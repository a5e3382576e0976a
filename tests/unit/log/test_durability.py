"""What a log has on the disk before it says so; and a failed disk ends the writing for good."""

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.workload import ManualClock
from tests.simulation.disk import SimulatedDisk
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import TOPIC_ID, all_values, append, fill, open_at, values_in

from penstock.clock import Rng
from penstock.config import TopicConfig
from penstock.disk import Buffer, Disk, File, RealDisk
from penstock.errors import StorageFailed, UnknownTopicOrPartition
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import BRIEF_SYNC_BYTES_MAX, PartitionLog
from penstock.model import LeaderEpoch, Offset, TopicPartition


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


class Telling(RealDisk):
    """Which syncs of a log were brief."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[str] = []

    def run(self, work: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        self.kinds.append("long")
        return super().run(work, *arguments)

    def run_brief(self, work: Callable[[], Any], *, is_loop_free: bool) -> "asyncio.Future[Any]":
        self.kinds.append("brief")
        return super().run(work)


async def test_what_many_have_written_without_a_sync_is_not_brief(directory: Path) -> None:
    disk = Telling()
    log = open_at(directory, disk=disk)
    kinds: list[str] = []
    for size in (10, 10, BRIEF_SYNC_BYTES_MAX + 1, 10):
        append(log, "a" * size)
        await log.sync.wait_for(log.next_offset)
        kinds.append(disk.kinds.pop())
    assert kinds == ["long", "brief", "long", "brief"]
    log.close()
    again = open_at(directory, disk=disk)
    append(again, "a")
    await again.sync.wait_for(again.next_offset)
    assert disk.kinds.pop() == "long", "nobody knows what was written before"
    disk.close()


async def test_a_sync_is_brief_where_one_file_is_all_there_is_to_it(directory: Path) -> None:
    disk = Telling()
    log = open_at(directory, disk=disk, segment_bytes=400)

    async def kind_of_sync() -> str:
        await log.sync.wait_for(log.next_offset)
        return disk.kinds.pop()

    append(log, "a")
    assert await kind_of_sync() == "long", "the directory is new"
    append(log, "a")
    assert await kind_of_sync() == "brief"
    log.begin_epoch(LeaderEpoch(7))
    append(log, "a", leader_epoch=7)
    assert await kind_of_sync() == "long", "the epoch is new"
    fill(log, 10)
    assert await kind_of_sync() == "long", "several segments"
    disk.close()


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


@pytest.mark.parametrize("seed", range(12))
async def test_a_segment_that_was_empty_at_a_clean_stop_is_found_again_when_power_fails(seed: int) -> None:
    """By the seed a name that no sync of its directory has covered is lost, or is not."""
    at, root, clock, disk = TopicPartition("orders", 0), Path("/data"), ManualClock(), SimulatedDisk(seed)

    async def opened() -> tuple[LogDirectory, PartitionLog]:
        logs = LogDirectory(disk, root, clock, Rng(3))
        logs.prepare()
        await logs.open_all([LogRequest(at, TOPIC_ID, TopicConfig())])
        return logs, logs.logs[at]

    logs, log = await opened()
    append(log, "a")
    await logs.checkpoint()
    log.roll(clock.ms)  # as retention does where all is old
    await logs.close()
    logs, log = await opened()
    append(log, "b")
    await log.sync.wait_for(log.next_offset)
    logs.release()
    disk.power_loss()
    _, log = await opened()
    assert all_values(log) == ["a", "b"]
