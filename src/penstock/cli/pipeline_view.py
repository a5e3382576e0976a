"""A running pipeline as it is seen: a live table on a terminal, a line per batch in a log, JSON lines for scripts.

Called by cli.pipeline. All go to stdout; console sinks' rows too, above the table or between the lines.
"""

import json
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import typer

from penstock.admin.text import safe_text
from penstock.cli.output import print_table
from penstock.spark.sql.rendering import cell, column_names, plain

if TYPE_CHECKING:
    from penstock.spark.pipeline.progress import SinkProgress
    from penstock.spark.pipeline.writing import ConsoleRows

_COLUMNS = ("SINK", "STATE", "BATCH", "ROWS IN", "ROWS OUT", "ROWS/S", "LAG", "MS", "RESTARTS")


class View(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, progress: "list[SinkProgress]") -> None: ...
    def rows(self, shown: "ConsoleRows") -> None: ...


def open_view(*, as_json: bool) -> View:
    if as_json:
        return JsonView()
    return TableView() if sys.stdout.isatty() else LineView()


class LineView:
    """A line per sink whenever it has something new."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, ...]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, progress: "list[SinkProgress]") -> None:
        for one in progress:
            mark = (one.state, one.last_batch, one.restarts)
            if self._last.get(one.sink) != mark:
                self._last[one.sink] = mark
                self.line(one)

    def line(self, one: "SinkProgress") -> None:
        text = f"{one.sink}: {one.state}"
        if one.last_batch is not None:
            text += f", batch {one.last_batch} in {one.batch_ms} ms, {one.rows_in} rows in"
            text += f", {one.rows_out} out" if one.rows_out is not None else ""
            text += f", {one.rows_per_s:,.0f} rows/s"
            text += f", lag {one.lag_rows} rows" if one.lag_rows is not None else ""
        if one.error is not None and one.state in {"waiting", "failed"}:
            text += f": {one.error}"
        typer.echo(safe_text(text))

    def rows(self, shown: "ConsoleRows") -> None:
        cells = [[cell(value) for value in row] for row in shown.rows]
        print_table(shown.columns, cells, title=_title(shown))


class JsonView(LineView):
    def line(self, one: "SinkProgress") -> None:
        typer.echo(json.dumps({"event": "progress", **one.as_json()}, ensure_ascii=False))

    def rows(self, shown: "ConsoleRows") -> None:
        for row in shown.rows:
            cells = {name: plain(value) for name, value in zip(column_names(shown.columns), row, strict=True)}
            line = {"event": "row", "sink": shown.sink, "batch": shown.batch, "row": cells}
            typer.echo(json.dumps(line, ensure_ascii=False))


class TableView(LineView):
    """One table, drawn again in place."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live

        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, progress: "list[SinkProgress]") -> None:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for name in _COLUMNS:
            table.add_column(name, justify="left" if name in {"SINK", "STATE"} else "right", no_wrap=name != "SINK")
        for one in progress:
            numbers = (one.last_batch, one.rows_in, one.rows_out, round(one.rows_per_s), one.lag_rows, one.batch_ms)
            cells = ["-" if number is None else f"{number:,}" for number in (*numbers, one.restarts)]
            table.add_row(Text(safe_text(one.sink)), Text(one.state), *cells)
        # Below the table: in it, a long sentence would leave the numbers no room.
        errors = [
            Text(safe_text(f"{one.sink}: {one.error}"), style="red")
            for one in progress
            if one.error is not None and one.state in {"waiting", "failed"}
        ]
        self._live.update(Group(table, *errors), refresh=True)

    def rows(self, shown: "ConsoleRows") -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in shown.columns:
            table.add_column(Text(safe_text(name)), overflow="fold")
        for row in shown.rows:
            texts = ("-" if (simple := cell(value)) is None else safe_text(str(simple)) for value in row)
            table.add_row(*(Text(text) for text in texts))
        # rich keeps the live table below what is printed through its console.
        self._console.print(Text(_title(shown), style="bold"))
        self._console.print(table)


def _title(shown: "ConsoleRows") -> str:
    return f"{shown.sink}, batch {shown.batch}{' (first rows)' if shown.has_more else ''}"
