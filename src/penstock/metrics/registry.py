"""Counters, gauges and histograms, and the page Prometheus reads them from (text format 0.0.4).

Called by every part that counts something: it keeps the Counter or Histogram it was given and adds to it, no more;
whatever costs time happens when the page is read.
Invariants:
- A family never has more than `limit` children and one for the rest, whatever names clients invent.
- The sum of a family of counters never falls while the process lives.
"""

import logging
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from penstock.clock import Clock

log = logging.getLogger(__name__)

# The child that counts for all names past a family's limit.
OTHER = "_other"
CHILDREN_MAX = 1000
ROWS_MAX = 5000
PIECE_LINES = 500

Labels = tuple[str, ...]
Rows = Iterable[tuple[Labels, float]]
# A row whose labels are its own, as pairs of name and value.
FreeRow = tuple[tuple[tuple[str, str], ...], float]


class Counter:
    """Only grows. On a hot path write `counter.value += n`: a call would cost more than the sum."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def absorb(self, other: "Counter") -> None:
        self.value += other.value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        yield f"{name}{_braced(labels)} {_number(self.value)}\n"


class Histogram:
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[int]) -> None:
        """`bounds`: the upper end of each bucket, ascending; a last one without end is added."""
        assert list(bounds) == sorted(set(bounds)), bounds
        self.bounds = list(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def absorb(self, other: "Histogram") -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def lines(self, name: str, labels: str) -> Iterator[str]:
        below = 0
        before = f"{labels}," if labels else ""
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            yield f'{name}_bucket{{{before}le="{bound}"}} {below}\n'
        yield f"{name}_sum{_braced(labels)} {_number(self.sum)}\n"
        yield f"{name}_count{_braced(labels)} {below}\n"


class _Child(Protocol):
    def lines(self, name: str, labels: str) -> Iterator[str]: ...


C = TypeVar("C", Counter, Histogram)


class Family(Generic[C]):
    """One metric under many names. Callers keep the child; asking for it anew costs a lookup."""

    __slots__ = ("_children", "_make", "_retired", "label_names", "limit")

    def __init__(self, make: Callable[[], C], label_names: Labels, limit: int) -> None:
        self.label_names = label_names
        self.limit = limit
        self._make = make
        self._children: dict[Labels, C] = {}
        self._retired: C | None = None

    def child(self, *labels: str) -> C:
        found = self._children.get(labels)
        if found is not None:
            return found
        assert len(labels) == len(self.label_names), labels
        if len(self._children) >= self.limit:
            return self._rest()
        return self._children.setdefault(labels, self._make())

    def remove(self, *labels: str) -> None:
        """Forget a name that is gone; what it counted moves to the rest, so that sums do not fall."""
        gone = self._children.pop(labels, None)
        if gone is not None:
            self._rest().absorb(gone)

    def children(self) -> Iterator[tuple[Labels, C]]:
        yield from self._children.items()
        if self._retired is not None:
            yield (OTHER,) * len(self.label_names), self._retired

    def _rest(self) -> C:
        if self._retired is None:
            self._retired = self._make()
        return self._retired


class Gauge:
    """A value looked up when the page is read. Without a `read` it is not on the page."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self.read = read


class Gauges:
    """A gauge under many names, all given by `read` when the page is read; past ROWS_MAX they are left off."""

    __slots__ = ("label_names", "read")

    def __init__(self, label_names: Labels, read: Callable[[], Rows] | None = None) -> None:
        self.label_names = label_names
        self.read = read


class FreeFamily(NamedTuple):
    """A metric whose name nobody here chose. Whoever gives it sees to it that names and labels are spelled right."""

    name: str
    text: str
    rows: Sequence[FreeRow]


class Rate:
    """How fast a total grew over the last minute, or since the last reading when that is longer ago."""

    __slots__ = ("_clock", "_samples", "_total")

    WINDOW_SECONDS = 60
    # Readers in a hurry would fill the window with samples and measure nothing but noise.
    SAMPLE_SECONDS_MIN = 1

    def __init__(self, total: Callable[[], float], clock: Clock) -> None:
        self._total = total
        self._clock = clock
        self._samples = deque([(clock.monotonic(), total())])

    def read(self) -> float:
        now, total = self._clock.monotonic(), self._total()
        # The first sample is the newest one that is at least a window old, if there is any.
        while len(self._samples) > 1 and self._samples[1][0] <= now - self.WINDOW_SECONDS:
            self._samples.popleft()
        since, before = self._samples[0]
        if now - self._samples[-1][0] >= self.SAMPLE_SECONDS_MIN:
            self._samples.append((now, total))
        return (total - before) / max(now - since, self.SAMPLE_SECONDS_MIN)


Metric = Counter | Histogram | Gauge | Gauges | Family[Counter] | Family[Histogram]


class Registry:
    """All metrics of a process, in the order they were made."""

    def __init__(self) -> None:
        self._metrics: dict[str, tuple[str, Metric]] = {}
        # Metrics whose names are known only when the page is read; they come after the others.
        self.free_families: Callable[[], Iterable[FreeFamily]] = tuple
        self.read_errors = self.counter(
            "mq_metric_read_errors_total", "Metrics left off the page because reading them failed."
        )
        self.rows_dropped = self.counter(
            "mq_metric_rows_dropped_total", "Rows left off the page because there were too many."
        )

    def counter(self, name: str, text: str) -> Counter:
        assert name.endswith("_total"), name
        counter = Counter()
        self._add(name, text, counter)
        return counter

    def counters(self, name: str, text: str, *labels: str, limit: int = CHILDREN_MAX) -> Family[Counter]:
        assert name.endswith("_total"), name
        family = Family(Counter, labels, limit)
        self._add(name, text, family)
        return family

    def histogram(self, name: str, text: str, bounds: Sequence[int]) -> Histogram:
        histogram = Histogram(bounds)
        self._add(name, text, histogram)
        return histogram

    def histograms(
        self, name: str, text: str, bounds: Sequence[int], *labels: str, limit: int = CHILDREN_MAX
    ) -> Family[Histogram]:
        family = Family(lambda: Histogram(bounds), labels, limit)
        self._add(name, text, family)
        return family

    def gauge(self, name: str, text: str, read: Callable[[], float] | None = None) -> Gauge:
        gauge = Gauge(read)
        self._add(name, text, gauge)
        return gauge

    def gauges(self, name: str, text: str, *labels: str, read: Callable[[], Rows] | None = None) -> Gauges:
        gauges = Gauges(labels, read)
        self._add(name, text, gauges)
        return gauges

    def render(self) -> str:
        return "".join(self.parts())

    def described(self) -> Iterator[tuple[str, str, Labels, str]]:
        """Every metric's name, type, labels and meaning, for the docs."""
        for name, (text, metric) in self._metrics.items():
            labels = metric.label_names if isinstance(metric, Gauges | Family) else ()
            yield name, _type_name(name, metric), labels, text

    def parts(self) -> Iterator[str]:
        """The page in pieces that take about a millisecond each, so that a server can let others run in between."""
        for name, (text, metric) in list(self._metrics.items()):
            yield from self._pieces(name, text, _type_name(name, metric), self._lines(name, metric))
        for family in self._read_free():
            if family.name not in self._metrics:
                kind = "counter" if family.name.endswith("_total") else "gauge"
                yield from self._pieces(family.name, family.text, kind, self._free_lines(family))

    def _pieces(self, name: str, text: str, kind: str, lines: Iterator[str]) -> Iterator[str]:
        header = f"# HELP {name} {_escape(text)}\n# TYPE {name} {kind}\n"
        piece = [header]
        try:
            for line in lines:
                piece.append(line)
                if len(piece) >= PIECE_LINES:
                    yield "".join(piece)
                    piece = []
        except Exception:
            # A disk that fails must not take the page with it that would show it failing.
            log.exception("metric %s could not be read", name)
            self.read_errors.value += 1
            return
        if piece != [header]:
            yield "".join(piece)

    def _read_free(self) -> list[FreeFamily]:
        try:
            return list(self.free_families())
        except Exception:
            log.exception("metrics pushed by clients could not be read")
            self.read_errors.value += 1
            return []

    def _free_lines(self, family: FreeFamily) -> Iterator[str]:
        self.rows_dropped.value += max(0, len(family.rows) - ROWS_MAX)
        for pairs, value in family.rows[:ROWS_MAX]:
            labels = ",".join([f'{name}="{_escape(text, quote=True)}"' for name, text in pairs])
            yield f"{family.name}{{{labels}}} {_number(value)}\n"

    def _lines(self, name: str, metric: Metric) -> Iterator[str]:
        # What is read off the broker is read at once: others run between two pieces and may change it.
        match metric:
            case Counter() | Histogram():
                yield from metric.lines(name, "")
            case Gauge():
                if metric.read is not None:
                    yield f"{name} {_number(metric.read())}\n"
            case Gauges():
                rows = list(metric.read()) if metric.read is not None else []
                self.rows_dropped.value += max(0, len(rows) - ROWS_MAX)
                for labels, value in rows[:ROWS_MAX]:
                    yield f"{name}{{{_pairs(metric.label_names, labels)}}} {_number(value)}\n"
            case Family():
                children: list[tuple[Labels, _Child]] = list(metric.children())
                for labels, child in children:
                    yield from child.lines(name, _pairs(metric.label_names, labels))

    def _add(self, name: str, text: str, metric: Metric) -> None:
        assert name not in self._metrics, name
        self._metrics[name] = (text, metric)


def _type_name(name: str, metric: Metric) -> str:
    # A gauge whose name says it only grows is a counter that somebody else keeps.
    if name.endswith("_total"):
        return "counter"
    return "gauge" if isinstance(metric, Gauge | Gauges) else "histogram"


def _pairs(names: Labels, values: Labels) -> str:
    return ",".join([f'{name}="{_escape(value, quote=True)}"' for name, value in zip(names, values, strict=True)])


def _escape(text: str, *, quote: bool = False) -> str:
    if "\\" in text or "\n" in text:
        text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote and '"' in text else text


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value):
        return str(int(value)) if value.is_integer() else repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
