"""What commands print: tables for people, JSON for scripts, progress for the patient.

Called by all commands. Tables go through rich on a terminal only; into a pipe or a file they are plain aligned text,
never wrapped or cut, so that grep and awk see whole lines.
"""

import json
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import typer

from penstock.admin.text import safe_text
from penstock.clock import SystemClock

Cell = str | int | float | None

PROGRESS_AFTER_S = 1.0
PROGRESS_EVERY_S = 0.1


def print_json(document: Any) -> None:
    """One document; on a terminal with indents."""
    typer.echo(json.dumps(document, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], title: str | None = None) -> None:
    """Columns of numbers stand to the right, a value that is not there is a dash."""
    cells = [[_render(cell) for cell in row] for row in rows]
    to_the_right = [
        any(row[slot] is not None for row in rows) and not any(isinstance(row[slot], str) for row in rows)
        for slot in range(len(columns))
    ]
    if sys.stdout.isatty():
        _print_rich(columns, cells, to_the_right, title)
        return
    if title:
        typer.echo(title)
    widths = [max(len(line[slot]) for line in (columns, *cells)) for slot in range(len(columns))]
    for line in (columns, *cells):
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_the_right, strict=True)
        )
        typer.echo("  ".join(aligned).rstrip())


def _print_rich(columns: Sequence[str], cells: list[list[str]], to_the_right: list[bool], title: str | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=Text(title) if title else None, title_justify="left", pad_edge=False)
    for name, right in zip(columns, to_the_right, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    Console().print(table)


def _render(cell: Cell) -> str:
    return "-" if cell is None else safe_text(str(cell))


def say(text: str) -> None:
    """For people, beside the result: to stderr."""
    typer.echo(text, err=True)


class Progress:
    """A bar on stderr for work that turns out to be long; nothing for work that is not, or that nobody watches.

    with Progress("reading", total=size) as progress:
        progress.advance(n)
    """

    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._total = total
        self._clock = SystemClock()
        self._started = self._clock.monotonic()
        self._next_look_s = PROGRESS_AFTER_S
        self._done = 0
        self._is_watched = sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    @property
    def elapsed_s(self) -> float:
        return self._clock.monotonic() - self._started

    def advance(self, amount: int) -> None:
        self._done += amount
        if self._is_watched and self.elapsed_s > self._next_look_s:
            self._next_look_s = self.elapsed_s + PROGRESS_EVERY_S
            self._show()

    def _show(self) -> None:
        rate = f"{self._done / self.elapsed_s:,.0f}/s"
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn(self._what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
            self._bar = Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True))
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=self._total, rate=rate)
        self._bar.update(self._task, completed=self._done, rate=rate)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
