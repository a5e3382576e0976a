"""Rows named by key columns, for upserts: one row per key, and no key without a value.

Called by delta_merge and postgres.
Law: a key names one row in a batch. With order_by the highest wins; without it two rows of one key are refused, since
either choice would be a guess that a replay might make otherwise.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import BadOption
from penstock.spark.tables.failures import SchemaMismatch, listed
from penstock.spark.tables.options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def one_row_per_key(df: "DataFrame", options: SinkOptions) -> "DataFrame":
    """Of the rows of one key, that with the highest order_by; all of them without one."""
    missing = [name for name in (*options.keys, options.order_by) if name and name not in df.columns]
    if missing:
        raise BadOption(f"keys and order_by name {listed(missing)}, which the rows do not have")
    if not options.order_by:
        return df
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    window = Window.partitionBy(*options.keys).orderBy(F.col(options.order_by).desc_nulls_last())
    return (
        df.withColumn("__penstock_rank", F.row_number().over(window))
        .where("__penstock_rank = 1")
        .drop("__penstock_rank")
    )


def check_keys(keys: pa.Table, names: tuple[str, ...]) -> None:
    empty = [name for name in names if keys.column(name).null_count]
    if empty:
        raise SchemaMismatch(f"key column {listed(empty)} is null in some rows: a row without its key cannot be stored")
    groups = keys.group_by(list(names)).aggregate([([], "count_all")])
    twice = groups.filter(pc.field("count_all") > 1)
    if twice.num_rows:
        example = ", ".join(f"{name}={twice.column(name)[0].as_py()}" for name in names)
        raise SchemaMismatch(
            f"{twice.num_rows} keys have more than one row in the batch ({example}): set order_by=COLUMN to keep the "
            "row with its highest value"
        )
