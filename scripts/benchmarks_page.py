"""Writes the comparison in docs/benchmarks.md from what benchmarks/compare.py measured (results/beside.json).

python scripts/benchmarks_page.py            write it
python scripts/benchmarks_page.py --check    exit 1 when the page is stale
"""

import sys

from generated_page import DOCS, with_part, write_or_check

PAGE = DOCS / "benchmarks.md"


def comparison() -> list[str]:
    # The drivers of the comparison are one package with the folder above it, not with this one.
    sys.path.insert(0, str(DOCS.parent))
    from benchmarks.beside import command, report

    return report.page(report.merged(command.RESULTS, {})).rstrip("\n").split("\n")


def main() -> int:
    return write_or_check(PAGE, with_part(PAGE.read_text("utf-8"), "comparison", comparison()))


if __name__ == "__main__":
    sys.exit(main())
