"""A partition of an internal topic: appended and waited for, read from start to end."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import AT, NOW, TOPIC_ID, make_batch, open_at, values_in

from penstock.clock import SystemClock
from penstock.disk import RealDisk
from penstock.errors import InvalidProducerEpoch, StorageFailed
from penstock.model import LeaderEpoch, Offset
from penstock.records.markers import ControlType, Marker
from penstock.replication.ledger import PartitionLedger
from penstock.replication.partition import Partition


class Refusing:
    def __init__(self) -> None:
        self.kind = ""

    def __call__(self, act: Act) -> None:
        if act.kind == self.kind and act.path.suffix == ".log":
            raise OSError(5, "Input/output error")


@pytest.fixture
def refusing() -> Refusing:
    return Refusing()


@pytest.fixture
async def ledger(tmp_path: Path, refusing: Refusing) -> AsyncIterator[PartitionLedger]:
    disk = WatchedDisk(RealDisk(), refusing)
    log = open_at(tmp_path / str(AT), disk=disk, segment_bytes=500)
    yield PartitionLedger(Partition(AT, TOPIC_ID, LeaderEpoch(3), log), SystemClock(), disk)
    log.close()
    disk.close()


def batch(*values: str) -> bytes:
    return bytes(make_batch(*values, timestamp=NOW)[0])


async def contents(ledger: PartitionLedger) -> list[list[str]]:
    return [values_in(view) async for _, view in ledger.read_all()]


async def test_an_append_is_committed_when_it_is_durable(ledger: PartitionLedger) -> None:
    first, second = ledger.append(batch("a", "b")), ledger.append(bytearray(batch("c")))
    assert not first.done()
    assert [await first, await second] == [0, 2]
    assert (ledger.topic_partition, ledger.leader_epoch) == (AT, 3)


async def test_everything_is_read_in_order_across_segments(ledger: PartitionLedger) -> None:
    assert await contents(ledger) == []
    for number in range(20):
        await ledger.append(batch(f"{number}".ljust(100)))
    assert await contents(ledger) == [[f"{number}".ljust(100)] for number in range(20)]


async def test_what_was_deleted_is_not_read(ledger: PartitionLedger) -> None:
    for number in range(4):
        await ledger.append(batch(str(number)))
    ledger._partition.log.advance_start(Offset(2))
    assert await contents(ledger) == [["2"], ["3"]]


async def test_an_append_that_is_refused_was_not_written(ledger: PartitionLedger, refusing: Refusing) -> None:
    await ledger.append(batch("a"))
    refusing.kind = "write"
    with pytest.raises(StorageFailed):
        ledger.append(batch("b"))
    assert await contents(ledger) == [["a"]]


async def test_a_commit_that_fails_is_told_through_what_the_append_gave(
    ledger: PartitionLedger, refusing: Refusing
) -> None:
    refusing.kind = "sync"
    committed = ledger.append(batch("a"))
    with pytest.raises(StorageFailed):
        await committed


async def test_a_log_that_cannot_be_read_to_its_end_is_not_taken_for_a_short_one(
    tmp_path: Path, refusing: Refusing
) -> None:
    disk = WatchedDisk(RealDisk(), refusing)
    log = open_at(tmp_path / str(AT), disk=disk, durability="page-cache")
    ledger = PartitionLedger(Partition(AT, TOPIC_ID, LeaderEpoch(3), log), SystemClock(), disk)
    await ledger.append(batch("a"))
    refusing.kind = "sync"
    with pytest.raises(StorageFailed):
        await log.sync.wait_for(log.next_offset)
    with pytest.raises(StorageFailed):
        await contents(ledger)
    log.close()
    disk.close()


async def test_a_marker_is_appended_as_a_batch_is_and_fences_what_it_has_ended(ledger: PartitionLedger) -> None:
    transactional: dict[str, Any] = {"producer": 7, "is_transactional": True}
    await ledger.append(bytes(make_batch("a", timestamp=NOW, **transactional)[0]))
    commit = Marker(ControlType.COMMIT, 0)
    with pytest.raises(InvalidProducerEpoch):
        # It is that of an earlier transaction, whose epoch was raised to this one when it ended.
        ledger.append_marker(commit, 7, 0, is_version_2=True)
    ended = ledger.append_marker(commit, 7, 1, is_version_2=True)
    assert not ended.done()
    assert await ended == 1
    headers = [header async for header, _ in ledger.read_all()]
    assert [(header.is_control, header.producer_epoch) for header in headers] == [(False, 0), (True, 1)]
    with pytest.raises(InvalidProducerEpoch):
        ledger.append(bytes(make_batch("b", timestamp=NOW, **transactional)[0]))
    with pytest.raises(InvalidProducerEpoch):
        ledger.append_marker(commit, 7, 0, is_version_2=False)
