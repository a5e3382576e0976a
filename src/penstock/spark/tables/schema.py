"""Columns: of Spark as Arrow has them, of a batch against those of a table, and rows brought into the table's shape.

Called by the sinks on the driver (batch_schema, fit) and in tasks (conform).
Laws:
- Inside, an Arrow schema is plain: no large types, microseconds, UTC, every column nullable (plain).
- A value is never changed to make it fit: a type is equal, or wider by a step that loses nothing (is_wider).
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.spark.tables.failures import SchemaMismatch, listed

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_WHOLE = {"int8": 0, "int16": 1, "int32": 2, "int64": 3}


def batch_schema(schema: "StructType") -> pa.Schema:
    """What Spark's columns are in a table; SchemaMismatch names those that no table can hold."""
    from pyspark.sql.pandas.types import to_arrow_type

    names = [field.name for field in schema.fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaMismatch(f"two columns are called {listed(twice)}: give each a name of its own")
    misfits = [f"{field.name} ({field.dataType.simpleString()})" for field in schema.fields if _misfit(field.dataType)]
    if misfits:
        raise SchemaMismatch(f"no table can hold {listed(misfits)}: cast each to another type or leave it out")
    return pa.schema(
        [pa.field(field.name, plain(to_arrow_type(field.dataType, timezone="UTC"))) for field in schema.fields]
    )


def plain(kind: pa.DataType) -> pa.DataType:
    types: Any = pa.types
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([pa.field(part.name, plain(part.type)) for part in kind])
    if types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Without what a library adds; whether a column must have a value stays."""
    return pa.schema([pa.field(field.name, plain(field.type), field.nullable) for field in schema])


def fit(table: str, batch: pa.Schema, stored: pa.Schema, *, merge_schema: bool) -> pa.Schema:
    """The table's columns after the batch, those new to it last. SchemaMismatch where it does not fit."""
    by_name = {field.name: field for field in stored}
    wrong = [
        f"{field.name} is {field.type} in the batch and {by_name[field.name].type} in the table"
        for field in batch
        if field.name in by_name and not is_wider(by_name[field.name].type, field.type)
    ]
    if wrong:
        raise SchemaMismatch(f"{table}: {listed(wrong)}; cast in the query, or write to another table")
    missing = [field.name for field in stored if not field.nullable and field.name not in batch.names]
    if missing:
        raise SchemaMismatch(f"{table} needs a value in {listed(missing)}, which the batch does not have")
    added = [field for field in batch if field.name not in by_name]
    if added and not merge_schema:
        raise SchemaMismatch(
            f"{table} has no column {listed([field.name for field in added])}: set merge_schema=true to add it, "
            "or leave it out of the query"
        )
    return pa.schema([*stored, *added])


def is_wider(table: pa.DataType, batch: pa.DataType) -> bool:
    """Whether each value of a batch's type is one of the table's."""
    types: Any = pa.types
    if table.equals(batch):
        return True
    if str(table) in _WHOLE and str(batch) in _WHOLE:
        return _WHOLE[str(table)] >= _WHOLE[str(batch)]
    if types.is_float64(table):
        return types.is_float32(batch)
    if types.is_decimal(table) and types.is_decimal(batch):
        return table.scale == batch.scale and table.precision >= batch.precision
    return False


def conform(rows: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The rows with exactly the target's columns: cast, in its order, null where the batch has none."""
    columns: list[pa.Array] = []
    for field in target:
        place = rows.schema.get_field_index(field.name)
        column = pa.nulls(rows.num_rows, field.type) if place < 0 else rows.column(place)
        if not column.type.equals(field.type):
            column = column.cast(field.type)
        if not field.nullable and column.null_count:
            raise SchemaMismatch(f"column {field.name} of the table needs a value, and some rows have none")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _misfit(kind: "DataType") -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return _misfit(kind.elementType)
    if isinstance(kind, MapType):
        return _misfit(kind.keyType) or _misfit(kind.valueType)
    if isinstance(kind, StructType):
        return any(_misfit(field.dataType) for field in kind.fields)
    name = kind.typeName()
    return name in ("void", "variant", "udt", "geometry", "geography", "time") or "interval" in name
