"""Run the pipeline over what there is, and print the table; `make demo` ends with it.

    python show.py --bootstrap 127.0.0.1:9092 [--topic shop-orders] [--folder data] [--only-show]

The table is read with deltalake, not with Spark: what a pipeline writes is anybody's to read.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

PIPELINE = Path(__file__).with_name("pipeline.yaml")
ROWS_SHOWN = 12
NUMBERS = ("orders", "pieces", "revenue")


def run_once(bootstrap: str, topic: str, folder: Path, master: str = "local[2]") -> dict[str, int]:
    """Until the end of the topic; rows in and out."""
    from penstock.spark.pipeline.loading import load_pipeline
    from penstock.spark.pipeline.running import PipelineRun
    from penstock.spark.session import build_session

    environment = {
        **os.environ,
        "PENSTOCK_BOOTSTRAP": bootstrap,
        "ORDERS_TOPIC": topic,
        "ORDERS_CHECKPOINT": str(folder.resolve() / "checkpoint"),
        "ORDERS_TABLE": str(folder.resolve() / "revenue"),
    }
    loaded = load_pipeline(PIPELINE, environment=environment)
    spark = build_session("penstock-orders", master)
    try:
        with PipelineRun(loaded, spark, is_once=True) as run:
            run.wait()
        (progress,) = run.progress
        return {"rows_in": progress.rows_in, "rows_out": progress.rows_out or 0}
    finally:
        spark.stop()


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """The table, by minute and category."""
    from deltalake import DeltaTable

    rows = DeltaTable(str(folder / "revenue")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["minute"], row["category"]))


def show(folder: Path, console: Console) -> None:
    rows = read_rows(folder)
    table = Table(title=f"Revenue per minute: the first of {len(rows)} rows")
    for name in ("minute", "category", *NUMBERS):
        table.add_column(name, justify="right" if name in NUMBERS else "left")
    for row in rows[:ROWS_SHOWN]:
        table.add_row(f"{row['minute']:%H:%M}", row["category"], *(str(row[name]) for name in NUMBERS))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the orders pipeline once and print its table.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="shop-orders")
    parser.add_argument("--folder", type=Path, default=Path(__file__).with_name("data"))
    parser.add_argument("--only-show", action="store_true", help="Do not run it first.")
    given = parser.parse_args()
    console = Console()
    if not given.only_show:
        counts = run_once(given.bootstrap, given.topic, given.folder)
        console.print(f"{counts['rows_in']:,} orders in, {counts['rows_out']:,} rows out")
    show(given.folder, console)


if __name__ == "__main__":
    main()
