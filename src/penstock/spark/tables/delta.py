"""Batches into a Delta table: tasks write Parquet, the driver commits, no jar.

Called through open_sink. The number of the last batch stands in the table's own log as the version of the application
transaction named by the query, in the same commit as the rows: Delta's own mechanism, which its other writers keep.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.spark.errors import BadOption
from penstock.spark.tables import data_files
from penstock.spark.tables.committing import commit_until_done
from penstock.spark.tables.durability import sync_delta
from penstock.spark.tables.failures import CommitConflict, SchemaMismatch, StaleBatch
from penstock.spark.tables.model import SKIPPED, Marker, WrittenBatch, WrittenFile, batch_prefix, is_stored, stream_of
from penstock.spark.tables.options import SinkOptions
from penstock.spark.tables.partitions import check_partition_columns
from penstock.spark.tables.schema import batch_schema, fit, plain_schema

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame


class DeltaSink:
    def __init__(self, options: SinkOptions, query: str) -> None:
        self._options = options
        self._query = query
        self._stream = ""
        self._has_tidied = False

    def write_batch(self, df: "DataFrame", batch_id: int) -> WrittenBatch:
        schema = batch_schema(df.schema)
        self._stream = stream_of(df)
        table = self._open(schema)
        version = table.version()
        if self._is_stored(table, batch_id):
            # Whoever stored it may have died before it was on the disk.
            sync_delta(self._options.path, version - 1)
            return SKIPPED
        written = self._write(df, schema, table, batch_id)
        sync_delta(self._options.path, version)
        return written

    def _write(self, df: "DataFrame", schema: pa.Schema, table: "DeltaTable", batch_id: int) -> WrittenBatch:
        order = self._order(table, schema, batch_id)
        if self._options.mode == "upsert":
            from penstock.spark.tables.delta_merge import merge_batch

            return merge_batch(
                df, order, self._options, lambda: self._reopen(batch_id), self.commit_properties(batch_id)
            )
        files = data_files.write_files(df, order, lambda: self._reopen(batch_id) is None)
        if files is None:
            return SKIPPED
        if not files and self._options.mode == "append":
            return WrittenBatch(0, 0, False)
        return self._commit(files, order, batch_id)

    def _commit(self, files: list[WrittenFile], order: data_files.FileOrder, batch: int) -> WrittenBatch:
        from deltalake.exceptions import CommitFailedError

        paths = {file.path for file in files}
        try:
            is_ours = commit_until_done(
                self._options.path, lambda: self._attempt(files, paths, batch), (CommitFailedError,)
            )
        except (CommitConflict, StaleBatch):
            # Nothing can name the files any more, unless an attempt went through unseen. After any other failure the
            # commit may yet land: then they are the table's, else a vacuum takes them.
            if not self._holds(paths):
                data_files.delete_files(self._options.path, list(paths))
            raise
        if not is_ours:
            data_files.delete_files(self._options.path, list(paths))
            return SKIPPED
        # The first batch of a life may be the last one of another that ended badly.
        if not self._has_tidied:
            data_files.delete_leftovers(self._options.path, order.prefix, paths)
            self._has_tidied = True
        return WrittenBatch(sum(file.rows for file in files), len(files), False)

    def _attempt(self, files: list[WrittenFile], paths: set[str], batch: int) -> bool:
        """One try at the commit. False: another run of this query stored the batch."""
        from deltalake.transaction import AddAction

        table = self._table()
        if self._is_stored(table, batch):
            # An attempt whose answer was lost is in the table, though it looked like a conflict.
            return self._holds(paths)
        now_ms = _now_ms()
        actions: list[Any] = [
            AddAction(file.path, file.size, file.partition, now_ms, True, file.stats) for file in files
        ]
        table.create_write_transaction(
            actions,
            "overwrite" if self._options.mode == "overwrite" else "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=self.commit_properties(batch),
        )
        return True

    def commit_properties(self, batch: int) -> "CommitProperties":
        from deltalake import CommitProperties, Transaction

        # deltalake looks for a rival of the same name when it tries again by itself; ours also looks at the batch.
        return CommitProperties(
            app_transactions=[Transaction(name, batch) for name in self._names()],
            max_commit_retries=0,
            custom_metadata={"penstock.query": self._query, "penstock.batch": str(batch)},
        )

    def _order(self, table: "DeltaTable", schema: pa.Schema, batch: int) -> data_files.FileOrder:
        options = self._options
        stored = delta_schema(table)
        partitions = tuple(table.metadata().partition_columns)
        if options.partition_by and options.partition_by != partitions:
            raise BadOption(
                f"{options.path} is partitioned by {', '.join(partitions) or 'nothing'}, not by "
                f"{', '.join(options.partition_by)}: leave partition_by out, or write to another table"
            )
        evolved = fit(options.path, schema, stored, merge_schema=options.merge_schema)
        if len(evolved) > len(stored):
            _add_columns(self._table, evolved)
        return data_files.FileOrder(
            options.path,
            batch_prefix(self._query, batch),
            evolved,
            partitions,
            compression=options.compression,
            target_file_bytes=options.target_file_bytes,
        )

    def _open(self, schema: pa.Schema) -> "DeltaTable":
        """The table, made first where there is none; another writer may make it at the same moment."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        options = self._options
        if DeltaTable.is_deltatable(options.path, options.storage_options or None):
            return self._table()
        check_partition_columns(options.partition_by, schema)
        try:
            DeltaTable.create(
                options.path,
                schema,
                mode="ignore",
                partition_by=list(options.partition_by),
                storage_options=options.storage_options or None,
            )
        except DeltaError:
            if not DeltaTable.is_deltatable(options.path, options.storage_options or None):
                raise
        sync_delta(options.path, -1)
        return self._table()

    def _table(self) -> "DeltaTable":
        return open_delta(self._options)

    def _reopen(self, batch: int) -> "DeltaTable | None":
        table = self._table()
        return None if self._is_stored(table, batch) else table

    def _is_stored(self, table: "DeltaTable", batch: int) -> bool:
        numbers = [table.transaction_version(name) for name in self._names()]
        # A number that only the query's own name has is of another checkpoint.
        stream = self._stream if numbers[0] == numbers[-1] else "another"
        stored = None if numbers[0] is None else Marker(numbers[0], stream)
        asked = Marker(batch, self._stream)
        return is_stored(self._options.path, self._query, asked, stored, self._options.on_old_batch)

    def _names(self) -> list[str]:
        """Under which batches are counted: the query's, and one with the checkpoint's id where that does not say it."""
        is_said = self._stream in self._query
        return [self._query] if is_said else [self._query, f"{self._query}/{self._stream}"]

    def _holds(self, paths: set[str]) -> bool:
        """Whether a commit named these files: they are in it together or not at all."""
        known: set[str] = set(pa.table(self._table().get_add_actions()).column("path").to_pylist())
        return bool(paths) and paths <= known


def open_delta(options: SinkOptions) -> "DeltaTable":
    from deltalake import DeltaTable

    return DeltaTable(options.path, storage_options=options.storage_options or None)


def delta_schema(table: "DeltaTable") -> pa.Schema:
    return plain_schema(pa.schema(table.schema().to_arrow()))


def _add_columns(open_table: "Callable[[], DeltaTable]", evolved: pa.Schema) -> None:
    """A commit of its own, before the rows: a column that nobody fills yet harms nobody."""
    from deltalake import Schema
    from deltalake.exceptions import CommitFailedError, DeltaError

    def attempt() -> None:
        table = open_table()
        names = {field.name for field in table.schema().fields}
        wanted = [field for field in Schema.from_arrow(evolved).fields if field.name not in names]
        if wanted:
            table.alter.add_columns(wanted)

    try:
        commit_until_done("the table's schema", attempt, (CommitFailedError,))
    except DeltaError as error:
        raise SchemaMismatch(f"the new columns cannot be added to the table: {error}") from error


def _now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000
