"""Batches into an Iceberg table: tasks write Parquet, the driver commits through pyiceberg, no jar.

Called through open_sink. The number of a query's last batch is a property of the table, set in the same commit as the
rows, so it outlives the expiry of snapshots; each snapshot also carries query and batch for people to see.
"""

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.spark.errors import BadOption
from penstock.spark.tables import data_files
from penstock.spark.tables.committing import commit_until_done
from penstock.spark.tables.durability import file_system, sync_folders
from penstock.spark.tables.failures import CommitConflict, SchemaMismatch
from penstock.spark.tables.iceberg_catalog import alone, open_catalog, table_identifier, without_retries
from penstock.spark.tables.model import SKIPPED, Marker, WrittenBatch, WrittenFile, batch_prefix, is_stored, stream_of
from penstock.spark.tables.options import SinkOptions
from penstock.spark.tables.partitions import check_partition_columns
from penstock.spark.tables.schema import batch_schema, fit, plain_schema

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction
    from pyspark.sql import DataFrame

MARKER = "penstock.batch."
METRICS = "write.metadata.metrics.column."
# Each commit writes the metadata anew: without these, a stream leaves a file of them per batch for ever.
NEW_TABLE_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergSink:
    def __init__(self, options: SinkOptions, query: str) -> None:
        self._options = options
        self._query = query
        self._stream = ""
        self._name = ".".join(table_identifier(options))
        self._has_tidied = False
        self._kept_catalog: Catalog | None = None

    def write_batch(self, df: "DataFrame", batch_id: int) -> WrittenBatch:
        schema = batch_schema(df.schema)
        self._stream = stream_of(df)
        table = self._open(schema)
        if self._is_stored(table, batch_id):
            return SKIPPED
        order = self._order(table, schema, batch_id)
        files = data_files.write_files(df, order, lambda: self._is_stored(self._table(), batch_id))
        if files is None:
            return SKIPPED
        if not files and self._options.mode == "append":
            return WrittenBatch(0, 0, False)
        return self._commit(files, order, batch_id)

    def _commit(self, files: list[WrittenFile], order: data_files.FileOrder, batch: int) -> WrittenBatch:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        paths = [file.path for file in files]
        try:
            conflicts = (CommitFailedException, ValidationException)
            is_ours = commit_until_done(self._name, lambda: self._attempt(order, paths, batch), conflicts)
        except CommitConflict:
            # Left alone after any other failure: the commit may yet land, and then the files are the table's.
            if not self._is_marked(batch):
                data_files.delete_files(order.root, paths)
            raise
        if not is_ours:
            data_files.delete_files(order.root, paths)
            return SKIPPED
        # The first batch of a life may be the last one of another that ended badly.
        if not self._has_tidied:
            data_files.delete_leftovers(order.root, order.prefix, set(paths))
            self._has_tidied = True
        return WrittenBatch(sum(file.rows for file in files), len(files), False)

    def _attempt(self, order: data_files.FileOrder, paths: list[str], batch: int) -> bool:
        """One try at the commit. False: another run of this query stored the batch."""
        try:
            return self._append(order, paths, batch)
        except FileNotFoundError:
            # Another driver stored the batch and tidied up; else they are missing, and a further try would not help.
            if self._is_stored(self._table(), batch):
                return False
            raise
        except OverflowError:
            self._forgo_bounds()
            return self._append(order, paths, batch)

    def _forgo_bounds(self) -> None:
        """A producer may stamp a record with any time, and pyiceberg has no bounds for one past the year 9999."""
        types: Any = pa.types
        table = without_retries(self._table())
        times = [field.name for field in iceberg_schema(table) if types.is_temporal(field.type)]
        with table.transaction() as transaction:
            # Values of partition columns come from the bounds.
            kept = partition_columns(table)
            transaction.set_properties({METRICS + name: "counts" for name in times if name not in kept})

    def _append(self, order: data_files.FileOrder, paths: list[str], batch: int) -> bool:
        table = without_retries(self._table())
        if self._is_stored(table, batch):
            return self._is_attempt_of(table, paths)
        # The random part of a file's name tells this attempt from any other at the same batch.
        about = {"penstock.query": self._query, "penstock.batch": str(batch), "penstock.try": ",".join(paths[:1])}
        full = [f"{order.root}/{path}" for path in paths]
        with table.transaction() as transaction:
            if self._options.mode == "overwrite":
                _replace_all(table, transaction, full, about)
            else:
                transaction.add_files(full, snapshot_properties=about, check_duplicate_files=False)
            transaction.set_properties({MARKER + self._query: f"{batch} {self._stream}".strip()})
        return True

    def _is_attempt_of(self, table: "Table", paths: list[str]) -> bool:
        """Whether a commit that looked like a conflict is in the table after all."""
        tries = {
            snapshot.summary.additional_properties.get("penstock.try")
            for snapshot in table.snapshots()
            if snapshot.summary
        }
        return bool(paths) and paths[0] in tries

    def _is_marked(self, batch: int) -> bool:
        stored = marker_of(self._table(), self._query)
        return stored is not None and stored.batch >= batch

    def _is_stored(self, table: "Table", batch: int) -> bool:
        stored = marker_of(table, self._query)
        return is_stored(self._name, self._query, Marker(batch, self._stream), stored, self._options.on_old_batch)

    def _order(self, table: "Table", schema: pa.Schema, batch: int) -> data_files.FileOrder:
        options = self._options
        stored = iceberg_schema(table)
        partitions = partition_columns(table)
        if options.partition_by and options.partition_by != partitions:
            raise BadOption(
                f"{self._name} is partitioned by {', '.join(partitions) or 'nothing'}, not by "
                f"{', '.join(options.partition_by)}: leave partition_by out, or write to another table"
            )
        evolved = fit(self._name, schema, stored, merge_schema=options.merge_schema)
        if len(evolved) > len(stored):
            self._add_columns(evolved)
        return data_files.FileOrder(
            f"{table.location().rstrip('/')}/data",
            batch_prefix(self._query, batch),
            evolved,
            partitions,
            has_partition_columns=True,
            compression=options.compression,
            target_file_bytes=options.target_file_bytes,
        )

    def _add_columns(self, evolved: pa.Schema) -> None:
        """A commit of its own, before the rows: a column that nobody fills yet harms nobody."""
        from pyiceberg.exceptions import CommitFailedException

        def attempt() -> None:
            with without_retries(self._table()).update_schema() as update:
                update.union_by_name(evolved)

        try:
            commit_until_done(self._name, attempt, (CommitFailedException,))
        except ValueError as error:
            raise SchemaMismatch(f"the new columns cannot be added to {self._name}: {error}") from error

    def _open(self, schema: pa.Schema) -> "Table":
        """The table, made first where there is none; another writer may make it at the same moment."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self._table()
        except (NoSuchTableError, NoSuchNamespaceError):
            check_partition_columns(self._options.partition_by, schema)
        with alone(self._options):
            return self._create(schema)

    def _create(self, schema: pa.Schema) -> "Table":
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        identifier = table_identifier(self._options)
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(identifier[:-1])
        try:
            with (
                catalog.create_table_transaction(identifier, schema, properties=NEW_TABLE_PROPERTIES) as transaction,
                transaction.update_spec() as spec,
            ):
                for name in self._options.partition_by:
                    spec.add_identity(name)
        except (TableAlreadyExistsError, CommitFailedException):
            pass  # another writer was faster
        except (ValueError, TypeError) as error:
            raise SchemaMismatch(f"{self._name} cannot be made: {error}") from error
        table = self._table()
        if not self._options.catalog:
            # The files in them are synced as they are written; these are the folders of the table and above.
            root, place = file_system(self._options.path)[1], file_system(table.location())[1]
            sync_folders(root, [f"{os.path.relpath(place, root)}/metadata"])
        return table

    def _table(self) -> "Table":
        return self._catalog().load_table(table_identifier(self._options))

    def _catalog(self) -> "Catalog":
        if self._kept_catalog is None:
            self._kept_catalog = open_catalog(self._options)
        return self._kept_catalog


def marker_of(table: "Table", query: str) -> Marker | None:
    batch, _, stream = table.properties.get(MARKER + query, "").partition(" ")
    return Marker(int(batch), stream) if batch else None


def iceberg_schema(table: "Table") -> pa.Schema:
    return plain_schema(table.schema().as_arrow())


def partition_columns(table: "Table") -> tuple[str, ...]:
    """Those of identity; a table partitioned by hours, buckets and the like is not written here."""
    fields = table.spec().fields
    odd = [f"{field.name} ({field.transform})" for field in fields if str(field.transform) != "identity"]
    if odd:
        raise BadOption(
            f"the table is partitioned by {', '.join(odd)}; penstock writes partitions by a column's own value only"
        )
    return tuple(table.schema().find_column_name(field.source_id) or field.name for field in fields)


def _replace_all(table: "Table", transaction: "Transaction", paths: list[str], about: dict[str, str]) -> None:
    """All that the table holds out, the new files in: one snapshot."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    if transaction.table_metadata.name_mapping() is None:
        mapping: Any = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
    with transaction.update_snapshot(snapshot_properties=about).overwrite() as update:
        for task in table.scan().plan_files():
            update.delete_data_file(task.file)
        for path in paths:
            update.append_data_file(parquet_file_to_data_file(table.io, transaction.table_metadata, path))
