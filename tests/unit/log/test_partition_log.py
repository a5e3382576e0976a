"""One partition's log: it grows at its end, segment after segment, takes no batch twice, and lets go at its start."""

from pathlib import Path

from tests.unit.log.making import HOUR, NOW, all_values, append, fill, make_batch, open_at

from penstock.log.topic_id import TOPIC_ID_FILE
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import read_header


def test_nothing_is_on_disk_before_the_first_record(directory: Path) -> None:
    log = open_at(directory)
    assert log.next_offset == 0
    assert log.read(Offset(0), 1000, Offset(0)) == b""
    assert not directory.exists()
    append(log, "a")
    assert sorted(path.name for path in directory.iterdir()) == ["00000000000000000000.log", TOPIC_ID_FILE]


def test_offsets_count_records_and_are_stamped_with_the_epoch_into_what_was_sent(directory: Path) -> None:
    log = open_at(directory)
    assert append(log, "a", "b", "c", leader_epoch=4)[:2] == (0, 3)
    batch, header = make_batch("d")
    assert log.append(batch, header, LeaderEpoch(5), NOW)[:2] == (3, 4)
    assert (read_header(batch).base_offset, read_header(batch).leader_epoch) == (3, 5)
    assert log.epochs.epoch_at(Offset(2)) == 4
    assert log.epochs.epoch_at(Offset(3)) == 5
    stored = directory.joinpath("00000000000000000000.log").read_bytes()
    assert stored.endswith(bytes(batch))


def test_a_segment_is_full_before_it_is_too_large(directory: Path) -> None:
    batch, _ = make_batch("0".ljust(40), "1".ljust(40))
    log = open_at(directory, segment_bytes=len(batch) * 3)
    values = fill(log, 10)
    assert [segment.base_offset for segment in log.segments] == [0, 6, 12, 18]
    assert all(segment.size <= len(batch) * 3 for segment in log.segments)
    assert all_values(log) == values


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(directory: Path) -> None:
    log = open_at(directory, segment_bytes=500)
    append(log, "a")
    append(log, "b" * 2000)
    append(log, "c")
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    assert all_values(log) == ["a", "b" * 2000, "c"]


def test_a_segment_is_closed_when_its_records_span_too_long_a_time(directory: Path) -> None:
    log = open_at(directory, segment_ms=HOUR)
    append(log, "a", timestamp=NOW)
    append(log, "b", timestamp=NOW + HOUR)
    assert len(log.segments) == 1
    append(log, "c", timestamp=NOW + HOUR + 1)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_records_without_a_time_roll_by_the_clock(directory: Path) -> None:
    log = open_at(directory, segment_ms=HOUR)
    append(log, "a", timestamp=-1, now_ms=NOW)
    append(log, "b", timestamp=-1, now_ms=NOW + HOUR)
    assert len(log.segments) == 1
    append(log, "c", timestamp=-1, now_ms=NOW + HOUR + 1)
    assert len(log.segments) == 2


def test_a_segment_never_holds_offsets_that_do_not_fit_its_index(directory: Path) -> None:
    log = open_at(directory)
    append(log, "a")
    log.segments[-1].next_offset = log.next_offset = Offset(2**31 - 1)
    append(log, "b")
    assert len(log.segments) == 1
    append(log, "c")
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]


def test_a_closed_segment_has_its_indexes_on_disk(directory: Path) -> None:
    log = open_at(directory, segment_bytes=600, index_interval_bytes=100)
    fill(log, 10)
    closed = log.segments[0]
    assert (directory / "00000000000000000000.index").read_bytes() == closed.offset_index.encode()
    assert (directory / "00000000000000000000.timeindex").read_bytes() == closed.time_index.encode()


def test_a_batch_sent_again_is_answered_with_its_first_offset_and_not_written(directory: Path) -> None:
    log = open_at(directory)
    append(log, "first")
    for sequence in range(0, 10, 2):
        append(log, "a", "b", producer=7, sequence=sequence)
    size, end = log.size, log.next_offset
    for sequence in range(0, 10, 2):
        again = append(log, "a", "b", producer=7, sequence=sequence)
        assert again == (1 + sequence, 3 + sequence, True)
    assert (log.size, log.next_offset) == (size, end)


def test_a_batch_below_the_log_start_is_still_known_when_it_is_sent_again(directory: Path) -> None:
    log = open_at(directory)
    append(log, "a", "b", producer=7, sequence=0)
    log.advance_start(Offset(1))
    assert append(log, "a", "b", producer=7, sequence=0).is_duplicate
    log.advance_start(Offset(2))
    assert append(log, "a", "b", producer=7, sequence=0).is_duplicate


def test_segments_below_the_start_are_handed_out_once_and_the_active_one_never(directory: Path) -> None:
    log = open_at(directory, segment_bytes=400)
    values = fill(log, 10)
    start = log.segments[3].base_offset
    log.advance_start(Offset(start + 1))
    taken = log.take_segments_before_start()
    assert [segment.base_offset for segment in taken] == [0, 4, 8]
    assert log.take_segments_before_start() == []
    assert all_values(log) == values[start:]
    log.advance_start(log.next_offset)
    log.take_segments_before_start()
    assert len(log.segments) == 1
