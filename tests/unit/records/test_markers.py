"""Transaction markers, as our own brokers and other people's clients read them."""

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord

from penstock.errors import InvalidRecord
from penstock.records.batch import read_header
from penstock.records.markers import ControlType, Marker, decode_marker, encode_marker
from penstock.records.record import Record, decode_records

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("control_type", "as_aiokafka"), [(ControlType.COMMIT, COMMIT_MARKER), (ControlType.ABORT, ABORT_MARKER)]
)
def test_a_marker_says_which_transaction_ended_and_how(control_type: ControlType, as_aiokafka: ControlRecord) -> None:
    marker = Marker(control_type, 12)
    batch = encode_marker(marker, offset=40, timestamp=NOW, producer_id=7, producer_epoch=3, leader_epoch=5)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert (header.base_offset, header.last_offset, header.record_count) == (40, 40, 1)
    (record,) = decode_records(batch, header, 100)
    assert decode_marker(record) == marker
    assert record.key is not None
    assert ControlRecord.parse(record.key) == as_aiokafka


def test_control_records_of_other_kinds_are_not_mistaken_for_markers() -> None:
    assert decode_marker(Record(0, NOW, b"\x00\x00\x00\x02", b"")).control_type is ControlType.UNKNOWN


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\x00\x00", b""), (b"\x00\x00\x00\x01", None), (b"\x00\x00\x00\x00", b"\x00\x00\x00")],
)
def test_half_a_marker_is_invalid(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        decode_marker(Record(0, NOW, key, value))
