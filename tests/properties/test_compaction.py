"""Compaction against a model: a dict of the newest record of each key."""

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.disk import RealDisk
from penstock.log.clean_job import CleanJob, SourceSegment
from penstock.log.compaction import clean_segments
from penstock.log.producers import ProducerTail
from penstock.log.segment import file_name
from penstock.log.swap import swap_in
from penstock.records.batch import BatchHeader, crc_is_right, read_header
from penstock.records.compression import Codec
from penstock.records.record import Record, decode_records, encode_batch

NOW = 1_700_000_000_000
RETENTION = 1000
KEYS = [b"", b"a", b"b", b"c" * 31, b"c" * 32, b"c" * 33]

pairs = st.tuples(st.none() | st.sampled_from(KEYS), st.none() | st.binary(max_size=4))
batches = st.tuples(
    st.lists(pairs, min_size=1, max_size=4), st.sampled_from([Codec.NONE, Codec.GZIP]), st.integers(-1, 2)
)
logs = st.lists(st.lists(batches, min_size=1, max_size=4), min_size=1, max_size=4)


class Built(NamedTuple):
    directory: Path
    segments: list[SourceSegment]
    tails: dict[int, ProducerTail]


def build(directory: Path, contents: list[list[tuple[list[tuple[bytes | None, bytes | None]], Codec, int]]]) -> Built:
    offset = 0
    sequences: dict[int, int] = {}
    built = Built(directory, [], {})
    for segment in contents:
        base_offset, parts = offset, bytearray()
        for content, codec, producer_id in segment:
            records = [Record(offset + at, NOW - at, key, value) for at, (key, value) in enumerate(content)]
            sequence = sequences.get(producer_id, 0)
            parts += encode_batch(
                records,
                compression=codec,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence if producer_id >= 0 else -1,
            )
            offset += len(records)
            if producer_id >= 0:
                sequences[producer_id] = sequence + len(records)
                built.tails[producer_id] = ProducerTail(offset - 1, 0)
        (directory / file_name(base_offset, ".log")).write_bytes(parts)
        built.segments.append(SourceSegment(base_offset, offset, len(parts)))
    return built


def clean(log: Built, dirty_start: int, dirty_end: int, **changes: int) -> tuple[Built, int]:
    """One round of compaction, swapped in: the log after it and the next round's start."""
    limits = {"now_ms": NOW, "segment_bytes": 1 << 20, "dedupe_buffer_bytes": 1 << 20, **changes}
    job = CleanJob(
        directory=log.directory,
        segments=tuple(segment for segment in log.segments if segment.base_offset < dirty_end),
        dirty_start=dirty_start,
        dirty_end=dirty_end,
        delete_retention_ms=RETENTION,
        segment_index_bytes=1 << 20,
        index_interval_bytes=100,
        unpacked_bytes_max=1 << 20,
        producers=log.tails,
        **limits,
    )
    disk = RealDisk()
    disk.sync_directory = lambda path: None  # what is durable is test_swap's business
    result = clean_segments(disk, job)
    segments = {segment.base_offset: segment for segment in log.segments}
    for cleaned in result.cleaned:
        swap_in(disk, log.directory, cleaned.base_offset, cleaned.replaces)
        for base_offset in cleaned.replaces:
            del segments[base_offset]
        segments[cleaned.base_offset] = SourceSegment(cleaned.base_offset, cleaned.next_offset, cleaned.size)
    ordered = sorted(segments.values(), key=lambda segment: segment.base_offset)
    return log._replace(segments=ordered), result.clean_end


def read(log: Built) -> list[tuple[BatchHeader, list[Record]]]:
    found: list[tuple[BatchHeader, list[Record]]] = []
    for segment in log.segments:
        content = (log.directory / file_name(segment.base_offset, ".log")).read_bytes()
        assert len(content) == segment.size
        at = 0
        while at < len(content):
            header = read_header(content, at)
            assert crc_is_right(content, header, at)
            assert segment.base_offset <= header.base_offset
            assert header.next_offset <= segment.next_offset
            found.append((header, list(decode_records(content, header, 1 << 20, at))))
            at += header.size
        # Without this a crash could not tell which segments a swapped one replaces.
        assert found[-1][0].next_offset == segment.next_offset
    offsets = [header.base_offset for header, _ in found]
    assert offsets == sorted(set(offsets))
    return found


def records_of(log: Built) -> list[Record]:
    return [record for _, records in read(log) for record in records]


def survivors(records: list[Record], dirty_end: int, *, tombstones: bool) -> list[Record]:
    newest = {record.key: record for record in records if record.offset < dirty_end and record.key is not None}
    return [
        record
        for record in records
        if record.offset >= dirty_end or (newest.get(record.key) is record and (tombstones or record.value is not None))
    ]


@settings(max_examples=120, deadline=None)
@given(logs, st.integers(0, 60), st.integers(0, 2000), st.integers(0, 800))
def test_a_compacted_log_is_its_newest_records_in_place(
    contents: list[list[tuple[list[tuple[bytes | None, bytes | None]], Codec, int]]],
    dirty_end: int,
    segment_bytes: int,
    memory: int,
) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        log = build(directory, contents)
        original, end = read(log), log.segments[-1].next_offset
        everything = [record for _, records in original for record in records]
        # The last stable offset lies between batches.
        dirty_end = max((header.next_offset for header, _ in original if header.next_offset <= dirty_end), default=0)
        limits = {"segment_bytes": segment_bytes, "dedupe_buffer_bytes": memory}

        # Rounds as large as memory allows end where one large round would.
        start = 0
        while start < dirty_end:
            log, reached = clean(log, start, dirty_end, **limits)
            assert start < reached <= dirty_end
            assert set(records_of(log)) <= set(everything)
            start = reached
        compacted = read(log)
        expected = survivors(everything, dirty_end, tombstones=True)
        assert [record for _, records in compacted for record in records] == expected

        # Above the dirty end every batch is what it was; below, offsets and sequences of each still fit together.
        untouched = [batch for batch in original if batch[0].base_offset >= dirty_end]
        assert [batch for batch in compacted if batch[0].base_offset >= dirty_end] == untouched
        before = {header.base_offset: header for header, _ in original}
        for header, _ in compacted:
            was = before[header.base_offset]
            assert (header.last_offset, header.base_sequence, header.last_sequence, header.producer_id) == (
                was.last_offset, was.base_sequence, was.last_sequence, was.producer_id,
            )  # fmt: skip
        assert compacted[-1][0].next_offset == end
        for producer_id, tail in log.tails.items():
            last = [header.last_offset for header, _ in compacted if header.producer_id == producer_id]
            assert last[-1] == tail.last_offset

        # Again: nothing to do. After the retention of deletes: tombstones go, and only they.
        again, _ = clean(log, 0, dirty_end, **limits)
        assert records_of(again) == expected
        later, _ = clean(again, dirty_end, dirty_end, segment_bytes=segment_bytes, now_ms=NOW + RETENTION)
        assert records_of(later) == survivors(everything, dirty_end, tombstones=False)
    finally:
        shutil.rmtree(directory)
