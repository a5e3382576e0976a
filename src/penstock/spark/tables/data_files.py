"""Rows to Parquet files, in Spark's tasks; the driver learns of the files and commits them.

Called by the sinks through write_files. Tasks run in Python workers, where penstock must be importable.
Laws:
- A name is never used twice: every attempt of every task adds a random part, so a replay or a speculative copy cannot
  touch a file that was committed.
- A file is nobody's until the driver commits it. A task that fails takes its own files away; those of a killed one
  stay until the next commit of the same batch (leftovers) or a vacuum.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from penstock.spark.errors import told_plainly
from penstock.spark.tables.durability import file_system, is_local, local_folder, sync, sync_folders
from penstock.spark.tables.failures import FilesNotShared
from penstock.spark.tables.file_stats import delta_stats
from penstock.spark.tables.model import WrittenFile
from penstock.spark.tables.partitions import hive_folder, plain_folder, split
from penstock.spark.tables.schema import conform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPORT = "path string, size long, rows long, partition string, stats string"
_REPORT_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("partition", pa.string()),
        ("stats", pa.string()),
    ]
)
# A task that meets more values than this closes the file it has not written to for longest.
OPEN_FILES_MAX = 64
ROW_GROUP_ROWS = 256 * 1024


@dataclass(frozen=True)
class FileOrder:
    """What the files of a batch look like; goes to the tasks."""

    root: str
    prefix: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    # Delta and Hive keep the values of these columns outside the files, Iceberg inside.
    has_partition_columns: bool = False
    is_hive: bool = False
    compression: str = "zstd"
    target_file_bytes: int = 256 << 20


def write_files(df: "DataFrame", order: FileOrder, is_stored: Callable[[], bool]) -> list[WrittenFile] | None:
    """Run the batch and write its rows: the one pass over it. None: another driver of the query stored the batch.

    That driver takes away what others have written for the batch (delete_leftovers), files in the making included.
    """
    try:
        rows = df.mapInArrow(file_writer(order), REPORT).collect()
    except Exception:
        if is_stored():
            return None
        raise
    files = [WrittenFile(row.path, row.size, row.rows, json.loads(row.partition), row.stats) for row in rows]
    unseen = _unseen(order.root, files)
    if unseen is None:
        return files
    # No commit was tried with them, nor will be.
    delete_files(order.root, [file.path for file in files])
    if is_stored():
        return None
    raise FilesNotShared(unseen)


def _unseen(root: str, files: list[WrittenFile]) -> str | None:
    """A file that a task has written and this machine does not have: what is committed must be there for all."""
    folder = local_folder(root)
    if folder is None:
        return None
    for file in files:
        path = f"{folder}/{file.path}"
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return path
        if size != file.size:
            return path
    return None


def file_writer(order: FileOrder) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with told_plainly(), TaskFiles(order, _task_number()) as files:
            for batch in batches:
                files.write(batch)
            written = files.finish()
        columns = [[file[slot] for file in written] for slot in range(5)]
        columns[3] = [json.dumps(values) for values in columns[3]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind.type) for column, kind in zip(columns, _REPORT_SCHEMA, strict=True)],
            schema=_REPORT_SCHEMA,
        )

    return write


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


class _OpenFile:
    def __init__(self, system: pafs.FileSystem, root: str, path: str, values: dict[str, str | None]) -> None:
        self.path, self.values = path, values
        self.rows = 0
        self._full = f"{root}/{path}"
        self._system = system
        folder = self._full.rpartition("/")[0]
        if is_local(system):
            os.makedirs(folder, exist_ok=True)
        self._stream: Any = system.open_output_stream(self._full)
        self._writer: Any = None

    def write(self, rows: pa.RecordBatch, compression: str) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._stream, rows.schema, compression=compression)
        self._writer.write_batch(rows, ROW_GROUP_ROWS)
        self.rows += rows.num_rows

    @property
    def size(self) -> int:
        return self._stream.tell()

    def close(self) -> WrittenFile:
        self._writer.close()
        self._stream.close()
        if is_local(self._system):
            sync(self._full)
        stats = delta_stats(pq.read_metadata(self._full, filesystem=self._system))
        size = self._system.get_file_info(self._full).size
        return WrittenFile(self.path, size, self.rows, self.values, stats)

    def discard(self) -> None:
        with contextlib.suppress(Exception):
            self._stream.close()
        with contextlib.suppress(OSError):
            self._system.delete_file(self._full)


class TaskFiles:
    """The files of one attempt of one task: one open per combination of partition values."""

    def __init__(self, order: FileOrder, task: int) -> None:
        self._order = order
        self._name = f"{order.prefix}{task:05d}-{uuid.uuid4().hex[:16]}"
        self._system, self._root = file_system(order.root)
        self._open: dict[str, _OpenFile] = {}
        self._written: list[WrittenFile] = []
        self._count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        order = self._order
        rows = conform(batch, order.schema)
        for values, part in split(rows, order.partition_by, is_empty_null=not order.has_partition_columns):
            if part.num_rows == 0:
                continue
            if order.partition_by and not order.has_partition_columns:
                part = part.drop_columns(list(order.partition_by))
            folder = hive_folder(values) if order.is_hive else plain_folder(values)
            # Put back at the end: the first one is then the one unused for longest.
            file = self._open.pop(folder, None) or self._begin(folder, values)
            self._open[folder] = file
            file.write(part, order.compression)
            if file.size >= order.target_file_bytes:
                self._end(folder)

    def finish(self) -> list[WrittenFile]:
        for folder in list(self._open):
            self._end(folder)
        if self._written and is_local(self._system):
            sync_folders(self._root, [file.path for file in self._written])
        return self._written

    def _begin(self, folder: str, values: dict[str, str | None]) -> _OpenFile:
        if len(self._open) >= OPEN_FILES_MAX:
            self._end(next(iter(self._open)))
        name = f"{self._name}-{self._count}.parquet"
        self._count += 1
        return _OpenFile(self._system, self._root, f"{folder}/{name}" if folder else name, values)

    def _end(self, folder: str) -> None:
        self._written.append(self._open[folder].close())
        del self._open[folder]

    def __enter__(self) -> "TaskFiles":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for file in self._open.values():
                file.discard()
            delete_files(self._order.root, [file.path for file in self._written])


def delete_files(root: str, paths: list[str]) -> None:
    """As far as they are there. Only for files that no commit can name any more."""
    system, folder = file_system(root)
    for path in paths:
        with contextlib.suppress(OSError):
            system.delete_file(f"{folder}/{path}")


def delete_leftovers(root: str, prefix: str, keep: set[str]) -> int:
    """Take away what earlier attempts at a batch left; how many files that was.

    Only after the batch is committed: no other attempt at it can be from then on, and what is not in `keep` is
    nobody's. Before, an attempt of a driver believed dead might still commit the very files.
    """
    system, folder = file_system(root)
    selector = pafs.FileSelector(folder, allow_not_found=True, recursive=True)
    found = [info.path for info in system.get_file_info(selector) if info.base_name.startswith(prefix)]
    orphans = [path for path in found if path[len(folder) + 1 :] not in keep]
    for path in orphans:
        with contextlib.suppress(OSError):
            system.delete_file(path)
    return len(orphans)
