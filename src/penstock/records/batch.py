"""A record batch (magic 2) seen through a memoryview: its header is read and stamped, its records never unpacked.

Called by log (append, recovery, index), wire.produce, records.record.

    0 base_offset i64 | 8 batch_length i32 | 12 leader_epoch i32 | 16 magic i8 | 17 crc u32 | 21 attributes i16
    23 last_offset_delta i32 | 27 base_timestamp i64 | 35 max_timestamp i64 | 43 producer_id i64
    51 producer_epoch i16 | 53 base_sequence i32 | 57 record_count i32 | 61 records…

The CRC-32C covers everything from attributes to the end, so base_offset and leader_epoch can be stamped
without touching it, and must be range-checked since it does not protect them.
"""

from struct import Struct
from typing import NamedTuple

from penstock.errors import CorruptMessage, InvalidRecord, UnsupportedForMessageFormat
from penstock.model import LeaderEpoch, Offset
from penstock.records.checksum import crc32c

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12  # base_offset and batch_length, which batch_length itself does not count
MAGIC = 2
CRC_COVERS_FROM = 21
SEQUENCE_MAX = 2**31 - 1

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

_HEADER = Struct(">qiibIhiqqqhii")
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
assert _HEADER.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes in the log, header included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; the number after 2^31-1 is 0, also inside a batch."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


_make = BatchHeader._make


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the caller knows that HEADER_BYTES are there."""
    return BatchHeader._make(_HEADER.unpack_from(buffer, position))


def crc_is_right(buffer: Buffer, header: BatchHeader, position: int = 0) -> bool:
    view = memoryview(buffer)
    return crc32c(view[position + CRC_COVERS_FROM : position + header.size]) == header.crc


def check_produced(view: memoryview) -> BatchHeader:
    """The header of the one batch a producer sent for a partition, or the error it has earned.

    Everything here is what the wire may lie about; after it, the batch is trusted.
    """
    size = len(view)
    if size < LOG_OVERHEAD_BYTES + 5:
        raise CorruptMessage(f"a record batch needs {HEADER_BYTES} bytes, {size} were sent")
    magic = view[16]
    if magic < MAGIC:
        raise UnsupportedForMessageFormat(f"message format {magic} is not kept since Kafka 4; send format 2")
    if size < HEADER_BYTES:
        raise CorruptMessage(f"a record batch needs {HEADER_BYTES} bytes, {size} were sent")
    header = _make(_HEADER.unpack_from(view))
    if header.magic != MAGIC:
        raise CorruptMessage(f"unknown message format {header.magic}")
    if header.batch_length + LOG_OVERHEAD_BYTES != size:
        if HEADER_BYTES <= header.size < size:
            raise InvalidRecord("a Produce request may hold one record batch per partition")
        raise CorruptMessage(f"batch length {header.batch_length} does not fit the {size} bytes sent")
    if crc32c(view[CRC_COVERS_FROM:]) != header.crc:
        raise CorruptMessage("CRC-32C does not match the batch")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"{header.record_count} records do not fill offsets 0 to {header.last_offset_delta} of the batch"
        )
    if header.base_offset != 0:
        raise InvalidRecord(f"base offset of a produced batch must be 0, not {header.base_offset}")
    if header.attributes & (DELETE_HORIZON_MASK | CONTROL_MASK):
        if header.is_control:
            raise InvalidRecord("clients may not write control records")
        raise InvalidRecord("only compaction sets a delete horizon: from a client it would end tombstones early")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord("a batch with a producer id needs a sequence number")
    return header


def stamp(view: memoryview, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    # Both lie outside the CRC, so stamping them needs no second checksum.
    _OFFSET.pack_into(view, 0, base_offset)
    _EPOCH.pack_into(view, 12, leader_epoch)


def set_log_append_time(view: memoryview, now_ms: int) -> None:
    """Mark the batch as stamped by the broker at `now_ms`; its CRC is made anew."""
    (attributes,) = _ATTRIBUTES.unpack_from(view, 21)
    _ATTRIBUTES.pack_into(view, 21, attributes | TIMESTAMP_TYPE_MASK)
    _MAX_TIMESTAMP.pack_into(view, 35, now_ms)
    refresh_crc(view)


def refresh_crc(view: memoryview) -> None:
    _CRC.pack_into(view, 17, crc32c(view[CRC_COVERS_FROM:]))
