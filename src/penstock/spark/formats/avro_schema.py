"""Avro schemas: parsed, checked, and as Spark types.

Called by resolving (the reader's schema) and avro_decoder (readers and writers). Laws:
- A schema that can make its decoder loop or recurse without bound never reaches it: the native decoder would take the
  whole process with it. These are schemas that refer to themselves, and arrays of items that take no bytes.
- Times are read as the numbers they are and become times in Arrow; so their units must agree between writer and reader.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import fastavro
import pyarrow as pa
from pyspark.sql import types as t

from penstock.spark.errors import BadOption
from penstock.spark.formats.columns import arrow_type

NESTING_MAX = 64
TYPES_MAX = 10_000

Schema = Any

_PLAIN: dict[str, t.DataType] = {
    "null": t.NullType(),
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "string": t.StringType(),
    "bytes": t.BinaryType(),
}
_TIMES: dict[tuple[str, str], tuple[t.DataType, pa.DataType]] = {
    ("int", "date"): (t.DateType(), pa.date32()),
    ("long", "timestamp-millis"): (t.TimestampType(), pa.timestamp("ms", "UTC")),
    ("long", "timestamp-micros"): (t.TimestampType(), pa.timestamp("us", "UTC")),
    ("long", "local-timestamp-millis"): (t.TimestampNTZType(), pa.timestamp("ms")),
    ("long", "local-timestamp-micros"): (t.TimestampNTZType(), pa.timestamp("us")),
}


class AvroSchema(NamedTuple):
    root: Schema
    names: Mapping[str, Schema]

    def of(self, schema: Schema) -> Schema:
        """The definition behind a name, or the schema itself."""
        return self.names.get(schema, schema) if isinstance(schema, str) else schema


class ColumnType(NamedTuple):
    """What Spark shall see, and what Arrow makes of what is read."""

    spark: t.DataType
    raw: pa.DataType


def parse_avro(text: str, references: tuple[tuple[str, str], ...] = ()) -> AvroSchema:
    """BadOption for what is no schema, or one that is not safe to decode with."""
    names: dict[str, Schema] = {}
    try:
        for _, one in references:
            fastavro.parse_schema(_load(one), named_schemas=names)
        root = fastavro.parse_schema(_load(text), named_schemas=names)
    except BadOption:
        raise
    except Exception as error:
        raise BadOption(f"the Avro schema is not valid: {type(error).__name__}: {str(error)[:200]}") from error
    parsed = AvroSchema(root, names)
    _check_is_bounded(parsed, root, (), set())
    return parsed


def column_type(schema: AvroSchema) -> ColumnType:
    return _Typing(schema).of(schema.root, "the schema")


def is_complex(union: list[Schema]) -> bool:
    """More than one type beside null that Spark has no common type for: its column is a struct of member0, member1 …"""
    kinds = {kind_of(one) for one in branches(union)}
    return len(branches(union)) > 1 and not kinds <= {"int", "long"} and not kinds <= {"float", "double"}


def branches(union: list[Schema]) -> list[Schema]:
    return [one for one in union if kind_of(one) != "null"]


def kind_of(schema: Schema) -> str:
    if isinstance(schema, list):
        return "union"
    if isinstance(schema, dict):
        return str(cast("dict[str, Any]", schema)["type"])
    return str(schema)


def logical_of(schema: Schema) -> str:
    return str(cast("dict[str, Any]", schema).get("logicalType", "")) if isinstance(schema, dict) else ""


def _load(text: str) -> Schema:
    try:
        # A bare name of a type is a schema too.
        loaded = json.loads(text) if text.lstrip()[:1] in ("{", "[", '"') else text.strip()
    except (ValueError, RecursionError) as error:
        raise BadOption(f"the Avro schema is no JSON: {error}") from error
    # Level by level, so that the check itself cannot recurse too deeply.
    level: list[Any] = [loaded]
    for _ in range(4 * NESTING_MAX):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return loaded
    raise BadOption(f"the Avro schema is nested deeper than {NESTING_MAX}")


def _inside(one: Any) -> list[Any]:
    if isinstance(one, dict):
        return [inner for inner in cast("dict[str, Any]", one).values() if isinstance(inner, dict | list)]
    return (
        [inner for inner in cast("list[Any]", one) if isinstance(inner, dict | list)] if isinstance(one, list) else []
    )


def _check_is_bounded(schema: AvroSchema, one: Schema, path: tuple[str, ...], done: set[str]) -> None:
    one = schema.of(one)
    kind = kind_of(one)
    if kind == "union":
        for branch in one:
            _check_is_bounded(schema, branch, path, done)
    elif kind in ("record", "error"):
        name = one["name"]
        if name in path:
            raise BadOption(f"the Avro schema's record {name} refers to itself, which no Spark type can")
        if name not in done:
            for field in one["fields"]:
                _check_is_bounded(schema, field["type"], (*path, name), done)
            done.add(name)
    elif kind == "array":
        _check_is_bounded(schema, one["items"], path, done)
        if _is_weightless(schema, one["items"]):
            raise BadOption("the Avro schema has an array whose items take no bytes: its length could be anything")
    elif kind == "map":
        _check_is_bounded(schema, one["values"], path, done)


def _is_weightless(schema: AvroSchema, one: Schema) -> bool:
    one = schema.of(one)
    kind = kind_of(one)
    if kind in ("record", "error"):
        return all(_is_weightless(schema, field["type"]) for field in one["fields"])
    return kind == "null" or (kind == "fixed" and one["size"] == 0)


class _Typing:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._types = 0

    def of(self, one: Schema, where: str) -> ColumnType:
        self._types += 1
        if self._types > TYPES_MAX:
            # A few named records that use each other twice each grow without bound when written out.
            raise BadOption(f"the Avro schema has more than {TYPES_MAX} columns when written out")
        one = self._schema.of(one)
        kind, logical = kind_of(one), logical_of(one)
        match kind:
            case "union":
                return self._union(one, where)
            case "record" | "error":
                return self._record([(field["name"], field["type"]) for field in one["fields"]], where)
            case "array":
                item = self.of(one["items"], f"{where}[]")
                return ColumnType(t.ArrayType(item.spark), pa.list_(pa.field("element", item.raw)))
            case "map":
                value = self.of(one["values"], f"{where}.*")
                return ColumnType(t.MapType(t.StringType(), value.spark), pa.map_(pa.string(), value.raw))
            case "enum":
                return ColumnType(t.StringType(), pa.string())
            case "fixed" | "bytes" if is_decimal(one):
                decimal = t.DecimalType(one["precision"], one.get("scale", 0))
                return ColumnType(decimal, arrow_type(decimal))
            case "fixed":
                if logical == "uuid" and one["size"] == 16:
                    return ColumnType(t.StringType(), pa.binary(16))
                return ColumnType(t.BinaryType(), pa.binary())
            case _:
                if (time := _TIMES.get((kind, logical))) is not None:
                    return ColumnType(*time)
                return ColumnType(_PLAIN[kind], arrow_type(_PLAIN[kind]))

    def _record(self, fields: list[tuple[str, Schema]], where: str) -> ColumnType:
        columns = [(name, self.of(one, f"{where}.{name}")) for name, one in fields]
        return ColumnType(
            t.StructType([t.StructField(name, column.spark) for name, column in columns]),
            pa.struct([pa.field(name, column.raw) for name, column in columns]),
        )

    def _union(self, union: list[Schema], where: str) -> ColumnType:
        others = branches(union)
        if not others:
            return ColumnType(t.NullType(), pa.null())
        if is_complex(union):
            return self._record([(f"member{index}", one) for index, one in enumerate(others)], where)
        # [int, long] is long and [float, double] is double, as Spark has it.
        widest = max(others, key=lambda one: kind_of(one) in ("long", "double"))
        return self.of(widest, where)


def is_decimal(one: Schema) -> bool:
    """A decimal that Spark can hold; another stays bytes."""
    if logical_of(one) != "decimal":
        return False
    precision, scale = one.get("precision"), one.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return False
    return 0 < precision <= 38 and 0 <= scale <= precision
