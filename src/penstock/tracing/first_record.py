"""The trace context in the headers of a batch's first record, found without unpacking the rest.

Called by tracing.looking. A record's layout is told in records.record. Everything here may be a lie: what does not add
up holds no context, and no more than HEADERS_MAX headers are looked at, however many there are.
"""

from penstock.records.batch import Buffer
from penstock.tracing.trace_context import (
    PARENT_BYTES_MAX,
    STATE_BYTES_MAX,
    TRACEPARENT,
    TRACESTATE,
    TraceContext,
    read_context,
)

HEADERS_MAX = 32
_NUMBER_BYTES_MAX = 10


def context_in(records: Buffer) -> TraceContext | None:
    """`records`: those of a batch, not compressed; only the first is read."""
    try:
        return _context_in(records)
    except (IndexError, ValueError):
        return None


def _context_in(records: Buffer) -> TraceContext | None:
    _, at = _number(records, 0)  # the record's length: nothing here relies on it
    _, at = _number(records, at + 1)  # behind the attributes, the time
    _, at = _number(records, at)  # the offset
    for _ in range(2):  # key and value
        length, at = _number(records, at)
        at += max(length, 0)
    count, at = _number(records, at)
    parent = state = b""
    for _ in range(min(count, HEADERS_MAX)):
        length, at = _number(records, at)
        name_at, name_length = at, length
        length, at = _number(records, at + _not_negative(length))
        # Of several headers of one name Kafka's clients read the last.
        if name_length == len(TRACEPARENT) and records[name_at : name_at + name_length] == TRACEPARENT:
            parent = bytes(records[at : at + min(max(length, 0), PARENT_BYTES_MAX + 1)])
        elif name_length == len(TRACESTATE) and records[name_at : name_at + name_length] == TRACESTATE:
            state = bytes(records[at : at + min(max(length, 0), STATE_BYTES_MAX + 1)])
        at += max(length, 0)
    return read_context(parent, state) if parent else None


def _not_negative(length: int) -> int:
    if length < 0:
        raise ValueError("a header without a name")
    return length


def _number(records: Buffer, at: int) -> tuple[int, int]:
    """A zigzag varint and where it ends; IndexError past the end."""
    byte = records[at]
    if byte < 0x80:  # as most are
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = shift = 0
    for position in range(at, at + _NUMBER_BYTES_MAX):
        byte = records[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
    raise ValueError("a number of more than ten bytes")
