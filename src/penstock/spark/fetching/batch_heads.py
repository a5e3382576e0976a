"""What the headers of record batches say of offsets, without a look at the records.

Called by fetching.fetch_steps. Of magic 2 alone, the format since Kafka 0.11.
"""

from struct import Struct

_BATCH = Struct(">qiibIhi")  # base offset, length, leader epoch, magic, CRC, attributes, last offset delta
_BATCH_HEADER_BYTES = 61
_LOG_OVERHEAD_BYTES = 12


def first_offset(records: memoryview) -> int | None:
    """Where the first batch begins, None where it is none, or of the formats before Kafka 0.11."""
    if len(records) < _BATCH_HEADER_BYTES:
        return None
    base_offset, _, _, magic, _, _, _ = _BATCH.unpack_from(records)
    return base_offset if magic == 2 else None


def next_offset(records: memoryview) -> tuple[int | None, bool]:
    """The offset behind the last whole batch, None without one; and whether bytes that are no batch lie behind it."""
    at, size = 0, len(records)
    reached: int | None = None
    while size - at >= _BATCH_HEADER_BYTES:
        base_offset, length, _, magic, _, _, last_delta = _BATCH.unpack_from(records, at)
        if magic != 2 or length < _BATCH_HEADER_BYTES - _LOG_OVERHEAD_BYTES or base_offset < 0 or last_delta < 0:
            return reached, True
        at += length + _LOG_OVERHEAD_BYTES
        if at > size:
            break
        reached = base_offset + last_delta + 1
    return reached, False
