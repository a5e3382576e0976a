"""What is printed, into a pipe and on a terminal."""

import io
import json
import sys

import pytest

from penstock.admin.text import render_size, safe_text
from penstock.cli import output
from penstock.cli.output import Progress, print_json, print_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_in_a_pipe_columns_are_aligned_and_lines_are_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long_name = "x" * 300
    print_table(["NAME", "COUNT", "SIZE"], [[long_name, 5, None], ["a", 12345, "1 B"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{'NAME':<300}  COUNT  SIZE"
    assert lines[1] == f"{long_name}      5  -"
    assert lines[2] == f"{'a':<300}  12345  1 B"


def test_on_a_terminal_the_same_table_goes_through_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table(["NAME", "COUNT"], [["[bold]orders[/bold]", 5]], title="Topics")
    # Markup in a name is part of the name.
    assert "[bold]orders[/bold]" in terminal.getvalue()
    assert "Topics" in terminal.getvalue()
    assert "─" in terminal.getvalue()


def test_what_a_terminal_would_obey_is_shown_instead(capsys: pytest.CaptureFixture[str]) -> None:
    assert safe_text("a\x1b[2Jb\n\x9b") == "a\\x1b[2Jb\\x0a\\x9b"
    print_table(["GROUP"], [["\x1b]0;owned\x07"]])
    assert "\x1b" not in capsys.readouterr().out


def test_json_is_one_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_json([{"name": "größe", "value": None}])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "größe" in out
    assert json.loads(out) == [{"name": "größe", "value": None}]


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, None), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (2 << 60, "2048.0 PiB")],
)
def test_sizes_are_written_as_people_read_them(size: int | None, text: str | None) -> None:
    assert render_size(size) == text


def test_progress_is_shown_only_to_somebody_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("reading", 10) as progress:
        progress.advance(5)
    assert terminal.getvalue() == ""
    monkeypatch.setattr(output, "PROGRESS_AFTER_S", -1.0)
    with Progress("reading", 10) as progress:
        progress.advance(5)
        progress.advance(5)
    assert "reading" in terminal.getvalue()
    assert "5/10" in terminal.getvalue() or "10/10" in terminal.getvalue()


def test_progress_keeps_out_of_files(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PROGRESS_AFTER_S", -1.0)
    with Progress("reading", None) as progress:
        progress.advance(5)
    assert capsys.readouterr().err == ""
