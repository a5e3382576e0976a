"""Protobuf values as columns: parsed by the library's native code, then made into columns field by field.

Called by row_decoder. Messages are parsed with the reader's class, since field numbers, not names, are what is written.
With a registry each value says by id and indexes which message it is; another than the reader's is a bad record.
"""

from typing import Any, cast

import pyarrow as pa
from google.protobuf.message import DecodeError
from pyspark.sql import types as t

from penstock.spark.formats.columns import BadRecord, Decoded, build, check_times, nullable, reason_of
from penstock.spark.formats.framing import HEADER_BYTES, message_indexes, schema_id
from penstock.spark.formats.options import FoundSchema
from penstock.spark.formats.protobuf_columns import message_leaf
from penstock.spark.formats.protobuf_schema import indexes_of, message_at, message_class
from penstock.spark.formats.registry import Registry, UnknownSchema


class ProtobufDecoder:
    def __init__(self, found: FoundSchema, message: str | None, registry: Registry | None) -> None:
        self._class = message_class(found.files, message)
        descriptor = cast("Any", self._class.DESCRIPTOR)
        self._name: str = descriptor.full_name
        self._indexes = indexes_of(descriptor)
        self._leaf = message_leaf(descriptor)
        self.spark_type: t.DataType = nullable(self._leaf.spark)
        self._registry = registry
        self._fits: dict[tuple[int, tuple[int, ...]], str] = {}

    def decode(self, values: pa.Array) -> Decoded:
        bad: dict[int, str] = {}
        messages: list[Any] = []
        parse = self._class.FromString
        for row, raw in enumerate(values.to_pylist()):
            message = None
            if raw is not None:
                try:
                    message = parse(raw if self._registry is None else self._payload(raw, self._registry))
                    if not message.IsInitialized():
                        raise BadRecord("a required field is missing")
                except DecodeError as error:
                    message = None
                    bad[row] = f"it is no {self._name}: {reason_of(error)}"
                except BadRecord as error:
                    message = None
                    bad[row] = reason_of(error)
            messages.append(message)
        return Decoded(build(messages, self._column, bad), bad)

    def _column(self, messages: list[Any]) -> pa.Array:
        return check_times(self._leaf.column(messages))

    def _payload(self, raw: bytes, registry: Registry) -> bytes:
        writer = schema_id(raw)
        indexes, start = message_indexes(raw, HEADER_BYTES)
        misfit = self._fits.get((writer, indexes))
        if misfit is None:
            misfit = self._fits[writer, indexes] = self._misfit(writer, indexes, registry)
        if misfit:
            raise BadRecord(misfit)
        return raw[start:]

    def _misfit(self, writer: int, indexes: tuple[int, ...], registry: Registry) -> str:
        """Why what was written is not the reader's message; empty if it is."""
        try:
            found = registry.by_id(writer, is_serialized=True)
        except UnknownSchema as error:
            raise BadRecord(str(error)) from error
        if found.kind != "PROTOBUF":
            return f"it was written with schema {writer}, which is {found.kind} and not PROTOBUF"
        try:
            name = message_at(found.text, indexes)
        except BadRecord:
            raise
        except ValueError:
            # A registry that keeps only source text cannot name the message; its place must then be the same.
            return "" if indexes == self._indexes else f"it holds another message than {self._name}"
        return "" if name == self._name else f"it holds message {name}, not {self._name}"
