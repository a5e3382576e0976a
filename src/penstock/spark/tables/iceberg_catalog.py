"""Where an Iceberg table is found: a catalog by its properties, or SQLite in the warehouse folder.

Called by iceberg, reading and compaction.
"""

import contextlib
import fcntl
import os
import re
from collections.abc import Generator
from typing import TYPE_CHECKING

from penstock.spark.tables.durability import file_system
from penstock.spark.tables.failures import NoSuchTable
from penstock.spark.tables.options import SinkOptions

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

CATALOG_FILE = "catalog.db"
DEFAULT_NAMESPACE = "default"
# How long a writer waits for another to be done with the catalog file.
LOCK_WAIT_S = 60


def open_catalog(options: SinkOptions) -> "Catalog":
    """Any catalog pyiceberg knows (rest, glue, hive, sql …) by `catalog` properties; else one file beside the data."""
    from pyiceberg.catalog import load_catalog

    if options.catalog:
        return load_catalog("penstock", **options.catalog)
    _, folder = file_system(options.path)
    os.makedirs(folder, exist_ok=True)
    # The tables of a new catalog are made at its first opening.
    with alone(options):
        return load_catalog(
            "penstock",
            type="sql",
            uri=f"sqlite:///{folder}/{CATALOG_FILE}?timeout={LOCK_WAIT_S}",
            warehouse=f"file://{folder}",
            **{"py-io-impl": "penstock.spark.tables.iceberg_io.SyncedFileIO"},
        )


@contextlib.contextmanager
def alone(options: SinkOptions) -> Generator[None]:
    """While something is made in the folder's own catalog: SQLite has no two at once make one table."""
    if options.catalog:
        yield
        return
    handle = os.open(f"{file_system(options.path)[1]}/.{CATALOG_FILE}.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def table_identifier(options: SinkOptions) -> tuple[str, ...]:
    """namespace.name; by default the folder's own name in the namespace `default`."""
    if options.table:
        parts = tuple(part for part in options.table.split(".") if part)
        return parts if len(parts) > 1 else (DEFAULT_NAMESPACE, *parts)
    name = re.sub(r"\W", "_", file_system(options.path)[1].rpartition("/")[2]) or "rows"
    return DEFAULT_NAMESPACE, name


def open_iceberg(options: SinkOptions) -> "Table":
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    name = table_identifier(options)
    # A catalog file is not made by looking for a table.
    if not options.catalog and not os.path.exists(f"{file_system(options.path)[1]}/{CATALOG_FILE}"):
        raise NoSuchTable(f"there is no Iceberg table in {options.path}")
    try:
        return open_catalog(options).load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise NoSuchTable(f"there is no Iceberg table {'.'.join(name)} in {options.path or 'the catalog'}") from None


def without_retries(table: "Table") -> "Table":
    """The table with pyiceberg's own retries off, here and not in the catalog.

    They would append again without a look at the batch number; ours look (committing).
    """
    table.metadata = table.metadata.model_copy(
        update={"properties": {**table.metadata.properties, "commit.retry.num-retries": "0"}}
    )
    return table
