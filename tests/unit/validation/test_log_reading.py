"""The schemas topic as a broker reads it: only what is committed, each record once."""

import pytest

from penstock.errors import CorruptMessage
from penstock.records.batch import stamp
from penstock.records.markers import ControlType, Marker, encode_marker
from penstock.records.record import Record, encode_batch
from penstock.schemas.stored.records import SchemaRecord, key_of, value_of
from penstock.validation.log_reading import Chunk, read_chunk


def batch(base: int, *versions: int, **options: int) -> bytearray:
    records = [SchemaRecord("s", version, version, "AVRO", '"int"') for version in versions]
    made = encode_batch(
        [Record(base + place, 0, key_of(each), value_of(each)) for place, each in enumerate(records)],
        is_transactional="producer_id" in options,
        **options,
    )
    stamp(memoryview(made), base, 0)
    return made


def marker(offset: int, control_type: ControlType, producer_id: int) -> bytearray:
    return encode_marker(Marker(control_type, 0), offset=offset, timestamp=0, producer_id=producer_id, producer_epoch=0)


def versions(chunk: Chunk, position: int) -> tuple[list[int], int]:
    reads, end = read_chunk(chunk, position)
    return [each.record.version for each in reads if isinstance(each.record, SchemaRecord)], end


def test_aborted_records_are_passed_over_and_the_rest_is_read_once() -> None:
    log = b"".join(
        (
            batch(0, 1, 2),
            batch(2, 3, producer_id=7, producer_epoch=0, base_sequence=0),
            batch(3, 4, producer_id=8, producer_epoch=0, base_sequence=0),
            marker(4, ControlType.ABORT, 7),
            batch(5, 5, producer_id=7, producer_epoch=0, base_sequence=1),
            marker(6, ControlType.COMMIT, 7),
            marker(7, ControlType.COMMIT, 8),
        )
    )
    aborted = [(7, 2)]
    assert versions(Chunk(memoryview(log), aborted), 0) == ([1, 2, 4, 5], 8)
    assert versions(Chunk(memoryview(log), aborted), 1) == ([2, 4, 5], 8), "from the middle of a batch"
    assert versions(Chunk(memoryview(log)[:-1], aborted), 0) == ([1, 2, 4, 5], 7), "cut short"
    assert versions(Chunk(memoryview(b""), ()), 5) == ([], 5)


def test_a_damaged_batch_is_not_taken_for_schemas() -> None:
    log = batch(0, 1)
    log[-1] ^= 1
    with pytest.raises(CorruptMessage):
        read_chunk(Chunk(memoryview(log), ()), 0)
