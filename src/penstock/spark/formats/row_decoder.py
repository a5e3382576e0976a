"""Raw rows in, typed rows out: keys and values decoded, bad records treated as the user chose.

Opened by `formats.open_decoder`, in the driver for the schema and in each task for its rows.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from penstock.spark.errors import BadOption, DecodeFailed
from penstock.spark.formats.columns import PartDecoder
from penstock.spark.formats.dead_letters import DeadLetters, DeadRecord
from penstock.spark.formats.options import FormatOptions, PartOptions
from penstock.spark.formats.registry import registry_of


class RowDecoder:
    def __init__(self, options: FormatOptions) -> None:
        self._options = options
        self._parts: dict[str, PartDecoder] = {}
        for part in (options.key, options.value):
            if (decoder := _open(part, options)) is not None:
                self._parts[part.part] = decoder
        self._dead: DeadLetters | None = None

    def schema(self) -> t.StructType:
        return t.StructType([t.StructField(part, self._type(part, t.BinaryType())) for part in ("key", "value")])

    def row_schema(self, raw: t.StructType) -> t.StructType:
        return t.StructType(
            [
                t.StructField(field.name, self._type(field.name, field.dataType), field.nullable)
                for field in raw.fields
                if field.name != "headers" or self._options.has_headers
            ]
        )

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        bad: dict[int, tuple[str, str]] = {}
        for part, decoder in self._parts.items():
            columns[part], failed = decoder.decode(columns[part])
            for row, why in failed.items():
                bad.setdefault(row, (part, why))
        if not self._options.has_headers:
            columns.pop("headers", None)
        typed = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        if not bad or self._options.on_bad_record == "null":
            return typed
        if self._options.on_bad_record == "fail":
            row = min(bad)
            part, why = bad[row]
            at = batch.slice(row, 1).select(["topic", "partition", "offset"]).to_pylist()[0]
            raise DecodeFailed(
                at["topic"],
                at["partition"],
                at["offset"],
                f"the {part} does not decode as {self._format(part)}: {why} "
                "(on.bad.record=deadletter or null goes on without it)",
            )
        self._bury(batch, bad)
        good = pa.array([row not in bad for row in range(batch.num_rows)])
        return typed.filter(good)

    def flush(self) -> None:
        if self._dead is not None:
            self._dead.flush()

    def _type(self, name: str, otherwise: t.DataType) -> t.DataType:
        return self._parts[name].spark_type if name in self._parts else otherwise

    def _format(self, part: str) -> str:
        return self._options.key.format if part == "key" else self._options.value.format

    def _bury(self, batch: pa.RecordBatch, bad: dict[int, tuple[str, str]]) -> None:
        if self._dead is None:
            from penstock.spark.client_settings import librdkafka_settings

            assert self._options.deadletter_topic is not None
            self._dead = DeadLetters(self._options.deadletter_topic, librdkafka_settings(self._options.kafka))
        rows = sorted(bad)
        dead = batch.take(pa.array(rows))
        # As a number: Python has no time past the year 9999, and a record that claims one is to be buried as well.
        at = dead.schema.get_field_index("timestamp")
        dead = dead.set_column(at, "timestamp", dead.column(at).cast(pa.int64()))
        for row, raw in zip(rows, dead.to_pylist(), strict=True):
            part, why = bad[row]
            self._dead.send(_dead_record(raw), f"{part}: {why}", self._format(part))


def _dead_record(raw: dict[str, Any]) -> DeadRecord:
    headers = [(header["key"], header["value"]) for header in raw.get("headers") or ()]
    timestamp_ms = None if raw["timestamp"] is None else raw["timestamp"] // 1000
    return DeadRecord(raw["topic"], raw["partition"], raw["offset"], timestamp_ms, raw["key"], raw["value"], headers)


def _open(part: PartOptions, options: FormatOptions) -> PartDecoder | None:
    """Each format's library is imported only by who uses it."""
    registry = registry_of(options.registry) if options.registry is not None else None
    match part.format:
        case "bytes":
            return None
        case "string":
            from penstock.spark.formats.string_decoder import StringDecoder

            return StringDecoder()
        case "json":
            from penstock.spark.formats.json_decoder import JsonDecoder
            from penstock.spark.formats.json_schema import parse_json_type

            assert part.found is not None
            kind = parse_json_type(part.found.text, dict(part.found.references))
            return JsonDecoder(kind, is_framed=registry is not None)
        case "avro":
            from penstock.spark.formats.avro_decoder import AvroDecoder

            assert part.found is not None
            return AvroDecoder(part.found, registry)
        case "protobuf":
            from penstock.spark.formats.protobuf_decoder import ProtobufDecoder

            assert part.found is not None
            if not part.found.files:
                raise BadOption(f"{part.part}.schema.file names no protobuf schema")
            return ProtobufDecoder(part.found, part.message, registry)
