"""REST v3: producing. One record in a request, or many after one another while the answers stream back; or a batch.

Called by gateway.rest. Records are made by v3_record_maker, sent and reported by v3_deliveries.
Law: records of one piece of a body are handed to the producer at once; at most PIECES_AHEAD pieces wait for their
reports, then nothing more is read: a slow cluster slows the caller down instead of filling our memory.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import JSON, HttpProblem, json_response
from penstock.gateway.limits import content_type, parse_json, read_json, visit_of
from penstock.gateway.rest.json_stream import DocumentSplitter
from penstock.gateway.rest.reading import fields
from penstock.gateway.rest.schemas import SchemaCodecs
from penstock.gateway.rest.shapes import STRING, list_of, strict
from penstock.gateway.rest.streamed import Streamed
from penstock.gateway.rest.table import Answer, Body, Operation, Row
from penstock.gateway.rest.trace_context import trace_headers
from penstock.gateway.rest.v3_deliveries import BATCH_REPORT, DELIVERED, REPORT, Deliveries, Report, Sent
from penstock.gateway.rest.v3_paths import IN_TOPIC, RECORDS, WRONG_CHANGE, find_topic
from penstock.gateway.rest.v3_record_maker import RECORD, RecordMaker

TAG = "Records (v3)"
RECORD_BYTES_MAX = 10 * 1024 * 1024
PIECES_AHEAD = 64
BATCH_MAX = 10_000

_ENTRY = {**RECORD, "properties": {**RECORD["properties"], "id": STRING}, "required": ["id"]}
_BATCH = strict(("entries",), entries=list_of(_ENTRY, minItems=1, maxItems=BATCH_MAX))


class V3Records:
    def __init__(self, services: Services, codecs: SchemaCodecs) -> None:
        self._services = services
        self._codecs = codecs
        self._deliveries = Deliveries(services, "rest-v3")

    def rows(self) -> list[Row]:
        one = (Answer(200, "A report for each record, one JSON object after another.", REPORT),)
        batch = (Answer(207, "What became of each entry.", BATCH_REPORT),)
        wrong, at = (*WRONG_CHANGE, 429), f"{RECORDS}:batch"
        summary = "Produce a record; or many, one JSON object after another, with the reports streamed back."
        return [
            Operation("POST", RECORDS, self.produce, summary, TAG, one, IN_TOPIC, Body(RECORD), wrong),
            Operation("POST", at, self.batch, "Produce records.", TAG, batch, IN_TOPIC, Body(_BATCH), wrong),
        ]

    async def produce(self, request: Request) -> Response:
        topic = await find_topic(request, self._services)
        if content_type(request) != JSON:
            raise HttpProblem(415, 415, "Records are sent as application/json.")
        maker = RecordMaker(self._services, self._codecs, topic, trace_headers(request))
        if "transfer-encoding" not in request.headers:
            return await self._produce_body(await request.body(), maker, topic.name)
        visit_of(request).become_stream()
        return Streamed(self._produce_stream(request, maker, topic.name), JSON)

    async def batch(self, request: Request) -> Response:
        topic = await find_topic(request, self._services)
        body = fields(await read_json(request), "the request", {"entries": list})
        entries: list[Any] | None = body.get("entries")
        if not entries or len(entries) > BATCH_MAX:
            raise HttpProblem(422, 422, f"entries must be a list of 1 to {BATCH_MAX} records.")
        names = [cast("dict[str, Any]", one).get("id") if isinstance(one, dict) else None for one in entries]
        if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
            raise HttpProblem(422, 422, "Every entry needs an id of its own, a string.")
        maker = RecordMaker(self._services, self._codecs, topic, trace_headers(request))
        made = [await maker.attempt(one) for one in entries]
        told: dict[str, list[Report]] = {"successes": [], "failures": []}
        reports = await self._deliveries.reports(self._deliveries.send(made, topic.name), topic.name)
        for name, report in zip(names, reports, strict=True):
            told["successes" if report["error_code"] == DELIVERED else "failures"].append({"id": name, **report})
        return json_response(told, 207)

    async def _produce_body(self, body: bytes, maker: RecordMaker, topic: str) -> Response:
        """A whole body: where it is one record and that is wrong, the request is; of several each has its report."""
        splitter = DocumentSplitter(RECORD_BYTES_MAX)
        documents = splitter.feed(body)
        splitter.end()
        if not documents:
            raise HttpProblem(400, 400, "The request has no body: send a record as JSON.")
        if len(documents) == 1:
            made = [await maker.make(parse_json(documents[0]))]
        else:
            made = [await maker.attempt_text(one) for one in documents]
        reports = await self._deliveries.reports(self._deliveries.send(made, topic), topic)
        if len(reports) == 1:
            code = reports[0]["error_code"]
            return json_response(reports[0], 200 if code == DELIVERED else int(str(code)[:3]))
        return Response(_lines(reports), media_type=JSON)

    async def _produce_stream(self, request: Request, maker: RecordMaker, topic: str) -> AsyncGenerator[bytes]:
        sent: asyncio.Queue[Sent | None] = asyncio.Queue(PIECES_AHEAD)
        reading = asyncio.create_task(self._read_pieces(request, maker, topic, sent))
        try:
            while (piece := await sent.get()) is not None:
                reports = await self._deliveries.reports(piece, topic)
                yield _lines(reports)
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
                made = [await maker.attempt_text(one) for one in splitter.feed(piece)]
                if made:
                    await sent.put(await self._deliveries.send_patiently(made, topic))
            splitter.end()
        except ClientDisconnect:
            return
        finally:
            await sent.put(None)


def _lines(reports: list[Report]) -> bytes:
    return b"".join([orjson.dumps(one) + b"\n" for one in reports])
