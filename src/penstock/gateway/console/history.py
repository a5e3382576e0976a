"""The last quarter of an hour of every figure that charts show: one time axis, one ring of numbers for each series.

Called by watching, which appends, and live, which reads. No I/O, no clock.
Law: memory is bounded: SAMPLES_MAX values of SERIES_MAX series; a topic that is zero from the start takes none.
"""

from array import array
from collections.abc import Iterable, Mapping
from math import isnan, nan

SAMPLES_MAX = 180
SERIES_MAX = 20_000
CLUSTER = "cluster"

# ("cluster", "", "messages_in"), ("topic", "orders", "bytes_in"), ("group", "billing", "lag").
Key = tuple[str, str, str]


class History:
    def __init__(self, samples_max: int = SAMPLES_MAX, series_max: int = SERIES_MAX) -> None:
        self._samples_max = samples_max
        self._series_max = series_max
        self._times: list[int] = []
        self._first = 0
        self._rings: dict[Key, array[float]] = {}

    @property
    def latest_ms(self) -> int | None:
        return self._times[self._place(-1)] if self._times else None

    def append(self, time_ms: int, values: Mapping[Key, float | None]) -> None:
        """All figures of one moment. A series that is not named has no value then."""
        if len(self._times) < self._samples_max:
            place = len(self._times)
            self._times.append(time_ms)
        else:
            place = self._first
            self._times[place] = time_ms
            self._first = (self._first + 1) % self._samples_max
        for key, ring in self._rings.items():
            value = values.get(key)
            ring[place] = nan if value is None else value
        for key, value in values.items():
            if key in self._rings or len(self._rings) >= self._series_max:
                continue
            # Those of the whole cluster are few, and there no value (nobody produced) is not the same as zero.
            if key[0] == CLUSTER or value:
                ring = array("f", [nan]) * self._samples_max
                # What was not worth keeping until now was zero, as far back as anything was measured.
                for earlier in range(len(self._times) if key[0] != CLUSTER else 0):
                    ring[earlier] = 0.0
                ring[place] = nan if value is None else value
                self._rings[key] = ring

    def drop(self, gone: Iterable[Key]) -> None:
        for key in gone:
            self._rings.pop(key, None)

    def known(self) -> list[Key]:
        return list(self._rings)

    def times(self) -> list[int]:
        return self._times[self._first :] + self._times[: self._first]

    def series(self, key: Key) -> list[float | None]:
        """One value for each of times(); None where there was none."""
        ring = self._rings.get(key)
        if ring is None:
            return [0.0] * len(self._times)
        count = len(self._times)
        return [_told(ring[(self._first + one) % count]) for one in range(count)]

    def latest(self, key: Key) -> float | None:
        if not self._times:
            return None
        ring = self._rings.get(key)
        return 0.0 if ring is None else _told(ring[self._place(-1)])

    def _place(self, index: int) -> int:
        return (self._first + index) % len(self._times)


def _told(value: float) -> float | None:
    return None if isnan(value) else round(value, 3)
