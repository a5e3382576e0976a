"""The header of a record batch: read, checked and stamped without unpacking a record."""

from struct import pack_into

import pytest

from penstock.errors import CorruptMessage, InvalidRecord, PenstockError, UnsupportedForMessageFormat
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import (
    CONTROL_MASK,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    SEQUENCE_MAX,
    check_produced,
    crc_is_right,
    read_header,
    refresh_crc,
    set_log_append_time,
    stamp,
)
from penstock.records.compression import Codec
from penstock.records.record import Record, encode_batch

NOW = 1_700_000_000_000


def make(count: int = 3, **fields: int) -> bytearray:
    return encode_batch([Record(n, NOW + n, b"k", b"value") for n in range(count)], **fields)


def changed(layout: str, at: int, value: int, *, count: int = 3) -> memoryview:
    """A batch with one field changed and the CRC made right again."""
    view = memoryview(make(count))
    pack_into(layout, view, at, value)
    refresh_crc(view)
    return view


def test_a_header_is_read_field_by_field() -> None:
    batch = make(producer_id=7, producer_epoch=2, base_sequence=40, compression=Codec.ZSTD, leader_epoch=9)
    header = read_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (0, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 2, 40, 42)
    assert (header.compression, header.leader_epoch, header.record_count) == (Codec.ZSTD, 9, 3)
    assert (header.is_control, header.is_transactional, header.is_log_append_time) == (False, False, False)
    assert crc_is_right(batch, header)


def test_a_header_is_found_in_the_middle_of_other_bytes() -> None:
    batch = make()
    around = b"xx" + bytes(batch) + b"yy"
    assert read_header(around, 2) == read_header(batch)
    assert crc_is_right(around, read_header(batch), 2)


def test_sequences_wrap_inside_a_batch_and_a_batch_without_one_has_none() -> None:
    assert read_header(make(4, producer_id=1, producer_epoch=0, base_sequence=SEQUENCE_MAX - 1)).last_sequence == 1
    assert read_header(make()).last_sequence == -1


def test_stamping_an_offset_and_an_epoch_leaves_the_crc_right() -> None:
    view = memoryview(make())
    stamp(view, Offset(2**40), LeaderEpoch(77))
    header = read_header(view)
    assert (header.base_offset, header.leader_epoch) == (2**40, 77)
    assert crc_is_right(view, header)


def test_the_time_of_the_broker_is_put_in_with_a_new_crc() -> None:
    view = memoryview(make())
    set_log_append_time(view, NOW + 99)
    header = read_header(view)
    assert (header.max_timestamp, header.is_log_append_time) == (NOW + 99, True)
    assert crc_is_right(view, header)


def test_a_good_batch_passes() -> None:
    for batch in (make(), make(1), make(producer_id=5, producer_epoch=0, base_sequence=0)):
        assert check_produced(memoryview(batch)) == read_header(batch)


def test_every_flipped_bit_that_the_crc_covers_is_noticed() -> None:
    batch = make(2)
    for bit in range(CRC_COVERS_FROM * 8, len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PenstockError):
            check_produced(memoryview(damaged))


@pytest.mark.parametrize("size", [0, 1, 16, 17, 60, 61, 90])
def test_a_batch_that_is_cut_short_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptMessage):
        check_produced(memoryview(make()[:size]))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_named_as_such(magic: int) -> None:
    with pytest.raises(UnsupportedForMessageFormat):
        check_produced(changed(">b", 16, magic))


@pytest.mark.parametrize("magic", [3, 127, -1])
def test_formats_nobody_knows_are_corrupt(magic: int) -> None:
    with pytest.raises(CorruptMessage):
        check_produced(changed(">b", 16, magic))


def test_two_batches_in_one_are_refused_as_such() -> None:
    with pytest.raises(InvalidRecord, match="one record batch"):
        check_produced(memoryview(make() + make()))


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_a_length_that_lies_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptMessage):
        check_produced(changed(">i", 8, length))


@pytest.mark.parametrize(("count", "last_delta"), [(0, 2), (-1, 2), (4, 2), (2, 2), (3, 3), (3, -1)])
def test_a_count_that_does_not_fill_the_offsets_is_refused(count: int, last_delta: int) -> None:
    view = changed(">i", 57, count)
    pack_into(">i", view, 23, last_delta)
    refresh_crc(view)
    with pytest.raises(InvalidRecord):
        check_produced(view)


def test_an_offset_of_its_own_and_control_records_are_not_the_clients_to_send() -> None:
    with pytest.raises(InvalidRecord):
        check_produced(changed(">q", 0, 5))
    with pytest.raises(InvalidRecord):
        check_produced(changed(">h", 21, CONTROL_MASK))


def test_a_producer_id_needs_a_sequence() -> None:
    with pytest.raises(InvalidRecord):
        check_produced(changed(">q", 43, 12))


def test_a_header_alone_is_as_long_as_it_says() -> None:
    assert len(make(1)) > HEADER_BYTES == 61
