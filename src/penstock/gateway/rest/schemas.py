"""Keys and values with a schema: found in the registry, or registered, then written and read with its five-byte frame.

Called by the produce handlers (encoder) and by whoever hands records out (decode). The registry is the gateway's own;
without it, formats with schemas are answered 501.
Laws:
- An encoder is made once per request and used for all its records; it never waits.
- Bytes that are no value of their schema are told so, never guessed at; work on them is bounded by validate().
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.gateway.app import Services
from penstock.gateway.errors import NOT_SERVED, HttpProblem
from penstock.gateway.rest.avro_reading import read_avro
from penstock.gateway.rest.avro_writing import write_avro
from penstock.gateway.rest.payloads import BadPayload, json_out, write_json
from penstock.schemas.avro import AvroSchema
from penstock.schemas.framing import join_frame, split_frame
from penstock.schemas.schema import ParsedSchema, SchemaError

KINDS = {"avro": "AVRO", "jsonschema": "JSON", "protobuf": "PROTOBUF"}
INVALID_SCHEMA = 42205
SCHEMA_NOT_FOUND = 40403


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which schema a request means: its text, id or version, else the subject's latest; None as `format` takes any."""

    subject: str
    format: str | None
    text: str | None = None
    schema_id: int | None = None
    version: int | None = None


class SchemaEncoder(NamedTuple):
    schema_id: int
    subject: str
    version: int | None
    kind: str
    encode: Callable[[Any], bytes | None]


class SchemaCodecs:
    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def has_registry(self) -> bool:
        return self._services.registry is not None

    async def encoder(self, wanted: Wanted) -> SchemaEncoder:
        registry: Any = self._registry()
        if wanted.text is not None:
            kind = KINDS[wanted.format or "avro"]
            try:
                schema_id = await registry.register(wanted.subject, kind, wanted.text, ())
            except HttpProblem as refusal:
                # The registry has other numbers for the same.
                if refusal.status != 422:
                    raise
                raise HttpProblem(422, INVALID_SCHEMA, refusal.message) from None
            found = await registry.schema_by_id(schema_id, subject=wanted.subject)
        elif wanted.schema_id is not None:
            found = await registry.schema_by_id(wanted.schema_id, subject=wanted.subject)
            found = found or await registry.schema_by_id(wanted.schema_id)
        elif wanted.version is not None:
            found = await registry.version(wanted.subject, wanted.version)
        else:
            found = await registry.latest(wanted.subject)
        if found is None:
            what = f"id {wanted.schema_id}" if wanted.schema_id is not None else f"subject {wanted.subject!r}"
            raise HttpProblem(404, SCHEMA_NOT_FOUND, f"The registry has no schema of {what}.")
        if wanted.format is not None and found.kind != KINDS[wanted.format]:
            text = f"Schema {found.id} is {found.kind}, and the request is of format {wanted.format}."
            raise HttpProblem(422, INVALID_SCHEMA, text)
        try:
            write = _writer(found.parsed)
        except SchemaError as fault:
            raise HttpProblem(422, INVALID_SCHEMA, f"Schema {found.id} cannot be used here: {fault}.") from None

        def encode(data: Any) -> bytes | None:
            # A record without a value is a tombstone, not a null in its schema.
            return None if data is None else join_frame(found.id, write(data))

        return SchemaEncoder(found.id, found.subject, found.version, found.kind, encode)

    async def decode(self, data: bytes | None) -> Any:
        """What a framed value says. Raises BadPayload."""
        if data is None:
            return None
        framed = split_frame(memoryview(data))
        if framed is None:
            raise BadPayload("the record has no schema id: read it as binary")
        schema_id, payload = framed
        registry: Any = self._registry()
        found = await registry.schema_by_id(schema_id)
        if found is None:
            raise BadPayload(f"the registry has no schema {schema_id}")
        try:
            parsed: ParsedSchema = found.parsed
        except SchemaError as fault:
            raise BadPayload(f"its schema {schema_id} cannot be used here: {fault}") from None
        reason = parsed.validate(payload)
        if reason is not None:
            raise BadPayload(f"the record is no value of its schema {schema_id}: {reason}")
        return _read(parsed, payload)

    def _registry(self) -> Any:
        registry = self._services.registry
        if registry is None:
            raise HttpProblem(501, NOT_SERVED, "This gateway has no schema registry: use the formats binary or json.")
        return registry


def _writer(parsed: ParsedSchema) -> Callable[[Any], bytes]:
    if isinstance(parsed, AvroSchema):
        root = parsed.root
        return lambda data: write_avro(root, data)
    if parsed.kind == "JSON":

        def write_fitting(data: Any) -> bytes:
            payload = write_json(data)
            reason = parsed.validate(memoryview(payload))
            if reason is not None:
                raise BadPayload(f"the data does not fit its schema: {reason}")
            return payload

        return write_fitting
    from penstock.gateway.rest.protobuf_json import writer

    return writer(parsed)


def _read(parsed: ParsedSchema, payload: memoryview) -> Any:
    if isinstance(parsed, AvroSchema):
        return read_avro(parsed.root, bytes(payload))
    if parsed.kind == "JSON":
        return json_out(bytes(payload))
    from penstock.gateway.rest.protobuf_json import read

    return read(parsed, payload)
