"""One JSON value at a time, as Spark's from_json would read it: the careful way beside the fast one.

Called by json_decoder for records that Arrow's reader refuses, and for types it has no reader for. Each Spark type gets
a function from what `json` gives to what Arrow takes; BadRecord where the value is of another type.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Any, cast

from pyspark.sql import types as t

from penstock.spark.errors import BadOption
from penstock.spark.formats.columns import BadRecord, unbase64

Reader = Callable[[Any], Any]

_WHOLE_BITS: dict[type[t.DataType], int] = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32, t.LongType: 64}
_NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "INF": "inf", "-Infinity": "-inf", "-INF": "-inf"}
_WIDE = Context(prec=80)
# Spark keeps microseconds; finer digits are cut, as it cuts them.
_FINER = re.compile(r"(\.\d{6})\d+")


def parse(raw: bytes) -> Any:
    """Numbers with a point stay exact until the column's type is known."""
    try:
        return json.loads(raw, parse_float=Decimal)
    except (ValueError, DecimalException) as error:
        raise BadRecord(f"it is no JSON: {error}") from error


def reader_of(spark_type: t.DataType, where: str = "") -> Reader:
    """BadOption for a type that JSON cannot hold."""
    match spark_type:
        case t.StructType():
            return _struct(spark_type, where)
        case t.ArrayType():
            return _array(reader_of(spark_type.elementType, f"{where}[]"), where)
        case t.MapType():
            if not isinstance(spark_type.keyType, t.StringType):
                raise BadOption(f"{where or 'the schema'} is a map whose keys are no strings, which JSON cannot hold")
            return _map(reader_of(spark_type.valueType, f"{where}.*"), where)
        case t.DecimalType():
            return _decimal(spark_type, where)
        case _:
            pass
    if (bits := _WHOLE_BITS.get(type(spark_type))) is not None:
        return _whole(bits, where)
    reader = _PLAIN.get(type(spark_type))
    if reader is None:
        raise BadOption(f"{where or 'the schema'} is {spark_type.simpleString()}, which cannot be read from JSON")
    return lambda value: None if value is None else reader(value, where)


def _wrong(where: str, wanted: str, value: Any) -> BadRecord:
    kinds = {dict: "an object", list: "an array", str: "text", bool: "true or false", type(None): "null"}
    return BadRecord(f"{where.lstrip('.') or 'it'} should be {wanted} and is {kinds.get(type(value), 'a number')}")


def _struct(spark_type: t.StructType, where: str) -> Reader:
    readers = [(field.name, reader_of(field.dataType, f"{where}.{field.name}")) for field in spark_type.fields]

    def read(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        given = cast("dict[str, Any]", value)
        return {name: reader(given.get(name)) for name, reader in readers}

    return read


def _array(element: Reader, where: str) -> Reader:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise _wrong(where, "an array", value)
        return [element(one) for one in cast("list[Any]", value)]

    return read


def _map(item: Reader, where: str) -> Reader:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        return [(name, item(one)) for name, one in cast("dict[str, Any]", value).items()]

    return read


def _whole(bits: int, where: str) -> Reader:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not int:
            raise _wrong(where, "a whole number", value)
        if not least <= value <= most:
            raise BadRecord(f"{where.lstrip('.') or 'it'} does not fit into {bits} bits")
        return value

    return read


def _decimal(spark_type: t.DecimalType, where: str) -> Reader:
    unit = Decimal(1).scaleb(-spark_type.scale)

    def read(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
            raise _wrong(where, "a number", value)
        try:
            # Spark rounds half up to the column's scale, then asks whether it fits.
            rounded = Decimal(value).quantize(unit, ROUND_HALF_UP, _WIDE)
        except DecimalException as error:
            raise BadRecord(f"{where.lstrip('.')} is no number that {spark_type.simpleString()} can hold") from error
        if not rounded.is_finite() or rounded.adjusted() >= spark_type.precision - spark_type.scale:
            if rounded.is_zero():
                return rounded
            raise BadRecord(f"{where.lstrip('.')} does not fit into {spark_type.simpleString()}")
        return rounded

    return read


def _float(value: Any, where: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(_NOT_FINITE[value])
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _wrong(where, "a number", value)
    return float(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "text", value)
    return value


def _boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return value


def _date(value: Any, where: str) -> date:
    text = _text(value, where)
    if text[10:11] not in ("", "T", " "):
        raise BadRecord(f"{where.lstrip('.')} is no date like 2024-01-31")
    try:
        return date.fromisoformat(text[:10])
    except ValueError as error:
        raise BadRecord(f"{where.lstrip('.')} is no date like 2024-01-31") from error


def _moment(value: Any, where: str) -> datetime:
    try:
        if type(value) is int:
            # Spark reads a whole number as seconds since 1970.
            return datetime.fromtimestamp(value, UTC)
        found = datetime.fromisoformat(_FINER.sub(r"\1", _text(value, where)))
    except BadRecord:
        raise
    except (ValueError, OverflowError, OSError) as error:
        raise BadRecord(f"{where.lstrip('.')} is no time like 2024-01-31T12:30:00Z") from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _local(value: Any, where: str) -> datetime:
    try:
        found = datetime.fromisoformat(_FINER.sub(r"\1", _text(value, where)))
    except BadRecord:
        raise
    except ValueError as error:
        raise BadRecord(f"{where.lstrip('.')} is no time like 2024-01-31T12:30:00") from error
    if found.tzinfo is not None:
        raise BadRecord(f"{where.lstrip('.')} names a time zone, and its column has none")
    return found


_PLAIN: dict[type[t.DataType], Callable[[Any, str], Any]] = {
    t.FloatType: _float,
    t.DoubleType: _float,
    t.StringType: _text,
    t.BooleanType: _boolean,
    t.BinaryType: lambda value, where: unbase64(_text(value, where)),
    t.DateType: _date,
    t.TimestampType: _moment,
    t.TimestampNTZType: _local,
}
