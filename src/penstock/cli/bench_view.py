"""How a benchmark is watched and what it shows at the end.

Called by cli.bench. While it runs: a bar on a terminal, one line a second anywhere else, both on stderr and none of it
with --json into a file. At the end: one line in the terms of kafka-producer-perf-test, and the latencies as a table.
"""

import sys
from types import TracebackType
from typing import Any, Self

import typer

from penstock.bench.histogram import Histogram
from penstock.bench.result import Measurement, latency_document
from penstock.bench.round_trip import END_TO_END
from penstock.bench.sending import LATENCY, Limit
from penstock.cli.output import Cell, print_table, say
from penstock.clock import Clock, SystemClock

WINDOW_S = 1.0
MEGABYTE = 1_000_000

_MS = ("avg_ms", "p50_ms", "p95_ms", "p99_ms", "p99_9_ms", "max_ms")
_OF = {LATENCY: "to the acknowledgement", END_TO_END: "to the reader"}


class Watch:
    """with Watch(limit, quiet=False) as watch:
    watch.begin("sending", measurement)
    ...  # watch.look() now and then
    """

    def __init__(self, limit: Limit | None, *, quiet: bool, clock: Clock | None = None) -> None:
        self._limit = limit
        self._clock = clock or SystemClock()
        self._is_terminal = sys.stderr.isatty()
        self._is_quiet = quiet and not self._is_terminal
        self._bar: Any = None
        self._task: Any = None
        self.begin("", Measurement())

    def begin(self, what: str, found: Measurement) -> None:
        """What follows is measured into `found`."""
        self._what = what
        self._found = found
        self._began_s = self._window_s = self._clock.monotonic()
        self._messages = self._bytes = 0
        self._earlier = Histogram()

    def look(self) -> None:
        if self._is_quiet:
            return
        now = self._clock.monotonic()
        if now - self._window_s < WINDOW_S:
            return
        line = self._close_window(now)
        if self._is_terminal:
            self._show_bar(line, now)
        else:
            say(f"{self._what}: {line}")

    def _close_window(self, now: float) -> str:
        found, length_s = self._found, now - self._window_s
        rate = (found.messages - self._messages) / length_s
        line = f"{rate:,.0f} records/s ({(found.received_bytes - self._bytes) / length_s / MEGABYTE:,.2f} MB/s)"
        if (held := found.histograms.get(LATENCY)) is not None:
            current = held.copy()
            window = latency_document(current.since(self._earlier))
            if window["avg_ms"] is not None:
                line += f", {window['avg_ms']:.1f} ms avg, {window['p99_ms']:.1f} ms p99, {window['max_ms']:.1f} ms max"
            self._earlier = current
        self._window_s, self._messages, self._bytes = now, found.messages, found.received_bytes
        return line

    def _show_bar(self, line: str, now: float) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[line]}"),
            )
            self._bar = Bar(*columns, console=Console(stderr=True))
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=1, line=line)
        self._bar.update(self._task, description=self._what, line=line, **self._share(now))

    def _share(self, now: float) -> dict[str, Any]:
        """How far it is; without a limit nobody knows."""
        if self._limit is None:
            return {"total": None}
        shares = [0.0]
        if self._limit.messages is not None:
            shares.append(self._found.messages / self._limit.messages)
        if self._limit.seconds is not None:
            shares.append((now - self._began_s) / self._limit.seconds)
        return {"total": 1, "completed": min(1.0, max(shares))}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def print_result(verb: str, found: Measurement) -> None:
    """For people."""
    line = (
        f"{found.messages:,} records {verb} in {found.elapsed_s:.2f} s: "
        f"{found.messages_per_s:,.1f} records/s ({found.bytes_per_s / MEGABYTE:,.2f} MB/s)"
    )
    first = latency_document(next(iter(found.histograms.values()))) if found.histograms else {}
    if first.get("avg_ms") is not None:
        line += f", {first['avg_ms']:.2f} ms avg latency, {first['max_ms']:.2f} ms max latency"
    if found.join_s is not None:
        line += f", after {found.join_s * 1000:.0f} ms to join the group"
    typer.echo(line)
    rows: list[list[Cell]] = []
    for name, histogram in found.histograms.items():
        held = latency_document(histogram)
        if histogram.count:
            rows.append([_OF[name], *(f"{held[column]:.2f}" for column in _MS)])
    if rows:
        print_table(["LATENCY IN MS", "AVG", "P50", "P95", "P99", "P99.9", "MAX"], rows)
