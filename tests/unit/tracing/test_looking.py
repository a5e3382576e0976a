"""Which batches are looked into for a trace context: all that are not compressed, of the others what costs little."""

import pytest

from penstock.records.compression import Codec
from penstock.records.record import Record, encode_batch
from penstock.tracing.looking import (
    LOOKS_MAX,
    NO_CONTEXTS,
    PEEK_BYTES_MAX,
    PEEK_UNFOLDED_BYTES_MAX,
    PEEKS_PER_SECOND_MAX,
    PICKED_BYTES_MAX,
    PICKED_UNFOLDED_BYTES_MAX,
    Budget,
    Contexts,
    Looker,
)
from penstock.tracing.trace_context import TraceContext


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 50.0

    def monotonic(self) -> float:
        return self.at

    def now_ms(self) -> int:
        return 1_700_000_000_000


def batch_of(span: int = 1, *, sampled: bool = True, value: bytes = b"v", codec: int = Codec.NONE) -> memoryview:
    parent = b"00-%032x-%016x-%02x" % (7, span, sampled)
    return memoryview(encode_batch([Record(0, 0, None, value, (("traceparent", parent),))], compression=codec))


def noise(size: int) -> bytes:
    return b"".join(bytes((number * 73 % 251, number // 256 % 256)) for number in range(size // 2))


def context(span: int = 1, *, sampled: bool = True) -> TraceContext:
    return TraceContext(7, span, sampled)


def test_a_sampled_context_comes_first_and_each_but_once() -> None:
    looker = Looker(Hand())
    batches = [batch_of(2, sampled=False), memoryview(b"short"), batch_of(3), batch_of(2, sampled=False)]
    assert looker.look(batches, is_picked=False) == Contexts(context(3), (context(2, sampled=False),))
    assert looker.look([], is_picked=True) == NO_CONTEXTS


def test_of_one_request_only_so_many_batches_are_looked_into() -> None:
    batches = [batch_of(span) for span in range(1, LOOKS_MAX + 5)]
    assert len(Looker(Hand()).look(batches, is_picked=True).all) == LOOKS_MAX


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_small_compressed_batch_is_looked_into_so_often_a_second(codec: Codec) -> None:
    clock = Hand()
    looker, batch = Looker(clock), [batch_of(codec=codec)]
    looked = [looker.look(batch, is_picked=False).first for _ in range(PEEKS_PER_SECOND_MAX + 1)]
    assert looked == [context()] * PEEKS_PER_SECOND_MAX + [None]
    assert looker.look(batch, is_picked=True).first == context(), "those that are traced anyway are not counted"
    clock.at += 1
    assert looker.look(batch, is_picked=False).first == context()


def test_a_large_compressed_batch_is_unfolded_only_for_a_request_that_is_traced_anyway() -> None:
    looker = Looker(Hand())
    large = batch_of(value=noise(2 * PEEK_BYTES_MAX), codec=Codec.LZ4)
    bomb = batch_of(value=bytes(PEEK_UNFOLDED_BYTES_MAX), codec=Codec.ZSTD)
    assert len(large) > PEEK_BYTES_MAX > len(bomb)
    for batch in (large, bomb):
        assert looker.look([batch], is_picked=False) == NO_CONTEXTS
        assert looker.look([batch], is_picked=True).first == context()
    too_large = memoryview(bytes(large) + bytes(PICKED_BYTES_MAX))
    too_much = batch_of(value=bytes(PICKED_UNFOLDED_BYTES_MAX), codec=Codec.ZSTD)
    for batch in (too_large, too_much):
        assert looker.look([batch], is_picked=True) == NO_CONTEXTS


def test_what_does_not_unfold_has_no_context() -> None:
    broken = memoryview(bytearray(batch_of(codec=Codec.GZIP)))
    broken[61:75] = bytes(14)
    assert Looker(Hand()).look([broken], is_picked=True) == NO_CONTEXTS


def test_a_budget_is_renewed_each_second() -> None:
    clock = Hand()
    budget = Budget(2, clock)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    clock.at += 0.9
    assert not budget.take()
    clock.at += 0.2
    assert [budget.take() for _ in range(3)] == [True, True, False]
