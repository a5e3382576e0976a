"""What benchmarks send."""

import itertools
import zlib

import pytest

from penstock.bench.payload import SIZE_MAX, payloads


def test_ten_thousand_small_messages_differ_and_compress_as_letters_do() -> None:
    batch = list(itertools.islice(payloads(100), 10_000))
    assert len(set(batch)) == 10_000
    assert {len(message) for message in batch} == {100}
    whole = b"".join(batch)
    assert whole.isalpha()
    assert whole.isupper()
    # Letters by chance hold log2(26) = 4.7 of 8 bits.
    assert 0.58 < len(zlib.compress(whole)) / len(whole) < 0.68


def test_large_messages_take_bounded_memory() -> None:
    messages = payloads(10_000_000)
    first, *others = itertools.islice(messages, 4)
    assert len(first) == 10_000_000
    assert others[-1] is first  # three of them, round and round


def test_what_no_option_lets_through_is_a_bug() -> None:
    for size in (0, SIZE_MAX + 1):
        with pytest.raises(AssertionError):
            payloads(size)
