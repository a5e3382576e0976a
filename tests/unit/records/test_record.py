"""Records of hand-made batches: what the layout means, and what each lie in it earns."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from penstock.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge, PenstockError
from penstock.records.batch import HEADER_BYTES, BatchHeader, check_produced, crc_is_right, read_header
from penstock.records.compression import Codec
from penstock.records.record import (
    Record,
    append_varint,
    decode_records,
    encode_batch,
    encode_empty_batch,
    join_batch,
    recompress,
    validate_records,
)

SIZE_MAX = 1 << 20
NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW, b"k", b"v"),
    Record(1, NOW + 5, None, b"value", (("trace", b"1"), ("empty", b""), ("null", None), ("trace", b"2"))),
    Record(2, NOW - 5, b"", None),
    Record(3, NOW, b"key" * 100, b"value" * 1000),
]


def decode(batch: bytes | bytearray) -> list[Record]:
    return list(decode_records(batch, read_header(batch), SIZE_MAX))


def batch_of(body: bytes, **changes: int) -> bytearray:
    """A batch whose CRC is right, whatever its records say."""
    header = BatchHeader(0, 0, -1, 2, 0, 0, 0, NOW, NOW, -1, -1, -1, 1)
    return join_batch(header._replace(**changes), body)


def body_of(*numbers: int | bytes) -> bytes:
    """A record from numbers and raw bytes, behind its true length."""
    inner = bytearray(1)
    for number in numbers:
        if isinstance(number, bytes):
            inner += number
        else:
            append_varint(inner, number)
    whole = bytearray()
    append_varint(whole, len(inner))
    return bytes(whole + inner)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_comes_out_as_it_went_in(codec: Codec) -> None:
    batch = encode_batch(RECORDS, compression=codec)
    header = check_produced(memoryview(batch))
    assert header.compression == codec
    assert (header.record_count, header.last_offset_delta) == (4, 3)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 5)
    assert decode(batch) == RECORDS


def test_the_smallest_record_has_the_bytes_the_protocol_gives_it() -> None:
    batch = encode_batch([Record(0, NOW, None, None)])
    # length 6, attributes 0, timestamp delta 0, offset delta 0, null key, null value, no headers
    assert batch[HEADER_BYTES:] == bytes([12, 0, 0, 0, 1, 1, 0])


def test_header_fields_are_written_as_asked() -> None:
    batch = encode_batch(
        RECORDS,
        producer_id=7,
        producer_epoch=3,
        base_sequence=2**31 - 2,
        is_transactional=True,
        leader_epoch=9,
        is_log_append_time=True,
    )
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (
        7,
        3,
        2**31 - 2,
        9,
    )
    assert header.is_transactional
    assert header.is_log_append_time
    assert not header.is_control
    assert header.last_sequence == 1


def test_a_batch_may_have_holes_inside_and_at_both_ends() -> None:
    kept = [Record(105, NOW, b"a", b"1"), Record(300, NOW, b"b", b"2")]
    batch = encode_batch(kept, base_offset=100, last_offset=399)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (100, 399, 2)
    assert decode(batch) == kept


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp_and_moves_no_record() -> None:
    batch = encode_batch(RECORDS, delete_horizon_ms=NOW + 86_400_000)
    header = read_header(batch)
    assert header.attributes & 0x40
    assert header.base_timestamp == NOW + 86_400_000
    assert header.max_timestamp == NOW + 5
    assert decode(batch) == RECORDS


def test_under_log_append_time_every_record_has_the_brokers_time() -> None:
    batch = encode_batch(RECORDS, is_log_append_time=True)
    assert {record.timestamp for record in decode(batch)} == {NOW + 5}


def test_a_batch_is_read_where_it_stands_in_a_larger_buffer() -> None:
    batch = encode_batch(RECORDS)
    buffer = b"before" + batch + b"after"
    assert list(decode_records(buffer, read_header(buffer, 6), SIZE_MAX, 6)) == RECORDS


def test_an_emptied_batch_keeps_offsets_sequence_and_time() -> None:
    full = encode_batch(
        [record._replace(offset=record.offset + 50) for record in RECORDS],
        compression=Codec.ZSTD,
        delete_horizon_ms=NOW,
        producer_id=7,
        producer_epoch=1,
        base_sequence=40,
        is_transactional=True,
        leader_epoch=2,
    )
    empty = encode_empty_batch(read_header(full))
    header = read_header(empty)
    assert len(empty) == header.size == HEADER_BYTES
    assert crc_is_right(empty, header)
    assert (header.base_offset, header.last_offset, header.record_count) == (50, 53, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 1, 40, 43)
    assert (header.leader_epoch, header.max_timestamp) == (2, NOW + 5)
    assert header.is_transactional
    # Neither a compression without data nor a horizon without a time to keep it in.
    assert header.attributes & 0x47 == 0
    assert decode(empty) == []


@pytest.mark.parametrize("reader", [AiokafkaBatch, KafkaPythonBatch])
def test_other_clients_find_nothing_in_an_emptied_batch_and_know_where_to_go_on(reader: Any) -> None:
    empty = encode_empty_batch(read_header(encode_batch(RECORDS, compression=Codec.LZ4)))
    batch = reader(bytes(empty))
    assert batch.validate_crc()
    assert list(batch) == []
    assert batch.next_offset == 4


def test_header_names_that_are_no_text_survive() -> None:
    raw = body_of(0, 0, -1, -1, 1, 2, b"\xff\xfe", -1)
    (record,) = decode(batch_of(raw))
    assert encode_batch([record])[HEADER_BYTES:] == raw


@pytest.mark.parametrize(
    "body",
    [
        b"",
        body_of(0, 0, -1, -1, 0)[:-1],
        body_of(0, 0, -2, -1, 0),
        body_of(0, 0, -1, -2, 0),
        body_of(0, 0, 2, b"a", -1, 0),
        body_of(0, 0, 2**31 - 1, b"a", -1, 0),
        body_of(0, 0, -1, 2**31 - 1, b"a", 0),
        body_of(0, 0, -1, -1, -1),
        body_of(0, 0, -1, -1, 1),
        body_of(0, 0, -1, -1, 2**31 - 1),
        body_of(0, 0, -1, -1, 1, -1, -1),
        body_of(0, 0, -1, -1, 1, 0, -2),
        body_of(0, 0, -1, -1, 1, 2**31 - 1, -1),
        body_of(0, 0, -1, -1, 1, 0, 2**31 - 1),
        body_of(0, 0, -1, -1, 0, 0),
        body_of(0, -1, -1, -1, 0),
        body_of(0, 1, -1, -1, 0),
        body_of(0, 2**31, -1, -1, 0),
        body_of(2**63 - 1, 0, -1, -1, 0),
        body_of(2**63, 0, -1, -1, 0),
        body_of(b"\xff" * 11, 0, -1, -1, 0),
        body_of(0, b"\xff" * 6, -1, -1, 0),
        b"\xff\xff\xff\xff\x0f" + bytes(10),
        b"\x01" + bytes(10),
        b"\x80" * 7,
        body_of(0, b"\x80" * 5 + b"\x00", -1, -1, 0),
        body_of(0, 0, -1, 1, b"\x06", 1, -3, b"\x00"),
        b"\x16" + body_of(0, 0, -1, -1, 1, 0, 3, b"x")[1:],
    ],
    ids=[
        "no record at all",
        "ends early",
        "key length -2",
        "value length -2",
        "key past its record",
        "enormous key",
        "enormous value",
        "header count -1",
        "a header that is not there",
        "enormous header count",
        "null header name",
        "header value length -2",
        "enormous header name",
        "enormous header value",
        "bytes after the headers",
        "negative offset delta",
        "offset delta past the batch",
        "offset delta of 33 bits",
        "timestamp past 64 bits",
        "timestamp delta past 64 bits",
        "a varint without end",
        "a varint of six bytes",
        "length of minus two billion",
        "length -1",
        "a length without end",
        "a zero of six bytes",
        "a header name that leads back to bytes before it",
        "a last header that runs past the batch as its record does",
    ],
)
def test_a_record_that_lies_is_invalid(body: bytes) -> None:
    batch = batch_of(body)
    header = read_header(batch)
    with pytest.raises(InvalidRecord):
        next(decode_records(batch, header, SIZE_MAX))
    with pytest.raises(InvalidRecord):
        validate_records(batch, header, SIZE_MAX)


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1])
def test_a_record_count_that_lies_is_invalid(count: int) -> None:
    batch = batch_of(body_of(0, 0, -1, -1, 0), record_count=count, last_offset_delta=2**31 - 1)
    with pytest.raises(InvalidRecord):
        decode(batch)


def test_bytes_after_the_last_record_are_invalid() -> None:
    with pytest.raises(InvalidRecord):
        decode(batch_of(body_of(0, 0, -1, -1, 0) + b"\x00"))


def test_less_than_no_records_are_invalid_even_in_no_bytes() -> None:
    with pytest.raises(InvalidRecord):
        decode(batch_of(b"", record_count=-1))


def test_offsets_that_go_back_are_invalid() -> None:
    body = body_of(0, 1, -1, -1, 0) + body_of(0, 1, -1, -1, 0)
    with pytest.raises(InvalidRecord):
        decode(batch_of(body, record_count=2, last_offset_delta=5))


def test_records_that_do_not_decompress_are_corrupt() -> None:
    with pytest.raises(CorruptMessage):
        decode(batch_of(b"no zstd", attributes=Codec.ZSTD))


def test_records_that_unfold_past_the_limit_are_too_large() -> None:
    batch = encode_batch([Record(0, NOW, b"k", bytes(10_000))], compression=Codec.GZIP)
    with pytest.raises(MessageTooLarge):
        decode_records(batch, read_header(batch), 10_000)


def test_a_produced_batch_with_holes_is_invalid() -> None:
    batch = encode_batch([Record(0, NOW, b"k", b"v"), Record(2, NOW, b"k", b"v")])
    with pytest.raises(InvalidRecord):
        validate_records(batch, read_header(batch), SIZE_MAX)


def test_keys_are_asked_for_only_where_they_are_required() -> None:
    batch = encode_batch(RECORDS, compression=Codec.LZ4)
    header = read_header(batch)
    validate_records(batch, header, SIZE_MAX)
    with pytest.raises(InvalidRecord):
        validate_records(batch, header, SIZE_MAX, keys_required=True)
    keyed = encode_batch([RECORDS[0], RECORDS[2]._replace(offset=1)])
    validate_records(keyed, read_header(keyed), SIZE_MAX, keys_required=True)


@pytest.mark.parametrize(
    ("low", "high", "error"),
    [(NOW - 5, NOW + 5, None), (NOW - 4, NOW + 5, InvalidTimestamp), (NOW - 5, NOW + 4, InvalidTimestamp)],
)
def test_timestamps_are_held_to_the_range(low: int, high: int, error: type[PenstockError] | None) -> None:
    batch = encode_batch(RECORDS)

    def validate() -> None:
        validate_records(batch, read_header(batch), SIZE_MAX, timestamp_min=low, timestamp_max=high)

    if error is None:
        validate()
    else:
        with pytest.raises(error):
            validate()


def test_a_record_without_a_timestamp_is_in_every_range() -> None:
    batch = encode_batch([Record(0, -1, b"k", b"v")])
    validate_records(batch, read_header(batch), SIZE_MAX, timestamp_min=NOW, timestamp_max=NOW)


@pytest.mark.parametrize("before", list(Codec))
@pytest.mark.parametrize("after", list(Codec))
def test_recompression_changes_the_codec_and_nothing_else(before: Codec, after: Codec) -> None:
    batch = encode_batch(
        RECORDS, compression=before, producer_id=7, producer_epoch=1, base_sequence=40, is_transactional=True
    )
    header = read_header(batch)
    again = recompress(memoryview(batch), header, after, None, SIZE_MAX)
    check_produced(memoryview(again))
    expected = header._replace(batch_length=0, crc=0, attributes=header.attributes & ~7 | after)
    assert read_header(again)._replace(batch_length=0, crc=0) == expected
    assert decode(again) == RECORDS


def test_recompression_is_no_way_around_the_limit() -> None:
    batch = encode_batch(RECORDS, compression=Codec.GZIP)
    with pytest.raises(MessageTooLarge):
        recompress(memoryview(batch), read_header(batch), Codec.ZSTD, None, 100)
