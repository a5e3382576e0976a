"""Record batches against three other implementations, in both directions, and against every small lie."""

import datetime
import io
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch
from kio.records.schema import Record as KioRecord
from kio.records.schema import RecordHeader as KioHeader
from kio.records.writers import write_batch
from kio.static.primitive import i8, i16, i32, i64

from penstock.errors import PenstockError
from penstock.records.batch import HEADER_BYTES, check_produced, crc_is_right, read_header, refresh_crc
from penstock.records.compression import Codec
from penstock.records.record import Record, decode_records, encode_batch, recompress, validate_records

SIZE_MAX = 1 << 20
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

keys = st.none() | st.binary(max_size=80)
headers = st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)
timestamps = st.integers(0, 2**40)
# kio keeps times as floating-point seconds, which round milliseconds off.
whole_seconds = st.integers(0, 2**30).map(lambda second: second * 1000)
codecs = st.sampled_from(list(Codec))
# What kafka-python can unpack without packages that nothing else here needs.
plain_codecs = st.sampled_from([Codec.NONE, Codec.GZIP])

damages = st.lists(st.tuples(st.integers(HEADER_BYTES - 40, 400), st.binary(max_size=3)), max_size=3)

some = settings(max_examples=50, deadline=None)
many = settings(max_examples=150, deadline=None)


@st.composite
def record_lists(draw: st.DrawFn, *, dense: bool = True, times: st.SearchStrategy[int] = timestamps) -> list[Record]:
    contents = draw(st.lists(st.tuples(times, keys, keys, headers), min_size=1, max_size=12))
    records: list[Record] = []
    offset = 0
    for timestamp, key, value, heads in contents:
        offset += 1 if dense else draw(st.integers(1, 2**20))
        records.append(Record(offset - 1, timestamp, key, value, heads))
    return records


def decode(batch: bytes | bytearray) -> list[Record]:
    return list(decode_records(batch, read_header(batch), SIZE_MAX))


@some
@given(
    record_lists(dense=False, times=st.integers(-(2**63), 2**63 - 1)),
    codecs,
    st.integers(0, 2**40),
    st.integers(0, 1000),
    st.none() | st.integers(0, 2**40),
)
def test_records_come_out_as_they_went_in(
    records: list[Record], codec: Codec, base_offset: int, spare: int, delete_horizon_ms: int | None
) -> None:
    # Deltas are 64 bits wide: times further apart than that cannot share a batch.
    base = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    records = [
        record._replace(
            offset=record.offset + base_offset,
            timestamp=max(base - 2**63, min(base + 2**63 - 1, record.timestamp)),
        )
        for record in records
    ]
    batch = encode_batch(
        records,
        base_offset=base_offset,
        last_offset=records[-1].offset + spare,
        compression=codec,
        delete_horizon_ms=delete_horizon_ms,
    )
    header = read_header(batch)
    assert crc_is_right(batch, header)
    assert (header.base_offset, header.last_offset) == (base_offset, records[-1].offset + spare)
    assert decode(batch) == records


@some
@given(record_lists(), codecs, codecs)
def test_what_we_write_is_a_produced_batch_in_every_codec(records: list[Record], codec: Codec, other: Codec) -> None:
    batch = encode_batch(records, compression=codec)
    validate_records(batch, check_produced(memoryview(batch)), SIZE_MAX)
    again = recompress(memoryview(batch), read_header(batch), other, None, SIZE_MAX)
    validate_records(again, check_produced(memoryview(again)), SIZE_MAX)
    assert decode(again) == records


def _as_ours(record: Any) -> Record:
    headers = tuple((name, None if value is None else bytes(value)) for name, value in record.headers)
    key, value = (None if part is None else bytes(part) for part in (record.key, record.value))
    return Record(record.offset, record.timestamp, key, value, headers)


@some
@given(record_lists(dense=False), codecs)
def test_aiokafka_reads_what_we_write(records: list[Record], codec: Codec) -> None:
    theirs = AiokafkaBatch(bytes(encode_batch(records, compression=codec)))
    assert theirs.validate_crc()
    assert [_as_ours(record) for record in theirs] == records


@some
@given(record_lists(), codecs, st.booleans())
def test_we_read_what_aiokafka_writes(records: list[Record], codec: Codec, transactional: bool) -> None:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=transactional,
        producer_id=7,
        producer_epoch=3,
        base_sequence=40,
        batch_size=10**6,
    )
    _check_builder(builder, records, transactional)


@some
@given(record_lists(dense=False), plain_codecs)
def test_kafka_python_reads_what_we_write(records: list[Record], codec: Codec) -> None:
    theirs = KafkaPythonBatch(bytes(encode_batch(records, compression=codec)))
    assert theirs.validate_crc()
    assert [_as_ours(record) for record in theirs] == records


@some
@given(record_lists(), plain_codecs, st.booleans())
def test_we_read_what_kafka_python_writes(records: list[Record], codec: Codec, transactional: bool) -> None:
    builder = KafkaPythonBuilder(2, int(codec), transactional, 7, 3, 40, 10**6)
    _check_builder(builder, records, transactional)


def _check_builder(builder: Any, records: list[Record], transactional: bool) -> None:
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = check_produced(memoryview(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 40)
    assert header.is_transactional == transactional
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert decode(batch) == records


@some
@given(record_lists(dense=False, times=whole_seconds))
def test_kio_reads_what_we_write(records: list[Record]) -> None:
    theirs, _ = read_batch(bytes(encode_batch(records, base_offset=0)), 0)
    assert [
        Record(
            record.offset,
            (record.timestamp - EPOCH) // datetime.timedelta(milliseconds=1),
            record.key,
            record.value,
            tuple(((header.key or b"").decode(), header.value) for header in record.headers),
        )
        for record in theirs.records
    ] == records


@some
@given(record_lists(times=whole_seconds))
def test_we_read_what_kio_writes(records: list[Record]) -> None:
    theirs = NewRecordBatch(
        producer_id=i64(7),
        producer_epoch=i16(3),
        base_sequence=i32(40),
        attributes=i16(0),
        records=tuple(
            KioRecord(
                attributes=i8(0),
                timestamp=EPOCH + datetime.timedelta(milliseconds=record.timestamp),
                offset=i64(record.offset),
                key=record.key,
                value=record.value,
                headers=tuple(KioHeader(key=name.encode(), value=value) for name, value in record.headers),
            )
            for record in records
        ),
    )
    buffer = io.BytesIO()
    write_batch(buffer, theirs)
    check_produced(memoryview(buffer.getvalue()))
    assert decode(buffer.getvalue()) == records


@many
@given(record_lists(), codecs, damages)
def test_a_damaged_batch_with_a_right_checksum_raises_only_our_own_errors(
    records: list[Record], codec: Codec, damage: list[tuple[int, bytes]]
) -> None:
    batch = encode_batch(records, compression=codec)
    for at, replacement in damage:
        at = min(at, len(batch) - len(replacement))
        batch[at : at + len(replacement)] = replacement
    refresh_crc(memoryview(batch))
    header = read_header(batch)
    try:
        for record in decode_records(batch, header, SIZE_MAX):
            assert header.base_offset <= record.offset <= header.last_offset
        validate_records(batch, header, SIZE_MAX, keys_required=True)
        recompress(memoryview(batch), header, Codec.SNAPPY, None, SIZE_MAX)
    except PenstockError:
        pass


@many
@given(st.binary(max_size=120), st.integers(-2, 2**31 - 1), st.integers(-2, 2**31 - 1), st.integers(0, 127))
def test_noise_in_place_of_records_raises_only_our_own_errors(
    noise: bytes, count: int, last_offset_delta: int, attributes: int
) -> None:
    batch = encode_batch([Record(0, 0, None, None)]) + noise
    header = read_header(batch)._replace(
        batch_length=len(batch) - 12, record_count=count, last_offset_delta=last_offset_delta, attributes=attributes
    )
    try:
        for record in decode_records(batch, header, SIZE_MAX):
            assert 0 <= record.offset <= last_offset_delta
    except PenstockError:
        pass
