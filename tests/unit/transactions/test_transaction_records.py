"""Records of `__transaction_state`: byte for byte what Kafka's tools read, and what they write is read here."""

import pytest

from penstock.errors import MalformedFrame
from penstock.model import TopicPartition
from penstock.transactions.transaction import State, Transaction
from penstock.transactions.transaction_records import TransactionRecord, decode_record, encode_record

KEY = bytes.fromhex("0000 0003") + b"pay"
PREPARED = Transaction(
    7, 32_767, 60_000, State.PREPARE_COMMIT, 1_700_000_000_001, 1_700_000_000_000,
    frozenset({TopicPartition("orders", 2)}), 7, 99, 2,
)  # fmt: skip
PREPARED_VALUE = (
    bytes.fromhex("0001 0000000000000007 7fff 0000ea60 02")
    + b"\x02\x07orders\x02\x00\x00\x00\x02\x00"
    + bytes.fromhex("0000018bcfe56801 0000018bcfe56800")
    + bytes.fromhex("03 00 08 0000000000000007 01 08 0000000000000063 02 02 0002")
)
EMPTY = Transaction(7, 0, 60_000, State.EMPTY, 1_700_000_000_001, previous_producer_id=7)
EMPTY_VALUE = bytes.fromhex(
    "0001 0000000000000007 0000 0000ea60 00 00 0000018bcfe56801 ffffffffffffffff 01 00 08 0000000000000007"
)


@pytest.mark.parametrize(("transaction", "value"), [(PREPARED, PREPARED_VALUE), (EMPTY, EMPTY_VALUE)])
def test_a_record_has_the_bytes_kafka_gives_it(transaction: Transaction, value: bytes) -> None:
    record = TransactionRecord("pay", transaction)
    assert encode_record(record) == (KEY, value)
    assert decode_record(KEY, value) == record


def test_a_forgotten_id_is_a_tombstone() -> None:
    assert encode_record(TransactionRecord("pay", None)) == (KEY, None)
    assert decode_record(KEY, None) == TransactionRecord("pay", None)


def test_the_last_epoch_is_not_kept_as_in_kafka() -> None:
    record = TransactionRecord("pay", EMPTY._replace(last_producer_epoch=4))
    assert decode_record(*encode_record(record)) == TransactionRecord("pay", EMPTY)


def test_version_0_of_older_brokers_is_read() -> None:
    value = (
        bytes.fromhex("0000 0000000000000007 0003 0000ea60 01")
        + bytes.fromhex("00000001 0006") + b"orders" + bytes.fromhex("00000002 00000000 00000002")
        + bytes.fromhex("0000018bcfe56801 0000018bcfe56800")
    )  # fmt: skip
    decoded = decode_record(KEY, value)
    assert decoded is not None
    assert decoded.transaction == Transaction(
        7, 3, 60_000, State.ONGOING, 1_700_000_000_001, 1_700_000_000_000,
        frozenset({TopicPartition("orders", 0), TopicPartition("orders", 2)}),
    )  # fmt: skip


def test_version_0_without_partitions_is_read() -> None:
    value = bytes.fromhex("0000 0000000000000007 0003 0000ea60 00 ffffffff 0000018bcfe56801 ffffffffffffffff")
    decoded = decode_record(KEY, value)
    assert decoded is not None
    assert decoded.transaction == Transaction(7, 3, 60_000, State.EMPTY, 1_700_000_000_001)


def test_tagged_fields_of_newer_brokers_are_passed_over() -> None:
    value = EMPTY_VALUE[:-11] + bytes.fromhex("02 00 08 0000000000000007 03 02 0005")
    assert decode_record(KEY, value) == TransactionRecord("pay", EMPTY)


def test_keys_and_values_of_newer_brokers_are_not_ours_to_judge() -> None:
    assert decode_record(b"\x00\x01" + KEY[2:], PREPARED_VALUE) is None
    assert decode_record(KEY, b"\x00\x02" + PREPARED_VALUE[2:]) is None


@pytest.mark.parametrize("state", [6, 7, 8, -1])
def test_a_state_that_no_id_rests_in_is_malformed(state: int) -> None:
    value = bytearray(EMPTY_VALUE)
    value[16] = state & 0xFF
    with pytest.raises(MalformedFrame):
        decode_record(KEY, bytes(value))


@pytest.mark.parametrize("size", range(len(PREPARED_VALUE)))
def test_a_value_cut_short_anywhere_is_malformed(size: int) -> None:
    with pytest.raises(MalformedFrame):
        decode_record(KEY, PREPARED_VALUE[:size])
