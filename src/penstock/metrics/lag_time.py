"""How long ago an offset was the end of a log: lag in seconds, without reading a record.

Called by server.gauges when /metrics is read: it notes where each log ends, and finds an offset among its notes.
Invariants:
- At most PARTITIONS_MAX partitions with SAMPLES_MAX notes each. When there are too many, every other one of the older
  half goes, so that notes reach back ever further and grow sparse with age.
- An offset that was reached between two notes is taken for reached evenly; one older than all notes has at least
  the age of the oldest.
"""

from bisect import bisect_left
from collections.abc import Hashable

PARTITIONS_MAX = 5_000
SAMPLES_MAX = 64
SAMPLE_S_MIN = 1.0


class EndTimes:
    def __init__(self) -> None:
        self._notes: dict[Hashable, tuple[list[int], list[float]]] = {}

    def note(self, partition: Hashable, end: int, now: float) -> None:
        notes = self._notes.get(partition)
        if notes is None:
            if len(self._notes) >= PARTITIONS_MAX:
                return
            notes = self._notes[partition] = ([], [])
        ends, times = notes
        if ends and end < ends[-1]:  # the log was cut, or is another one of the same name
            ends.clear()
            times.clear()
        if len(ends) > 1 and ends[-1] == ends[-2] == end:
            times[-1] = now  # nothing was written: when that began and when it was last seen is all there is to know
            return
        if ends and now - times[-1] < SAMPLE_S_MIN and end != ends[-1]:
            return
        ends.append(end)
        times.append(now)
        if len(ends) > SAMPLES_MAX:
            half = len(ends) // 2
            ends[:half] = ends[:half:2]
            times[:half] = times[:half:2]

    def age_s(self, partition: Hashable, offset: int, now: float) -> float:
        """How long the record at `offset` has been there; 0 if it is not, or if nothing is known."""
        notes = self._notes.get(partition)
        if notes is None:
            return 0.0
        ends, times = notes
        # The first note of an end beyond the offset: the record was written before it and after the note before.
        at = bisect_left(ends, offset + 1)
        if at == len(ends):
            return 0.0
        if at == 0:
            return max(0.0, now - times[0])
        share = (offset + 1 - ends[at - 1]) / (ends[at] - ends[at - 1])
        return max(0.0, now - (times[at - 1] + share * (times[at] - times[at - 1])))

    def keep_only(self, partitions: set[Hashable]) -> None:
        """Forget those that nobody is behind of any more."""
        for gone in self._notes.keys() - partitions:
            del self._notes[gone]
