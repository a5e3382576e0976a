"""Avro values as columns: read by fastavro, resolved from the writer's schema to the reader's.

Called by row_decoder. Without a registry every value is written with the reader's schema and has no header; with one,
each value names its writer's schema by id.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql import types as t

from penstock.spark.errors import BadOption
from penstock.spark.formats.avro_preparing import check_units, prepare_reader
from penstock.spark.formats.avro_schema import column_type, parse_avro
from penstock.spark.formats.avro_widening import prepare_writer
from penstock.spark.formats.columns import (
    BadRecord,
    Decoded,
    arrow_type,
    build,
    check_times,
    convert,
    nullable,
    reason_of,
)
from penstock.spark.formats.framing import HEADER_BYTES, schema_id
from penstock.spark.formats.options import FoundSchema
from penstock.spark.formats.registry import Registry, RegistryFailed, UnknownSchema

ReadOne = Callable[[BytesIO], Any]


class AvroDecoder:
    def __init__(self, found: FoundSchema, registry: Registry | None) -> None:
        self._reader = parse_avro(found.text, found.references)
        self._found = found
        self._registry = registry
        kind = column_type(self._reader)
        self.spark_type: t.DataType = nullable(kind.spark)
        self._raw, self._wanted = kind.raw, arrow_type(self.spark_type)
        self._prepared = prepare_reader(self._reader)
        self._by_id: dict[int, ReadOne | str] = {}

    def decode(self, values: pa.Array) -> Decoded:
        bad: dict[int, str] = {}
        objects: list[Any] = []
        read_own = self._read_with(None)
        for row, raw in enumerate(values.to_pylist()):
            one = None
            if raw is not None:
                try:
                    stream = BytesIO(raw)
                    if self._registry is None:
                        read = read_own
                    else:
                        read = self._by_writer(schema_id(raw), self._registry)
                        stream.seek(HEADER_BYTES)
                    one = read(stream)
                    if stream.tell() != len(raw):
                        raise BadRecord(f"{len(raw) - stream.tell()} bytes are left over behind the record")
                except RegistryFailed:
                    # The registry's trouble is not the record's fault: no dead letter, the task is tried again.
                    raise
                except Exception as error:
                    # fastavro lets through whatever a malformed value makes Python raise.
                    one = None
                    bad[row] = _reason(error)
            objects.append(one)
        return Decoded(build(objects, self._column, bad), bad)

    def _column(self, objects: list[Any]) -> pa.Array:
        return check_times(convert(pa.array(objects, type=self._raw), self._wanted))

    def _by_writer(self, writer_id: int, registry: Registry) -> ReadOne:
        read = self._by_id.get(writer_id)
        if read is None:
            read = self._by_id[writer_id] = self._open_writer(writer_id, registry)
        if isinstance(read, str):
            raise BadRecord(read)
        return read

    def _open_writer(self, writer_id: int, registry: Registry) -> "ReadOne | str":
        """How to read what was written with this schema, or why that is not possible."""
        try:
            found = registry.by_id(writer_id)
        except UnknownSchema as error:
            raise BadRecord(str(error)) from error
        if found.kind != "AVRO":
            return f"it was written with schema {writer_id}, which is {found.kind} and not AVRO"
        if (found.text, found.references) == (self._found.text, self._found.references):
            return self._read_with(None)
        try:
            writer = parse_avro(found.text, found.references)
            check_units(writer, self._reader)
        except BadOption as error:
            return f"it was written with schema {writer_id}, and {error}"
        return self._read_with(prepare_writer(writer, self._reader))

    def _read_with(self, writer: Any) -> ReadOne:
        read, reader = fastavro.schemaless_reader, self._prepared
        if writer is None or writer == reader:
            # Without a second schema there is nothing to resolve, which is a good deal faster.
            return lambda stream: read(stream, reader, None)
        return lambda stream: read(stream, writer, reader)


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "it ends too early for its schema"
    if isinstance(error, BadRecord | UnicodeDecodeError):
        return reason_of(error)
    return f"it does not fit its schema: {type(error).__name__}: {reason_of(error)}"
