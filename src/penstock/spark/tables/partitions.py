"""Rows split by the values of their partition columns, and those values as names of folders.

Called by data_files in tasks, and by the sinks to check a choice of columns.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as arrow_compute

from penstock.spark.errors import BadOption
from penstock.spark.tables.failures import SchemaMismatch, listed

# Arrow makes its functions at run time: no type checker sees them.
pc: Any = arrow_compute

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_SAFE = re.compile(r"[A-Za-z0-9_.=-]{1,180}")
# What Hive and Spark escape in the name of a partition's folder.
_HIVE_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")


def check_partition_columns(names: Sequence[str], schema: pa.Schema) -> None:
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise BadOption(f"partition_by names {listed(missing)}, which the rows do not have")
    types: Any = pa.types
    for name in names:
        kind = schema.field(name).type
        if not (types.is_string(kind) or types.is_integer(kind) or types.is_date32(kind) or types.is_boolean(kind)):
            raise BadOption(
                f"a table cannot be partitioned by {name} ({kind}): make a date, text or whole number of it"
            )
    if names and len(names) == len(schema.names):
        raise BadOption("a table needs at least one column that it is not partitioned by")


def split(
    rows: pa.RecordBatch, names: Sequence[str], *, is_empty_null: bool = True
) -> Iterator[tuple[dict[str, str | None], pa.RecordBatch]]:
    """The rows of each combination of values, in the order they came. Delta and Hive know no empty text: it is null."""
    if not names:
        yield {}, rows
        return
    found = pa.Table.from_batches([rows]).select(list(names)).group_by(list(names), use_threads=False).aggregate([])
    try:
        combinations = found.to_pylist()
    except OverflowError:
        raise SchemaMismatch(
            f"a date in {listed(list(names))} lies outside of the years 1 to 9999, and no table has a partition for "
            "that: bound it in the query"
        ) from None
    for values in combinations:
        if found.num_rows == 1:
            chosen = rows
        else:
            keep: Any = None
            for name in names:
                column, value = rows.column(name), values[name]
                same: Any = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
                same = pc.fill_null(same, False)
                keep = same if keep is None else pc.and_(keep, same)
            chosen = rows.filter(keep)
        texts = {name: partition_text(values[name]) for name in names}
        yield {name: None if text == "" and is_empty_null else text for name, text in texts.items()}, chosen


def partition_text(value: Any) -> str | None:
    """A value as Delta's log and Hive's folders write it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def plain_folder(values: dict[str, str | None]) -> str:
    """A folder for people to find their way by; the table's log knows the values. Nothing in it needs escaping."""
    parts: list[str] = []
    for name, value in values.items():
        part = f"{name}={HIVE_NULL if value is None else value}"
        parts.append(part if _SAFE.fullmatch(part) else f"part-{hashlib.sha256(part.encode()).hexdigest()[:16]}")
    return "/".join(parts)


def hive_folder(values: dict[str, str | None]) -> str:
    """A folder that carries the values: all that readers of a plain folder have."""
    return "/".join(
        f"{_escaped(name)}={HIVE_NULL if value is None else _escaped(value)}" for name, value in values.items()
    )


def _escaped(text: str) -> str:
    return _HIVE_ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
