"""All logs of a data directory: opened together, checkpointed together, closed together."""

import asyncio
import errno
import logging
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import HOUR, NOW, all_values, append

from penstock.clock import Rng
from penstock.config import TopicConfig
from penstock.disk import Disk, RealDisk
from penstock.errors import StorageFailed, UnknownTopicOrPartition
from penstock.log.checkpoints import LOG_STARTS, RECOVERY_POINTS, read_offsets, read_saved_offsets
from penstock.log.directory import CLEAN_STOP, LogDirectory, LogRequest
from penstock.log.partition_log import TOPIC_ID_FILE, PartitionLog, read_topic_id
from penstock.model import Offset, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
IDS = {A: UUID(int=0xA), B: UUID(int=0xB)}
DAY = 24 * HOUR


class FixedClock:
    def __init__(self) -> None:
        self.ms = NOW

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


async def start(
    root: Path,
    *wanted: TopicPartition,
    ids: dict[TopicPartition, UUID] = IDS,
    disk: Disk | None = None,
    **settings: Any,
) -> LogDirectory:
    """A directory as a broker opens it, with these logs (both, if none are named)."""
    logs = LogDirectory(disk or RealDisk(), root, FixedClock(), Rng(1))
    logs.prepare()
    config = TopicConfig(**{"file_delete_delay_ms": 0, "segment_bytes": 400, **settings})
    await logs.open_all(LogRequest(at, ids[at], config) for at in wanted or (A, B))
    return logs


def fill(log: PartitionLog, count: int, **batch: Any) -> list[str]:
    values = [f"{log.at} {log.next_offset + number}".ljust(60) for number in range(count)]
    for value in values:
        append(log, value, **batch)
    return values


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (what a thread does to files tells nobody)
            await asyncio.sleep(0.005)


def directories(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()]


# Opening and closing


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


async def test_a_damaged_log_is_offline_and_the_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 3)
    values = fill(logs.logs[B], 3)
    await logs.checkpoint()
    logs.release()
    path = tmp_path / "a-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)
    again = await start(tmp_path)
    assert A not in again.logs
    assert "damaged at byte 0" in str(again.offline[A])
    assert str(again.offline[A]) in caplog.text
    assert all_values(again.logs[B]) == values
    await again.close()
    third = await start(tmp_path)
    assert A in third.offline, "and it stays so"


async def test_a_directory_that_cannot_be_read_is_one_log_offline(tmp_path: Path) -> None:
    (tmp_path / "a-0").write_bytes(b"no directory")
    logs = await start(tmp_path)
    assert isinstance(logs.offline[A], StorageFailed)
    assert B in logs.logs


async def test_the_root_is_on_stable_storage_before_anything_in_it(tmp_path: Path) -> None:
    acts: list[Act] = []
    await start(tmp_path / "new" / "data", disk=WatchedDisk(RealDisk(), acts.append))
    assert ("sync_directory", tmp_path / "new") in [(act.kind, act.path) for act in acts]


# Checkpoints


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


# Retention and deleted records


async def test_old_segments_go_and_their_files_after_them(tmp_path: Path) -> None:
    logs = await start(tmp_path, retention_bytes=800, retention_ms=-1)
    values = fill(logs.logs[A], 20)
    before = len(logs.logs[A].segments)
    gone = await logs.apply_retention({A: Offset(20), B: Offset(0)}, DAY)
    log = logs.logs[A]
    assert gone == before - len(log.segments) > 2
    assert log.log_start == log.segments[0].base_offset
    assert all_values(log) == values[log.log_start :]
    await until(lambda: len(list((tmp_path / "a-0").glob("*.log*"))) == len(log.segments))


async def test_a_new_start_is_durable_before_the_first_file_below_it_goes(tmp_path: Path) -> None:
    acts: list[Act] = []
    logs = await start(tmp_path, disk=WatchedDisk(RealDisk(), acts.append), retention_bytes=800, retention_ms=-1)
    fill(logs.logs[A], 20)
    acts.clear()
    await logs.apply_retention({A: Offset(20)}, DAY)
    renames = [act.path.name for act in acts if act.kind == "rename"]
    assert renames.index(f"{LOG_STARTS}.tmp") < min(renames.index(name) for name in renames if name.endswith(".log"))
    assert read_offsets(RealDisk(), tmp_path / LOG_STARTS) == {A: logs.logs[A].log_start}


async def test_a_log_all_of_which_is_old_is_emptied_and_its_offsets_go_on(tmp_path: Path) -> None:
    logs = await start(tmp_path, retention_ms=HOUR)
    fill(logs.logs[A], 5)
    logs._clock.ms = NOW + 2 * HOUR  # type: ignore[attr-defined]
    await logs.apply_retention({A: Offset(5)}, DAY)
    log = logs.logs[A]
    assert (log.log_start, log.next_offset, log.size) == (5, 5, 0)
    assert await logs.apply_retention({A: Offset(5)}, DAY) == 0, "an empty segment does not roll for ever"
    await logs.close()
    again = await start(tmp_path)
    assert again.logs[A].next_offset == 5


async def test_silent_producers_are_forgotten_with_retention(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    append(logs.logs[A], "a", producer=7, sequence=0)
    await logs.apply_retention({}, DAY)
    assert logs.logs[A].producers.get(7) is not None
    logs._clock.ms = NOW + DAY + 1  # type: ignore[attr-defined]
    await logs.apply_retention({}, DAY)
    assert logs.logs[A].producers.get(7) is None


async def test_a_damaged_segment_does_not_keep_retention_from_other_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = await start(tmp_path, retention_bytes=800, retention_ms=-1)
    fill(logs.logs[A], 20)
    fill(logs.logs[B], 20)
    await logs.close()
    path = tmp_path / "a-0" / f"{0:020d}.log"
    path.write_bytes(bytes(path.stat().st_size))
    again = await start(tmp_path, retention_bytes=800, retention_ms=-1)
    assert await again.apply_retention({A: Offset(20), B: Offset(20)}, DAY) > 2
    assert again.logs[A].log_start == 0
    assert "a-0: retention cannot tell" in caplog.text


async def test_a_deleted_start_is_back_after_a_crash(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    values = fill(logs.logs[A], 9)
    log = logs.logs[A]
    log.advance_start(Offset(5))
    await logs.save_points()
    assert await logs.drop_segments_before_start(log) > 0
    logs.release()
    again = await start(tmp_path)
    assert again.logs[A].log_start == 5
    assert all_values(again.logs[A]) == values[5:]


async def test_segments_of_a_log_that_was_deleted_meanwhile_are_left_alone(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 9)
    log = logs.logs[A]
    log.advance_start(Offset(9))
    logs.delete(A)
    logs.open_one(LogRequest(A, UUID(int=0xC), TopicConfig()))
    assert await logs.drop_segments_before_start(log) == 0
    assert not (tmp_path / "a-0").exists()


# Topics that go, and come again


async def test_a_deleted_log_is_gone_at_once_and_its_files_soon(tmp_path: Path) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 3)
    wait = logs.logs[A].sync.wait_for(Offset(3))
    logs.delete(A)
    assert A not in logs.logs
    with pytest.raises(UnknownTopicOrPartition):
        await asyncio.shield(wait)
    assert not (tmp_path / "a-0").exists()
    await until(lambda: not directories(tmp_path))


async def test_a_deletion_that_a_crash_interrupted_is_finished_by_the_next_start(tmp_path: Path) -> None:
    logs = await start(tmp_path, file_delete_delay_ms=10**6)
    fill(logs.logs[A], 3)
    logs.delete(A)
    logs.release()
    assert [path.name.endswith("-delete") for path in directories(tmp_path)] == [True]
    await start(tmp_path, B)
    assert not directories(tmp_path)


async def test_a_topic_with_the_longest_name_can_be_deleted(tmp_path: Path) -> None:
    at = TopicPartition("n" * 249, 12345)
    logs = await start(tmp_path, at, ids={at: UUID(int=9)})
    fill(logs.logs[at], 1)
    logs.delete(at)
    await until(lambda: not directories(tmp_path))


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_topic_made_again_under_the_same_name_has_nothing_of_the_old_one(
    tmp_path: Path, is_clean: bool
) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 20)
    logs.logs[A].advance_start(Offset(10))
    await logs.checkpoint()
    logs.delete(A)
    new_id = UUID(int=0xC)
    log = logs.open_one(LogRequest(A, new_id, TopicConfig()))
    assert (log.log_start, log.next_offset) == (0, 0)
    values = fill(log, 3)
    await asyncio.shield(log.sync.wait_for(Offset(3)))
    # The checkpoint files still speak of the old topic: recovery point 20, log start 10.
    if is_clean:
        await logs.close()
    logs.release()
    again = await start(tmp_path, A, ids={A: new_id})
    assert not again.offline
    assert again.logs[A].log_start == 0
    assert all_values(again.logs[A]) == values
    assert read_topic_id(RealDisk(), tmp_path / "a-0") == new_id


async def test_a_topic_made_again_while_nobody_looked_starts_empty_and_the_old_records_are_kept_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 20)
    await logs.close()
    again = await start(tmp_path, A, ids={A: UUID(int=0xC)})
    assert again.logs[A].next_offset == 0
    (stray,) = [path for path in directories(tmp_path) if path.name.endswith("-stray")]
    assert sum(path.stat().st_size for path in stray.glob("*.log")) > 0
    assert f"kept as {stray.name}" in caplog.text
    fill(again.logs[A], 2)
    await again.close()
    third = await start(tmp_path, A, ids={A: UUID(int=0xC)})
    assert third.logs[A].next_offset == 2
    assert stray.exists()


async def test_a_directory_that_no_topic_claims_stays_and_is_spoken_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = await start(tmp_path)
    values = fill(logs.logs[A], 4)
    logs.logs[A].advance_start(Offset(2))
    await logs.close()
    await (await start(tmp_path, B)).close()
    assert "a-0: no topic claims this directory" in caplog.text
    again = await start(tmp_path)
    assert again.logs[A].log_start == 2
    assert all_values(again.logs[A]) == values[2:]


async def test_files_that_are_no_logs_are_not_taken_for_any(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "notes-7").write_text("a file")
    (tmp_path / "lost+found-3").mkdir()
    with caplog.at_level(logging.WARNING):
        await start(tmp_path)
    assert caplog.text == ""
    assert (tmp_path / "notes-7").exists()


@pytest.mark.parametrize("content", [None, b"", b"\0" * 60, b"version: 0\ntopic_id: nonsense\n"])
async def test_a_log_that_no_longer_says_whose_it_is_is_kept_and_says_it_again(
    tmp_path: Path, content: bytes | None
) -> None:
    logs = await start(tmp_path)
    values = fill(logs.logs[A], 3)
    await logs.checkpoint()
    logs.release()
    path = tmp_path / "a-0" / TOPIC_ID_FILE
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    again = await start(tmp_path)
    assert all_values(again.logs[A]) == values
    assert read_topic_id(RealDisk(), path.parent) == IDS[A]
    fill(again.logs[A], 5)
    await asyncio.shield(again.logs[A].sync.wait_for(Offset(8)))


async def test_an_empty_directory_left_by_a_power_failure_takes_records(tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    logs = await start(tmp_path)
    values = fill(logs.logs[A], 3)
    await asyncio.shield(logs.logs[A].sync.wait_for(Offset(3)))
    assert all_values(logs.logs[A]) == values


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


async def test_opening_a_new_log_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    logs = await start(tmp_path, B)
    (tmp_path / "a-0").write_bytes(b"no directory")
    with pytest.raises(StorageFailed, match="a-0"):
        logs.open_one(LogRequest(A, IDS[A], TopicConfig()))
    assert A in logs.offline


async def test_a_first_segment_that_vanished_is_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logs = await start(tmp_path)
    values = fill(logs.logs[A], 9)
    second = logs.logs[A].segments[1].base_offset
    await logs.close()
    (tmp_path / "a-0" / f"{0:020d}.log").unlink()
    again = await start(tmp_path)
    assert f"a-0: records 0 to {second - 1} are gone" in caplog.text
    assert all_values(again.logs[A]) == values[second:]


async def test_a_start_that_only_a_lost_file_knew_is_no_vanished_segment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = await start(tmp_path)
    fill(logs.logs[A], 9)
    log = logs.logs[A]
    log.advance_start(Offset(5))
    await logs.save_points()
    await logs.drop_segments_before_start(log)
    await logs.close()
    (tmp_path / LOG_STARTS).unlink()
    again = await start(tmp_path)
    assert again.logs[A].log_start == again.logs[A].segments[0].base_offset
    assert "are gone" not in caplog.text
