"""Compaction over real files: what stays, what goes, and what the files look like afterwards."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from penstock.disk import RealDisk
from penstock.errors import CorruptMessage
from penstock.log.clean_job import CleanJob, CleanResult, SourceSegment
from penstock.log.compaction import clean_segments, group_segments
from penstock.log.index import OffsetIndex, TimeIndex
from penstock.log.offset_map import ENTRY_BYTES, AbortedTransaction
from penstock.log.producers import ProducerTail
from penstock.log.segment import file_name
from penstock.log.swap import swap_in
from penstock.records.batch import BatchHeader, crc_is_right, read_header
from penstock.records.compression import Codec
from penstock.records.markers import ControlType, Marker, encode_marker
from penstock.records.record import Record, decode_records, encode_batch

NOW = 1_700_000_000_000
DAY = 86_400_000


class Log:
    """Closed segments in a directory, as a broker would leave them."""

    def __init__(self, directory: Path) -> None:
        self.disk = RealDisk()
        self.directory = directory
        self.sources: list[SourceSegment] = []
        self.next_offset = 0

    def add_segment(self, batches: Iterable[bytes | bytearray]) -> None:
        content = b"".join(batches)
        base_offset = self.next_offset
        (self.directory / file_name(base_offset, ".log")).write_bytes(content)
        for header, _ in read_all(content):
            self.next_offset = header.next_offset
        self.sources.append(SourceSegment(base_offset, self.next_offset, len(content)))

    def job(self, **changes: object) -> CleanJob:
        values: dict[str, object] = {
            "directory": self.directory,
            "segments": tuple(self.sources),
            "dirty_start": 0,
            "dirty_end": self.next_offset,
            "now_ms": NOW,
            "delete_retention_ms": DAY,
            "segment_bytes": 1 << 30,
            "segment_index_bytes": 10 << 20,
            "index_interval_bytes": 4096,
            "unpacked_bytes_max": 1 << 20,
            "dedupe_buffer_bytes": 1 << 20,
        }
        return CleanJob(**{**values, **changes})

    def clean(self, **changes: object) -> CleanResult:
        """Compact and swap in, as the broker does."""
        result = clean_segments(self.disk, self.job(**changes))
        for cleaned in result.cleaned:
            swap_in(self.disk, self.directory, cleaned.base_offset, cleaned.replaces)
            first = [source.base_offset for source in self.sources].index(cleaned.base_offset)
            source = SourceSegment(cleaned.base_offset, cleaned.next_offset, cleaned.size)
            self.sources[first : first + len(cleaned.replaces)] = [source]
        return result

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        content = b"".join(
            (self.directory / file_name(source.base_offset, ".log")).read_bytes() for source in self.sources
        )
        return read_all(content)

    def records(self) -> list[Record]:
        return [record for header, records in self.batches() if not header.is_control for record in records]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]


def read_all(content: bytes) -> list[tuple[BatchHeader, list[Record]]]:
    found: list[tuple[BatchHeader, list[Record]]] = []
    at = 0
    while at < len(content):
        header = read_header(content, at)
        assert crc_is_right(content, header, at)
        found.append((header, list(decode_records(content, header, 16 << 20, at))))
        at += header.size
    return found


def batch(offset: int, *pairs: tuple[bytes | None, bytes | None], **options: object) -> bytearray:
    records = [Record(offset + at, NOW - DAY + offset + at, key, value) for at, (key, value) in enumerate(pairs)]
    return encode_batch(records, **options)


def transactional(offset: int, producer_id: int, *pairs: tuple[bytes | None, bytes | None]) -> bytearray:
    return batch(offset, *pairs, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


def marker(offset: int, producer_id: int, control_type: ControlType) -> bytearray:
    return encode_marker(
        Marker(control_type, 0), offset=offset, timestamp=NOW, producer_id=producer_id, producer_epoch=0
    )


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_the_newest_record_of_each_key_stays_at_its_offset(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))])
    log.add_segment([batch(3, (b"c", b"1"), (b"a", b"3"))])
    result = log.clean()
    assert [(record.offset, record.key, record.value) for record in log.records()] == [
        (1, b"b", b"1"),
        (3, b"c", b"1"),
        (4, b"a", b"3"),
    ]
    assert result.clean_end == 5
    first, last = (header for header, _ in log.batches())
    # A batch keeps both its ends, so that its sequence numbers still fit its offsets.
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)
    assert (last.base_offset, last.last_offset, last.record_count) == (3, 4, 2)


def test_times_and_headers_of_what_stays_do_not_change(log: Log) -> None:
    kept = Record(1, NOW - 5, b"k", b"v", (("h", b"1"), ("h", None)))
    log.add_segment([encode_batch([Record(0, NOW, b"x", b"1"), kept, Record(2, NOW - 7, b"x", b"2")])])
    log.clean()
    assert log.records() == [kept, Record(2, NOW - 7, b"x", b"2")]
    ((header, _),) = log.batches()
    assert header.max_timestamp == NOW - 5


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_compression(log: Log, codec: Codec) -> None:
    log.add_segment([batch(0, (b"a", b"1"), (b"a", b"2"), compression=codec)])
    log.clean()
    ((header, records),) = log.batches()
    assert header.compression == codec
    assert [record.value for record in records] == [b"2"]


def test_log_append_time_survives_the_loss_of_the_newest_record(log: Log) -> None:
    log.add_segment(
        [batch(0, (b"a", b"1"), (b"b", b"2"), is_log_append_time=True), batch(2, (b"b", b"3"), is_log_append_time=True)]
    )
    times = [record.timestamp for record in log.records()]
    log.clean()
    assert [record.timestamp for record in log.records()] == [times[0], times[2]]


def test_records_without_a_key_go(log: Log) -> None:
    log.add_segment([batch(0, (None, b"1"), (b"a", b"1"))])
    log.clean()
    assert log.offsets() == [1]


def test_an_empty_key_is_a_key(log: Log) -> None:
    log.add_segment([batch(0, (b"", b"1"), (b"", b"2"))])
    log.clean()
    assert log.offsets() == [1]


def test_long_keys_that_differ_only_at_the_end_are_different(log: Log) -> None:
    log.add_segment([batch(0, (b"k" * 500 + b"1", b"1"), (b"k" * 500 + b"2", b"1"), (b"k" * 500 + b"1", b"2"))])
    log.clean()
    assert log.offsets() == [1, 2]


def test_nothing_from_the_dirty_end_on_changes(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1")), batch(1, (b"a", b"2")), batch(2, (b"a", b"3"), (None, b"4"))])
    log.add_segment([batch(4, (b"a", b"5"))])
    untouched = log.batches()[2:]
    result = log.clean(dirty_end=2)
    assert log.offsets() == [1, 2, 3, 4]
    assert log.batches()[-2:] == untouched
    assert result.clean_end == 2
    # A segment that lies above it altogether is not even copied.
    assert [cleaned.replaces for cleaned in result.cleaned] == [(0,)]


def test_transactions_above_the_dirty_end_are_left_for_later(log: Log) -> None:
    log.add_segment(
        [
            batch(0, (b"a", b"1")),
            batch(1, (b"a", b"2")),
            marker(2, 8, ControlType.COMMIT),
            transactional(3, 7, (b"b", b"aborted")),
            marker(4, 7, ControlType.ABORT),
        ]
    )
    untouched = log.batches()[2:]
    result = log.clean(dirty_end=2, aborted=(AbortedTransaction(7, 3, 4),))
    assert result.clean_end == 2
    assert log.batches()[-3:] == untouched


def test_records_of_a_batch_that_reaches_past_the_dirty_end_stay(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (None, b"4"))])
    assert log.clean(dirty_end=2).clean_end == 2
    assert log.offsets() == [1, 2, 3]


def test_records_without_a_key_past_the_dirty_end_stay(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1"), (None, b"2"), (None, b"3"))])
    assert log.clean(dirty_end=1).clean_end == 1
    assert log.offsets() == [0, 1, 2]


def test_a_dirty_start_above_the_dirty_end_moves_no_limit(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1")), batch(1, (None, b"2")), batch(2, (b"b", b""))])
    assert log.clean(dirty_start=3, dirty_end=1).clean_end == 1
    assert log.offsets() == [0, 1, 2]


def test_dirty_records_push_out_clean_ones(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1"), (b"b", b"1"))])
    log.add_segment([batch(2, (b"a", b"2"))])
    log.clean(dirty_start=2)
    assert log.offsets() == [1, 2]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_tombstone_stays_until_its_horizon_and_then_goes(log: Log, codec: Codec) -> None:
    log.add_segment(
        [batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", None), compression=codec), batch(3, (b"end", b""))],
    )
    before = log.records()
    log.clean()
    assert log.records() == before[1:]
    header = log.batches()[0][0]
    assert header.attributes == 0x40 | codec
    assert header.base_timestamp == NOW + DAY
    log.clean(now_ms=NOW + DAY - 1)
    assert log.offsets() == [1, 2, 3]
    # The horizon is set once: a later compaction does not put it off.
    assert log.batches()[0][0].base_timestamp == NOW + DAY
    log.clean(now_ms=NOW + DAY)
    assert log.offsets() == [1, 3]
    assert log.records() == [before[1], before[3]]


def test_a_tombstone_that_was_overtaken_goes_at_once(log: Log) -> None:
    log.add_segment([batch(0, (b"a", None), (b"a", b"2"))])
    log.clean()
    assert log.offsets() == [1]
    assert not log.batches()[0][0].attributes & 0x40


def test_a_tombstone_above_the_dirty_end_gets_no_horizon(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1")), batch(1, (b"a", b"2")), batch(2, (b"b", None))])
    log.clean(dirty_end=2)
    assert [header.attributes for header, _ in log.batches()] == [0, 0]


def test_a_batch_with_nothing_left_goes_unless_it_is_the_last(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1")), batch(1, (b"a", b"2")), batch(2, (b"a", b"3"))])
    log.add_segment([batch(3, (b"a", b"4")), batch(4, (None, b"x"))])
    log.clean()
    assert [(header.base_offset, header.record_count) for header, _ in log.batches()] == [(3, 1), (4, 0)]


def test_the_last_batch_of_each_compacted_segment_says_where_it_ends(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1")), batch(1, (b"a", b"2"))])
    log.add_segment([batch(2, (b"a", b"3"))])
    result = log.clean(segment_bytes=0)
    assert [cleaned.next_offset for cleaned in result.cleaned] == [2]
    assert [(header.base_offset, header.record_count) for header, _ in log.batches()] == [(1, 0), (2, 1)]
    # Merged later, the mark in the middle has no purpose any more.
    log.clean()
    assert [(header.base_offset, header.record_count) for header, _ in log.batches()] == [(2, 1)]


def test_a_producers_last_batch_stays_without_its_records(log: Log) -> None:
    log.add_segment(
        [
            batch(0, (b"a", b"1"), producer_id=7, producer_epoch=1, base_sequence=10),
            batch(1, (b"a", b"2"), (b"b", b"2"), producer_id=7, producer_epoch=1, base_sequence=11, leader_epoch=3),
            batch(3, (b"a", b"3"), (b"b", b"3"), producer_id=8, producer_epoch=0, base_sequence=0),
        ]
    )
    log.clean(producers={7: ProducerTail(2, 1)})
    headers = [header for header, _ in log.batches()]
    assert [(header.producer_id, header.record_count) for header in headers] == [(7, 0), (8, 2)]
    assert (headers[0].base_sequence, headers[0].last_sequence, headers[0].producer_epoch) == (11, 12, 1)
    assert (headers[0].base_offset, headers[0].last_offset, headers[0].leader_epoch) == (1, 2, 3)
    log.clean(producers={})
    assert [header.producer_id for header, _ in log.batches()] == [8]


def test_a_producers_last_batch_is_known_by_its_offset_not_its_sequence(log: Log) -> None:
    # KAFKA-8335: after the sequence started again, an older batch may have the number of the last one.
    log.add_segment(
        [
            batch(0, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0),
            batch(1, (b"a", b"2"), producer_id=7, producer_epoch=1, base_sequence=0),
            batch(2, (b"a", b"3")),
        ]
    )
    log.clean(producers={7: ProducerTail(1, 1)})
    assert [(header.base_offset, header.record_count) for header, _ in log.batches()] == [(1, 0), (2, 1)]


def test_aborted_records_go_and_push_nothing_out(log: Log) -> None:
    log.add_segment(
        [
            batch(0, (b"a", b"committed")),
            transactional(1, 7, (b"a", b"aborted")),
            marker(2, 7, ControlType.ABORT),
            batch(3, (b"end", b"")),
        ]
    )
    log.clean(aborted=(AbortedTransaction(7, 1, 2),))
    assert log.offsets() == [0, 3]


def test_only_the_aborted_transaction_of_a_producer_goes(log: Log) -> None:
    log.add_segment(
        [
            transactional(0, 7, (b"a", b"committed")),
            marker(1, 7, ControlType.COMMIT),
            transactional(2, 7, (b"b", b"aborted")),
            marker(3, 7, ControlType.ABORT),
            transactional(4, 7, (b"c", b"committed")),
            marker(5, 7, ControlType.COMMIT),
        ]
    )
    log.clean(aborted=(AbortedTransaction(7, 2, 3),))
    assert log.offsets() == [0, 4]


@pytest.mark.parametrize("control_type", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_goes_a_retention_after_the_last_of_its_records(log: Log, control_type: ControlType) -> None:
    aborted = (AbortedTransaction(7, 0, 1),) if control_type is ControlType.ABORT else ()
    log.add_segment(
        [transactional(0, 7, (b"a", b"1")), marker(1, 7, control_type), batch(2, (b"a", b"2"))],
    )

    def markers() -> list[int]:
        return [header.attributes & 0x40 for header, _ in log.batches() if header.is_control]

    # The pass that removes the records still sees them, and leaves the marker as it is.
    log.clean(aborted=aborted)
    assert log.offsets() == [2]
    assert markers() == [0]
    # The next finds it alone, and gives it a time.
    log.clean(aborted=aborted)
    assert markers() == [0x40]
    log.clean(aborted=aborted, now_ms=NOW + DAY - 1)
    assert markers() == [0x40]
    log.clean(aborted=aborted, now_ms=NOW + DAY)
    assert markers() == []


def test_a_marker_stays_as_long_as_a_record_of_its_transaction(log: Log) -> None:
    log.add_segment([transactional(0, 7, (b"a", b"1")), marker(1, 7, ControlType.COMMIT), batch(2, (b"b", b"2"))])
    for days in range(3):
        log.clean(now_ms=NOW + days * DAY)
    assert [header.base_offset for header, _ in log.batches()] == [0, 1, 2]


def test_the_last_marker_of_a_producer_without_records_keeps_its_epoch(log: Log) -> None:
    log.add_segment([marker(0, 7, ControlType.COMMIT), batch(1, (b"a", b"1"))])
    producers = {7: ProducerTail(None, 0)}
    log.clean(producers=producers)
    log.clean(producers=producers, now_ms=NOW + DAY)
    assert [(header.producer_id, header.is_control, header.record_count) for header, _ in log.batches()] == [
        (7, True, 0),
        (-1, False, 1),
    ]


def test_small_segments_are_merged_up_to_the_limits(log: Log) -> None:
    def bases(sources: Sequence[SourceSegment], **limits: int) -> list[list[int]]:
        groups = group_segments(sources, log.job(**limits))
        return [[source.base_offset for source in group] for group in groups]

    small = [SourceSegment(base, base + 10, 100, index_bytes=8) for base in range(0, 50, 10)]
    assert bases(small) == [[0, 10, 20, 30, 40]]
    assert bases(small, segment_bytes=250) == [[0, 10], [20, 30], [40]]
    assert bases(small, segment_index_bytes=24) == [[0, 10, 20], [30, 40]]
    assert bases(small, segment_bytes=0) == [[0], [10], [20], [30], [40]]
    far = [SourceSegment(0, 10, 100), SourceSegment(10, 2**31, 100), SourceSegment(2**31, 2**31 + 1, 100)]
    assert bases(far) == [[0, 10], [2**31]]


def test_merging_leaves_one_file_with_the_name_of_the_first(log: Log) -> None:
    for offset in range(3):
        log.add_segment([batch(offset, (b"%d" % offset, b"v"))])
    result = log.clean()
    assert [cleaned.replaces for cleaned in result.cleaned] == [(0, 1, 2)]
    names = {path.name for path in log.directory.iterdir() if path.suffix != ".deleted"}
    assert names == {file_name(0, suffix) for suffix in (".log", ".index", ".timeindex")}
    assert log.offsets() == [0, 1, 2]


def test_a_segment_that_would_not_change_is_left_alone(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1")), batch(1, (b"b", b"1"))])
    result = clean_segments(log.disk, log.job())
    assert result.cleaned == ()
    assert (result.clean_end, result.bytes_read, result.bytes_kept) == (2, log.sources[0].size, log.sources[0].size)
    assert [path.name for path in log.directory.iterdir()] == [file_name(0, ".log")]


def test_a_second_compaction_finds_nothing_to_do(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1")), batch(1, (b"a", b"2"), (b"b", None)), batch(3, (None, b"x"))])
    log.clean()
    once = log.batches()
    assert log.clean().cleaned == ()
    assert log.clean(dirty_start=4).cleaned == ()
    assert log.batches() == once


def test_a_full_map_ends_the_round_and_the_next_goes_on_from_there(log: Log) -> None:
    log.add_segment([batch(0, *((b"%d" % at, b"1") for at in range(6)))])
    log.add_segment([batch(6, *((b"%d" % at, b"2") for at in range(6)))])
    room_for_four = 4 * (ENTRY_BYTES + 1)
    result = log.clean(dedupe_buffer_bytes=room_for_four)
    assert result.clean_end == 4
    ends = [result.clean_end]
    while ends[-1] < 12:
        ends.append(log.clean(dedupe_buffer_bytes=room_for_four, dirty_start=ends[-1]).clean_end)
    assert ends == [4, 8, 12]
    assert log.offsets() == [6, 7, 8, 9, 10, 11]


def test_a_hole_at_the_end_of_a_segment_is_clean_too(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1"))])
    log.sources[0] = SourceSegment(0, 10, log.sources[0].size)
    assert log.clean(dirty_end=10).clean_end == 10


def test_one_key_fits_even_the_smallest_map(log: Log) -> None:
    log.add_segment([batch(0, (b"a" * 100, b"1"), (b"b", b"1"))])
    assert log.clean(dedupe_buffer_bytes=0).clean_end == 1


def test_the_new_indexes_lead_to_the_new_batches(log: Log) -> None:
    log.add_segment([batch(at, (b"%d" % (at % 40), b"v" * 50)) for at in range(100)])
    (cleaned,) = log.clean(index_interval_bytes=300).cleaned
    content = (log.directory / file_name(0, ".log")).read_bytes()
    assert len(content) == cleaned.size
    offsets = OffsetIndex.decode((log.directory / file_name(0, ".index")).read_bytes())
    assert len(offsets.offsets) > 5
    for offset, position in zip(offsets.offsets, offsets.positions, strict=True):
        assert read_header(content, position).last_offset == offset
    times = TimeIndex.decode((log.directory / file_name(0, ".timeindex")).read_bytes())
    by_offset = {record.offset: record.timestamp for record in log.records()}
    for timestamp, offset in zip(times.timestamps, times.offsets, strict=True):
        assert by_offset[offset] == timestamp
    assert times.timestamps[-1] == cleaned.max_timestamp == max(by_offset.values())
    assert cleaned.max_timestamp_offset == 99


def test_batches_larger_than_a_read_are_read_whole(log: Log) -> None:
    large = b"x" * 700_000
    log.add_segment([batch(0, (b"a", large)), batch(1, (b"b", large)), batch(2, (b"c", large), (b"d", large))])
    log.add_segment([batch(4, (b"b", b"small"))])
    log.clean(unpacked_bytes_max=10 << 20, segment_bytes=10 << 20)
    assert log.offsets() == [0, 2, 3, 4]


@pytest.mark.parametrize("damage", ["flipped bit", "cut", "no length"])
def test_a_damaged_segment_is_not_rewritten(log: Log, damage: str) -> None:
    log.add_segment([batch(0, (b"a", b"1")), batch(1, (b"a", b"2"))])
    path = log.directory / file_name(0, ".log")
    content = bytearray(path.read_bytes())
    match damage:
        case "flipped bit":
            content[-1] ^= 1
        case "cut":
            del content[-10:]
        case _:
            content[8:12] = bytes(4)
    path.write_bytes(content)
    with pytest.raises(CorruptMessage):
        clean_segments(log.disk, log.job())
    assert path.read_bytes() == content
    assert [path.name for path in log.directory.iterdir()] == [path.name]


def test_leftovers_of_a_compaction_that_died_are_not_taken_for_results(log: Log) -> None:
    log.add_segment([batch(0, (b"a", b"1"), (b"a", b"2"))])
    for suffix in (".log.cleaned", ".index.cleaned", ".timeindex.cleaned"):
        (log.directory / file_name(0, suffix)).write_bytes(b"x" * 10_000)
    log.clean()
    assert log.offsets() == [1]
    assert (log.directory / file_name(0, ".index")).read_bytes() == b""
