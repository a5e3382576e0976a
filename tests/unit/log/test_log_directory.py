"""All logs of a data directory opened together: a damaged one is offline, a loss is spoken of, the others go on."""

import asyncio
import logging
from pathlib import Path

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.data_directory import IDS, A, B, fill, start
from tests.unit.log.making import all_values

from penstock.config import TopicConfig
from penstock.disk import RealDisk
from penstock.errors import StorageFailed
from penstock.log.checkpoints import LOG_STARTS
from penstock.log.directory import LogRequest
from penstock.log.topic_id import TOPIC_ID_FILE, read_topic_id
from penstock.model import Offset


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
