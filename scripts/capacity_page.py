"""Writes the examples and the measured numbers of docs/capacity.md from the code that plans with them.

python scripts/capacity_page.py            write them
python scripts/capacity_page.py --check    exit 1 when the page is stale
"""

import sys
from collections.abc import Iterable
from dataclasses import asdict

from generated_page import DOCS, with_part, write_or_check
from penstock.capacity.amounts import render_amount
from penstock.capacity.measured import of_this_package
from penstock.capacity.plan import Demand, Machines, plan

PAGE = DOCS / "capacity.md"
DAY_S = 86_400

EXAMPLES = {
    "A billion messages of 1 kB a day, kept for a week, three copies, three groups, disks of 4 TB": (
        Demand(1e9 / DAY_S, 1_000, 7 * DAY_S, groups=3),
        Machines(disk_bytes=4e12, network_bytes_per_s=1.25e9),
    ),
    "500 MB/s at peak of 1 kB messages kept for a day, consumers of 10 MB/s each, links of 10 Gbit/s": (
        Demand(250_000, 1_000, DAY_S),
        Machines(disk_bytes=16e12, network_bytes_per_s=1.25e9),
    ),
    "2,000 messages of 300 B a second, kept for three days, on a link of 1 Gbit/s": (
        Demand(2_000, 300, 3 * DAY_S),
        Machines(disk_bytes=5e11),
    ),
}
MEANINGS = {
    "write_bytes_per_s": ("written, no other copies", "B/s"),
    "write_bytes_per_s_replicated": ("written with copies, those it keeps included", "B/s"),
    "read_bytes_per_s": ("read, from the page cache", "B/s"),
    "write_cpu_s_per_gb": ("CPU for a gigabyte written", "s"),
    "replicated_cpu_s_per_gb": ("the same with its copies, all brokers together", "s"),
    "replicated_copies": ("copies there were then", ""),
    "read_cpu_s_per_gb": ("CPU for a gigabyte read", "s"),
    "request_cpu_us": ("CPU for a request, however small", "µs"),
    "synced_request_cpu_us": ("the same with its fsync", "µs"),
    "start_s": ("start", "s"),
    "start_after_kill_s_per_partition": ("start after a kill, for each partition", "s"),
    "idle_bytes": ("memory, idle", "B"),
    "bytes_per_partition": ("memory for a partition", "B"),
    "bytes_per_connection": ("memory for a connection", "B"),
}


def examples() -> Iterable[str]:
    numbers = of_this_package().numbers
    yield "| | disk | partitions | CPU | brokers | what decides |"
    yield "|---|---|---|---|---|---|"
    for question, (demand, machines) in EXAMPLES.items():
        made = plan(demand, machines, numbers)
        values = {figure.name: render_amount(figure.value, figure.unit) for figure in made.figures}
        cells = (question, values["disk"], f"{made.partitions:,}", values["CPU"], f"{made.brokers:,}", made.limited_by)
        yield f"| {' | '.join(cells)} |"


def numbers() -> Iterable[str]:
    measured = of_this_package()
    yield f"Of one broker, {measured.origin}."
    yield ""
    yield "| `--number` | of one broker | |"
    yield "|---|---|---|"
    for name, value in asdict(measured.numbers).items():
        meaning, unit = MEANINGS[name]
        amount = render_amount(value, unit) if unit.startswith("B") else f"{value:g} {unit}".rstrip()
        yield f"| `{name}` | {meaning} | {amount} |"


def main() -> int:
    text = with_part(PAGE.read_text("utf-8"), "capacity examples", examples())
    return write_or_check(PAGE, with_part(text, "capacity numbers", numbers()))


if __name__ == "__main__":
    sys.exit(main())
