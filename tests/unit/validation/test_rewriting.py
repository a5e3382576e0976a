"""What is written in place of a batch with bad records: offsets, sequence and bytes stay, whatever the codec."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import MessageTooLarge
from penstock.model import TopicPartition
from penstock.records.batch import BatchHeader, check_produced, crc_is_right, read_header
from penstock.records.compression import Codec
from penstock.records.markers import ControlType, decode_marker
from penstock.records.record import Record, decode_records, encode_batch, unfold
from penstock.validation.rewriting import dead_letters, marked, without
from penstock.validation.rules import Fault

AT = TopicPartition("orders", 3)
MIB = 1 << 20
NOW = 1_700_000_000_000

parts = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), parts), max_size=3).map(tuple)
records = st.lists(st.tuples(st.integers(NOW - 100, NOW + 100), parts, parts, headers), min_size=1, max_size=6)


def batch_of(
    contents: Sequence[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]], codec: int
):
    made = [Record(offset, *content) for offset, content in enumerate(contents)]
    batch = memoryview(
        encode_batch(made, compression=codec, producer_id=7, producer_epoch=2, base_sequence=40, is_transactional=True)
    )
    return made, batch, check_produced(batch)


def read(batch: bytearray) -> tuple[BatchHeader, list[Record]]:
    header = read_header(batch)
    assert crc_is_right(batch, header)
    return header, list(decode_records(batch, header, MIB))


@settings(max_examples=40, deadline=None)
@given(contents=records, codec=st.sampled_from(list(Codec)), data=st.data())
def test_good_records_keep_their_bytes_and_bad_ones_go_or_get_marks(
    contents: Any, codec: int, data: st.DataObject
) -> None:
    made, batch, header = batch_of(contents, codec)
    bad = data.draw(st.sets(st.integers(0, len(made) - 1), min_size=1))
    faults = [Fault(index, f"wrong at {index}") for index in sorted(bad)]
    body = bytes(unfold(batch, header, MIB))

    kept, left = read(without(header, body, faults))
    assert kept[9:12] == header[9:12], "producer, epoch and sequence"
    assert (kept.next_offset, kept.last_sequence) == (header.next_offset, header.last_sequence)
    assert kept.is_transactional
    if len(bad) < len(made):
        assert left == [record for record in made if record.offset not in bad]
        assert kept.max_timestamp == max(record.timestamp for record in left)
        assert not kept.is_control
    else:
        assert kept.is_control
        assert [decode_marker(record).control_type for record in left] == [ControlType.UNKNOWN]

    told, all_of_it = read(marked(header, body, faults, MIB))
    assert told.next_offset == header.next_offset
    assert all_of_it == [
        record._replace(headers=(*record.headers, ("penstock.schema.error", b"wrong at %d" % record.offset)))
        if record.offset in bad
        else record
        for record in made
    ]

    letters = [record for letter in dead_letters(batch, header, MIB, faults, AT, MIB) for record in read(letter)[1]]
    assert [letter[1:4] for letter in letters] == [made[index][1:4] for index in sorted(bad)]
    for letter, index in zip(letters, sorted(bad), strict=True):
        assert letter.headers == (
            *made[index].headers,
            ("penstock.dead.reason", b"wrong at %d" % index),
            ("penstock.dead.topic", b"orders"),
            ("penstock.dead.partition", b"3"),
            ("penstock.dead.batch.index", b"%d" % index),
        )


def test_dead_letters_come_in_batches_that_a_topic_takes() -> None:
    _, batch, header = batch_of([(NOW, b"k", b"v" * 1000, ())] * 10, Codec.NONE)
    faults = [Fault(index, "wrong") for index in range(10)]
    letters = dead_letters(batch, header, MIB, faults, AT, 4000)
    assert [check_produced(memoryview(letter)).record_count for letter in letters] == [3, 3, 3, 1]
    assert max(map(len, letters)) <= 4000


def test_marks_do_not_blow_a_batch_up() -> None:
    _, batch, header = batch_of([(NOW, None, None, ())] * 1000, Codec.NONE)
    body = bytes(unfold(batch, header, MIB))
    faults = [Fault(index, "x" * 250) for index in range(1000)]
    with pytest.raises(MessageTooLarge, match="send smaller batches"):
        marked(header, body, faults, 100_000)
