"""What a partition remembers of idempotent producers (TRAPS P1-P3)."""

import pytest
from tests.unit.log.making import HOUR, NOW, make_batch

from penstock.errors import DuplicateSequence, InvalidProducerEpoch, OutOfOrderSequence
from penstock.log.producers import BATCHES_KEPT, Producers
from penstock.model import Offset
from penstock.records.batch import SEQUENCE_MAX, BatchHeader


def header(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7, timestamp: int = NOW) -> BatchHeader:
    _, found = make_batch(*["v"] * count, producer=producer, epoch=epoch, sequence=sequence, timestamp=timestamp)
    return found


def told(*batches: BatchHeader, first_offset: int = 100, now_ms: int = NOW) -> Producers:
    """A table that has seen these batches, one behind the other from `first_offset`."""
    producers, offset = Producers(), first_offset
    for batch in batches:
        assert producers.check(batch) is None
        producers.record(batch, Offset(offset), now_ms)
        offset += batch.record_count
    return producers


def test_a_producer_nobody_knows_may_start_anywhere() -> None:
    assert Producers().check(header(0)) is None
    assert Producers().check(header(12_345)) is None


def test_the_next_sequence_is_taken_and_a_gap_is_not() -> None:
    producers = told(header(0, 3), header(3, 2))
    assert producers.check(header(5)) is None
    for sequence in (6, 100, 4):
        with pytest.raises(OutOfOrderSequence):
            producers.check(header(sequence))


@pytest.mark.parametrize("back", range(1, BATCHES_KEPT + 1))
def test_each_of_the_last_five_batches_is_known_with_its_first_offset(back: int) -> None:
    producers = told(*(header(n * 2, 2) for n in range(8)))
    earlier = producers.check(header((8 - back) * 2, 2))
    assert earlier is not None
    assert earlier.base_offset == 100 + (8 - back) * 2


def test_a_batch_older_than_the_last_five_is_called_a_duplicate_without_an_offset() -> None:
    producers = told(*(header(n * 2, 2) for n in range(8)))
    for sequence in (0, 2, 4):
        with pytest.raises(DuplicateSequence):
            producers.check(header(sequence, 2))


def test_half_of_a_known_batch_is_no_duplicate() -> None:
    producers = told(header(0, 4))
    for wrong in (header(0, 3), header(1, 3), header(2, 4)):
        with pytest.raises(OutOfOrderSequence):
            producers.check(wrong)


def test_after_the_last_sequence_comes_zero() -> None:
    producers = told(header(SEQUENCE_MAX, 1))
    assert producers.check(header(0)) is None
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(1))


def test_a_batch_may_run_over_the_last_sequence_and_is_known_afterwards() -> None:
    wrapping = header(SEQUENCE_MAX - 1, 4)
    assert wrapping.last_sequence == 1
    producers = told(wrapping)
    assert producers.check(header(2)) is None
    earlier = producers.check(wrapping)
    assert earlier is not None
    assert earlier.base_offset == 100


def test_batches_before_a_wrap_are_still_older_and_not_ahead() -> None:
    producers = told(*(header((SEQUENCE_MAX - 5 + n) & SEQUENCE_MAX) for n in range(8)))
    with pytest.raises(DuplicateSequence):
        producers.check(header(SEQUENCE_MAX - 5))


def test_a_new_epoch_starts_at_zero_and_ends_the_old_one() -> None:
    producers = told(header(0), header(1))
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(2, epoch=1))
    fresh = header(0, epoch=1)
    assert producers.check(fresh) is None
    producers.record(fresh, Offset(200), NOW)
    with pytest.raises(InvalidProducerEpoch):
        producers.check(header(2, epoch=0))
    earlier = producers.check(fresh)
    assert earlier is not None
    assert earlier.base_offset == 200, "not the batch of the old epoch with the same sequence"


def test_who_has_been_silent_long_enough_is_forgotten() -> None:
    producers = told(header(0, producer=1), now_ms=NOW)
    producers.record(header(0, producer=2), Offset(1), NOW + HOUR)
    assert producers.expire(NOW + 1) == 1
    assert producers.get(1) is None
    assert producers.get(2) is not None


def test_whoever_writes_old_times_today_is_not_silent() -> None:
    producers = told(header(0, timestamp=NOW - 1000 * HOUR), now_ms=NOW)
    assert producers.expire(NOW - HOUR) == 0


def test_who_has_a_transaction_open_is_never_forgotten() -> None:
    producers = told(header(0))
    producer = producers.get(7)
    assert producer is not None
    producer.open_transaction = 100
    assert producers.expire(NOW + 1000 * HOUR) == 0


def test_a_snapshot_holds_everything_that_checks_depend_on() -> None:
    producers = told(*(header(n * 3, 3) for n in range(7)), header(0, producer=9, epoch=4))
    again = Producers.decode(producers.encode())
    assert again is not None
    assert len(again) == 2
    for back in range(1, 6):
        earlier = again.check(header((7 - back) * 3, 3))
        assert earlier is not None
        assert earlier.base_offset == 100 + (7 - back) * 3
    with pytest.raises(DuplicateSequence):
        again.check(header(0, 3))
    with pytest.raises(InvalidProducerEpoch):
        again.check(header(1, producer=9, epoch=3))
    assert again.encode() == producers.encode()


def test_an_empty_snapshot_is_a_snapshot() -> None:
    again = Producers.decode(Producers().encode())
    assert again is not None
    assert len(again) == 0


def test_no_flipped_bit_and_no_torn_end_of_a_snapshot_goes_unnoticed() -> None:
    content = told(header(0), header(1), header(0, producer=9)).encode()
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        assert Producers.decode(bytes(damaged)) is None
    for size in range(len(content)):
        assert Producers.decode(content[:size]) is None
    assert Producers.decode(content + b"\0") is None


def test_the_last_record_of_each_producer_is_told_to_compaction() -> None:
    producers = told(header(0, 3), header(3, 2), header(0, producer=9, epoch=2))
    tails = producers.tails()
    assert (tails[7].last_offset, tails[7].epoch) == (104, 0)
    assert (tails[9].last_offset, tails[9].epoch) == (105, 2)
