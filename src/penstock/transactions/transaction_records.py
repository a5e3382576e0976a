"""Records of `__transaction_state` in Kafka's own format, so that tools that read the topic can read ours.

Called by transactions.transaction_shard; the format is in no wire schema, hence by hand.

    key    i16 version 0 | transactional id
    value  i16 version | i64 producer id | i16 producer epoch | i32 time-out | i8 state | partitions by topic, or null |
           i64 updated | i64 started | version 1: tagged fields | none: the id is forgotten

Version 1 of the value is the first with compact strings and tagged fields; the tags are 0 the previous and 1 the next
producer id, 2 the version of transactions the client follows. We write version 1 and read both.
"""

import logging
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from penstock.errors import MalformedFrame
from penstock.model import TopicPartition
from penstock.transactions.transaction import NO_PRODUCER_ID, VERSION_1, State, Transaction
from penstock.wire.primitives import (
    I16,
    I32,
    I64,
    MALFORMED,
    read_count,
    read_length,
    read_string,
    read_tags,
    skip_tags,
    write_length,
    write_nullable_string,
    write_uvarint,
)

log = logging.getLogger(__name__)

KEY_VERSION = 0
VALUE_VERSION = 1
PREVIOUS_PRODUCER_ID_TAG, NEXT_PRODUCER_ID_TAG, CLIENT_VERSION_TAG = 0, 1, 2
PARTITION_BYTES = 4

_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")


class TransactionRecord(NamedTuple):
    """What a transactional id is from here on, or with None that it is forgotten."""

    transactional_id: str
    transaction: Transaction | None


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    transaction = record.transaction
    return _key(record.transactional_id), None if transaction is None else _encode_value(transaction)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """None for what a newer broker wrote. Raises MalformedFrame."""
    try:
        view = memoryview(key)
        (version,) = I16.unpack_from(view)
        if version != KEY_VERSION:
            log.warning("a record with a key of unknown version %d was skipped", version)
            return None
        transactional_id, _ = read_string(view, 2, flexible=False)
        if value is None:
            return TransactionRecord(transactional_id, None)
        (version,) = I16.unpack_from(value)
        if not 0 <= version <= VALUE_VERSION:
            log.warning("%r was written in version %d by a newer broker and is skipped", transactional_id, version)
            return None
        return TransactionRecord(transactional_id, _decode_value(memoryview(value), is_flexible=version >= 1))
    except MALFORMED as error:
        raise MalformedFrame(f"a record of a transactional id cannot be read: {error}") from error


# A transaction writes its id's key three times, and most producers have one transaction after the other.
@lru_cache(maxsize=16_384)
def _key(transactional_id: str) -> bytes:
    out = bytearray(I16.pack(KEY_VERSION))
    write_nullable_string(out, transactional_id, flexible=False)
    return bytes(out)


def _encode_value(transaction: Transaction) -> bytes:
    state = transaction.state
    assert state is not State.DEAD
    assert state is not State.EMPTY or not transaction.partitions
    out = bytearray(
        _HEAD.pack(
            VALUE_VERSION,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            transaction.state,
        )
    )
    if state is State.EMPTY:
        write_length(out, -1, flexible=True)
    else:
        _write_partitions(out, transaction.partitions)
    out += _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    _write_tags(out, transaction)
    return bytes(out)


def _write_partitions(out: bytearray, partitions: frozenset[TopicPartition]) -> None:
    by_topic: dict[str, list[int]] = {}
    for at in partitions:
        by_topic.setdefault(at.topic, []).append(at.partition)
    write_length(out, len(by_topic), flexible=True)
    for topic, numbers in by_topic.items():
        write_nullable_string(out, topic, flexible=True)
        write_length(out, len(numbers), flexible=True)
        for number in numbers:
            out += I32.pack(number)
        out.append(0)


def _write_tags(out: bytearray, transaction: Transaction) -> None:
    """A tagged field that has its default is left out, as Kafka's writers do."""
    tagged: list[tuple[int, bytes]] = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tagged.append((PREVIOUS_PRODUCER_ID_TAG, I64.pack(transaction.previous_producer_id)))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tagged.append((NEXT_PRODUCER_ID_TAG, I64.pack(transaction.next_producer_id)))
    if transaction.client_version != VERSION_1:
        tagged.append((CLIENT_VERSION_TAG, I16.pack(transaction.client_version)))
    write_uvarint(out, len(tagged))
    for tag, content in tagged:
        write_uvarint(out, tag)
        write_uvarint(out, len(content))
        out += content


def _decode_value(view: memoryview, is_flexible: bool) -> Transaction:
    _, producer_id, producer_epoch, timeout_ms, number = _HEAD.unpack_from(view)
    try:
        state = State(number)
    except ValueError as error:
        raise MalformedFrame(f"state {number}") from error
    if state is State.DEAD:
        raise MalformedFrame("a dead transactional id has no value")
    partitions, position = _read_partitions(view, _HEAD.size, is_flexible)
    updated_ms, started_ms = _TIMES.unpack_from(view, position)
    previous_id = next_id = NO_PRODUCER_ID
    client_version = VERSION_1
    if is_flexible:
        for tag, start, _end in read_tags(view, position + _TIMES.size):
            if tag == PREVIOUS_PRODUCER_ID_TAG:
                (previous_id,) = I64.unpack_from(view, start)
            elif tag == NEXT_PRODUCER_ID_TAG:
                (next_id,) = I64.unpack_from(view, start)
            elif tag == CLIENT_VERSION_TAG:
                (client_version,) = I16.unpack_from(view, start)
    return Transaction(
        producer_id, producer_epoch, timeout_ms, state, updated_ms, started_ms, partitions, previous_id, next_id,
        client_version,
    )  # fmt: skip


def _read_partitions(view: memoryview, position: int, is_flexible: bool) -> tuple[frozenset[TopicPartition], int]:
    topics, position = read_length(view, position, is_flexible)
    found: list[TopicPartition] = []
    for _ in range(topics):
        topic, position = read_string(view, position, is_flexible)
        count, position = read_count(view, position, is_flexible, PARTITION_BYTES)
        for _ in range(count):
            (number,) = I32.unpack_from(view, position)
            found.append(TopicPartition(topic, number))
            position += PARTITION_BYTES
        if is_flexible:
            position = skip_tags(view, position)
    return frozenset(found), position
