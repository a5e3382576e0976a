"""Counts of times in buckets that grow with the time: percentiles of any number of measurements in 27 kB.

Called by bench.sending and bench.round_trip for each message, and by bench.result for percentiles.
Laws:
- A percentile is at most 1/128 above the time that was measured, never below it, and never above the maximum.
- Memory does not grow with the number of measurements.
Of our own: HdrHistogram's idea without its encodings is short, needs no dependency, and `record`, which the sender pays
for every message, stays as lean as Python allows.
"""

import math
from array import array
from typing import Self

# Times below 256 µs have a bucket each; from there on every power of two is cut into 128.
_CUT_BITS = 7
_VALUE_BITS = 32
# 71 minutes: what takes longer is counted as if it took so long. The maximum is kept as it was.
VALUE_MAX_US = (1 << _VALUE_BITS) - 1
BUCKETS = ((_VALUE_BITS - _CUT_BITS - 1) << _CUT_BITS) + (2 << _CUT_BITS)


class Histogram:
    __slots__ = ("_buckets", "count", "max_us", "total_us")

    def __init__(self) -> None:
        self._buckets = array("Q", bytes(8 * BUCKETS))
        self.count = 0
        self.total_us = 0
        self.max_us = 0

    def record(self, value_us: int) -> None:
        if value_us < 256:
            # Clocks are read in another order than things happen; nothing takes less than no time.
            slot = value_us if value_us > 0 else 0
        else:
            held = value_us if value_us < VALUE_MAX_US else VALUE_MAX_US
            shift = held.bit_length() - 8
            slot = (shift << _CUT_BITS) + (held >> shift)
        self._buckets[slot] += 1
        self.count += 1
        self.total_us += value_us
        if value_us > self.max_us:
            self.max_us = value_us

    def percentile_us(self, share: float) -> int | None:
        """The time that `share` of all measurements did not exceed; None when nothing was measured."""
        assert 0 < share <= 1, share
        if self.count == 0:
            return None
        rank = math.ceil(share * self.count)
        for slot, held in enumerate(self._buckets):
            rank -= held
            if rank <= 0:
                # The last bucket has no end of its own.
                return self.max_us if slot == BUCKETS - 1 else min(_upper_us(slot), self.max_us)
        raise AssertionError("the buckets hold less than was counted")

    @property
    def mean_us(self) -> float | None:
        return self.total_us / self.count if self.count else None

    def copy(self) -> Self:
        twin = type(self)()
        twin._buckets = self._buckets[:]
        twin.count, twin.total_us, twin.max_us = self.count, self.total_us, self.max_us
        return twin

    def since(self, earlier: Self) -> Self:
        """What was recorded after `earlier` was copied from this one; its maximum as exact as its buckets are."""
        later = type(self)()
        later._buckets = array("Q", (now - then for now, then in zip(self._buckets, earlier._buckets, strict=True)))
        later.count = sum(later._buckets)
        later.total_us = self.total_us - earlier.total_us
        last = max((slot for slot, held in enumerate(later._buckets) if held), default=None)
        later.max_us = 0 if last is None else min(_upper_us(last), self.max_us)
        return later


def _upper_us(slot: int) -> int:
    """The longest time that falls into this bucket."""
    if slot < 256:
        return slot
    shift = (slot >> _CUT_BITS) - 1
    return ((slot - (shift << _CUT_BITS) + 1) << shift) - 1
