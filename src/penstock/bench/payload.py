"""What is sent: letters by chance, different in every message of a batch.

Called by bench.sending. One message repeated would compress to nothing and make compression look free; bytes by chance
would not compress at all. Letters A to Z by chance, as kafka-producer-perf-test sends them, compress to about 60 %.
"""

import itertools
import os
from collections.abc import Iterator

SIZE_MIN = 1
SIZE_MAX = 100_000_000
# librdkafka puts at most so many messages into one batch, so none is twice in one.
_DIFFERENT_MAX = 10_000
# Memory for all of them together; at least one message, however large.
_BYTES_MAX = 32_000_000
_LETTERS = bytes(65 + value % 26 for value in range(256))


def payloads(size: int) -> Iterator[bytes]:
    """Messages of this size without end: the same few thousand round and round."""
    assert SIZE_MIN <= size <= SIZE_MAX, size
    count = max(1, min(_DIFFERENT_MAX, _BYTES_MAX // size))
    letters = os.urandom(count * size).translate(_LETTERS)
    return itertools.cycle([letters[at : at + size] for at in range(0, count * size, size)])
