"""Small files of an Iceberg table joined into larger ones: pyiceberg has no such call, so this is ours.

Called by upkeep. Each group of files of one partition is read and written as one file by Arrow on this machine, then
one snapshot takes all the old files out and the new ones in. Readers of older snapshots keep their files.
"""

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from penstock.spark.tables.committing import commit_until_done
from penstock.spark.tables.data_files import delete_files
from penstock.spark.tables.durability import file_system, is_local, sync, sync_folders
from penstock.spark.tables.failures import NotReadable
from penstock.spark.tables.iceberg import iceberg_schema
from penstock.spark.tables.iceberg_catalog import open_iceberg, without_retries
from penstock.spark.tables.options import SinkOptions
from penstock.spark.tables.schema import conform

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


def rewrite_small_files(options: SinkOptions, target_bytes: int) -> tuple[int, int]:
    """How many files went, and how many came in their place."""
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    def attempt() -> tuple[int, int]:
        table = without_retries(open_iceberg(options))
        groups = plan_groups(_small_files(table, target_bytes), target_bytes)
        if not groups:
            return 0, 0
        root = f"{table.location().rstrip('/')}/data"
        names = [f"compacted-{uuid.uuid4().hex}.parquet" for _ in groups]
        try:
            for name, group in zip(names, groups, strict=True):
                _write(table, f"{root}/{name}", group)
            _commit(table, [f"{root}/{name}" for name in names], groups)
        except (CommitFailedException, ValidationException):
            delete_files(root, names)
            raise
        return sum(map(len, groups)), len(groups)

    return commit_until_done(options.table or options.path, attempt, (CommitFailedException, ValidationException))


def plan_groups(files: "list[DataFile]", target_bytes: int) -> "list[list[DataFile]]":
    """Files of one partition side by side until a group is full; a group of one has nothing to gain."""
    groups: list[list[DataFile]] = []
    current: list[DataFile] = []
    for file in sorted(files, key=lambda one: (repr(one.partition), one.file_path)):
        is_apart = bool(current) and current[0].partition != file.partition
        is_full = sum(one.file_size_in_bytes for one in current) + file.file_size_in_bytes > target_bytes
        if current and (is_apart or is_full):
            groups.append(current)
            current = []
        current.append(file)
    groups.append(current)
    return [group for group in groups if len(group) > 1]


def _small_files(table: "Table", target_bytes: int) -> "list[DataFile]":
    files: list[DataFile] = []
    for task in table.scan().plan_files():
        if task.delete_files:
            raise NotReadable("the table keeps deleted rows in files of their own: compact it with the engine that did")
        if task.file.spec_id == table.spec().spec_id and task.file.file_size_in_bytes < target_bytes * 3 // 4:
            files.append(task.file)
    return files


def _write(table: "Table", path: str, group: "list[DataFile]") -> None:
    schema = iceberg_schema(table)
    system, full = file_system(path)
    with system.open_output_stream(full) as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for file in group:
            source, place = file_system(file.file_path)
            with source.open_input_file(place) as opened:
                for batch in pq.ParquetFile(opened).iter_batches(65_536):
                    writer.write_batch(conform(batch, schema))
    if is_local(system):
        sync(full)
        sync_folders(full.rpartition("/")[0], ())


def _commit(table: "Table", paths: list[str], groups: "list[list[DataFile]]") -> None:
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    about: dict[str, str] = {"penstock.compacted": str(sum(map(len, groups)))}
    with table.transaction() as transaction:
        update: Any = transaction.update_snapshot(snapshot_properties=about).overwrite()
        with update:
            for group in groups:
                for file in group:
                    update.delete_data_file(file)
            for path in paths:
                update.append_data_file(parquet_file_to_data_file(table.io, transaction.table_metadata, path))
