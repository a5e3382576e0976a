"""Batches into a plain folder of Parquet files that any reader understands: day=2024-05-17/name.parquet.

Called through open_sink. The price of no table format, said honestly: readers that list the folder see the files of a
batch appear one after the other while it is published (renames, milliseconds), and half of a batch if the machine dies
right then, until the query starts again. They never see a half-written file, nor a row twice, except that under
mode=overwrite the new files are there before the old ones go. penstock's own read_table sees whole batches only.
Who needs more takes Delta or Iceberg.

How a batch gets in: tasks write into _penstock/staging; the driver then writes _penstock/<query>.json, which names the
batch and its files (this one rename is the commit), moves the files to their places and marks the batch as published.
Laws:
- What the state file names gets published, now or at the next start (publish): moving again what was moved is a no-op.
- State changes under the folder's lock only, so two drivers of one query cannot both commit a batch.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.errors import BadOption, SparkFailure
from penstock.spark.tables import data_files, durability
from penstock.spark.tables.durability import replace_file
from penstock.spark.tables.failures import SchemaMismatch
from penstock.spark.tables.model import SKIPPED, Marker, WrittenBatch, batch_prefix, is_stored, query_tag, stream_of
from penstock.spark.tables.options import SinkOptions
from penstock.spark.tables.partitions import check_partition_columns
from penstock.spark.tables.schema import batch_schema, fit, plain_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OWN_FOLDER = "_penstock"
STAGING = f"{OWN_FOLDER}/staging"
COLUMNS_FILE = "columns"


@dataclass
class BatchState:
    """The last batch of a query. Until it is published, `files` may still lie in staging and `removed` in place."""

    query: str
    batch: int
    is_published: bool = False
    files: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    stream: str = ""


class ParquetSink:
    def __init__(self, options: SinkOptions, query: str) -> None:
        self._options = options
        self._query = query
        self._stream = ""
        self._root = Path(durability.file_system(options.path)[1])
        self._state_path = self._root / OWN_FOLDER / f"{query_tag(query)}.json"

    def write_batch(self, df: "DataFrame", batch_id: int) -> WrittenBatch:
        schema = batch_schema(df.schema)
        self._stream = stream_of(df)
        check_partition_columns(self._options.partition_by, schema)
        dotted = [name for name in self._options.partition_by if name.startswith(".")]
        if dotted:
            raise BadOption(f"readers pass over folders that begin with a dot: rename column {dotted[0]}")
        (self._root / STAGING).mkdir(parents=True, exist_ok=True)
        with locked(self._root):
            self._finish()
            if self._is_stored(batch_id):
                return SKIPPED
            columns = self._columns(schema)
        prefix = batch_prefix(self._query, batch_id)
        order = data_files.FileOrder(
            str(self._root / STAGING),
            prefix,
            columns,
            self._options.partition_by,
            is_hive=True,
            compression=self._options.compression,
            target_file_bytes=self._options.target_file_bytes,
        )
        files = data_files.write_files(df, order, lambda: self._is_stored(batch_id))
        if files is None:
            return SKIPPED
        if not files and self._options.mode == "append":
            return WrittenBatch(0, 0, False)
        paths = [file.path for file in files]
        with locked(self._root):
            if self._is_stored(batch_id):
                data_files.delete_files(order.root, paths)
                return SKIPPED
            old = folder_files(self._root) if self._options.mode == "overwrite" else []
            self._commit(BatchState(self._query, batch_id, files=paths, removed=old, stream=self._stream))
            self._finish()
        # The batch is in: what other attempts at it have staged is nobody's.
        data_files.delete_leftovers(order.root, prefix, set())
        return WrittenBatch(sum(file.rows for file in files), len(files), False)

    def _commit(self, state: BatchState) -> None:
        replace_file(self._state_path, json.dumps(asdict(state)))

    def _finish(self) -> None:
        """Publish what was committed and not published."""
        state = read_state(self._state_path)
        if state is not None and not state.is_published:
            publish(self._root, state)
            self._commit(BatchState(state.query, state.batch, is_published=True, stream=state.stream))

    def _is_stored(self, batch: int) -> bool:
        state = read_state(self._state_path)
        stored = None if state is None else Marker(state.batch, state.stream)
        asked = Marker(batch, self._stream)
        return is_stored(str(self._root), self._query, asked, stored, self._options.on_old_batch)

    def _columns(self, schema: "pa.Schema") -> "pa.Schema":
        """Those of the folder after this batch: kept in a file, so that the next batch can be held against them."""
        known = read_columns(self._root)
        if known is None:
            evolved = schema
        else:
            stored, partitions = known
            if partitions != self._options.partition_by:
                raise SchemaMismatch(
                    f"{self._root} is partitioned by {', '.join(partitions) or 'nothing'}: write to another folder"
                )
            evolved = fit(str(self._root), schema, stored, merge_schema=self._options.merge_schema)
        if known is None or len(evolved) > len(known[0]):
            write_columns(self._root, evolved, self._options.partition_by)
        return evolved


@contextlib.contextmanager
def locked(root: Path, *, is_shared: bool = False) -> Generator[None]:
    """The folder's lock; the kernel lets go of it when its holder dies."""
    path = root / OWN_FOLDER / "lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT if not is_shared else os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def publish(root: Path, state: BatchState) -> None:
    """Move the files to where readers look. A file that is not in staging was moved before, or there is a fault."""
    for name in state.files:
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(root / STAGING / name, place)
        except FileNotFoundError:
            if not place.exists():
                raise SparkFailure(
                    f"batch {state.batch} of query {state.query} is committed, and {name} of it lies neither in {root} "
                    f"nor in {STAGING}: was it taken away, or is the folder not the one that the tasks wrote to?"
                ) from None
    durability.sync_folders(str(root), state.files)
    for name in state.removed:
        (root / name).unlink(missing_ok=True)


def whole_batches(root: Path) -> list[str]:
    """The files of the folder, full paths, as of one moment: a batch is among them with all its files or with none."""
    if not (root / OWN_FOLDER / "lock").exists():
        return [str(root / name) for name in folder_files(root)]
    with locked(root, is_shared=True):
        names = set(folder_files(root))
        for path in sorted((root / OWN_FOLDER).glob("*.json")):
            state = read_state(path)
            # Committed by one who died before it was published: left out, or for an overwrite taken from where it lies.
            if state is not None and not state.is_published:
                names -= {*state.files, *state.removed}
                if state.removed:
                    names |= {name if (root / name).exists() else f"{STAGING}/{name}" for name in state.files}
        return sorted(str(root / name) for name in names)


def folder_files(root: Path) -> list[str]:
    """What a reader that lists the folder finds, relative: hidden names are nobody's data."""
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not is_hidden(name)]
        relative = os.path.relpath(folder, root)
        found += [
            os.path.normpath(f"{relative}/{name}")
            for name in names
            if name.endswith(".parquet") and not is_hidden(name)
        ]
    return sorted(found)


def is_hidden(name: str) -> bool:
    """As Spark has it: `_day=1` is a partition of a column `_day`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def read_state(path: Path) -> BatchState | None:
    try:
        return BatchState(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None


def read_columns(root: Path) -> "tuple[pa.Schema, tuple[str, ...]] | None":
    """The folder's columns and those it is partitioned by, as its writers noted them."""
    import pyarrow.parquet as pq

    path = root / OWN_FOLDER / COLUMNS_FILE
    if not path.exists():
        return None
    schema = pq.read_schema(path)
    noted = (schema.metadata or {}).get(b"penstock.partition_by", b"[]")
    return plain_schema(schema), tuple(json.loads(noted))


def write_columns(root: Path, schema: "pa.Schema", partition_by: tuple[str, ...]) -> None:
    """As an empty Parquet file: it keeps every type."""
    import pyarrow.parquet as pq

    path = root / OWN_FOLDER / COLUMNS_FILE
    noted = schema.with_metadata({"penstock.partition_by": json.dumps(partition_by)})
    temporary = path.with_name(f".{COLUMNS_FILE}")
    pq.write_table(noted.empty_table(), temporary)
    durability.sync(str(temporary))
    os.replace(temporary, path)
    durability.sync(str(path.parent))
