"""Upsert into a Delta table: the batch is staged as Parquet by the tasks, then merged by key on the driver.

Called by delta for mode=upsert. The merge runs in deltalake on the driver, over a stream of the staged rows; the files
of the table that hold a key of the batch are written anew. Staged files lie in `_penstock/` beside the log, where no
reader looks, and go away in the end, however it ends.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.dataset as pads

from penstock.spark.tables import data_files, durability
from penstock.spark.tables.committing import commit_until_done
from penstock.spark.tables.keys import check_keys, one_row_per_key
from penstock.spark.tables.model import SKIPPED, WrittenBatch
from penstock.spark.tables.options import SinkOptions

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame

STAGING = "_penstock"


def merge_batch(
    df: "DataFrame",
    order: data_files.FileOrder,
    options: SinkOptions,
    reopen: "Callable[[], DeltaTable | None]",
    properties: "CommitProperties",
) -> WrittenBatch:
    """`reopen` gives the table as it is now, or None once the batch is in it."""
    from deltalake.exceptions import CommitFailedError

    staging = f"{options.path.rstrip('/')}/{STAGING}"
    staged = replace(order, root=staging, partition_by=())
    files = data_files.write_files(one_row_per_key(df, options), staged, lambda: reopen() is None)
    try:
        if files is None:
            return SKIPPED
        if not files:
            return WrittenBatch(0, 0, False)
        system, folder = durability.file_system(staging)
        rows = pads.dataset([f"{folder}/{file.path}" for file in files], order.schema, "parquet", system)
        check_keys(rows.to_table(columns=list(options.keys)), options.keys)

        def attempt() -> WrittenBatch:
            table = reopen()
            if table is None:
                return SKIPPED
            merged = (
                table.merge(
                    rows.scanner().to_reader(),
                    " AND ".join(f'target."{key}" = source."{key}"' for key in options.keys),
                    source_alias="source",
                    target_alias="target",
                    commit_properties=properties,
                )
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )
            return WrittenBatch(merged["num_source_rows"], merged["num_target_files_added"], False)

        return commit_until_done(options.path, attempt, (CommitFailedError,))
    finally:
        data_files.delete_leftovers(staging, order.prefix, set())
