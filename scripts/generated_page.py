"""What the scripts that write documentation from code share: a page is written, or found to be stale.

Called by protocol_table, configuration_table, spark_options_table, metrics_table, capacity_page and benchmarks_page.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def write_or_check(page: Path, fresh: str) -> int:
    """Exit code: with --check nothing is written, and 1 says that the page is stale."""
    if "--check" not in sys.argv:
        page.write_text(fresh, encoding="utf-8")
        return 0
    if page.is_file() and page.read_text(encoding="utf-8") == fresh:
        return 0
    print(f"{page.name} is stale: run {Path(sys.argv[0]).name}", file=sys.stderr)
    return 1


def with_part(text: str, name: str, lines: Iterable[str]) -> str:
    """The text with what stands between the two marks of this name written anew."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise SystemExit(f"the page lacks the marks around {name}")
    return before + begin + "\n" + "\n".join(lines) + "\n\n" + end + after
