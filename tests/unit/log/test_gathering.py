"""Small batches of one turn of the loop are written together, before anybody reads them or is told of them."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import NOW, all_values, append, open_at, values_in

from penstock.disk import RealDisk
from penstock.errors import StorageFailed, UnknownTopicOrPartition
from penstock.log.gathering import BATCH_BYTES_MAX, GATHERED_BYTES_MAX
from penstock.log.partition_log import PartitionLog
from penstock.log.times import first_at, look
from penstock.model import Offset


class Writes:
    """What was written to segments, by its size; refuses it while told to."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.fails = False

    def __call__(self, act: Act) -> None:
        if act.path.suffix == ".log" and act.kind == "write":
            if self.fails:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.sizes.append(act.size)


def begun(directory: Path, **settings: Any) -> tuple[PartitionLog, Writes]:
    """A log with one batch of this turn, which is never gathered."""
    writes = Writes()
    log = open_at(directory, disk=WatchedDisk(RealDisk(), writes), **settings)
    append(log, "first", may_gather=True)
    assert len(writes.sizes) == 1
    return log, writes


def gather(log: PartitionLog, *values: str, **batch: Any) -> None:
    for value in values:
        append(log, value, may_gather=True, **batch)


def file_size(log: PartitionLog) -> int:
    return log.segments[-1].path().stat().st_size


async def test_batches_of_one_turn_are_one_write_and_have_their_offsets_at_once(directory: Path) -> None:
    log, writes = begun(directory)
    gather(log, "a", "b", "c")
    assert log.next_offset == 4
    assert (log.written_end, len(writes.sizes)) == (1, 1)
    await asyncio.sleep(0)
    assert (log.written_end, len(writes.sizes)) == (4, 2)
    assert file_size(log) == sum(writes.sizes) == log.size
    assert all_values(log) == ["first", "a", "b", "c"]


async def test_the_first_of_a_turn_is_written_at_once(directory: Path) -> None:
    log, writes = begun(directory)
    for number in range(2, 5):
        await asyncio.sleep(0)
        gather(log, "alone")
        assert (log.written_end, len(writes.sizes)) == (number, number)


async def test_a_log_that_was_gathered_is_found_again_whole(directory: Path) -> None:
    log, _ = begun(directory, segment_bytes=2_000)
    for turn in range(20):
        gather(log, *(f"{turn}-{number}".ljust(40) for number in range(5)), producer=7, sequence=-1)
        await asyncio.sleep(0)
    log.settle()
    log.close()
    again = open_at(directory, segment_bytes=2_000)
    assert again.next_offset == 101
    assert [value.strip() for value in all_values(again)][1:] == [f"{turn}-{n}" for turn in range(20) for n in range(5)]
    assert len(again.segments) > 3
    assert all(segment.size <= 2_000 for segment in again.segments)


async def _synced(log: PartitionLog) -> None:
    await log.sync.wait_for(log.next_offset)
    assert log.durable_offset == log.next_offset


async def _read(log: PartitionLog) -> None:
    assert values_in(log.read(Offset(1), 1 << 20, log.next_offset)) == ["a", "b"]


async def _looked_for(log: PartitionLog) -> None:
    found = first_at(look(log, log.next_offset, NOW + 5), NOW + 5)
    assert found is not None
    assert found.offset == 1


async def _rolled(log: PartitionLog) -> None:
    log.roll(NOW)
    assert log.segments[0].next_offset == log.segments[1].base_offset == 3


async def _followed_by_a_large_one(log: PartitionLog) -> None:
    append(log, "x" * BATCH_BYTES_MAX, may_gather=True)
    assert log.written_end == 4


async def _followed_by_one_that_does_not_gather(log: PartitionLog) -> None:
    append(log, "x")
    assert log.written_end == 4


async def _ended(log: PartitionLog) -> None:
    log.end(UnknownTopicOrPartition("deleted"))


async def _settled(log: PartitionLog) -> None:
    assert log.settle() is None


@pytest.mark.parametrize(
    "what",
    [
        _synced,
        _read,
        _looked_for,
        _rolled,
        _followed_by_a_large_one,
        _followed_by_one_that_does_not_gather,
        _ended,
        _settled,
    ],
)
async def test_who_needs_the_file_has_what_was_gathered_in_it(directory: Path, what: Callable[..., Any]) -> None:
    log, writes = begun(directory)
    gather(log, "a", "b", timestamp=NOW + 5)
    assert len(writes.sizes) == 1
    await what(log)
    assert writes.sizes[1] > writes.sizes[0]
    values = all_values(open_at(directory))
    assert values[:3] == ["first", "a", "b"]


async def test_no_more_is_gathered_than_so_many_bytes(directory: Path) -> None:
    log, writes = begun(directory)
    value = "x" * (BATCH_BYTES_MAX - 200)
    gather(log, *[value] * (2 * GATHERED_BYTES_MAX // BATCH_BYTES_MAX))
    assert len(writes.sizes) == 2
    assert max(writes.sizes) <= GATHERED_BYTES_MAX
    await asyncio.sleep(0)
    assert len(all_values(log)) == 1 + 2 * GATHERED_BYTES_MAX // BATCH_BYTES_MAX


async def test_a_full_segment_is_full_with_what_was_gathered_for_it(directory: Path) -> None:
    log, _ = begun(directory, segment_bytes=500)
    gather(log, *"abcdefgh")
    log.settle()
    assert len(log.segments) > 1
    assert all(segment.size <= 500 for segment in log.segments)


async def test_a_write_that_fails_is_told_and_nothing_of_it_was_ever_there(directory: Path) -> None:
    log, writes = begun(directory)
    gather(log, "a", "b")
    durable = log.sync.wait_for(log.next_offset)
    writes.fails = True
    failure = log.settle()
    assert isinstance(failure, StorageFailed)
    assert log.next_offset == 1
    with pytest.raises(StorageFailed):
        await durable
    writes.fails = False
    assert log.settle() is failure, "what was gathered is not written later, under offsets that may be others' by then"
    with pytest.raises(StorageFailed):
        append(log, "c", may_gather=True)
    await asyncio.sleep(0)
    assert len(writes.sizes) == 1
    assert values_in(log.read(Offset(0), 1 << 20, log.next_offset)) == ["first"]


async def test_a_write_that_fails_under_a_sync_is_told_to_who_waits(directory: Path) -> None:
    log, writes = begun(directory)
    gather(log, "a")
    writes.fails = True
    with pytest.raises(StorageFailed):
        await log.sync.wait_for(log.next_offset)
    assert log.durable_offset == 0
    await log.sync.idle()


async def test_a_failure_nobody_expected_is_no_success_either(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = begun(directory)
    gather(log, "a")

    def broken(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(type(log.segments[-1].file), "write_at", broken)
    assert isinstance(log.settle(), StorageFailed)
    monkeypatch.undo()
    assert isinstance(log.settle(), StorageFailed)


async def test_a_repeated_batch_is_known_while_the_first_is_only_gathered(directory: Path) -> None:
    log, _ = begun(directory)
    first = append(log, "a", may_gather=True, producer=3, sequence=0)
    again = append(log, "a", may_gather=True, producer=3, sequence=0)
    assert again == (first.base_offset, first.next_offset, True)
    await asyncio.sleep(0)
    assert all_values(log) == ["first", "a"]
