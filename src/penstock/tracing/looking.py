"""Which batches are looked into for a trace context, and what that may cost.

Called by tracing.tracer for every traced walk: produce, fetch and the fetches of followers.
Laws:
- A batch that is not compressed is always looked into: that reads a few numbers at its beginning, about 3 µs.
- A compressed one has to be unfolded whole, since its codecs give no beginning alone. That is done for requests that
  chance picks anyway, and else only for small batches, PEEKS_PER_SECOND_MAX times a second: without a peek a client
  that compresses could never have its traces honoured; without the limit every small batch of everybody would be
  unfolded.
- Of one request no more than LOOKS_MAX batches are looked into.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.records.batch import COMPRESSION_MASK, HEADER_BYTES
from penstock.records.compression import decompress
from penstock.tracing.first_record import context_in
from penstock.tracing.trace_context import TraceContext

LOOKS_MAX = 8
PICKED_BYTES_MAX = 256 << 10  # of a compressed batch in a request that is traced anyway
PICKED_UNFOLDED_BYTES_MAX = 1 << 20
PEEK_BYTES_MAX = 4 << 10  # of one in a request that may not be
PEEK_UNFOLDED_BYTES_MAX = 64 << 10
PEEKS_PER_SECOND_MAX = 1_000
_ATTRIBUTES_AT = 22  # the lower of their two bytes


class Budget:
    """So many a second, counted from the first after a second's pause."""

    __slots__ = ("_clock", "_left", "_per_second", "_until")

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._per_second = self._left = per_second
        self._clock = clock
        self._until = clock.monotonic() + 1

    def take(self) -> bool:
        now = self._clock.monotonic()
        if now >= self._until:
            self._until, self._left = now + 1, self._per_second
        if self._left <= 0:
            return False
        self._left -= 1
        return True


class Contexts(NamedTuple):
    """What was found: first the one a span may be a child of, sampled if any is; then the others."""

    first: TraceContext | None
    others: tuple[TraceContext, ...]

    @property
    def all(self) -> tuple[TraceContext, ...]:
        return self.others if self.first is None else (self.first, *self.others)


NO_CONTEXTS = Contexts(None, ())


class Looker:
    def __init__(self, clock: Clock) -> None:
        self._peeks = Budget(PEEKS_PER_SECOND_MAX, clock)

    def look(self, batches: Iterable[memoryview], *, is_picked: bool) -> Contexts:
        """The contexts at the beginnings of these batches, each once; `is_picked`: the request is traced anyway."""
        found: dict[tuple[int, int], TraceContext] = {}
        for looks, batch in enumerate(batches):
            if looks == LOOKS_MAX:
                break
            context = self._look_into(batch, is_picked=is_picked)
            if context is not None:
                found.setdefault((context.trace_id, context.span_id), context)
        if not found:
            return NO_CONTEXTS
        first, *others = sorted(found.values(), key=lambda context: not context.is_sampled)
        return Contexts(first, tuple(others))

    def _look_into(self, batch: memoryview, *, is_picked: bool) -> TraceContext | None:
        if len(batch) <= HEADER_BYTES:
            return None
        # The one byte of the header that matters: to read all of it takes longer than all the rest.
        codec = batch[_ATTRIBUTES_AT] & COMPRESSION_MASK
        records = batch[HEADER_BYTES:]
        if not codec:
            return context_in(records)
        if is_picked:
            return _unfolded(codec, records, PICKED_UNFOLDED_BYTES_MAX) if len(batch) <= PICKED_BYTES_MAX else None
        if len(batch) > PEEK_BYTES_MAX or not self._peeks.take():
            return None
        return _unfolded(codec, records, PEEK_UNFOLDED_BYTES_MAX)


def _unfolded(codec: int, records: memoryview, size_max: int) -> TraceContext | None:
    try:
        return context_in(decompress(codec, records, size_max))
    except PenstockError:
        return None  # what is wrong with it is for others to say
