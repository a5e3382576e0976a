"""Which Parquet files a table is made of right now, asked of its own log, without Spark.

Called by reading, by archive status and by compaction.
Law: what plain Parquet reading would get wrong (deleted rows kept beside the files, renamed columns) is refused.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.spark.tables.durability import file_system
from penstock.spark.tables.failures import NoSuchTable, NotReadable, listed
from penstock.spark.tables.options import SinkOptions
from penstock.spark.tables.schema import plain_schema

if TYPE_CHECKING:
    from pyiceberg.table import Table

Partition = Mapping[str, str | None]
Wanted = Callable[[Partition], bool]


class TableFile(NamedTuple):
    path: str
    partition: Partition


class TableFiles(NamedTuple):
    """`schema` has all columns; `outside` are those whose values stand in `partition` and not in the files."""

    schema: pa.Schema
    outside: tuple[str, ...]
    files: list[TableFile]


def list_files(options: SinkOptions, wanted: Wanted | None = None) -> TableFiles:
    """`wanted` chooses by partition values; all files without it."""
    found = _LISTERS[options.kind](options)
    return found if wanted is None else found._replace(files=[file for file in found.files if wanted(file.partition)])


def _delta(options: SinkOptions) -> TableFiles:
    from deltalake.exceptions import TableNotFoundError

    from penstock.spark.tables.delta import open_delta

    try:
        table = open_delta(options)
    except TableNotFoundError:
        raise NoSuchTable(f"there is no Delta table in {options.path}") from None
    configuration = table.metadata().configuration
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        raise NotReadable(f"{options.path} maps its columns to other names in its files: read it with deltalake")
    if pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().num_rows:
        raise NotReadable(f"{options.path} marks deleted rows by deletion vectors: rewrite it (REORG … PURGE) first")
    columns = tuple(table.metadata().partition_columns)
    actions = pa.table(table.get_add_actions(flatten=True))
    paths = actions.column("path").to_pylist()
    values = [
        [None if one is None else _text(one) for one in actions.column(f"partition.{name}").to_pylist()]
        for name in columns
    ]
    root = options.path.rstrip("/")
    files = [
        TableFile(f"{root}/{path}", {name: values[slot][row] for slot, name in enumerate(columns)})
        for row, path in enumerate(paths)
    ]
    return TableFiles(plain_schema(pa.schema(table.schema().to_arrow())), columns, files)


def _iceberg(options: SinkOptions) -> TableFiles:
    from penstock.spark.tables.iceberg_catalog import open_iceberg

    table = open_iceberg(options)
    _refuse_renames(table)
    names = [table.schema().find_column_name(field.source_id) or field.name for field in table.spec().fields]
    files: list[TableFile] = []
    for task in table.scan().plan_files():
        if task.delete_files:
            raise NotReadable(
                f"{'.'.join(table.name())} keeps deleted rows in files of their own: compact it with the engine that "
                "wrote them first"
            )
        values = {name: _iceberg_text(table, slot, task.file.partition[slot]) for slot, name in enumerate(names)}
        files.append(TableFile(task.file.file_path, values))
    return TableFiles(plain_schema(table.schema().as_arrow()), (), files)


def _parquet(options: SinkOptions) -> TableFiles:
    import pyarrow.dataset as pads

    from penstock.spark.tables.parquet import read_columns, whole_batches

    root = Path(file_system(options.path)[1])
    if not root.is_dir():
        raise NoSuchTable(f"there is no folder {root}")
    paths = whole_batches(root)
    known = read_columns(root)
    if known is None and not paths:
        raise NoSuchTable(f"there are no Parquet files in {root}")
    if known is None:
        found = pads.dataset(paths, format="parquet", partitioning="hive", partition_base_dir=str(root))
        inside = set(pads.dataset(paths, format="parquet").schema.names)
        known = plain_schema(found.schema), tuple(name for name in found.schema.names if name not in inside)
    return TableFiles(known[0], known[1], [TableFile(path, _hive_values(path, known[1])) for path in paths])


def _hive_values(path: str, names: tuple[str, ...]) -> dict[str, str | None]:
    from urllib.parse import unquote

    from penstock.spark.tables.partitions import HIVE_NULL

    found = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    values = {unquote(name): unquote(value) for name, value in found.items()}
    return {name: None if values.get(name) == HIVE_NULL else values.get(name) for name in names}


def _refuse_renames(table: "Table") -> None:
    """Old files have a column under its old name, where plain Parquet reading would find nothing."""
    names: dict[int, set[str]] = {}
    for schema in table.schemas().values():
        for field in schema.fields:
            names.setdefault(field.field_id, set()).add(field.name)
    renamed = sorted(" = ".join(sorted(one)) for one in names.values() if len(one) > 1)
    if renamed:
        raise NotReadable(f"columns were renamed ({listed(renamed)}): read the table with pyiceberg")


def _iceberg_text(table: "Table", slot: int, value: object) -> str | None:
    if value is None:
        return None
    field = table.spec().fields[slot]
    return field.transform.to_human_string(table.schema().find_type(field.source_id), value)


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


_LISTERS = {"delta": _delta, "iceberg": _iceberg, "parquet": _parquet}
