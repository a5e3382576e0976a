"""Transactions in one log: who may write and end them, how far committed readers see, what they are told to skip."""

from pathlib import Path
from typing import Any

import pytest
from tests.chaos.workload import ManualClock
from tests.unit.log.making import AT, HOUR, NOW, TOPIC_ID, abort, all_values, append, commit, committed_values, open_at

from penstock.clock import Rng
from penstock.config import TopicConfig
from penstock.disk import RealDisk
from penstock.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from penstock.log.aborted import ENTRY_BYTES, AbortedTransaction, write_aborted
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.log.recovery import write_snapshot
from penstock.model import Offset
from penstock.records.markers import ControlType, Marker


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_at(tmp_path / "orders-0")


def send(log: PartitionLog, producer: int, sequence: int, *values: str, **more: Any) -> int:
    """A batch of a transaction; gives its first offset."""
    values = values or ("v",)
    return append(log, *values, producer=producer, sequence=sequence, is_transactional=True, **more).base_offset


def stable(log: PartitionLog) -> int:
    return log.last_stable_offset(log.next_offset)


def told(log: PartitionLog, start: int, end: int) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in log.aborted_transactions(Offset(start), Offset(end))]


def save(log: PartitionLog) -> None:
    """What a checkpoint writes."""
    disk = RealDisk()
    saving = log.aborted.prepare_saving([segment.base_offset for segment in log.segments])
    write_aborted(disk, log.directory, saving.parts)
    write_snapshot(disk, log.directory, log.next_offset, log.producers.encode(saving.digests))
    log.aborted.saved(saving)
    disk.close()


def reopen(log: PartitionLog, **known: Any) -> PartitionLog:
    log.close()
    return open_at(log.directory, **known)


# Last stable offset


def test_a_log_without_transactions_is_stable_to_its_end(log: PartitionLog) -> None:
    append(log, "a", "b")
    append(log, "c", producer=7, sequence=0)
    assert stable(log) == 3


def test_the_stable_offset_stands_at_the_first_record_of_the_oldest_open_transaction(log: PartitionLog) -> None:
    append(log, "a")
    send(log, 7, 0)
    send(log, 8, 0)
    append(log, "b")
    assert stable(log) == 1
    commit(log, 7)
    assert stable(log) == 2
    abort(log, 8)
    assert stable(log) == log.next_offset == 6


def test_transactions_that_end_in_another_order_than_they_began_hold_it_back_until_the_first_ends(
    log: PartitionLog,
) -> None:
    for producer in (1, 2, 3):
        send(log, producer, 0)
    commit(log, 2)
    assert stable(log) == 0
    abort(log, 1)
    assert stable(log) == 2
    commit(log, 3)
    assert stable(log) == log.next_offset


def test_a_marker_counts_only_below_the_high_watermark(log: PartitionLog) -> None:
    send(log, 7, 0)
    send(log, 8, 0)
    marker = commit(log, 7)
    commit(log, 8)
    assert log.last_stable_offset(Offset(marker)) == 0
    assert log.last_stable_offset(Offset(marker + 1)) == 1
    assert log.last_stable_offset(Offset(marker + 2)) == 4


def test_a_high_watermark_below_the_transaction_is_the_stable_offset(log: PartitionLog) -> None:
    append(log, "a", "b")
    send(log, 7, 0)
    assert log.last_stable_offset(Offset(1)) == 1


def test_a_marker_that_ends_nothing_is_written_and_moves_nothing(log: PartitionLog) -> None:
    send(log, 7, 0)
    assert abort(log, 8) == 1
    assert (log.next_offset, stable(log)) == (2, 0)
    assert told(log, 0, 2) == []


def test_records_deleted_past_the_start_of_an_open_transaction_move_the_stable_offset_with_the_start(
    log: PartitionLog,
) -> None:
    for sequence in range(4):
        send(log, 7, sequence)
    log.advance_start(Offset(2))
    assert stable(log) == 2
    abort(log, 7)
    assert stable(log) == 5
    assert told(log, 2, 5) == [(7, 0)]


# Who may write


def test_only_batches_of_the_transaction_follow_its_first(log: PartitionLog) -> None:
    send(log, 7, 0)
    with pytest.raises(InvalidTxnState):
        append(log, "x", producer=7, sequence=1)
    send(log, 7, 1)
    commit(log, 7)
    append(log, "y", producer=7, sequence=2)
    assert log.next_offset == 4


def test_a_repeated_batch_of_a_transaction_is_known_before_and_after_its_end(log: PartitionLog) -> None:
    first = send(log, 7, 0)
    assert send(log, 7, 0) == first
    commit(log, 7)
    assert send(log, 7, 0) == first
    assert stable(log) == log.next_offset == 2, "a repeat opens nothing"


def test_sequences_go_on_over_a_marker_of_the_same_epoch(log: PartitionLog) -> None:
    send(log, 7, 0)
    commit(log, 7)
    send(log, 7, 1)
    with pytest.raises(OutOfOrderSequence):
        send(log, 7, 3)


def test_a_marker_with_the_next_epoch_fences_the_one_before_and_sequences_begin_again(log: PartitionLog) -> None:
    send(log, 7, 0)
    commit(log, 7, epoch=1, is_version_2=True)
    with pytest.raises(InvalidProducerEpoch):
        send(log, 7, 1)
    with pytest.raises(OutOfOrderSequence):
        send(log, 7, 1, epoch=1)
    send(log, 7, 0, epoch=1)
    send(log, 7, 1, epoch=1)
    assert log.has_open_transaction(7, 1)


def test_what_coordinators_write_in_a_transaction_has_no_sequence(log: PartitionLog) -> None:
    assert [send(log, 7, -1, epoch=3), send(log, 7, -1, epoch=3)] == [0, 1]
    with pytest.raises(InvalidProducerEpoch):
        send(log, 7, -1, epoch=2)
    commit(log, 7, epoch=4, is_version_2=True)
    send(log, 7, -1, epoch=4)
    assert stable(log) == 3


def test_a_marker_of_an_older_producer_epoch_is_refused(log: PartitionLog) -> None:
    send(log, 7, 0, epoch=2)
    with pytest.raises(InvalidProducerEpoch):
        abort(log, 7, epoch=1)
    assert (log.next_offset, stable(log)) == (1, 0)


def test_a_marker_of_an_older_coordinator_is_refused_and_the_same_may_come_again(log: PartitionLog) -> None:
    send(log, 7, 0)
    commit(log, 7, coordinator=5)
    commit(log, 7, coordinator=5)
    with pytest.raises(TransactionCoordinatorFenced):
        commit(log, 7, coordinator=4)
    assert log.next_offset == 3


def test_a_late_marker_of_version_2_does_not_end_the_next_transaction(log: PartitionLog) -> None:
    send(log, 7, 0)
    commit(log, 7, epoch=1, is_version_2=True)
    commit(log, 7, epoch=1, is_version_2=True)  # sent again, as nothing is open it does no harm
    send(log, 7, 0, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        commit(log, 7, epoch=1, is_version_2=True)
    assert stable(log) == 3


def test_a_transaction_is_open_for_the_epoch_that_writes_it_only(log: PartitionLog) -> None:
    assert not log.has_open_transaction(7, 0)
    send(log, 7, 0)
    assert log.has_open_transaction(7, 0)
    assert not log.has_open_transaction(7, 1)
    commit(log, 7)
    assert not log.has_open_transaction(7, 0)


def test_a_producer_is_described_with_what_it_has_open_and_since_when(log: PartitionLog) -> None:
    append(log, "a")
    send(log, 7, 0, "b", "c", now_ms=NOW + 5, timestamp=NOW - HOUR)
    send(log, 7, 2, now_ms=NOW + 9)
    assert log.producer_states() == [(7, 0, 2, NOW + 9, -1, 1, NOW + 5)]
    abort(log, 7, epoch=1, coordinator=3, now_ms=NOW + 11)
    assert log.producer_states() == [(7, 1, -1, NOW + 11, 3, -1, -1)]


def test_whoever_has_a_transaction_open_is_not_forgotten_and_a_marker_keeps_alive(log: PartitionLog) -> None:
    send(log, 7, 0)
    assert log.producers.expire(NOW + 2 * HOUR) == 0
    commit(log, 7, now_ms=NOW + HOUR)
    assert log.producers.expire(NOW + HOUR) == 0
    assert log.producers.expire(NOW + HOUR + 1) == 1


# What committed readers are told


def test_readers_are_told_of_those_aborted_transactions_that_reach_into_what_they_read(log: PartitionLog) -> None:
    append(log, "a")  # 0
    send(log, 7, 0)  # 1
    send(log, 8, 0)  # 2
    abort(log, 7)  # 3
    append(log, "b")  # 4
    abort(log, 8)  # 5
    send(log, 7, 1)  # 6
    commit(log, 7)  # 7
    assert told(log, 0, 1) == []
    assert told(log, 0, 2) == [(7, 1)]
    assert told(log, 0, 8) == [(7, 1), (8, 2)]
    assert told(log, 3, 5) == [(7, 1), (8, 2)]
    assert told(log, 4, 5) == [(8, 2)]
    assert told(log, 6, 8) == []
    assert committed_values(log.read(Offset(0), 1 << 20, Offset(8)), 0, told(log, 0, 8)) == ["a", "b", "v"]


def test_an_entry_says_from_where_later_aborts_can_begin(log: PartitionLog) -> None:
    send(log, 7, 0)
    send(log, 8, 0)
    abort(log, 7)
    abort(log, 8)
    assert list(log.aborted) == [AbortedTransaction(7, 0, 2, 1), AbortedTransaction(8, 1, 3, 4)]


def test_an_abort_that_ends_after_many_others_is_still_told_to_whoever_reads_its_first_record(
    log: PartitionLog,
) -> None:
    send(log, 1, 0)
    for sequence in range(20):
        send(log, 2, sequence)
        abort(log, 2)
    abort(log, 1)
    assert told(log, 0, 1) == [(1, 0)]
    assert told(log, 39, 40) == [(2, 39), (1, 0)]


# After a restart


def damage(path: Path, harm: str) -> None:
    content = path.read_bytes()
    match harm:
        case "lost":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "torn":
            path.write_bytes(content[:-1])
        case "flipped":
            path.write_bytes(content[:20] + bytes([content[20] ^ 4]) + content[21:])
        case _:
            path.write_bytes(content + bytes(ENTRY_BYTES))


@pytest.fixture
def busy(tmp_path: Path) -> PartitionLog:
    """Aborted, committed and open transactions over several segments."""
    log = open_at(tmp_path / "orders-0", segment_bytes=400)
    for number in range(6):
        send(log, 7, number, f"aborted {number}", now_ms=NOW + number)
        append(log, f"plain {number}")
        abort(log, 7, coordinator=number)
        send(log, 8, number, f"committed {number}")
        commit(log, 8, epoch=0)
    send(log, 9, 0, "open", now_ms=NOW + 100)
    assert len(log.segments) > 3
    return log


def check_same(log: PartitionLog, again: PartitionLog) -> None:
    assert list(again.aborted) == list(log.aborted)
    assert stable(again) == stable(log)
    end = log.next_offset
    assert [told(again, start, end) for start in range(end)] == [told(log, start, end) for start in range(end)]
    assert again.has_open_transaction(9, 0)
    with pytest.raises(TransactionCoordinatorFenced):
        abort(again, 7, coordinator=4)
    abort(again, 9)
    assert stable(again) == again.next_offset


def test_all_of_it_is_found_again_in_the_log_alone(busy: PartitionLog) -> None:
    check_same(busy, reopen(busy))


def test_and_from_a_snapshot_in_the_middle_and_the_log_behind_it(busy: PartitionLog) -> None:
    save(busy)
    point = busy.next_offset
    send(busy, 7, 6)
    abort(busy, 7, coordinator=6)
    check_same(busy, reopen(busy, recovery_point=point))


def test_from_snapshot_and_files_nothing_is_read_anew(busy: PartitionLog, caplog: pytest.LogCaptureFixture) -> None:
    save(busy)
    since = [state.txn_since_ms for state in busy.producer_states()]
    again = reopen(busy, recovery_point=busy.next_offset, now_ms=NOW + HOUR)
    assert [state.txn_since_ms for state in again.producer_states()] == since
    assert "anew" not in caplog.text
    check_same(busy, again)


@pytest.mark.parametrize("harm", ["lost", "empty", "torn", "flipped"])
def test_a_damaged_file_of_aborted_transactions_is_made_anew(
    busy: PartitionLog, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    save(busy)
    files = sorted(busy.directory.glob("*.txnindex"))
    content = {path: path.read_bytes() for path in files}
    damage(files[1], harm)
    again = reopen(busy, recovery_point=busy.next_offset)
    assert "its aborted transactions are read from the log anew" in caplog.text
    assert {path: path.read_bytes() for path in files} == content
    check_same(busy, again)


def test_what_lies_behind_the_entries_a_snapshot_vouches_for_is_not_believed(busy: PartitionLog) -> None:
    save(busy)
    for path in busy.directory.glob("*.txnindex"):
        damage(path, "grown")
    again = reopen(busy, recovery_point=busy.next_offset)
    assert list(again.aborted) == list(busy.aborted)
    abort(again, 9)
    save(again)
    sizes = {path.stat().st_size for path in busy.directory.glob("*.txnindex")}
    check = reopen(again, recovery_point=again.next_offset)
    assert list(check.aborted) == list(again.aborted)
    assert all(size % ENTRY_BYTES == 0 for size in sizes)


def test_a_snapshot_of_an_earlier_version_is_passed_over(busy: PartitionLog) -> None:
    save(busy)
    (path,) = busy.directory.glob("*.snapshot")
    path.write_bytes(b"\0\x01" + path.read_bytes()[2:])
    check_same(busy, reopen(busy, recovery_point=busy.next_offset))


def test_a_torn_marker_has_ended_nothing(log: PartitionLog) -> None:
    send(log, 7, 0)
    size = log.segments[-1].size
    abort(log, 7)
    path = log.segments[-1].path()
    log.close()
    path.write_bytes(path.read_bytes()[: size + 30])
    again = open_at(log.directory)
    assert (again.next_offset, stable(again)) == (1, 0)
    assert again.has_open_transaction(7, 0)


def test_the_file_beside_a_segment_has_kafkas_layout(log: PartitionLog) -> None:
    append(log, "a")
    send(log, 7, 0)
    send(log, 8, 0)
    abort(log, 7)
    save(log)
    content = (log.directory / f"{0:020d}.txnindex").read_bytes()
    fields = (0).to_bytes(2, "big") + b"".join(number.to_bytes(8, "big") for number in (7, 1, 3, 2))
    assert content == fields
    abort(log, 8)
    save(log)
    assert (log.directory / f"{0:020d}.txnindex").read_bytes()[: len(fields)] == fields
    assert (log.directory / f"{0:020d}.txnindex").stat().st_size == 2 * ENTRY_BYTES


def test_entries_go_with_the_segment_that_holds_their_marker(busy: PartitionLog) -> None:
    save(busy)
    cut = busy.segments[2].base_offset
    busy.advance_start(cut)
    for segment in busy.take_segments_before_start():
        segment.mark_deleted()
        segment.remove_deleted()
    assert min(each.last_offset for each in busy.aborted) >= cut
    assert sorted(int(path.stem) for path in busy.directory.glob("*.txnindex*")) == [
        segment.base_offset
        for segment in busy.segments
        if any(segment.base_offset <= each.last_offset < segment.next_offset for each in busy.aborted)
    ]
    again = reopen(busy, recovery_point=busy.next_offset, log_start=cut)
    assert list(again.aborted) == list(busy.aborted)


def test_a_file_whose_segment_is_gone_goes_too(busy: PartitionLog) -> None:
    stray = busy.directory / f"{999_999:020d}.txnindex"
    stray.write_bytes(bytes(ENTRY_BYTES))
    reopen(busy)
    assert not stray.exists()


class Directory:
    """A log of a data directory that may crash."""

    def __init__(self, root: Path) -> None:
        self.disk, self.root, self.clock = RealDisk(), root, ManualClock()

    async def open(self) -> PartitionLog:
        self.logs = LogDirectory(self.disk, self.root, self.clock, Rng(3))
        self.logs.prepare()
        await self.logs.open_all([LogRequest(AT, TOPIC_ID, TopicConfig(file_delete_delay_ms=0))])
        return self.logs.logs[AT]

    async def crash(self) -> PartitionLog:
        self.logs.release()
        return await self.open()

    async def delete_to(self, log: PartitionLog, offset: int) -> int:
        log.advance_start(Offset(offset))
        await log.sync.wait_for(log.next_offset)
        await self.logs.save_points()
        return await self.logs.drop_segments_before_start(log)


async def test_a_transaction_that_ended_in_records_deleted_since_is_not_open_again_after_a_crash(
    tmp_path: Path,
) -> None:
    directory = Directory(tmp_path)
    log = await directory.open()
    send(log, 7, 0)
    await directory.logs.checkpoint()
    commit(log, 7)
    log.roll(NOW)
    append(log, "a")
    assert await directory.delete_to(log, 2) == 1
    log = await directory.crash()
    assert stable(log) == log.next_offset == 3
    assert not log.has_open_transaction(7, 0)


async def test_a_snapshot_that_only_a_recovery_wrote_is_not_relied_on(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    log = await directory.open()
    send(log, 7, 0)
    commit(log, 7, coordinator=3)
    log = await directory.crash()
    log.roll(NOW)
    assert await directory.delete_to(log, 2) == 1
    log = await directory.crash()
    assert [state.last_sequence for state in log.producer_states()] == [0]
    with pytest.raises(TransactionCoordinatorFenced):
        commit(log, 7, coordinator=2)


def test_the_values_are_where_they_were(busy: PartitionLog) -> None:
    values = all_values(busy)
    assert all_values(reopen(busy)) == values


def test_an_unknown_control_record_ends_no_transaction(log: PartitionLog) -> None:
    send(log, 7, 0)
    assert log.producers.end_transaction(Marker(ControlType.UNKNOWN, 9), 7, 1) is None
    assert stable(log) == 0
