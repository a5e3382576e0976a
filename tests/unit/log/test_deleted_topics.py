"""Topics that go, and come again: a new one has nothing of the old one, and what no topic claims is kept."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.log.data_directory import A, B, fill, start, until
from tests.unit.log.making import all_values

from penstock.config import TopicConfig
from penstock.disk import RealDisk
from penstock.errors import UnknownTopicOrPartition
from penstock.log.directory import LogRequest
from penstock.log.topic_id import read_topic_id
from penstock.model import Offset, TopicPartition


def directories(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()]


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
