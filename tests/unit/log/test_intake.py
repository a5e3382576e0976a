"""What a topic's settings ask of a batch on its way into the log."""

from typing import Any

import pytest
from tests.unit.log.making import HOUR, NOW, make_batch

from penstock.config import TopicConfig
from penstock.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge
from penstock.log.intake import admit
from penstock.records.batch import crc_is_right, read_header
from penstock.records.compression import Codec
from penstock.records.record import Record, decode_records, encode_batch


def take(batch: memoryview, *, now_ms: int = NOW, **settings: Any) -> tuple[memoryview, Any]:
    return admit(batch, TopicConfig(**settings), now_ms)


def test_by_default_a_batch_is_kept_as_it_was_sent() -> None:
    batch, header = make_batch("a", "b")
    before = bytes(batch)
    kept, found = take(batch)
    assert kept is batch
    assert bytes(kept) == before
    assert found == header


def test_a_batch_over_max_message_bytes_is_refused() -> None:
    batch, _ = make_batch("a" * 100)
    take(batch, max_message_bytes=len(batch))
    with pytest.raises(MessageTooLarge):
        take(batch, max_message_bytes=len(batch) - 1)


def test_a_damaged_batch_is_refused() -> None:
    batch, _ = make_batch("a" * 100)
    batch[100] ^= 1
    with pytest.raises(CorruptMessage):
        take(batch)


def test_times_too_far_ahead_are_refused_and_old_ones_only_where_a_limit_is_set() -> None:
    ahead, _ = make_batch("a", timestamp=NOW + HOUR + 1)
    with pytest.raises(InvalidTimestamp):
        take(ahead, timestamp_after_max_ms=HOUR)
    take(ahead, timestamp_after_max_ms=HOUR + 1)
    old, _ = make_batch("a", timestamp=NOW - 10 * HOUR)
    take(old)
    with pytest.raises(InvalidTimestamp):
        take(old, timestamp_before_max_ms=HOUR)


def test_with_log_append_time_the_broker_stamps_and_the_crc_is_right() -> None:
    batch, _ = make_batch("a", timestamp=NOW + 1000 * HOUR)
    kept, header = take(batch, message_timestamp_type="LogAppendTime")
    assert (header.max_timestamp, header.is_log_append_time) == (NOW, True)
    assert crc_is_right(kept, header)
    assert read_header(kept) == header


def test_a_compacted_topic_asks_for_keys() -> None:
    compact = frozenset({"compact"})
    keyless, _ = make_batch("a")
    with pytest.raises(InvalidRecord):
        take(keyless, cleanup_policy=compact)
    take(memoryview(encode_batch([Record(0, NOW, b"k", b"v")])), cleanup_policy=compact)


@pytest.mark.parametrize(
    ("wanted", "codec"),
    [("gzip", Codec.GZIP), ("snappy", Codec.SNAPPY), ("lz4", Codec.LZ4), ("zstd", Codec.ZSTD)],
)
def test_a_topic_with_a_compression_of_its_own_recompresses(wanted: str, codec: Codec) -> None:
    batch, _ = make_batch("a" * 500, "b" * 500)
    kept, header = take(batch, compression_type=wanted)
    assert header.compression == codec
    assert len(kept) < len(batch)
    assert crc_is_right(kept, header)
    assert [record.value for record in decode_records(kept, header, 1 << 20)] == [b"a" * 500, b"b" * 500]
    again, _ = take(kept, compression_type=wanted)
    assert again is kept, "what is right already is not touched"
    plain, header = take(kept, compression_type="uncompressed")
    assert header.compression == Codec.NONE
    assert len(plain) == len(batch)
