"""Upkeep of tables: small files into large ones, and files that nobody names out of the way. Without Spark.

Called by archive --compact and by users, beside running streams.
Laws:
- Compaction changes no row and is one commit; a writer that was faster makes it start again from the table as it is.
- Vacuum takes only what no kept version names and what is older than any attempt that might still commit it.
"""

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.errors import BadOption
from penstock.spark.tables.committing import commit_until_done
from penstock.spark.tables.durability import file_system, sync_delta
from penstock.spark.tables.options import SinkOptions, sink_options

if TYPE_CHECKING:
    from pyiceberg.table import Table

DEFAULT_TARGET_BYTES = 256 << 20


class Compacted(NamedTuple):
    files_before: int
    files_after: int


def compact_table(kind: str, options: Mapping[str, Any], *, target_bytes: int | None = None) -> Compacted:
    """How many files were rewritten, into how many. Only files of one partition are joined, in their order."""
    chosen = sink_options(kind, options)
    if chosen.kind == "delta":
        return _compact_delta(chosen, target_bytes)
    if chosen.kind == "iceberg":
        from penstock.spark.tables.iceberg_rewrite import rewrite_small_files

        return Compacted(*rewrite_small_files(chosen, target_bytes or DEFAULT_TARGET_BYTES))
    if chosen.kind == "parquet":
        raise BadOption(
            "a plain folder of Parquet files cannot be compacted without its readers seeing rows twice or not at all: "
            "use a delta or iceberg table"
        )
    raise BadOption("PostgreSQL looks after its own files: there is nothing to compact")


def _compact_delta(options: SinkOptions, target_bytes: int | None) -> Compacted:
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    from penstock.spark.tables.delta import open_delta

    def attempt() -> Compacted:
        # Appends by others do not conflict with it: deltalake may try those again by itself.
        table = open_delta(options)
        version = table.version()
        done = table.optimize.compact(
            target_size=target_bytes, commit_properties=CommitProperties(max_commit_retries=15)
        )
        sync_delta(options.path, version)
        return Compacted(done["numFilesRemoved"], done["numFilesAdded"])

    return commit_until_done(options.path, attempt, (CommitFailedError,))


def vacuum_table(
    kind: str, options: Mapping[str, Any], *, older_than_hours: float = 168.0, dry_run: bool = False
) -> list[str]:
    """The files taken away, or that would be. Time travel reaches back `older_than_hours` at most afterwards."""
    chosen = sink_options(kind, options)
    if chosen.kind == "delta":
        from penstock.spark.tables.delta import open_delta

        return open_delta(chosen).vacuum(
            retention_hours=math.ceil(older_than_hours), dry_run=dry_run, enforce_retention_duration=False, full=True
        )
    if chosen.kind == "iceberg":
        from penstock.spark.tables.iceberg_catalog import open_iceberg

        table = open_iceberg(chosen)
        return _delete_old(f"{table.location().rstrip('/')}/data", _iceberg_names(table), older_than_hours, dry_run)
    if chosen.kind == "parquet":
        from penstock.spark.tables.parquet import STAGING

        root = file_system(chosen.path)[1]
        return _delete_old(f"{root}/{STAGING}", _staged_names(root), older_than_hours, dry_run)
    raise BadOption("PostgreSQL looks after its own files: there is nothing to vacuum")


def _iceberg_names(table: "Table") -> set[str]:
    """Base names of all files that any snapshot of the table names."""
    names: set[str] = set()
    for snapshot in table.snapshots():
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                names.add(entry.data_file.file_path.rpartition("/")[2])
    return names


def _staged_names(root: str) -> set[str]:
    """What a batch that is committed and not yet published still needs."""
    from pathlib import Path

    from penstock.spark.tables.parquet import OWN_FOLDER, read_state

    states = [read_state(path) for path in (Path(root) / OWN_FOLDER).glob("*.json")]
    return {
        name.rpartition("/")[2]
        for state in states
        if state is not None and not state.is_published
        for name in state.files
    }


def _delete_old(folder: str, keep: set[str], older_than_hours: float, dry_run: bool) -> list[str]:
    import pyarrow.fs as pafs

    system, plain = file_system(folder)
    before_ns = time.time_ns() - int(older_than_hours * 3600e9)
    taken: list[str] = []
    for info in system.get_file_info(pafs.FileSelector(plain, allow_not_found=True, recursive=True)):
        is_old = info.type == pafs.FileType.File and (info.mtime_ns or 0) <= before_ns
        if is_old and info.base_name.endswith(".parquet") and info.base_name not in keep:
            if not dry_run:
                system.delete_file(info.path)
            taken.append(info.path)
    return sorted(taken)
