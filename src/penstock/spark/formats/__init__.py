"""Typed columns out of keys and values: string, json, avro and protobuf, with or without a schema registry.

The source asks `format_options` for the options of a read, `resolve` (on the driver, once) for the schemas behind them
and `open_decoder` (in each task) for what turns raw rows into typed ones:

    options = resolve(format_options(user_options))          # picklable; the same reader schema for every task
    decoder = open_decoder(options)                          # None: keys and values stay bytes
    decoder.row_schema(RAW), decoder.decode(batch), decoder.flush()

Nothing heavy is imported before a decoder is opened.
"""

from typing import TYPE_CHECKING, Protocol

from penstock.spark.formats.options import FORMAT_OPTION_NAMES, FORMAT_OPTIONS, FormatOptions, format_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "FORMAT_OPTIONS",
    "FORMAT_OPTION_NAMES",
    "Decoder",
    "FormatOptions",
    "format_options",
    "open_decoder",
    "resolve",
]


class Decoder(Protocol):
    def schema(self) -> "StructType":
        """The fields `key` and `value` as they are after decoding."""
        ...

    def row_schema(self, raw: "StructType") -> "StructType":
        """The schema of raw rows with `key` and `value` retyped; `headers` stay only if the user asked for them."""
        ...

    def decode(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """Raw rows in, typed rows out; a bad record fails, leaves or becomes null as `on.bad.record` says."""
        ...

    def flush(self) -> None:
        """Wait until every dead letter is acknowledged; a task ends only after this."""
        ...


def resolve(options: FormatOptions) -> FormatOptions:
    """The same options with every schema found: registry and files are read here, on the driver."""
    from penstock.spark.formats.resolving import resolve

    return resolve(options)


def open_decoder(options: FormatOptions) -> Decoder | None:
    """What decodes rows under these options, or None where keys and values stay bytes."""
    if not options.is_typed:
        return None
    from penstock.spark.formats.row_decoder import RowDecoder

    return RowDecoder(resolve(options))
