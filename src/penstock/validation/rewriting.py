"""A batch with bad records made into what is written instead: the rest of it, or all of it with marks; dead letters.

Called by validation.py, in its threads. Laws:
- Offsets and sequence numbers stay those that the producer counts: what is taken out leaves a gap, as compaction does,
  so a batch that is sent again is still known as the same.
- A record that stays is copied byte for byte; a dead letter has key, value, headers and time of the record it was.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct

from penstock.errors import MessageTooLarge
from penstock.model import TopicPartition
from penstock.records.batch import CONTROL_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK, BatchHeader
from penstock.records.compression import compress
from penstock.records.record import Record, Span, append_varint, decode_records, encode_batch, join_batch, scan_records
from penstock.validation.rules import Fault

MARK_HEADER = "penstock.schema.error"
TOPIC_HEADER = "penstock.dead.topic"
PARTITION_HEADER = "penstock.dead.partition"
INDEX_HEADER = "penstock.dead.batch.index"
REASON_HEADER = "penstock.dead.reason"
LETTER_BYTES = 200
"""About what the headers and the framing of a dead letter add, beside the reason and the topic's name."""

_CONTROL_KEY = Struct(">hh")  # version, type
_NO_MEANING = -1  # a control record that every client passes over


def without(header: BatchHeader, body: bytes, faults: Sequence[Fault]) -> bytearray:
    """The batch with its bad records taken out."""
    bad = {fault.batch_index for fault in faults}
    kept = [span for span in scan_records(body, header) if span.offset_delta not in bad]
    if not kept:
        return _emptied(header)
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = header.base_timestamp + max(span.timestamp_delta for span in kept)
    packed = b"".join(body[span.start : span.end] for span in kept)
    changed = header._replace(max_timestamp=max_timestamp, record_count=len(kept))
    return join_batch(changed, compress(header.compression, packed))


def marked(header: BatchHeader, body: bytes, faults: Sequence[Fault], size_max: int) -> bytearray:
    """The batch with the reason in a header of each bad record, unpacked to at most `size_max` bytes."""
    reasons = dict(faults)
    packed = bytearray()
    for span in scan_records(body, header):
        reason = reasons.get(span.offset_delta)
        if reason is None:
            packed += body[span.start : span.end]
        else:
            _append_marked(packed, body, span, reason)
        if len(packed) > size_max:
            raise MessageTooLarge(
                f"with the reasons in its headers the batch would have more than {size_max} bytes: send smaller batches"
            )
    return join_batch(header, compress(header.compression, packed))


def dead_letters(
    batch: memoryview,
    header: BatchHeader,
    unpacked_max: int,
    faults: Sequence[Fault],
    at: TopicPartition,
    size_max: int,
) -> list[bytearray]:
    """The bad records as batches for the dead-letter topic, each of at most `size_max` bytes but for single records."""
    batches: list[bytearray] = []
    records: list[Record] = []
    size = 0
    for record, length in _letters(decode_records(batch, header, unpacked_max), dict(faults), at):
        if records and size + length > size_max:
            batches.append(encode_batch(records, compression=header.compression))
            records, size = [], 0
        records.append(record._replace(offset=len(records)))
        size += length
    batches.append(encode_batch(records, compression=header.compression))
    return batches


def _letters(records: Iterable[Record], reasons: Mapping[int, str], at: TopicPartition) -> Iterable[tuple[Record, int]]:
    topic, partition = at.topic.encode(), str(at.partition).encode()
    for record in records:
        reason = reasons.get(record.offset)  # a produced batch begins at offset 0
        if reason is None:
            continue
        why = reason.encode(errors="replace")
        headers = (
            *record.headers,
            (REASON_HEADER, why),
            (TOPIC_HEADER, topic),
            (PARTITION_HEADER, partition),
            (INDEX_HEADER, str(record.offset).encode()),
        )
        length = len(record.key or b"") + len(record.value or b"") + len(why) + len(topic) + LETTER_BYTES
        length += sum(len(name) + len(value or b"") + 10 for name, value in record.headers)
        yield record._replace(headers=headers), length


def _emptied(header: BatchHeader) -> bytearray:
    """What keeps the offsets and the sequence of a batch whose records are all elsewhere.

    Not a batch of no records, as compaction leaves it: librdkafka takes an answer of nothing but such batches for one
    that was too small, and a consumer at the end of the log would ask for ever more and then fail. Control records
    that mean nothing to it every client passes over.
    """
    key = _CONTROL_KEY.pack(0, _NO_MEANING)
    record = bytearray(1)
    for number in (0, 0, len(key)):  # timestamp delta, offset delta, length of the key
        append_varint(record, number)
    record += key
    for number in (-1, 0):  # no value, no headers
        append_varint(record, number)
    packed = bytearray()
    append_varint(packed, len(record))
    attributes = header.attributes & (TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK) | CONTROL_MASK
    changed = header._replace(attributes=attributes, base_timestamp=header.max_timestamp, record_count=1)
    return join_batch(changed, packed + record)


def _append_marked(out: bytearray, body: bytes, span: Span, reason: str) -> None:
    start = span.start
    while body[start] & 0x80:  # past the length, however it was written
        start += 1
    headers_at = span.value_at + max(span.value_length, 0)
    record = bytearray(body[start + 1 : headers_at])
    append_varint(record, span.header_count + 1)
    record += body[span.headers_at : span.end]
    for part in (MARK_HEADER.encode(), reason.encode(errors="replace")):
        append_varint(record, len(part))
        record += part
    append_varint(out, len(record))
    out += record
