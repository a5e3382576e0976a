"""Batches this broker refused for now, and which others were sent behind: the gap they leave is nobody's fault.

Kept by replication.partition; noted by handlers.produce. Producers send up to five batches without waiting. If the
first is refused because too few are in sync, or because nobody leads here yet, and a moment later that has passed, the
second one comes with a gap before it. Told so, librdkafka begins a new epoch and sends everything again that it was not
told the fate of, in all partitions: what was written there, and waits to be committed, is stored twice. So who comes
behind a batch that was refused for now is refused for now as well, and the client sends both again, in order.
"""

from collections import deque
from typing import NamedTuple

from penstock.records.batch import BatchHeader

PRODUCERS_MAX = 1000
SEQUENCES_MAX = 10  # more than any client has under way
KEPT_S = 10.0  # clients try again within a second or two; who does not has given the batch up


class _Refused(NamedTuple):
    sequence: int
    at: float


class RefusedSequences:
    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[tuple[int, int], deque[_Refused]] = {}

    def note(self, header: BatchHeader, now: float) -> None:
        key = header.producer_id, header.producer_epoch
        known = self._by_producer.pop(key, None)
        if known is None:
            known = deque[_Refused](maxlen=SEQUENCES_MAX)
            if len(self._by_producer) >= PRODUCERS_MAX:
                del self._by_producer[next(iter(self._by_producer))]  # who was refused longest ago
        known.append(_Refused(header.base_sequence, now))
        self._by_producer[key] = known

    def explain(self, header: BatchHeader, expected: int, now: float) -> bool:
        """Whether the batch that is `expected` before this one was refused here, not long ago."""
        known = self._by_producer.get((header.producer_id, header.producer_epoch), ())
        return any(each.sequence == expected and now - each.at <= KEPT_S for each in known)
