"""Avro values as columns: read by fastavro, resolved from the writer's schema to the reader's.

Called by row_decoder. Without a registry every value is written with the reader's schema and has no header; with one,
each value names its writer's schema by id. Schemas are prepared for speed before they are used: logical types are taken
off (numbers become times in Arrow), and the branches of a complex union are told apart by putting each into a record of
one field, which is encoded as the field itself.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Any, cast

import fastavro
import pyarrow as pa
from pyspark.sql import types as t

from penstock.spark.errors import BadOption
from penstock.spark.formats.avro_schema import (
    AvroSchema,
    branches,
    column_type,
    is_complex,
    is_decimal,
    kind_of,
    logical_of,
    parse_avro,
)
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
        self._has_members = any(_has_complex(one) for one in (self._reader.root, *self._reader.names.values()))
        self._prepared = _prepare(self._reader, is_reader=True, has_members=self._has_members)
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
            _check_units(writer, self._reader)
        except BadOption as error:
            return f"it was written with schema {writer_id}, and {error}"
        return self._read_with(_prepare(writer, is_reader=False, has_members=self._has_members))

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


def _has_complex(schema: Any) -> bool:
    if isinstance(schema, list):
        return is_complex(cast("list[Any]", schema)) or any(_has_complex(one) for one in cast("list[Any]", schema))
    if isinstance(schema, dict):
        inner = cast("dict[str, Any]", schema)
        parts = [inner.get("items"), inner.get("values"), *(field["type"] for field in inner.get("fields", ()))]
        return any(_has_complex(one) for one in parts)
    return False


def _prepare(schema: AvroSchema, *, is_reader: bool, has_members: bool) -> Any:
    """Parsed again, so that it carries its names; a reference of the registry is written out where it is first used."""
    written: set[str] = set()

    def walk(one: Any) -> Any:
        if isinstance(one, str):
            if one in schema.names and one not in written:
                return walk(schema.names[one])
            return one
        if isinstance(one, list):
            return union(cast("list[Any]", one))
        given = {name: value for name, value in cast("dict[str, Any]", one).items() if not name.startswith("__")}
        if "name" in given:
            if given["name"] in written:
                return given["name"]
            written.add(given["name"])
        if not is_decimal(given):
            given.pop("logicalType", None)
        for inner in ("items", "values"):
            if inner in given:
                given[inner] = walk(given[inner])
        if "fields" in given:
            given["fields"] = [{**field, "type": walk(field["type"])} for field in given["fields"]]
        return given

    def union(one: list[Any]) -> Any:
        if not (has_members and is_complex(one)):
            return [walk(branch) for branch in one]
        members = {id(branch): index for index, branch in enumerate(branches(one))}
        return [branch if kind_of(branch) == "null" else wrap(branch, members[id(branch)]) for branch in one]

    def wrap(branch: Any, index: int) -> Any:
        found = schema.of(branch)
        key = str(found["name"]).replace(".", "_") if isinstance(found, dict) and "name" in found else kind_of(found)
        field = {"name": f"member{index}", "aliases": [key]} if is_reader else {"name": key}
        name = f"penstock_member.{key}"
        if name in written and not is_reader:
            return name
        # A reader's member has its number in its name, so the same branch elsewhere may need another record.
        written.add(name := f"{name}_{len(written)}" if is_reader else name)
        aliases = {"aliases": [f"penstock_member.{key}"]} if is_reader else {}
        return {"type": "record", "name": name, **aliases, "fields": [{**field, "type": walk(branch)}]}

    return fastavro.parse_schema(walk(schema.root))


def _check_units(writer: AvroSchema, reader: AvroSchema) -> None:
    """A time in milliseconds read as microseconds would be a wrong time, and no registry refuses the change."""

    def compare(one: Any, other: Any, where: str) -> None:
        one, other = _only_branch(writer.of(one)), _only_branch(reader.of(other))
        one, other = writer.of(one), reader.of(other)
        if not isinstance(one, dict) or not isinstance(other, dict):
            return
        theirs, ours = logical_of(one), logical_of(other)
        if theirs != ours and "timestamp" in theirs and "timestamp" in ours:
            raise BadOption(f"{where.lstrip('.')} is {theirs} there and {ours} in the reader's schema")
        for inner in ("items", "values"):
            if inner in one and inner in other:
                compare(one[inner], other[inner], where)
        fields = {field["name"]: field["type"] for field in cast("list[Any]", one.get("fields", []))}
        for field in cast("list[Any]", other.get("fields", [])):
            name = next((name for name in (field["name"], *field.get("aliases", ())) if name in fields), None)
            if name is not None:
                compare(fields[name], field["type"], f"{where}.{name}")

    compare(writer.root, reader.root, "")


def _only_branch(schema: Any) -> Any:
    if isinstance(schema, list):
        others = branches(cast("list[Any]", schema))
        return others[0] if len(others) == 1 else schema
    return schema
