"""Logs that are cut back, begun anew elsewhere, set aside: another log in the old one's place, and nothing between."""

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.simulation.disk import SimulatedDisk
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import NOW, abort, all_values, append, make_batch

from penstock.clock import Rng
from penstock.config import TopicConfig
from penstock.disk import Disk, RealDisk
from penstock.errors import CorruptMessage, NotLeaderOrFollower, StorageFailed, UnknownTopicOrPartition
from penstock.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, read_offsets, read_saved_offsets
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.log.recovery import SNAPSHOT_SUFFIX
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import stamp

AT = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=0xA)
ROOT = Path("/data")
EIO = OSError(errno.EIO, os.strerror(errno.EIO))


class FixedClock:
    def now_ms(self) -> int:
        return NOW

    def monotonic(self) -> float:
        return NOW / 1000


async def start(disk: Disk, root: Path = ROOT, *, has_peers: bool = True, **settings: Any) -> LogDirectory:
    logs = LogDirectory(disk, root, FixedClock(), Rng(1))
    logs.prepare()
    await logs.open_all([request(has_peers=has_peers, **settings)])
    return logs


def request(*, has_peers: bool = True, **settings: Any) -> LogRequest:
    defaults: dict[str, Any] = {"segment_bytes": 400, "index_interval_bytes": 150, "file_delete_delay_ms": 0}
    return LogRequest(AT, TOPIC_ID, TopicConfig(**{**defaults, **settings}), has_peers)


def fill(log: PartitionLog, count: int, leader_epoch: int = 0) -> None:
    for _ in range(count):
        append(log, value(log.next_offset), value(log.next_offset + 1), leader_epoch=leader_epoch)


def value(offset: int) -> str:
    return f"{offset}".ljust(40)


def values(start: int, end: int) -> list[str]:
    return [value(offset) for offset in range(start, end)]


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(1)


# Cutting the end off


@pytest.mark.parametrize(("offset", "end"), [(20, 20), (19, 18), (13, 12), (12, 12), (2, 2), (1, 0), (0, 0)])
async def test_a_log_is_cut_at_the_batch_boundary_at_or_below_the_offset(
    disk: SimulatedDisk, offset: int, end: int
) -> None:
    logs = await start(disk)
    fill(logs.logs[AT], 10)
    await logs.checkpoint()
    old = logs.logs[AT]
    log = await logs.truncate(old, Offset(offset))
    assert (log is old) == (offset == 20)
    assert logs.logs[AT] is log
    assert (log.log_start, log.next_offset, log.durable_offset) == (0, end, end)
    assert all_values(log) == values(0, end)
    fill(log, 3, leader_epoch=1)
    assert all_values(log) == values(0, end + 6)
    await logs.close()
    again = await start(disk)
    assert again.was_clean
    assert all_values(again.logs[AT]) == values(0, end + 6)


async def test_the_old_log_takes_nothing_more_and_whoever_waits_for_it_is_told(disk: SimulatedDisk) -> None:
    logs = await start(disk)
    old = logs.logs[AT]
    fill(old, 4)
    waiting = old.sync.wait_for(old.next_offset)
    cutting = asyncio.ensure_future(logs.truncate(old, Offset(4), NotLeaderOrFollower("somebody else leads")))
    await asyncio.sleep(0)
    with pytest.raises(NotLeaderOrFollower, match="somebody else leads"):
        fill(old, 1)
    with pytest.raises(NotLeaderOrFollower):
        old.append_replicated(memoryview(b""), NOW)
    with pytest.raises(NotLeaderOrFollower):
        await waiting
    log = await cutting
    assert log.failure is None
    with pytest.raises(NotLeaderOrFollower):
        await logs.truncate(old, Offset(2))


async def test_a_sync_of_the_old_log_is_waited_for_and_says_nothing_of_the_new_one(tmp_path: Path) -> None:
    began, may_end = threading.Event(), threading.Event()
    cuts: list[Path] = []

    def watch(act: Act) -> None:
        if act.kind == "sync" and act.path.suffix == ".log" and not may_end.is_set():
            began.set()
            assert may_end.wait(10)
        if act.kind == "truncate" and act.path.suffix == ".log":
            cuts.append(act.path)

    logs = await start(WatchedDisk(RealDisk(), watch), tmp_path)
    old = logs.logs[AT]
    fill(old, 2)
    waiting = old.sync.wait_for(old.next_offset)
    await asyncio.to_thread(began.wait, 10)
    cutting = asyncio.ensure_future(logs.truncate(old, Offset(2)))
    for _ in range(5):
        await logs.save_points()  # all that a cut which did not wait would need
    assert cuts == []
    may_end.set()
    log = await cutting
    with pytest.raises(NotLeaderOrFollower):
        await waiting
    assert len(cuts) == 1
    fill(log, 2, leader_epoch=1)
    assert log.durable_offset == 2
    await log.sync.wait_for(log.next_offset)
    assert log.durable_offset == 6
    await logs.close()


async def test_leader_epochs_end_with_the_log(disk: SimulatedDisk) -> None:
    logs = await start(disk)
    for epoch in (1, 3, 7):
        fill(logs.logs[AT], 2, leader_epoch=epoch)
    log = await logs.truncate(logs.logs[AT], Offset(8))
    assert log.epochs.latest == 3
    log.begin_epoch(LeaderEpoch(9))
    # An epoch that was begun and wrote nothing: the next leader may have what an older one wrote in its place.
    assert await logs.truncate(log, Offset(8)) is log
    assert log.epochs.latest == 3
    view, _ = make_batch("of an older epoch")
    stamp(view, Offset(8), LeaderEpoch(4))
    log.append_replicated(view, NOW)
    assert log.epochs.end_of(LeaderEpoch(5), log.next_offset) == (4, 9)
    logs.release()
    assert (await start(disk)).logs[AT].epochs.latest == 4


async def test_producers_and_aborted_transactions_are_those_of_what_is_left(disk: SimulatedDisk) -> None:
    logs = await start(disk)
    log = logs.logs[AT]
    append(log, "a", producer=1, sequence=0, is_transactional=True)
    abort(log, 1)
    await logs.checkpoint()
    append(log, "b", producer=1, sequence=1, is_transactional=True)
    append(log, "c", producer=2, sequence=0)
    await logs.checkpoint()
    abort(log, 1)
    append(log, "d", producer=1, sequence=2)
    await logs.checkpoint()
    log = await logs.truncate(log, Offset(3))
    assert [each.last_offset for each in log.aborted] == [1]
    assert log.last_stable_offset(log.next_offset) == 2
    assert {state.producer_id for state in log.producer_states()} == {1}
    assert append(log, "b", producer=1, sequence=1, is_transactional=True).is_duplicate
    assert not append(log, "c", producer=2, sequence=0).is_duplicate
    names = [name for name in disk.list_names(ROOT / str(AT)) if name.endswith(SNAPSHOT_SUFFIX)]
    assert all(int(name[:20]) <= 3 for name in names)


async def test_a_transaction_that_ended_in_deleted_records_is_not_opened_again_by_a_cut(disk: SimulatedDisk) -> None:
    logs = await start(disk)
    log = logs.logs[AT]
    append(log, "a", producer=1, sequence=0, is_transactional=True)
    await logs.checkpoint()  # a snapshot that has it open
    abort(log, 1)
    log.roll(NOW)
    fill(log, 3)
    log.advance_start(Offset(2))
    await logs.save_points()
    assert await logs.drop_segments_before_start(log) == 1
    log = await logs.truncate(log, Offset(5))  # and with it the snapshot that has it ended
    assert (log.log_start, log.next_offset) == (2, 4)
    assert log.last_stable_offset(log.next_offset) == 4
    assert not log.has_open_transaction(1, 0)


async def test_nothing_says_that_the_log_once_reached_further(disk: SimulatedDisk) -> None:
    logs = await start(disk)
    fill(logs.logs[AT], 10)
    await logs.checkpoint()
    await logs.save_high_watermarks({AT: Offset(18)})
    assert read_offsets(disk, ROOT / RECOVERY_POINTS) == {AT: 20}
    await logs.truncate(logs.logs[AT], Offset(7))
    assert read_offsets(disk, ROOT / RECOVERY_POINTS) == {AT: 6}
    assert read_offsets(disk, ROOT / HIGH_WATERMARKS) == {AT: 6}
    await logs.save_high_watermarks({AT: Offset(4)})
    assert logs.high_watermarks[AT] == (4, TOPIC_ID)


async def test_a_log_that_cannot_be_cut_is_offline(disk: SimulatedDisk) -> None:
    broken: list[str] = []

    def watch(act: Act) -> None:
        if act.kind in broken:
            raise EIO

    logs = await start(WatchedDisk(disk, watch))
    fill(logs.logs[AT], 10)
    await logs.checkpoint()
    broken.append("truncate")
    with pytest.raises(StorageFailed, match="could not be cut"):
        await logs.truncate(logs.logs[AT], Offset(7))
    assert AT not in logs.logs
    assert "could not be cut" in str(logs.offline[AT])


async def test_a_sync_that_fails_while_the_log_is_cut_takes_it_offline(disk: SimulatedDisk) -> None:
    failures: list[OSError] = []

    def watch(act: Act) -> None:
        if failures and act.kind == "sync" and act.path.suffix == ".log":
            raise failures.pop()  # once: the next one "succeeds", and proves nothing (TRAPS L1)

    logs = await start(WatchedDisk(disk, watch))
    old = logs.logs[AT]
    fill(old, 10)
    failures.append(EIO)
    waiting = old.sync.wait_for(old.next_offset)
    await asyncio.sleep(0)  # a turn in which others might have come
    await asyncio.sleep(0)  # it begins
    await asyncio.sleep(0)  # and has failed, which nobody has heard yet
    assert (failures, old.failure) == ([], None)
    with pytest.raises(StorageFailed):
        await logs.truncate(old, Offset(4))
    with pytest.raises(NotLeaderOrFollower):
        await waiting
    assert AT in logs.offline


async def test_a_log_that_failed_is_not_cut(disk: SimulatedDisk) -> None:
    broken: list[str] = []

    def watch(act: Act) -> None:
        if act.kind in broken:
            raise EIO

    logs = await start(WatchedDisk(disk, watch))
    log = logs.logs[AT]
    fill(log, 4)
    broken.append("write")
    with pytest.raises(StorageFailed):
        fill(log, 1)
    for cut in (logs.truncate, logs.restart_at):
        with pytest.raises(StorageFailed):
            await cut(log, Offset(2))


async def test_checkpoints_retention_and_cuts_at_once_leave_one_whole_log(tmp_path: Path) -> None:
    logs = await start(RealDisk(), tmp_path, retention_bytes=700)
    end = 0
    for round_ in range(8):
        log = logs.logs[AT]
        fill(log, 12, leader_epoch=round_)
        end = log.next_offset - 6
        results = await asyncio.gather(
            logs.checkpoint(),
            logs.apply_retention({AT: Offset(end)}, 1000),
            logs.truncate(log, Offset(end)),
            logs.checkpoint(),
            logs.drop_segments_before_start(log),
            logs.save_points(),
            return_exceptions=True,
        )
        assert [each for each in results if isinstance(each, BaseException)] == []
        assert logs.offline == {}
        assert logs.logs[AT].next_offset == end
        assert all_values(logs.logs[AT]) == values(logs.logs[AT].log_start, end)
    await logs.close()
    again = await start(RealDisk(), tmp_path)
    assert again.logs[AT].next_offset == end
    again.release()


async def test_a_topic_that_is_deleted_while_its_log_is_cut_stays_deleted(disk: SimulatedDisk) -> None:
    logs = await start(disk)
    fill(logs.logs[AT], 10)
    await logs.checkpoint()
    cutting = asyncio.ensure_future(logs.truncate(logs.logs[AT], Offset(4)))
    await asyncio.sleep(0)
    logs.delete(AT)
    with pytest.raises(UnknownTopicOrPartition):
        await cutting
    assert (AT in logs.logs, AT in logs.offline) == (False, False)


async def test_a_cut_goes_on_to_its_end_though_nobody_waits_for_it(disk: SimulatedDisk) -> None:
    logs = await start(disk)
    fill(logs.logs[AT], 10)
    cutting = asyncio.ensure_future(logs.truncate(logs.logs[AT], Offset(4)))
    await asyncio.sleep(0)
    cutting.cancel()
    await logs.close()
    again = await start(disk)
    assert again.was_clean
    assert all_values(again.logs[AT]) == values(0, 4)


async def test_a_reader_of_the_old_log_is_told_that_it_ended_not_that_it_is_damaged(tmp_path: Path) -> None:
    logs = await start(RealDisk(), tmp_path)
    old = logs.logs[AT]
    fill(old, 10)
    await logs.truncate(old, Offset(4))
    told: list[object] = []
    old.on_damage = told.append
    for offset in range(4, 20):
        with pytest.raises(NotLeaderOrFollower):
            old.read(Offset(offset), 1000, old.next_offset, cached_only=False)
    assert told == []
    await logs.close()


# Beginning anew elsewhere


@pytest.mark.parametrize("offset", [3, 6, 7, 20, 500])
async def test_a_log_begins_anew_where_it_is_told(disk: SimulatedDisk, offset: int) -> None:
    logs = await start(disk)
    old = logs.logs[AT]
    fill(old, 10, leader_epoch=2)
    old.advance_start(Offset(6))
    await logs.checkpoint()
    log = await logs.restart_at(old, Offset(offset))
    assert (log.log_start, log.next_offset, log.durable_offset) == (offset, offset, offset)
    assert (log.segments, log.epochs.latest, len(log.producers)) == ([], -1, 0)
    with pytest.raises(NotLeaderOrFollower):
        fill(old, 1)
    disk.power_loss()
    logs = await start(disk)
    log = logs.logs[AT]
    assert (log.log_start, log.next_offset) == (offset, offset)
    fill(log, 3, leader_epoch=3)
    await logs.close()
    again = (await start(disk)).logs[AT]
    assert (again.log_start, all_values(again)) == (offset, values(offset, offset + 6))


async def test_a_log_that_is_cut_below_its_start_begins_anew_there(disk: SimulatedDisk) -> None:
    logs = await start(disk)
    fill(logs.logs[AT], 10)
    logs.logs[AT].advance_start(Offset(9))
    await logs.save_points()
    await logs.drop_segments_before_start(logs.logs[AT])
    log = await logs.truncate(logs.logs[AT], Offset(9))  # the batch that holds it begins below the start
    assert (log.log_start, log.next_offset) == (9, 9)
    log = await logs.truncate(log, Offset(5))
    assert (log.log_start, log.next_offset) == (5, 5)
    assert read_offsets(disk, ROOT / LOG_STARTS) == {AT: 5}


# Damage


def spoil(disk: Disk, name: str) -> None:
    file = disk.open(ROOT / str(AT) / name)
    file.write_at(file.size() // 2, (bytes(100),))
    file.sync()


async def test_a_damaged_log_is_kept_aside_and_an_empty_one_takes_its_place(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    logs = await start(disk)
    fill(logs.logs[AT], 10)
    await logs.checkpoint()
    await logs.save_high_watermarks({AT: Offset(20)})
    logs.release()
    spoil(disk, f"{16:020d}.log")
    disk.remove(ROOT / str(AT) / f"{20:020d}{SNAPSHOT_SUFFIX}")
    logs = await start(disk)
    assert AT in logs.offline
    await logs.set_damaged_aside(AT)
    assert logs.offline == {}
    (kept,) = [name for name in disk.list_names(ROOT) if name.endswith("-damaged")]
    assert f"{16:020d}.log" in disk.list_names(ROOT / kept)
    assert kept in caplog.text
    log = logs.open_one(request())
    assert (log.log_start, log.next_offset) == (0, 0)
    disk.power_loss()
    again = await start(disk)
    assert again.offline == {}
    assert again.logs[AT].next_offset == 0
    assert AT not in again.high_watermarks
    assert kept in disk.list_names(ROOT)


async def test_damage_that_a_reader_meets_is_told_once_to_whoever_can_rebuild_the_log(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    logs = await start(disk)
    log = logs.logs[AT]
    told: list[object] = []
    log.on_damage = told.append
    fill(log, 10)
    await logs.checkpoint()
    file = disk.open(ROOT / str(AT) / f"{0:020d}.log")
    file.write_at(8, (b"\xff" * 4,))
    for _ in range(3):
        with pytest.raises(CorruptMessage):
            log.read(Offset(0), 1000, log.next_offset, cached_only=False)
    assert len(told) == 1
    assert "no record batch at byte 0" in caplog.text
    logs.take_offline(AT, StorageFailed("orders-0 is damaged"))
    with pytest.raises(StorageFailed):
        fill(log, 1)
    await logs.set_damaged_aside(AT)
    assert logs.open_one(request()).next_offset == 0


async def test_the_hook_for_damage_outlives_a_cut(disk: SimulatedDisk) -> None:
    logs = await start(disk)
    told: list[object] = []
    logs.logs[AT].on_damage = told.append
    fill(logs.logs[AT], 4)
    assert (await logs.truncate(logs.logs[AT], Offset(4))).on_damage == told.append


@pytest.mark.parametrize("has_peers", [True, False])
async def test_a_log_that_lost_its_files_is_offline_where_others_have_it(disk: SimulatedDisk, has_peers: bool) -> None:
    logs = await start(disk)
    fill(logs.logs[AT], 10)
    await logs.checkpoint()
    logs.release()
    disk.remove_tree(ROOT / str(AT))
    again = await start(disk, has_peers=has_peers)
    if has_peers:
        assert "records 0 to 19 are gone" in str(again.offline[AT])
        await again.set_damaged_aside(AT)
        assert again.open_one(request()).next_offset == 0
    else:
        assert (again.logs[AT].log_start, again.logs[AT].next_offset) == (20, 20)


@pytest.mark.parametrize("has_peers", [True, False])
async def test_a_log_that_lost_its_first_files_is_offline_where_others_have_it(
    disk: SimulatedDisk, has_peers: bool
) -> None:
    logs = await start(disk)
    fill(logs.logs[AT], 10)
    await logs.checkpoint()
    logs.release()
    disk.remove(ROOT / str(AT) / f"{0:020d}.log")
    again = await start(disk, has_peers=has_peers)
    assert (AT in again.offline) == has_peers
    if not has_peers:
        assert again.logs[AT].log_start > 0


async def test_a_log_whose_first_file_was_never_safe_is_empty_where_others_have_it(disk: SimulatedDisk) -> None:
    logs = await start(disk)
    await logs.save_points()
    fill(logs.logs[AT], 10)
    logs.release()
    disk.remove(ROOT / str(AT) / f"{0:020d}.log")
    log = (await start(disk)).logs[AT]
    assert (log.log_start, log.next_offset, log.epochs.latest) == (0, 0, -1)


# High watermarks


async def test_high_watermarks_are_there_after_a_clean_stop_and_go_with_their_topic(disk: SimulatedDisk) -> None:
    logs = await start(disk)
    fill(logs.logs[AT], 5)
    logs.read_high_watermarks = lambda: {AT: Offset(8)}
    await logs.close()
    logs = await start(disk)
    assert logs.high_watermarks == {AT: (8, TOPIC_ID)}
    logs.delete(AT)
    assert logs.high_watermarks == {}
    await logs.save_high_watermarks({AT: Offset(9)})  # asked before the topic went
    assert read_saved_offsets(disk, ROOT / HIGH_WATERMARKS) == {}
