"""What an archive holds: rows and offsets per partition, read from the table's files without Spark.

Called by cli.archive (status) and by archive, to go on behind what is there. Three small columns of each file are read.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.tables.durability import file_system
from penstock.spark.tables.failures import NoSuchTable, SchemaMismatch
from penstock.spark.tables.files import list_files
from penstock.spark.tables.options import sink_options

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ["topic", "partition", "offset", "timestamp"]
_WANTED = [("offset", "count"), ("offset", "min"), ("offset", "max"), ("timestamp", "min"), ("timestamp", "max")]


class Held(NamedTuple):
    """Of one partition. Offsets between first and last that are no rows were markers, aborted or compacted away."""

    topic: str
    partition: int
    rows: int
    first: int
    last: int
    oldest: datetime | None
    newest: datetime | None  # none where no calendar has it


class ArchiveStatus(NamedTuple):
    files: int
    held: list[Held]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.held)


def archive_status(kind: str, options: Mapping[str, Any]) -> ArchiveStatus:
    found = list_files(sink_options(kind, options))
    missing = [name for name in _COLUMNS if name not in found.schema.names]
    if missing:
        raise SchemaMismatch(f"this is no archive of topics: it has no column {missing[0]}")
    parts: list[pa.Table] = []
    for file in found.files:
        system, path = file_system(file.path)
        with system.open_input_file(path) as opened:
            rows = pq.ParquetFile(opened).read(_COLUMNS)
        parts.append(rows.group_by(["topic", "partition"]).aggregate(_WANTED))
    if not parts:
        return ArchiveStatus(0, [])
    joined = pa.concat_tables(parts).group_by(["topic", "partition"])
    summed = joined.aggregate(
        [
            ("offset_count", "sum"),
            ("offset_min", "min"),
            ("offset_max", "max"),
            ("timestamp_min", "min"),
            ("timestamp_max", "max"),
        ]
    )
    held = [
        Held(
            row["topic"],
            row["partition"],
            row["offset_count_sum"],
            row["offset_min_min"],
            row["offset_max_max"],
            _moment(row["timestamp_min_min"]),
            _moment(row["timestamp_max_max"]),
        )
        for row in summed.cast(_as_numbers(summed.schema)).to_pylist()
    ]
    return ArchiveStatus(len(found.files), sorted(held, key=lambda one: (one.topic, one.partition)))


def _as_numbers(schema: pa.Schema) -> pa.Schema:
    """Moments as microseconds: Python has none past the year 9999, and a producer may stamp a record with one."""
    types: Any = pa.types
    return pa.schema([field.with_type(pa.int64()) if types.is_timestamp(field.type) else field for field in schema])


def _moment(microseconds: int | None) -> datetime | None:
    if microseconds is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def held_offsets(kind: str, options: Mapping[str, Any]) -> list[Held]:
    """Nothing where there is no table yet."""
    try:
        return archive_status(kind, options).held
    except NoSuchTable:
        return []
