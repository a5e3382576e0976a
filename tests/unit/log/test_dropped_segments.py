"""Segments that retention or a deletion of records lets go: the new start is durable first, then the files go."""

from pathlib import Path
from uuid import UUID

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.data_directory import A, B, FixedClock, fill, start, until
from tests.unit.log.making import HOUR, NOW, all_values, append

from penstock.config import TopicConfig
from penstock.disk import RealDisk
from penstock.log.checkpoints import LOG_STARTS, read_offsets
from penstock.log.directory import LogRequest
from penstock.model import Offset

DAY = 24 * HOUR


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
    clock = FixedClock()
    logs = await start(tmp_path, clock=clock, retention_ms=HOUR)
    fill(logs.logs[A], 5)
    clock.ms = NOW + 2 * HOUR
    await logs.apply_retention({A: Offset(5)}, DAY)
    log = logs.logs[A]
    assert (log.log_start, log.next_offset, log.size) == (5, 5, 0)
    assert await logs.apply_retention({A: Offset(5)}, DAY) == 0, "an empty segment does not roll for ever"
    await logs.close()
    again = await start(tmp_path)
    assert again.logs[A].next_offset == 5


async def test_silent_producers_are_forgotten_with_retention(tmp_path: Path) -> None:
    clock = FixedClock()
    logs = await start(tmp_path, clock=clock)
    append(logs.logs[A], "a", producer=7, sequence=0)
    await logs.apply_retention({}, DAY)
    assert logs.logs[A].producers.get(7) is not None
    clock.ms = NOW + DAY + 1
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
