"""Protobuf messages as Arrow columns, field by field over a whole batch.

Called by protobuf_decoder. Each type of field gets a Leaf: its Spark type, and the column it makes of a list of values.
- A field without presence (proto3's plain scalars) has its default where it is not set; one with presence, also each
  member of a oneof, is null. Enums are their names; a number without one is its digits. Unsigned 32-bit numbers are
  BIGINT and 64-bit ones DECIMAL(20,0), so that none turns negative.
- Timestamp, Duration and the wrappers become what they stand for; Struct, Value and ListValue become JSON text.
- A message without fields has no column.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from pyspark.sql import types as t

from penstock.spark.errors import BadOption
from penstock.spark.formats.columns import arrow_type

NESTING_MAX = 64
FIELDS_MAX = 10_000


class Leaf(NamedTuple):
    spark: t.DataType
    column: Callable[[list[Any]], pa.Array]


_F = FieldDescriptor
_SCALARS: dict[int, t.DataType] = {
    _F.TYPE_DOUBLE: t.DoubleType(),
    _F.TYPE_FLOAT: t.FloatType(),
    _F.TYPE_INT64: t.LongType(),
    _F.TYPE_SINT64: t.LongType(),
    _F.TYPE_SFIXED64: t.LongType(),
    _F.TYPE_UINT64: t.DecimalType(20, 0),
    _F.TYPE_FIXED64: t.DecimalType(20, 0),
    _F.TYPE_INT32: t.IntegerType(),
    _F.TYPE_SINT32: t.IntegerType(),
    _F.TYPE_SFIXED32: t.IntegerType(),
    _F.TYPE_UINT32: t.LongType(),
    _F.TYPE_FIXED32: t.LongType(),
    _F.TYPE_BOOL: t.BooleanType(),
    _F.TYPE_STRING: t.StringType(),
    _F.TYPE_BYTES: t.BinaryType(),
}
_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")


def message_leaf(descriptor: Any) -> Leaf:
    """BadOption for a message that no Spark type can hold."""
    leaf = _Typing().message(descriptor, ())
    if leaf is None:
        raise BadOption(f"the protobuf message {descriptor.full_name} has no fields")
    return leaf


class _Typing:
    def __init__(self) -> None:
        self._fields = 0

    def message(self, descriptor: Any, path: tuple[str, ...]) -> Leaf | None:
        name: str = descriptor.full_name
        if (known := _well_known(descriptor)) is not None:
            return known
        if name in path:
            raise BadOption(f"the protobuf message {name} refers to itself, which no Spark type can")
        if len(path) > NESTING_MAX:
            raise BadOption(f"the protobuf message {path[0]} is nested deeper than {NESTING_MAX}")
        fields: list[tuple[str, Leaf]] = []
        for field in descriptor.fields:
            self._fields += 1
            if self._fields > FIELDS_MAX:
                raise BadOption(f"the protobuf message {path[0] if path else name} has more than {FIELDS_MAX} columns")
            leaf = self._field(field, (*path, name))
            if leaf is not None:
                fields.append((field.name, leaf))
        return _struct_leaf(fields) if fields else None

    def _field(self, field: Any, path: tuple[str, ...]) -> Leaf | None:
        """The leaf that makes a column of this field out of a list of the messages that hold it."""
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key = self._value(entry.fields_by_name["key"], path)
            value = self._value(entry.fields_by_name["value"], path)
            return None if key is None or value is None else _map_leaf(field.name, key, value)
        value = self._value(field, path)
        if value is None:
            return None
        if field.is_repeated:
            return _list_leaf(field.name, value)
        return _field_leaf(field.name, value, has_presence=field.has_presence)

    def _value(self, field: Any, path: tuple[str, ...]) -> Leaf | None:
        if field.message_type is not None:
            return self.message(field.message_type, path)
        if field.enum_type is not None:
            return _enum_leaf(field.enum_type)
        return _scalar_leaf(_SCALARS[field.type])


def _scalar_leaf(spark_type: t.DataType) -> Leaf:
    kind = arrow_type(spark_type)

    def column(values: list[Any]) -> pa.Array:
        return pa.array(values, type=kind)

    return Leaf(spark_type, column)


def _enum_leaf(descriptor: Any) -> Leaf:
    names = {number: value.name for number, value in descriptor.values_by_number.items()}

    def column(values: list[Any]) -> pa.Array:
        return pa.array([None if one is None else names.get(one) or str(one) for one in values], type=pa.string())

    return Leaf(t.StringType(), column)


def _struct_leaf(fields: list[tuple[str, Leaf]]) -> Leaf:
    spark_type = t.StructType([t.StructField(name, leaf.spark) for name, leaf in fields])
    kind = arrow_type(spark_type)

    def column(messages: list[Any]) -> pa.Array:
        children = [leaf.column(messages) for _, leaf in fields]
        mask = pa.array([one is None for one in messages]) if None in messages else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)

    return Leaf(spark_type, column)


def _field_leaf(name: str, value: Leaf, *, has_presence: bool) -> Leaf:
    def plain(messages: list[Any]) -> pa.Array:
        return value.column([None if one is None else getattr(one, name) for one in messages])

    def present(messages: list[Any]) -> pa.Array:
        return value.column(
            [getattr(one, name) if one is not None and one.HasField(name) else None for one in messages]
        )

    return Leaf(value.spark, present if has_presence else plain)


def _list_leaf(name: str, value: Leaf) -> Leaf:
    spark_type = t.ArrayType(value.spark)
    kind = arrow_type(spark_type)

    def column(messages: list[Any]) -> pa.Array:
        flat: list[Any] = []
        offsets = [0]
        for one in messages:
            if one is not None:
                flat.extend(getattr(one, name))
            offsets.append(len(flat))
        mask = pa.array([one is None for one in messages]) if None in messages else None
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), value.column(flat), type=kind, mask=mask)

    return Leaf(spark_type, column)


def _map_leaf(name: str, key: Leaf, value: Leaf) -> Leaf:
    spark_type = t.MapType(key.spark, value.spark)
    kind = arrow_type(spark_type)

    def column(messages: list[Any]) -> pa.Array:
        keys: list[Any] = []
        values: list[Any] = []
        offsets = [0]
        for one in messages:
            if one is not None:
                entries = getattr(one, name)
                keys.extend(entries)
                values.extend([entries[entry] for entry in entries])
            offsets.append(len(keys))
        mask = pa.array([one is None for one in messages]) if None in messages else None
        return pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()), key.column(keys), value.column(values), type=kind, mask=mask
        )

    return Leaf(spark_type, column)


def _well_known(descriptor: Any) -> Leaf | None:
    package, _, name = descriptor.full_name.rpartition(".")
    if package != "google.protobuf":
        return None
    if name == "Timestamp":
        return _derived(t.TimestampType(), lambda one: one.seconds * 1_000_000 + one.nanos // 1000)
    if name == "Duration":
        return _derived(t.DayTimeIntervalType(), lambda one: one.seconds * 1_000_000 + _cut(one.nanos, 1000))
    if name in ("Struct", "Value", "ListValue"):
        return _derived(t.StringType(), lambda one: json.dumps(json_format.MessageToDict(one), ensure_ascii=False))
    if name.removesuffix("Value") in _WRAPPERS and name.endswith("Value"):
        return _derived(_SCALARS[descriptor.fields_by_name["value"].type], lambda one: one.value)
    return None


def _derived(spark_type: t.DataType, value: Callable[[Any], Any]) -> Leaf:
    kind = arrow_type(spark_type)

    def column(messages: list[Any]) -> pa.Array:
        return pa.array([None if one is None else value(one) for one in messages], type=kind)

    return Leaf(spark_type, column)


def _cut(number: int, by: int) -> int:
    """Towards zero: a duration's nanoseconds have the sign of its seconds."""
    return int(number / by)
