"""Batches into a PostgreSQL table through ADBC: tasks COPY into staging tables, one transaction does the rest.

Called through open_sink. That transaction moves the staged rows into the table (append, upsert by key, or overwrite),
notes the batch in penstock_batches(query, target, batch, stream) and drops the staging tables, so rows and batch number
are in the database together or not at all.
Laws:
- The row of penstock_batches is locked before it is read: two drivers of one query pass one after the other.
- Values are cast by PostgreSQL into the column's own type; what does not fit fails the batch with its message.
- A staging table is unlogged and named by query, batch and attempt; those of dead attempts go with the next commit.
"""

import itertools
import re
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.spark.errors import BadOption, SparkFailure, told_plainly
from penstock.spark.tables.failures import SchemaMismatch, listed
from penstock.spark.tables.keys import one_row_per_key
from penstock.spark.tables.model import SKIPPED, Marker, WrittenBatch, is_stored, query_tag, stream_of
from penstock.spark.tables.options import SinkOptions
from penstock.spark.tables.postgres_types import JSON, column_type, nested_as_json, quoted, table_name
from penstock.spark.tables.schema import batch_schema, conform, fit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARKERS = "penstock_batches"
_STAGE = "penstock_stage_"
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
# Narrower than libpq's in one thing: no bare @ behind the host, where it is the end of a password that holds a slash.
_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s\[\]@:/?,&=]*)(?::\d*)?"
_SETTINGS = r"[a-z_]+=[^\s@&=]*"
_URL = re.compile(
    rf"postgres(?:ql)?://(?:[^\s@/]*@)?{_HOST}(?:,{_HOST})*(?:/[^\s@?]*)?(?:\?(?:{_SETTINGS}(?:&{_SETTINGS})*)?)?"
)


class PostgresSink:
    def __init__(self, options: SinkOptions, query: str) -> None:
        self._options = options
        self._query = query
        self._stream = ""
        self._schema_name, self._table_name = table_name(options.table)
        self._target = ".".join(quoted(part) for part in (self._schema_name, self._table_name) if part)

    def write_batch(self, df: "DataFrame", batch_id: int) -> WrittenBatch:
        self._stream = stream_of(df)
        df, nested = nested_as_json(one_row_per_key(df, self._options) if self._options.keys else df)
        schema = batch_schema(df.schema)
        with connect(self._options.url) as connection:
            cursor = connection.cursor()
            self._prepare(cursor, schema, nested)
            if self._is_stored(cursor, batch_id):
                connection.commit()
                return SKIPPED
            connection.commit()
            prefix = f"{_STAGE}{query_tag(f'{self._query} {self._target}')}_{batch_id}_"
            staged = df.mapInArrow(stage_writer(self._options.url, prefix, schema), "name string, rows long").collect()
            tables = [row.name for row in staged if row.name]
            rows = sum(row.rows for row in staged)
            try:
                is_ours = self._move(cursor, schema, tables, batch_id)
                connection.commit()
            except Exception as error:
                connection.rollback()
                drop_tables(cursor, tables)
                connection.commit()
                if isinstance(error, SparkFailure):
                    raise
                raise SchemaMismatch(
                    f"PostgreSQL refuses the rows for {self._options.table}: {first_line(error)}"
                ) from error
            # Committed: no attempt at this batch can be any more, so what others staged for it is nobody's.
            drop_tables(cursor, _tables_like(cursor, prefix))
            connection.commit()
        return WrittenBatch(rows, len(tables), False) if is_ours else SKIPPED

    def _prepare(self, cursor: Any, schema: pa.Schema, nested: frozenset[str]) -> None:
        """The marker table, the target and its new columns."""
        # One at a time: two sessions that create the same table collide, IF NOT EXISTS or not.
        cursor.execute("SELECT pg_advisory_xact_lock(7364127)")
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {MARKERS} "
            "(query text, target text, batch bigint, stream text, PRIMARY KEY (query, target))"
        )
        types = {field.name: JSON if field.name in nested else column_type(field.name, field.type) for field in schema}
        known = self._columns(cursor)
        if not known:
            columns = [f"{quoted(name)} {kind}" for name, kind in types.items()]
            if self._options.mode == "upsert":
                columns.append(f"PRIMARY KEY ({_names(self._options.keys)})")
            cursor.execute(f"CREATE TABLE {self._target} ({', '.join(columns)})")
            return
        # Types are PostgreSQL's to judge, when it casts: names are judged here.
        same = pa.schema([schema.field(name) if name in schema.names else pa.field(name, pa.null()) for name in known])
        evolved = fit(self._options.table, schema, same, merge_schema=self._options.merge_schema)
        for name in evolved.names[len(known) :]:
            cursor.execute(f"ALTER TABLE {self._target} ADD COLUMN {quoted(name)} {types[name]}")

    def _is_stored(self, cursor: Any, batch: int) -> bool:
        """Holds the query's row of the marker table until the transaction ends."""
        key = self._query, self._full_name(cursor)
        cursor.execute(f"INSERT INTO {MARKERS} VALUES ($1, $2) ON CONFLICT DO NOTHING", key)
        cursor.execute(f"SELECT batch, stream FROM {MARKERS} WHERE query = $1 AND target = $2 FOR UPDATE", key)
        number, stream = cursor.fetchone()
        stored = None if number is None else Marker(number, stream or "")
        asked = Marker(batch, self._stream)
        return is_stored(self._options.table, self._query, asked, stored, self._options.on_old_batch)

    def _full_name(self, cursor: Any) -> str:
        """However the option is written: `orders` and `public.orders` are one table."""
        cursor.execute(
            "SELECT nspname || '.' || relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE pg_class.oid = to_regclass($1)",
            (self._target,),
        )
        (name,) = cursor.fetchone()
        return name

    def _move(self, cursor: Any, schema: pa.Schema, tables: list[str], batch: int) -> bool:
        """False: another run of this query stored the batch."""
        if self._is_stored(cursor, batch):
            drop_tables(cursor, tables)
            return False
        known = self._columns(cursor)
        names = _names(schema.names)
        values = ", ".join(f"CAST({quoted(name)} AS {known[name]})" for name in schema.names)
        if self._options.mode == "overwrite":
            cursor.execute(f"DELETE FROM {self._target}")
        if tables:
            rows = " UNION ALL ".join(f"SELECT {names} FROM {quoted(table)}" for table in tables)
            keys = self._options.keys
            if keys:
                self._check_keys(cursor, rows)
            suffix = _on_conflict(keys, schema.names) if keys else ""
            cursor.execute(f"INSERT INTO {self._target} ({names}) SELECT {values} FROM ({rows}) AS staged{suffix}")
        drop_tables(cursor, tables)
        cursor.execute(
            f"UPDATE {MARKERS} SET batch = $1, stream = $2 WHERE query = $3 AND target = $4",
            (batch, self._stream, self._query, self._full_name(cursor)),
        )
        return True

    def _check_keys(self, cursor: Any, rows: str) -> None:
        names = _names(self._options.keys)
        cursor.execute(f"SELECT count(*) FROM (SELECT 1 FROM ({rows}) AS s GROUP BY {names} HAVING count(*) > 1) AS d")
        (twice,) = cursor.fetchone()
        if twice:
            raise SchemaMismatch(
                f"{twice} keys ({listed(self._options.keys)}) have more than one row in the batch: set order_by=COLUMN "
                "to keep the row with its highest value"
            )

    def _columns(self, cursor: Any) -> dict[str, str]:
        """Name and type of the target's columns; none when there is no such table.

        Types without their lengths: a cast to varchar(5) cuts, and only the insert itself refuses.
        """
        cursor.execute(
            "SELECT attname::text, format_type(atttypid, -1) FROM pg_attribute "
            "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (self._target,),
        )
        return dict(cursor.fetchall())


def stage_writer(
    url: str, prefix: str, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """In a task: COPY its rows into a table of its own, and tell its name."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with told_plainly():
            name, rows = _stage(url, f"{prefix}{uuid.uuid4().hex[:12]}", schema, batches)
        yield pa.RecordBatch.from_pydict({"name": pa.array([name]), "rows": pa.array([rows], pa.int64())})

    return write


def _stage(url: str, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> tuple[str, int]:
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return "", 0
    count = 0

    def conformed() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in itertools.chain((first,), batches):
            count += batch.num_rows
            yield conform(batch, schema)

    columns = ", ".join(f"{quoted(field.name)} {column_type(field.name, field.type)}" for field in schema)
    with connect(url) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE UNLOGGED TABLE {quoted(name)} ({columns})")
        cursor.adbc_ingest(name, pa.RecordBatchReader.from_batches(schema, conformed()), mode="append")
        connection.commit()
    return name, count


def connect(url: str) -> Any:
    """A connection with transactions, or the one sentence on why there is none; the password is in neither."""
    import adbc_driver_postgresql.dbapi as dbapi

    check_url(url)
    try:
        return dbapi.connect(url)
    except dbapi.Error as error:
        raise SparkFailure(f"PostgreSQL cannot be reached: {first_line(error)}") from None


def check_url(url: str) -> None:
    """BadOption for what libpq cannot take apart: it would quote the piece, and that may be the password's."""
    if not url.isprintable() or _BAD_PERCENT.search(url) is not None or _URL.fullmatch(url) is None:
        raise BadOption(
            "the PostgreSQL url is not valid; write it as postgresql://user:password@host:port/database, and "
            "percent-encode what is special in the password (@ is %40, / is %2F, % is %25)"
        )


def drop_tables(cursor: Any, names: list[str]) -> None:
    for name in names:
        cursor.execute(f"DROP TABLE IF EXISTS {quoted(name)}")


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(
        (line for line in lines if "ERROR:" in line or "FATAL:" in line), lines[0] if lines else str(type(error))
    )


def _tables_like(cursor: Any, prefix: str) -> list[str]:
    cursor.execute(
        "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() AND starts_with(tablename, $1)",
        (prefix,),
    )
    return [name for (name,) in cursor.fetchall()]


def _names(names: Any) -> str:
    return ", ".join(quoted(name) for name in names)


def _on_conflict(keys: tuple[str, ...], names: list[str]) -> str:
    others = [name for name in names if name not in keys]
    action = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in others)
    return f" ON CONFLICT ({_names(keys)}) DO {f'UPDATE SET {action}' if others else 'NOTHING'}"
