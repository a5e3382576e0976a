"""Writes the tables of options in docs/spark.md from the code that reads them.

python scripts/spark_options_table.py            write them
python scripts/spark_options_table.py --check    exit 1 when the page is stale
"""

import sys
from collections.abc import Iterable

from generated_page import DOCS, with_part, write_or_check
from penstock.spark.formats.options import FORMAT_OPTIONS
from penstock.spark.option_table import OPTIONS, Option, Scope
from penstock.spark.tables.options import OPTIONS as TABLE_OPTIONS

PAGE = DOCS / "spark.md"

SCOPES: dict[Scope, str] = {"batch": "batch read", "stream": "streaming read", "write": "write"}


def source_table() -> Iterable[str]:
    return table(("Option", "Values", "Default", "Counts for", "Meaning"), map(source_row, OPTIONS))


def source_row(option: Option) -> tuple[str, ...]:
    marks = " ★" * option.is_ours + " †" * (not option.has_effect)
    scopes = "all" if set(SCOPES) == option.scopes else ", ".join(SCOPES[s] for s in SCOPES if s in option.scopes)
    return f"`{option.name}`{marks}", option.kind, code(option.default), scopes, option.doc


def format_table() -> Iterable[str]:
    rows = ((f"`{option.name}`", code(option.default), option.doc) for option in FORMAT_OPTIONS)
    return table(("Option", "Default", "Meaning"), rows)


def sink_table() -> Iterable[str]:
    rows = (
        (f"`{option.name}`", ", ".join(sorted(option.kinds)), code(option.default), option.text)
        for option in TABLE_OPTIONS
    )
    return table(("Option", "Tables", "Default", "Meaning"), rows)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def main() -> int:
    text = PAGE.read_text("utf-8")
    for name, lines in (("source", source_table()), ("formats", format_table()), ("tables", sink_table())):
        text = with_part(text, f"options of {name}", lines)
    return write_or_check(PAGE, text)


if __name__ == "__main__":
    sys.exit(main())
