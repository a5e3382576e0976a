"""REST v3: a JSON object made a record that can be sent, or told why it cannot.

Called by v3_records and rest.socket, once per request or socket: schemas are looked up once for all its records.
Law: whatever is wrong with a record is an HttpProblem of that record, never of those beside it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem
from penstock.gateway.kafka import Outgoing
from penstock.gateway.limits import parse_json
from penstock.gateway.rest.payloads import ENCODERS, BadPayload
from penstock.gateway.rest.reading import Known, fields, integer, is_c_string
from penstock.gateway.rest.schemas import KINDS, SchemaCodecs, SchemaEncoder, Wanted
from penstock.gateway.rest.shapes import (
    ANYTHING,
    INT32_MAX,
    INTEGER,
    PARTITION,
    STRING,
    list_of,
    nullable,
    strict,
)
from penstock.gateway.rest.timestamps import read_time
from penstock.gateway.rest.trace_context import Headers
from penstock.gateway.rest.v3_paths import NamedTopic, not_found

HEADERS_MAX = 1000
BAD_RECORD = 400

_PLAIN = {name.upper(): encoder for name, encoder in ENCODERS.items()}
_WITH_SCHEMA = {name.upper(): name for name in KINDS}
_TYPE_OF_KIND = {kind: name.upper() for name, kind in KINDS.items()}
_TYPE_AND_DATA = frozenset({"type", "data"})

_DATA = strict(
    (),
    type=nullable(STRING),
    data=ANYTHING,
    subject=nullable(STRING),
    subject_name_strategy=nullable(STRING),
    schema_id=nullable(INTEGER),
    schema_version=nullable(INTEGER),
    schema=nullable(STRING),
)
RECORD = strict(
    (),
    partition_id=nullable(PARTITION),
    headers=list_of(strict(("name",), name=STRING, value=nullable(STRING))),
    key=_DATA,
    value=_DATA,
    timestamp={"type": ["string", "integer", "null"]},
)
_KNOWN: Known = {
    "id": str,
    "partition_id": int,
    "headers": list,
    "key": dict,
    "value": dict,
    "timestamp": (str, int),
    # Fields Confluent's answers carry and some clients send back.
    "original_size": int,
}
_KNOWN_DATA: Known = {
    "type": str,
    "data": object,
    "subject": str,
    "subject_name_strategy": str,
    "schema_id": int,
    "schema_version": int,
    "schema": str,
}


class Ready(NamedTuple):
    """A record that can be sent, and what its report says of its two sides."""

    record: Outgoing
    key: dict[str, Any] | None
    value: dict[str, Any] | None


Made = Ready | HttpProblem
_Side = tuple[bytes | None, dict[str, Any] | None]


class RecordMaker:
    def __init__(self, services: Services, codecs: SchemaCodecs, topic: NamedTopic, trace: Headers) -> None:
        self._trace = trace
        self._kafka = services.kafka
        self._codecs = codecs
        self._topic = topic.name
        self._encoders: dict[Wanted, SchemaEncoder] = {}

    async def make(self, given: Any) -> Ready:
        """Raises HttpProblem: what is wrong with this one record."""
        row = fields(given, "the record", _KNOWN, status=BAD_RECORD)
        partition = row.get("partition_id")
        if partition is not None:
            integer(partition, "partition_id", 0, INT32_MAX, status=BAD_RECORD)
            # Asked anew for each: partitions may be added while a stream is under way.
            facts = await self._kafka.topic(self._topic)
            if facts is None or partition >= facts.partitions:
                raise not_found()
        given_key, given_value = row.get("key"), row.get("value")
        key, key_told = _plain_side(given_key) or await self._side(given_key, "key")
        value, value_told = _plain_side(given_value) or await self._side(given_value, "value")
        headers = _headers(row["headers"]) if row.get("headers") else ()
        record = Outgoing(value, key, partition, [*self._trace, *headers], read_time(row.get("timestamp")))
        return Ready(record, key_told, value_told)

    async def attempt(self, given: Any) -> Made:
        """The same where others stand beside it: what is wrong is told in its place."""
        try:
            return await self.make(given)
        except HttpProblem as problem:
            return problem

    async def attempt_text(self, document: bytes) -> Made:
        try:
            return await self.make(parse_json(document))
        except HttpProblem as problem:
            return problem

    async def _side(self, given: Any, side: str) -> _Side:
        row = fields(given, f"the {side}", _KNOWN_DATA, status=BAD_RECORD)
        kind, data = (row.get("type") or "").upper(), row.get("data")
        plain = _PLAIN.get(kind)
        try:
            if plain is not None:
                raw = plain(data)
                return raw, {"type": kind, "size": len(raw or b"")}
            if kind and kind not in _WITH_SCHEMA:
                told = ", ".join([*_PLAIN, *_WITH_SCHEMA])
                raise HttpProblem(400, BAD_RECORD, f"{kind[:40]!r} is no type of data: use one of {told}.")
            encoder = await self._encoder(row, side, kind)
            raw = encoder.encode(data)
        except BadPayload as fault:
            raise HttpProblem(400, BAD_RECORD, f"The {side}: {fault}.") from None
        told = {
            "type": _TYPE_OF_KIND[encoder.kind],
            "size": len(raw or b""),
            "subject": encoder.subject,
            "schema_id": encoder.schema_id,
            "schema_version": encoder.version,
        }
        return raw, told

    async def _encoder(self, row: dict[str, Any], side: str, kind: str) -> SchemaEncoder:
        if (row.get("subject_name_strategy") or "TOPIC_NAME") != "TOPIC_NAME":
            raise HttpProblem(400, BAD_RECORD, "Only TOPIC_NAME is known as a subject_name_strategy: give the subject.")
        if row.get("schema") is not None and not kind:
            raise HttpProblem(400, BAD_RECORD, "A schema needs a type: AVRO, JSONSCHEMA or PROTOBUF.")
        wanted = Wanted(
            row.get("subject") or f"{self._topic}-{side}",
            _WITH_SCHEMA.get(kind),
            row.get("schema"),
            row.get("schema_id"),
            row.get("schema_version"),
        )
        found = self._encoders.get(wanted)
        if found is None:
            found = self._encoders[wanted] = await self._codecs.encoder(wanted)
        return found


def _plain_side(given: Any) -> _Side | None:
    """The usual key or value, in a few steps; None for all others, and for what is wrong: _side() knows to say how."""
    if given is None:
        return None, None
    if not given.keys() <= _TYPE_AND_DATA:
        return None
    kind = given.get("type")
    encoder = _PLAIN.get(kind)
    if encoder is None:
        return None
    try:
        raw = encoder(given.get("data"))
    except BadPayload:
        return None
    return raw, {"type": kind, "size": 0 if raw is None else len(raw)}


def _headers(given: Sequence[Any]) -> list[tuple[str, bytes | None]]:
    if len(given) > HEADERS_MAX:
        raise HttpProblem(400, BAD_RECORD, f"A record has at most {HEADERS_MAX} headers.")
    found: list[tuple[str, bytes | None]] = []
    for one in given:
        row = fields(one, "a header", {"name": str, "value": str}, status=BAD_RECORD)
        name = row.get("name")
        if not isinstance(name, str) or not is_c_string(name):
            raise HttpProblem(400, BAD_RECORD, "Every header needs a name, a string without NUL.")
        try:
            found.append((name, ENCODERS["binary"](row.get("value"))))
        except BadPayload as fault:
            raise HttpProblem(400, BAD_RECORD, f"The header {name[:60]!r}: {fault}.") from None
    return found
