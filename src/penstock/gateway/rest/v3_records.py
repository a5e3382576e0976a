"""REST v3: producing. One record in a request, or many after one another while the answers stream back; or a batch.

Called by gateway.rest; rest.socket makes records of what comes over a socket with its help.
Laws:
- Reports come in the order of the records, each with an error_code of its own (200: delivered).
- Records of one piece of a body are handed to the producer at once; at most PIECES_AHEAD pieces wait for their reports,
  then nothing more is read: a slow cluster slows the caller down instead of filling our memory.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, cast

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem, json_response
from penstock.gateway.kafka import Busy, KafkaFailed, Outcome, Outgoing
from penstock.gateway.limits import content_type, parse_json, read_json, visit_of
from penstock.gateway.rest.envelope import CLUSTER_ID, cluster_id, links_for
from penstock.gateway.rest.json_stream import DocumentSplitter
from penstock.gateway.rest.names import topic_in
from penstock.gateway.rest.payloads import ENCODERS, BadPayload
from penstock.gateway.rest.schemas import KINDS, SchemaCodecs, SchemaEncoder, Wanted
from penstock.gateway.rest.streamed import Streamed
from penstock.gateway.rest.table import (
    ANYTHING,
    INT32_MAX,
    INTEGER,
    PARTITION,
    STRING,
    Answer,
    Body,
    Operation,
    Row,
    Schema,
    fields,
    integer,
    list_of,
    nullable,
    path_parameters,
    strict,
    structure,
)
from penstock.gateway.rest.v2_topics import TOPIC_NAME
from penstock.gateway.rest.v3_partitions import not_found

TAG = "Records (v3)"
RECORD_BYTES_MAX = 10 * 1024 * 1024
HEADERS_MAX = 1000
PIECES_AHEAD = 64
BUSY_PAUSE_S = 0.05
BATCH_MAX = 10_000
DELIVERED = 200
BAD_RECORD = 400
_TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999

_PLAIN = {"BINARY": "binary", "JSON": "json", "STRING": "string"}
_WITH_SCHEMA = {"AVRO": "avro", "JSONSCHEMA": "jsonschema", "PROTOBUF": "protobuf"}
_PLAIN_ENCODERS = {kind: ENCODERS[name] for kind, name in _PLAIN.items()}
_TYPE_AND_DATA = frozenset({"type", "data"})
_FORMAT_OF_KIND = {kind: name for name, kind in KINDS.items()}

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
_HEADER = strict(("name",), name=STRING, value=nullable(STRING))
RECORD = strict(
    (),
    partition_id=nullable(PARTITION),
    headers=list_of(_HEADER),
    key=_DATA,
    value=_DATA,
    timestamp={"type": ["string", "integer", "null"]},
)
_SIDE = structure(("size",), type=STRING, size=INTEGER, subject=nullable(STRING), schema_id=nullable(INTEGER))
_REPORT = structure(
    ("error_code",),
    error_code=INTEGER,
    message=STRING,
    cluster_id=STRING,
    topic_name=STRING,
    partition_id=INTEGER,
    offset=INTEGER,
    timestamp=STRING,
    key=_SIDE,
    value=_SIDE,
)
_BATCH = strict(
    ("entries",),
    entries=list_of(
        {**RECORD, "properties": {**RECORD["properties"], "id": STRING}, "required": ["id"]},
        minItems=1,
        maxItems=BATCH_MAX,
    ),
)
_BATCH_REPORT = structure(
    ("successes", "failures"),
    successes=list_of(structure(("id",), id=STRING)),
    failures=list_of(structure(("id", "error_code", "message"), id=STRING, error_code=INTEGER, message=STRING)),
)
_KNOWN: dict[str, type | tuple[type, ...]] = {
    "id": str,
    "partition_id": int,
    "headers": list,
    "key": dict,
    "value": dict,
    "timestamp": (str, int),
    # Fields Confluent's answers carry and some clients send back.
    "original_size": int,
}
_KNOWN_DATA: dict[str, type | tuple[type, ...]] = {
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
Sent = tuple[Sequence[Made], "asyncio.Future[list[Outcome]]"]


class RecordMaker:
    """JSON objects of v3 to records of one topic. Schemas are looked up once per request."""

    def __init__(self, services: Services, codecs: SchemaCodecs, topic: str) -> None:
        self._services = services
        self._codecs = codecs
        self._topic = topic
        self._encoders: dict[Wanted, SchemaEncoder] = {}

    async def make(self, given: Any) -> Ready:
        """Raises HttpProblem: what is wrong with this one record."""
        row = fields(given, "the record", _KNOWN, status=400)
        partition = row.get("partition_id")
        if partition is not None:
            integer(partition, "partition_id", 0, INT32_MAX, status=400)
            facts = await self._services.kafka.topic(self._topic)
            if facts is None or partition >= facts.partitions:
                raise not_found()
        given_key, given_value = row.get("key"), row.get("value")
        key, key_told = _plain_side(given_key) or await self._side(given_key, "key")
        value, value_told = _plain_side(given_value) or await self._side(given_value, "value")
        headers = _headers(row["headers"]) if row.get("headers") else ()
        record = Outgoing(value, key, partition, headers, _timestamp_ms(row.get("timestamp")))
        return Ready(record, key_told, value_told)

    async def _side(self, given: Any, side: str) -> tuple[bytes | None, dict[str, Any] | None]:
        if given is None:
            return None, None
        row = fields(given, f"the {side}", _KNOWN_DATA, status=400)
        kind, data = (row.get("type") or "").upper(), row.get("data")
        plain = _PLAIN.get(kind)
        try:
            if plain is not None:
                raw = ENCODERS[plain](data)
                return raw, {"type": kind, "size": len(raw or b"")}
            if kind and kind not in _WITH_SCHEMA:
                told = ", ".join([*_PLAIN, *_WITH_SCHEMA])
                raise HttpProblem(400, BAD_RECORD, f"{kind[:40]!r} is no type of data: use one of {told}.")
            encoder = await self._encoder(row, side, kind)
            raw = encoder.encode(data)
        except BadPayload as fault:
            raise HttpProblem(400, BAD_RECORD, f"The {side}: {fault}.") from None
        except orjson.JSONEncodeError as fault:
            raise HttpProblem(400, BAD_RECORD, f"The {side}: {fault}.") from None
        told = {
            "type": _FORMAT_OF_KIND[encoder.kind].upper(),
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


class V3Records:
    def __init__(self, services: Services, codecs: SchemaCodecs) -> None:
        self._services = services
        self._kafka = services.kafka
        self._codecs = codecs
        self._delivered = services.measures.produced.child("rest-v3")
        self._failed = services.measures.produce_failed.child("rest-v3")

    def rows(self) -> list[Row]:
        topic = path_parameters(cluster_id=CLUSTER_ID, topic_name=TOPIC_NAME)
        at = "/v3/clusters/{cluster_id}/topics/{topic_name}/records"
        report: Schema = _REPORT
        one = (Answer(200, "A report for each record, one JSON object after another.", report),)
        batch = (Answer(207, "What became of each entry.", _BATCH_REPORT),)
        problems = (400, 404, 408, 413, 415, 422, 429)
        summary = "Produce a record; or many, one JSON object after another, with the reports streamed back."
        return [
            Operation("POST", at, self.produce, summary, TAG, one, topic, Body(RECORD), problems),
            Operation("POST", f"{at}:batch", self.batch, "Produce records.", TAG, batch, topic, Body(_BATCH), problems),
        ]

    async def produce(self, request: Request) -> Response:
        topic = await self._topic(request)
        if content_type(request) != "application/json":
            raise HttpProblem(415, 415, "Records are sent as application/json.")
        maker = RecordMaker(self._services, self._codecs, topic)
        if "transfer-encoding" not in request.headers:
            return await self._produce_body(await request.body(), maker, topic)
        visit_of(request).become_stream()
        return Streamed(self._produce_stream(request, maker, topic), "application/json")

    async def batch(self, request: Request) -> Response:
        topic = await self._topic(request)
        body = fields(await read_json(request), "the request", {"entries": list})
        entries: list[Any] | None = body.get("entries")
        if not entries or len(entries) > BATCH_MAX:
            raise HttpProblem(422, 422, f"entries must be a list of 1 to {BATCH_MAX} records.")
        names = [cast("dict[str, Any]", one).get("id") if isinstance(one, dict) else None for one in entries]
        if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
            raise HttpProblem(422, 422, "Every entry needs an id of its own, a string.")
        maker = RecordMaker(self._services, self._codecs, topic)
        reports = await self._reports(self._send([await _try(maker, one) for one in entries], topic), topic)
        told: dict[str, list[Any]] = {"successes": [], "failures": []}
        for name, report in zip(names, reports, strict=True):
            told["successes" if report["error_code"] == DELIVERED else "failures"].append({"id": name, **report})
        return json_response(told, 207)

    async def _topic(self, request: Request) -> str:
        await links_for(request, self._services)
        topic = topic_in(request, not_found(), "topic_name")
        if await self._kafka.topic(topic) is None:
            raise not_found()
        return topic

    async def _produce_body(self, body: bytes, maker: RecordMaker, topic: str) -> Response:
        """A whole body: where it is one record and that is wrong, the request is; of several each has its report."""
        splitter = DocumentSplitter(RECORD_BYTES_MAX)
        documents = splitter.feed(body)
        splitter.end()
        if len(documents) == 1:
            # Whatever is wrong with the only record is wrong with the request.
            ready = await maker.make(parse_json(documents[0]))
            reports = await self._reports(self._send([ready], topic), topic)
            code = reports[0]["error_code"]
            status = 200 if code == DELIVERED else int(str(code)[:3])
            return json_response(reports[0], status)
        if not documents:
            raise HttpProblem(400, 400, "The request has no body: send a record as JSON.")
        reports = await self._reports(self._send([await _try_text(maker, one) for one in documents], topic), topic)
        return Response(b"\n".join([orjson.dumps(one) for one in reports]) + b"\n", media_type="application/json")

    async def _produce_stream(self, request: Request, maker: RecordMaker, topic: str) -> AsyncGenerator[bytes]:
        sent: asyncio.Queue[Sent | None] = asyncio.Queue(PIECES_AHEAD)
        reading = asyncio.create_task(self._read_pieces(request, maker, topic, sent))
        try:
            while (piece := await sent.get()) is not None:
                reports = await self._reports(piece, topic)
                yield b"".join([orjson.dumps(one) + b"\n" for one in reports])
            try:
                await reading
            except HttpProblem as problem:
                # Half of the answer is out with status 200: the fault is told as the report of a record would be.
                yield orjson.dumps({"error_code": problem.code, "message": problem.message}) + b"\n"
        finally:
            reading.cancel()

    async def _read_pieces(
        self, request: Request, maker: RecordMaker, topic: str, sent: "asyncio.Queue[Sent | None]"
    ) -> None:
        splitter = DocumentSplitter(RECORD_BYTES_MAX)
        try:
            async for piece in request.stream():
                made = [await _try_text(maker, one) for one in splitter.feed(piece)]
                if made:
                    await sent.put(await self._send_patiently(made, topic))
            splitter.end()
        except ClientDisconnect:
            return
        finally:
            await sent.put(None)

    async def _send_patiently(self, made: Sequence[Made], topic: str) -> Sent:
        while True:
            try:
                return self._send(made, topic)
            except Busy:
                # Nothing more is read meanwhile: that is what the caller feels.
                await asyncio.sleep(BUSY_PAUSE_S)

    def _send(self, made: Sequence[Made], topic: str) -> Sent:
        return made, self._kafka.produce_many(topic, [one.record for one in made if isinstance(one, Ready)])

    async def _reports(self, sent: Sent, topic: str) -> list[dict[str, Any]]:
        """A report for each, in order; those that could not be made have theirs already."""
        made, future = sent
        outcomes = iter(await future)
        cluster = await cluster_id(self._services)
        reports = [report(one, next(outcomes) if isinstance(one, Ready) else one, topic, cluster) for one in made]
        failures = sum([one["error_code"] != DELIVERED for one in reports])
        self._failed.value += failures
        self._delivered.value += len(reports) - failures
        return reports


def _plain_side(given: Any) -> tuple[bytes | None, dict[str, Any] | None] | None:
    """The usual key or value, in a few steps; None for all others, and for what is wrong: _side() knows to say how."""
    if given is None:
        return None, None
    if not given.keys() <= _TYPE_AND_DATA:
        return None
    kind = given.get("type")
    encoder = _PLAIN_ENCODERS.get(kind)
    if encoder is None:
        return None
    try:
        raw = encoder(given.get("data"))
    except (BadPayload, orjson.JSONEncodeError):
        return None
    return raw, {"type": kind, "size": 0 if raw is None else len(raw)}


async def _try(maker: RecordMaker, given: Any) -> Made:
    try:
        return await maker.make(given)
    except HttpProblem as problem:
        return problem


async def _try_text(maker: RecordMaker, document: bytes) -> Made:
    try:
        return await maker.make(parse_json(document))
    except HttpProblem as problem:
        return problem


def report(made: Made, outcome: Outcome | HttpProblem, topic: str, cluster: str) -> dict[str, Any]:
    problem = outcome.problem() if isinstance(outcome, KafkaFailed) else outcome
    if isinstance(problem, HttpProblem):
        return {"error_code": problem.code, "message": problem.message}
    assert isinstance(made, Ready)
    told: dict[str, Any] = {
        "error_code": DELIVERED,
        "cluster_id": cluster,
        "topic_name": topic,
        "partition_id": problem.partition,
        "offset": problem.offset,
        "timestamp": told_time(problem.timestamp_ms),
    }
    if made.key is not None:
        told["key"] = made.key
    if made.value is not None:
        told["value"] = made.value
    return told


# Records come in bursts, many to a millisecond, and a date takes as long to write as the rest of a report.
@lru_cache(maxsize=1024)
def told_time(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(max(0, min(timestamp_ms, _TIME_MS_MAX)) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _timestamp_ms(given: Any) -> int:
    """ISO 8601, or milliseconds since 1970."""
    if given is None:
        return 0
    if isinstance(given, int):
        return integer(given, "timestamp", 0, _TIME_MS_MAX, status=400)
    try:
        moment = datetime.fromisoformat(given)
        at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return integer(int(at.timestamp() * 1000), "timestamp", 0, _TIME_MS_MAX, status=400)
    except (ValueError, OverflowError):
        raise HttpProblem(400, BAD_RECORD, f"{given[:60]!r} is no time: write it as 2026-01-31T12:00:00Z.") from None


def _headers(given: Sequence[Any]) -> list[tuple[str, bytes | None]]:
    if len(given) > HEADERS_MAX:
        raise HttpProblem(400, BAD_RECORD, f"A record has at most {HEADERS_MAX} headers.")
    found: list[tuple[str, bytes | None]] = []
    for one in given:
        row = fields(one, "a header", {"name": str, "value": str}, status=400)
        name = row.get("name")
        if not isinstance(name, str) or "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
            raise HttpProblem(400, BAD_RECORD, "Every header needs a name, a string without NUL.")
        try:
            found.append((name, ENCODERS["binary"](row.get("value"))))
        except BadPayload as fault:
            raise HttpProblem(400, BAD_RECORD, f"The header {name[:60]!r}: {fault}.") from None
    return found
