"""Records in and out of a batch: what the broker's own topics, its tools and its compaction read and write.

Called by groups, handlers, log.compaction, client and cli; never on the produce and fetch walks, which leave
records packed. A record, after its batch is decompressed, is

    length | attributes i8 | timestamp delta | offset delta | key length, key | value length, value
    header count | (name length, name, value length, value)…

where all numbers but attributes are zigzag varints and a length of -1 is null. Everything here may be a lie:
whatever does not add up is InvalidRecord, and nothing is allocated on the word of a count or a length.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, NamedTuple, cast

from penstock.errors import InvalidRecord, InvalidTimestamp
from penstock.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_COVERS_FROM,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
)
from penstock.records.checksum import crc32c
from penstock.records.compression import Codec, compress, decompress

# Bit 6: base_timestamp is not a record's time but the time from which tombstones and markers may go (KIP-534).
NO_TIMESTAMP = -1

_RECORD_BYTES_MIN = 7  # seven one-byte numbers: an empty record at its shortest
_HEADER_BYTES_MIN = 2
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

_FRONT = Struct(">qiibI")
_BACK = Struct(">hiqqqhii")

# Most numbers in a record take one byte; this is what each such byte stands for.
_ZIGZAG = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


# A named tuple's own constructor is a Python function that takes a sixth of the time spent here.
_new_tuple: Callable[..., Any] = cast(Any, tuple).__new__


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Span(NamedTuple):
    """Where a record and its parts lie in the unfolded records of a batch. A null has length -1."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int
    headers_at: int
    header_count: int


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    compression: int = Codec.NONE,
    level: int | None = None,
    is_log_append_time: bool = False,
    delete_horizon_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = -1,
) -> bytearray:
    """A batch of these records. Their offsets may leave holes, inside and at both ends; they must grow."""
    assert records, "a batch without records is made by encode_empty_batch"
    base_offset = records[0].offset if base_offset is None else base_offset
    last_offset = records[-1].offset if last_offset is None else last_offset
    assert base_offset <= records[0].offset <= records[-1].offset <= last_offset
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    body = bytearray()
    for record in records:
        _append_record(body, record, record.timestamp - base_timestamp, record.offset - base_offset)
    attributes = (
        compression
        | (TIMESTAMP_TYPE_MASK if is_log_append_time else 0)
        | (TRANSACTIONAL_MASK if is_transactional else 0)
        | (CONTROL_MASK if is_control else 0)
        | (DELETE_HORIZON_MASK if delete_horizon_ms is not None else 0)
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return join_batch(header, body if compression == Codec.NONE else compress(compression, body, level))


def encode_empty_batch(header: BatchHeader) -> bytearray:
    """The batch with all its records gone: what is left says which offsets and sequence numbers were used."""
    attributes = header.attributes & (TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK)
    return join_batch(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def join_batch(header: BatchHeader, records: Buffer) -> bytearray:
    """The batch of a header and its packed records; length and CRC are worked out here."""
    batch = bytearray(HEADER_BYTES + len(records))
    _BACK.pack_into(batch, CRC_COVERS_FROM, *header[5:])
    batch[HEADER_BYTES:] = records
    crc = crc32c(memoryview(batch)[CRC_COVERS_FROM:])
    _FRONT.pack_into(batch, 0, header.base_offset, len(batch) - LOG_OVERHEAD_BYTES, header.leader_epoch, MAGIC, crc)
    return batch


def decode_records(buffer: Buffer, header: BatchHeader, size_max: int, position: int = 0) -> Iterator[Record]:
    """The records of the batch at `position`, decompressed to at most `size_max` bytes, checked one by one."""
    return _records(bytes(unfold(buffer, header, size_max, position)), header)


def recompress(view: memoryview, header: BatchHeader, codec: int, level: int | None, size_max: int) -> bytearray:
    """The same batch in another compression; offsets, times, sequence and producer stay as they are."""
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    packed = compress(codec, unfold(view, header, size_max), level)
    return join_batch(header._replace(attributes=attributes), packed)


def validate_records(
    buffer: Buffer,
    header: BatchHeader,
    size_max: int,
    *,
    keys_required: bool = False,
    timestamp_min: int = _INT64_MIN,
    timestamp_max: int = _INT64_MAX,
) -> None:
    """Check a produced batch's records: their number, their layout, dense offsets, times in range, keys if required."""
    base_timestamp = header.base_timestamp
    for expected, span in enumerate(scan_records(unfold(buffer, header, size_max), header)):
        if span.offset_delta != expected:
            raise InvalidRecord(f"record {expected} of a produced batch has offset {span.offset_delta}")
        if keys_required and span.key_length < 0:
            raise InvalidRecord("a compacted topic takes no record without a key")
        timestamp = base_timestamp + span.timestamp_delta
        if not timestamp_min <= timestamp <= timestamp_max and timestamp != NO_TIMESTAMP:
            raise InvalidTimestamp(f"timestamp {timestamp} is outside [{timestamp_min}, {timestamp_max}]")


def unfold(buffer: Buffer, header: BatchHeader, size_max: int, position: int = 0) -> Buffer:
    """The packed records of the batch at `position`, decompressed. Not a copy where there is no compression."""
    return decompress(
        header.compression, memoryview(buffer)[position + HEADER_BYTES : position + header.size], size_max
    )


def scan_records(records: Buffer, header: BatchHeader) -> Iterator[Span]:
    """Walk the unfolded records of a batch without building them; every length, count and offset is checked."""
    count, last = header.record_count, header.last_offset_delta
    timestamp_low, timestamp_high = _INT64_MIN - header.base_timestamp, _INT64_MAX - header.base_timestamp
    size = len(records)
    if count < 0 or count * _RECORD_BYTES_MIN > size:
        raise InvalidRecord(f"{count} records do not fit {size} bytes")
    at, previous = 0, -1
    try:
        for _ in range(count):
            start = at
            # The same three lines for every number: a call each would take most of the time.
            byte = records[at]
            at += 1
            if byte < 0x80:
                length = _ZIGZAG[byte]
            else:
                length, at = _read_varint(records, at - 1, 32)
            end = at + length
            if end > size:
                raise InvalidRecord(f"a record of {length} bytes at byte {start} of {size}")
            at += 1  # attributes: no bit has a meaning
            byte = records[at]
            at += 1
            if byte < 0x80:
                timestamp_delta = _ZIGZAG[byte]
            else:
                timestamp_delta, at = _read_varint(records, at - 1, 64)
            if not timestamp_low <= timestamp_delta <= timestamp_high:
                raise InvalidRecord("a timestamp does not fit 64 bits")
            byte = records[at]
            at += 1
            if byte < 0x80:
                offset_delta = _ZIGZAG[byte]
            else:
                offset_delta, at = _read_varint(records, at - 1, 32)
            if not previous < offset_delta <= last:
                raise InvalidRecord(f"offset delta {offset_delta} after {previous}, in a batch that ends at {last}")
            previous = offset_delta
            byte = records[at]
            at += 1
            if byte < 0x80:
                key_length = _ZIGZAG[byte]
            else:
                key_length, at = _read_varint(records, at - 1, 32)
            key_at = at
            if key_length > 0:
                at += key_length
            byte = records[at]
            at += 1
            if byte < 0x80:
                value_length = _ZIGZAG[byte]
            else:
                value_length, at = _read_varint(records, at - 1, 32)
            value_at = at
            if value_length > 0:
                at += value_length
            if key_length < -1 or value_length < -1:
                raise InvalidRecord("a length below -1")
            byte = records[at]
            at += 1
            if byte < 0x80:
                header_count = _ZIGZAG[byte]
            else:
                header_count, at = _read_varint(records, at - 1, 32)
            headers_at = at
            if header_count:
                at = _skip_headers(records, at, end, header_count)
            if at != end:
                raise InvalidRecord(f"a record ends at byte {at}, its length says {end}")
            yield _new_tuple(Span, (
                start, end, timestamp_delta, offset_delta, key_at, key_length, value_at, value_length,
                headers_at, header_count,
            ))  # fmt: skip
    except IndexError:
        raise InvalidRecord(f"a record runs past the {size} bytes of its batch") from None
    if at != size:
        raise InvalidRecord(f"{size - at} bytes follow the {count} records of the batch")


def _records(records: bytes, header: BatchHeader) -> Iterator[Record]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    for span in scan_records(records, header):
        (_, end, timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, headers_at, count) = span
        yield _new_tuple(Record, (
            base_offset + offset_delta,
            base_timestamp + timestamp_delta if append_time is None else append_time,
            None if key_length < 0 else records[key_at : key_at + key_length],
            None if value_length < 0 else records[value_at : value_at + value_length],
            _read_headers(records, headers_at, end, count) if count else (),
        ))  # fmt: skip


def _read_headers(records: bytes, at: int, end: int, count: int) -> tuple[tuple[str, bytes | None], ...]:
    """Headers that _skip_headers has been over."""
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, at = _read_varint(records, at, 32)
        # Any bytes may be a name on the wire; those that are no UTF-8 must still come out as they went in.
        name = records[at : at + length].decode("utf-8", "surrogateescape")
        length, at = _read_varint(records, at + length, 32)
        headers.append((name, None if length < 0 else records[at : at + length]))
        at += max(length, 0)
    assert at == end
    return tuple(headers)


def _skip_headers(records: Buffer, at: int, end: int, count: int) -> int:
    if not 0 <= count <= (end - at) // _HEADER_BYTES_MIN:
        raise InvalidRecord(f"{count} headers do not fit {end - at} bytes")
    for _ in range(count):
        length, at = _read_varint(records, at, 32)
        if length < 0:
            raise InvalidRecord("a header without a name")
        length, at = _read_varint(records, at + length, 32)
        if length < -1:
            raise InvalidRecord("a length below -1")
        at += max(length, 0)
    return at


def _read_varint(buffer: Buffer, at: int, bits: int) -> tuple[int, int]:
    """A zigzag varint as long as one of `bits` bits may be, and where it ends. IndexError past the end of the buffer.

    It may be a few bits wider than asked: whoever reads a number checks it against something smaller anyway.
    """
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift >= bits:
            raise InvalidRecord(f"a number does not fit {bits} bits")


def _append_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(1)
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    _append_headers(body, record.headers)
    append_varint(out, len(body))
    out += body


def _append_headers(out: bytearray, headers: Iterable[tuple[str, bytes | None]]) -> None:
    headers = tuple(headers)
    append_varint(out, len(headers))
    for name, value in headers:
        _append_bytes(out, name.encode("utf-8", "surrogateescape"))
        _append_bytes(out, value)


def _append_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # zigzag of -1
    else:
        append_varint(out, len(value))
        out += value


def append_varint(out: bytearray, value: int) -> None:
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
