"""Schemas: parsed, put into one spelling, compared and used to check values; no I/O.

Used by the gateway's registry, REST and console, and by whoever checks records. Avro lives in avro*.py, JSON Schema in
json_*.py, Protocol Buffers in protobuf/; each is imported by the first schema of its kind, so that importing this room
costs nothing.
"""

from penstock.schemas.framing import FRAME_BYTES, join_frame, split_frame
from penstock.schemas.schema import (
    KINDS,
    SCHEMA_BYTES_MAX,
    Field,
    Incompatible,
    Kind,
    Level,
    ParsedSchema,
    Reference,
    SchemaError,
    compatibility,
    first_incompatible,
    parse,
)

__all__ = [
    "FRAME_BYTES",
    "KINDS",
    "SCHEMA_BYTES_MAX",
    "Field",
    "Incompatible",
    "Kind",
    "Level",
    "ParsedSchema",
    "Reference",
    "SchemaError",
    "compatibility",
    "first_incompatible",
    "join_frame",
    "parse",
    "split_frame",
]
