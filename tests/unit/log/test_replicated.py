"""The follower's side of a log: batches as the leader sent them, or none of them."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import NOW, abort, all_values, append, commit, make_batch, open_at, values_in

from penstock.disk import RealDisk
from penstock.errors import CorruptMessage, StorageFailed
from penstock.log.checkpoints import EpochStart
from penstock.log.partition_log import PartitionLog
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import read_header, refresh_crc, stamp
from penstock.records.record import Record, encode_batch


@pytest.fixture
def leader(tmp_path: Path) -> PartitionLog:
    return open_at(tmp_path / "leader")


@pytest.fixture
def follower(tmp_path: Path) -> PartitionLog:
    return open_at(tmp_path / "follower")


def everything(log: PartitionLog, start: int | None = None) -> memoryview:
    """All bytes of the log's segments from an offset on, as one answer."""
    parts: list[bytes] = []
    offset = Offset(log.log_start if start is None else start)
    while offset < log.next_offset:
        chunk = log.read(offset, 1 << 20, log.next_offset, cached_only=False)
        assert chunk
        parts.append(bytes(chunk))
        while chunk:
            header = read_header(chunk)
            offset = Offset(header.next_offset)
            chunk = chunk[header.size :]
    return memoryview(b"".join(parts))


def a_batch(*values: str, offset: int, epoch: int = 0, **batch: Any) -> memoryview:
    view, _ = make_batch(*values, **batch)
    stamp(view, Offset(offset), LeaderEpoch(epoch))
    return view


def taken(log: PartitionLog, *batches: memoryview) -> int:
    return log.append_replicated(memoryview(b"".join(batches)), NOW)


def epochs_of(log: PartitionLog) -> list[EpochStart]:
    return log.epochs._entries  # pyright: ignore[reportPrivateUsage]


def test_a_follower_has_byte_for_byte_what_its_leader_has(leader: PartitionLog, follower: PartitionLog) -> None:
    append(leader, "a", "b")
    append(leader, "c", leader_epoch=2)
    append(leader, "d", leader_epoch=5, producer=7, sequence=0)
    sent = everything(leader)
    assert follower.append_replicated(sent, NOW) == len(sent)
    assert (follower.log_start, follower.next_offset) == (0, 4)
    assert everything(follower) == sent
    assert epochs_of(follower) == epochs_of(leader) == [(0, 0), (2, 2), (5, 3)]


def test_an_answer_may_end_anywhere_and_the_rest_comes_with_the_next(
    leader: PartitionLog, follower: PartitionLog
) -> None:
    for number in range(6):
        append(leader, f"value {number}")
    sent = everything(leader)
    for step in (1, 60, 61, 100, 150):
        part = everything(leader, follower.next_offset)[:step]
        follower.append_replicated(part, NOW)
        assert bytes(sent).startswith(bytes(everything(follower)))
    follower.append_replicated(everything(leader, follower.next_offset), NOW)
    assert everything(follower) == sent
    assert taken(follower) == 0


@pytest.mark.parametrize("position", [20, 30, 61, 66])
def test_of_an_answer_with_a_flipped_bit_nothing_is_taken(follower: PartitionLog, position: int) -> None:
    good, bad = a_batch("good", offset=0), a_batch("bad one", offset=1)
    bad[position] ^= 4
    with pytest.raises(CorruptMessage):
        taken(follower, good, bad)
    assert follower.next_offset == 0
    assert follower.failure is None
    assert taken(follower, good)


def test_a_header_that_is_none_is_refused_though_its_batch_may_be_cut_short(follower: PartitionLog) -> None:
    batch = a_batch("a", offset=0)
    for position, value in ((16, 1), (8, 0x80), (23, 0x80)):
        wrong = memoryview(bytearray(batch))
        wrong[position] = value
        refresh_crc(wrong)
        with pytest.raises(CorruptMessage, match="no batch header"):
            taken(follower, wrong)


def test_offsets_may_leave_holes_and_never_go_back(follower: PartitionLog) -> None:
    taken(follower, a_batch("a", "b", offset=0), a_batch("c", offset=10), a_batch("d", offset=20))
    assert follower.next_offset == 21
    for offset in (20, 19, 0):
        with pytest.raises(CorruptMessage, match="21 was next"):
            taken(follower, a_batch("again", offset=offset))
    with pytest.raises(CorruptMessage, match="22 was next"):
        taken(follower, a_batch("e", offset=21), a_batch("e", offset=21))
    assert all_values(follower) == ["a", "b", "c", "d"]
    assert values_in(follower.read(Offset(5), 1 << 20, follower.next_offset)) == ["c", "d"]


def test_leader_epochs_never_fall(follower: PartitionLog) -> None:
    taken(follower, a_batch("a", offset=0, epoch=4))
    with pytest.raises(CorruptMessage, match="epoch 3 after 4"):
        taken(follower, a_batch("b", offset=1, epoch=3))
    with pytest.raises(CorruptMessage, match="epoch 5 after 6"):
        taken(follower, a_batch("b", offset=1, epoch=6), a_batch("c", offset=2, epoch=5))
    assert epochs_of(follower) == [(4, 0)]
    with pytest.raises(CorruptMessage, match="epoch -1"):
        taken(follower, a_batch("b", offset=1, epoch=-1))


def test_transactions_and_producers_are_followed_as_the_leader_keeps_them(
    leader: PartitionLog, follower: PartitionLog
) -> None:
    append(leader, "x", producer=1, sequence=0, is_transactional=True)
    append(leader, "y", producer=2, sequence=0, is_transactional=True)
    append(leader, "z", producer=3, sequence=0)
    abort(leader, 1, coordinator=3)
    commit(leader, 2)
    append(leader, "w", producer=2, sequence=1, is_transactional=True)
    follower.append_replicated(everything(leader), NOW)
    assert follower.producer_states() == leader.producer_states()
    assert list(follower.aborted) == list(leader.aborted)
    assert len(follower.aborted) == 1
    assert follower.last_stable_offset(Offset(6)) == leader.last_stable_offset(Offset(6)) == 5
    again = append(follower, "w", producer=2, sequence=1, is_transactional=True)
    assert (again.base_offset, again.is_duplicate) == (5, True)


def test_a_control_batch_that_says_nothing_is_refused_before_anything_is_written(follower: PartitionLog) -> None:
    nonsense = memoryview(
        encode_batch(
            [Record(0, NOW, b"?", b"?")], producer_id=1, producer_epoch=0, is_transactional=True, is_control=True
        )
    )
    stamp(nonsense, Offset(1), LeaderEpoch(0))
    with pytest.raises(CorruptMessage, match="holds no marker"):
        taken(follower, a_batch("a", offset=0), nonsense)
    assert follower.next_offset == 0


def test_batches_that_compaction_has_emptied_are_taken(follower: PartitionLog) -> None:
    emptied = memoryview(bytearray(a_batch("a", "b", offset=3, producer=5, sequence=8)[:61]))
    emptied[8:12] = (49).to_bytes(4, "big")
    emptied[57:61] = bytes(4)
    refresh_crc(emptied)
    assert taken(follower, emptied) == 61
    assert follower.next_offset == 5
    assert append(follower, "a", "b", producer=5, sequence=8).is_duplicate


def test_runs_of_batches_are_one_write_for_each_segment(tmp_path: Path) -> None:
    acts: list[Act] = []
    follower = open_at(tmp_path / "f", disk=WatchedDisk(RealDisk(), acts.append), segment_bytes=400)
    batches = [a_batch(f"{number}".ljust(60), offset=number) for number in range(7)]
    taken(follower, *batches)
    writes = [act.size for act in acts if act.kind == "write" and act.path.suffix == ".log"]
    size = len(batches[0])
    assert writes == [3 * size, 3 * size, size]
    assert [segment.size for segment in follower.segments] == writes
    assert all_values(follower) == [f"{number}".ljust(60) for number in range(7)]


def test_segments_roll_where_the_leaders_would(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"segment_bytes": 500, "segment_ms": 10_000}
    leader, follower = open_at(tmp_path / "l", **settings), open_at(tmp_path / "f", **settings)
    for number in range(20):
        append(leader, "v" * (number * 7 % 90), timestamp=NOW + number * number * 100)
    follower.append_replicated(everything(leader), NOW)
    assert [each.base_offset for each in follower.segments] == [each.base_offset for each in leader.segments]
    assert len(follower.segments) > 5
    for mine, theirs in zip(follower.segments, leader.segments, strict=True):
        assert mine.encode_indexes() == theirs.encode_indexes()


def test_a_segment_ends_where_the_next_begins_though_there_is_a_hole_between(tmp_path: Path) -> None:
    follower = open_at(tmp_path / "f", segment_bytes=200)
    taken(follower, a_batch("a" * 90, offset=0), a_batch("b" * 90, offset=50), a_batch("c" * 90, offset=70))
    assert [segment.base_offset for segment in follower.segments] == [0, 1, 51]
    again = open_at(tmp_path / "f", segment_bytes=200)
    assert (again.next_offset, all_values(again)) == (71, ["a" * 90, "b" * 90, "c" * 90])


def test_a_log_that_starts_amid_a_batch_begins_with_all_of_it(tmp_path: Path) -> None:
    follower = open_at(tmp_path / "f", log_start=12)
    with pytest.raises(CorruptMessage):
        taken(follower, a_batch("a", "b", offset=10))
    taken(follower, a_batch("a", "b", "c", "d", offset=10), a_batch("e", offset=14))
    assert (follower.log_start, follower.next_offset) == (12, 15)
    assert read_header(follower.read(Offset(12), 1000, follower.next_offset) or b"").base_offset == 10
    again = open_at(tmp_path / "f", log_start=12)
    assert (again.log_start, again.next_offset) == (12, 15)


def test_what_was_replicated_is_found_again_by_recovery(
    tmp_path: Path, leader: PartitionLog, follower: PartitionLog
) -> None:
    for number in range(30):
        append(leader, f"value {number}", leader_epoch=number // 10, producer=9, sequence=number)
    follower.append_replicated(everything(leader), NOW)
    again = open_at(tmp_path / "follower")
    assert everything(again) == everything(leader)
    assert epochs_of(again) == epochs_of(leader)
    assert append(again, "value 29", producer=9, sequence=29).is_duplicate


def test_a_write_that_fails_stops_the_follower_for_good(tmp_path: Path) -> None:
    def no_room(act: Act) -> None:
        if act.kind == "write" and act.path.name.startswith("0") and act.path.suffix == ".log":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    follower = open_at(tmp_path / "f", disk=WatchedDisk(RealDisk(), no_room))
    for _ in range(2):
        with pytest.raises(StorageFailed):
            taken(follower, a_batch("a", offset=0))


def test_a_new_leader_ends_the_epochs_before_it_without_writing_anything(leader: PartitionLog) -> None:
    append(leader, "a", leader_epoch=1)
    leader.begin_epoch(LeaderEpoch(4))
    assert leader.epochs.latest == 4
    assert leader.epochs.end_of(LeaderEpoch(1), leader.next_offset) == (1, 1)
    leader.begin_epoch(LeaderEpoch(4))
    leader.begin_epoch(LeaderEpoch(6))
    append(leader, "b", leader_epoch=6)
    assert epochs_of(leader) == [(1, 0), (6, 1)]


async def test_an_epoch_is_on_disk_no_later_than_its_first_batch(tmp_path: Path) -> None:
    synced: list[str] = []
    watched = WatchedDisk(
        RealDisk(), lambda act: synced.append(act.path.name) if act.kind in ("sync", "rename") else None
    )
    log = open_at(tmp_path / "f", disk=watched)
    log.begin_epoch(LeaderEpoch(3))
    append(log, "a", leader_epoch=3)
    await log.sync.wait_for(log.next_offset)
    names = [name for name in synced if "leader-epoch" in name or name.endswith(".log")]
    assert names == ["leader-epoch-checkpoint.tmp", "leader-epoch-checkpoint.tmp", f"{0:020d}.log"]


def test_an_epoch_we_led_without_writing_does_not_refuse_what_another_leader_wrote_before_it(
    follower: PartitionLog,
) -> None:
    taken(follower, a_batch("a", offset=0, epoch=2))
    follower.begin_epoch(LeaderEpoch(3))
    # The other was behind us in nothing: it had more of epoch 2, and leads in epoch 5 now.
    taken(follower, a_batch("b", offset=1, epoch=2), a_batch("c", offset=2, epoch=5))
    assert epochs_of(follower) == [(2, 0), (5, 2)]
