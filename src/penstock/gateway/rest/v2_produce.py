"""REST v2, producing: records in one of five formats to a topic, or to one of its partitions.

Called by gateway.rest. The walk of a request: read the body, make all records of it, hand them to the producer at once,
wait for one future, answer. No await per record.
"""

from collections.abc import Sequence
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import KAFKA_ERROR, KAFKA_RETRIABLE
from penstock.gateway.kafka import KafkaFailed, Outcome, Outgoing
from penstock.gateway.limits import parse_json
from penstock.gateway.rest.names import topic_in
from penstock.gateway.rest.payloads import ENCODERS, BadPayload, Encoder
from penstock.gateway.rest.reading import Known, fields, path_int
from penstock.gateway.rest.schemas import SchemaCodecs, Wanted
from penstock.gateway.rest.shapes import (
    ANYTHING,
    INT32_MAX,
    INTEGER,
    PARTITION,
    STRING,
    TOPIC_NAME,
    list_of,
    nullable,
    strict,
    structure,
)
from penstock.gateway.rest.table import Answer, Body, Handler, Operation, Parameter, Row, path_parameters
from penstock.gateway.rest.trace_context import trace_headers
from penstock.gateway.rest.v2_media import (
    ANSWERS,
    CONVERSION_FAILED,
    EVERY_BODY,
    V2,
    answer_v2,
    body_format,
    choose_media,
    partition_not_found,
    problem,
    topic_not_found,
)

TAG = "Records (v2)"
RECORDS_MAX = 10_000
KEY_SCHEMA_MISSING, VALUE_SCHEMA_MISSING = 42201, 42202

_RECORD = strict((), key=ANYTHING, value=ANYTHING, partition=nullable(PARTITION))
_BODY = strict(
    ("records",),
    records=list_of(_RECORD, minItems=1, maxItems=RECORDS_MAX),
    key_schema=nullable(STRING),
    key_schema_id=nullable(INTEGER),
    value_schema=nullable(STRING),
    value_schema_id=nullable(INTEGER),
)
_SENT = structure(
    ("partition", "offset", "error_code", "error"),
    partition=nullable(INTEGER),
    offset=nullable(INTEGER),
    error_code=nullable(INTEGER),
    error=nullable(STRING),
)
_ANSWER = structure(
    ("offsets",), offsets=list_of(_SENT), key_schema_id=nullable(INTEGER), value_schema_id=nullable(INTEGER)
)
_KNOWN: Known = {
    "records": list,
    "key_schema": str,
    "key_schema_id": int,
    "value_schema": str,
    "value_schema_id": int,
}
_RECORD_FIELDS = frozenset({"key", "value", "partition"})


class V2Produce:
    def __init__(self, services: Services, codecs: SchemaCodecs) -> None:
        self._kafka = services.kafka
        self._codecs = codecs
        self._delivered = services.measures.produced.child("rest-v2")
        self._failed = services.measures.produce_failed.child("rest-v2")

    def rows(self) -> list[Row]:
        answers = (Answer(200, "What became of each record, in order.", _ANSWER, ANSWERS),)
        problems = (404, 406, 408, 413, 415, 422, 429)
        body = Body(_BODY, EVERY_BODY)

        def post(path: str, handler: Handler, summary: str, parameters: tuple[Parameter, ...]) -> Operation:
            return Operation("POST", path, handler, summary, TAG, answers, parameters, body, problems, V2)

        one = path_parameters(topic=TOPIC_NAME, partition=PARTITION)
        return [
            post("/topics/{topic}", self.to_topic, "Produce records.", path_parameters(topic=TOPIC_NAME)),
            post("/topics/{topic}/partitions/{partition}", self.to_partition, "Produce records to a partition.", one),
        ]

    async def to_topic(self, request: Request) -> Response:
        return await self._produce(request, None)

    async def to_partition(self, request: Request) -> Response:
        return await self._produce(request, path_int(request, "partition", partition_not_found()))

    async def _produce(self, request: Request, partition: int | None) -> Response:
        media, written_as = choose_media(request), body_format(request)
        topic = topic_in(request, topic_not_found())
        body = fields(parse_json(await request.body()), "the request", _KNOWN)
        records = body.get("records")
        if not records or len(records) > RECORDS_MAX:
            raise problem(422, 422, f"The request must have 1 to {RECORDS_MAX} records.")
        facts = await self._kafka.topic(topic)
        if facts is None:
            raise topic_not_found()
        if partition is not None and partition >= facts.partitions:
            raise partition_not_found()
        key, key_id = await self._encoder(written_as, topic, body, records, is_key=True)
        value, value_id = await self._encoder(written_as, topic, body, records, is_key=False)
        outgoing = _outgoing(records, key, value, partition, facts.partitions)
        trace = trace_headers(request)
        if trace:
            outgoing = [each._replace(headers=trace) for each in outgoing]
        outcomes = await self._kafka.produce_many(topic, outgoing)
        told = [_tell(outcome) for outcome in outcomes]
        failures = sum([one["error_code"] is not None for one in told])
        self._failed.value += failures
        self._delivered.value += len(told) - failures
        return answer_v2({"offsets": told, "key_schema_id": key_id, "value_schema_id": value_id}, media)

    async def _encoder(
        self, written_as: str, topic: str, body: dict[str, Any], records: Sequence[Any], *, is_key: bool
    ) -> tuple[Encoder, int | None]:
        plain = ENCODERS.get(written_as)
        if plain is not None:
            return plain, None
        side = "key" if is_key else "value"
        text, schema_id = body.get(f"{side}_schema"), body.get(f"{side}_schema_id")
        if text is None and schema_id is None:
            given = [cast("dict[str, Any]", record) for record in records if isinstance(record, dict)]
            if any(record.get(side) is not None for record in given):
                code = KEY_SCHEMA_MISSING if is_key else VALUE_SCHEMA_MISSING
                raise problem(422, code, f"The request has {side}s but no {side}_schema and no {side}_schema_id.")
            return ENCODERS["json"], None
        wanted = Wanted(f"{topic}-{side}", written_as, text=text, schema_id=schema_id)
        encoder = await self._codecs.encoder(wanted)
        return encoder.encode, encoder.schema_id


def _outgoing(
    records: Sequence[Any], key: Encoder, value: Encoder, partition: int | None, partitions: int
) -> list[Outgoing]:
    made: list[Outgoing] = []
    for place, record in enumerate(records):
        given = cast("dict[str, Any]", record)
        if not isinstance(record, dict) or not given.keys() <= _RECORD_FIELDS:
            raise problem(422, 422, f"Record {place} must be an object with the fields key, value and partition only.")
        chosen = given.get("partition")
        if chosen is not None:
            if not isinstance(chosen, int) or isinstance(chosen, bool) or not 0 <= chosen <= INT32_MAX:
                raise problem(422, 422, f"Record {place}: partition must be a number from 0 on.")
            if partition is not None:
                raise problem(422, 422, f"Record {place} names a partition, and the path has named one already.")
            if chosen >= partitions:
                raise partition_not_found()
        try:
            made.append(
                Outgoing(value(given.get("value")), key(given.get("key")), partition if chosen is None else chosen)
            )
        except BadPayload as fault:
            raise problem(422, CONVERSION_FAILED, f"Record {place}: {fault}.") from None
    return made


def _tell(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, KafkaFailed):
        code = KAFKA_RETRIABLE if outcome.is_retriable else KAFKA_ERROR
        return {"partition": None, "offset": None, "error_code": code, "error": outcome.message}
    return {"partition": outcome.partition, "offset": outcome.offset, "error_code": None, "error": None}
