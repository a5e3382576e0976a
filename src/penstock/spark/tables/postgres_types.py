"""Columns and names as PostgreSQL has them.

Called by postgres.
"""

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.spark.errors import BadOption
from penstock.spark.tables.failures import SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAMES = {
    "bool": "boolean",
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamptz",
    "timestamp[us]": "timestamp",
}
JSON = "jsonb"


def column_type(name: str, kind: pa.DataType) -> str:
    types: Any = pa.types
    if types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if types.is_list(kind) and str(kind.value_type) in _NAMES:
        return f"{_NAMES[str(kind.value_type)]}[]"
    if str(kind) not in _NAMES:
        raise SchemaMismatch(f"PostgreSQL has no type for column {name} ({kind}): cast it, or leave it out")
    return _NAMES[str(kind)]


def quoted(name: str) -> str:
    if "\0" in name or not name:
        raise BadOption(f"{name!r} cannot be a name in PostgreSQL")
    return '"' + name.replace('"', '""') + '"'


def table_name(text: str) -> tuple[str | None, str]:
    """`schema.table` or `table`; a part in double quotes may have dots."""
    parts = [match[1] or match[2] for match in re.finditer(r'"([^"]+)"|([^."]+)', text)]
    if not 1 <= len(parts) <= 2:
        raise BadOption(f"{text} is neither TABLE nor SCHEMA.TABLE")
    return (None, parts[0]) if len(parts) == 1 else (parts[0], parts[1])


def nested_as_json(df: "DataFrame") -> "tuple[DataFrame, frozenset[str]]":
    """Structs, maps and arrays of them as JSON text, and which columns those are: PostgreSQL keeps them as jsonb."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    def is_nested(kind: Any) -> bool:
        if isinstance(kind, ArrayType):
            return isinstance(kind.elementType, StructType | MapType | ArrayType)
        return isinstance(kind, StructType | MapType)

    nested = frozenset(field.name for field in df.schema.fields if is_nested(field.dataType))
    if not nested:
        return df, nested
    columns = [
        F.to_json(quoted_column(name)).alias(name) if name in nested else quoted_column(name) for name in df.columns
    ]
    return df.select(*columns), nested


def quoted_column(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col(f"`{name.replace('`', '``')}`")
