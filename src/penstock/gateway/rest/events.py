"""Records as Server-Sent Events, for as long as the reader stays.

Called by gateway.rest. An event's id has the positions of all partitions, so that a browser that reconnects goes on
after the last event it got: nothing is missed, and nothing comes twice.
"""

import asyncio
from collections.abc import AsyncGenerator

import orjson
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.kafka import KafkaFailed
from penstock.gateway.limits import visit_of
from penstock.gateway.rest.schemas import SchemaCodecs
from penstock.gateway.rest.shapes import STRING, structure
from penstock.gateway.rest.streamed import Streamed, until_gone
from penstock.gateway.rest.table import Answer, Operation, Parameter, Row
from penstock.gateway.rest.tail import PARAMETERS, Tail, format_positions, open_tail
from penstock.gateway.rest.telling import tell
from penstock.gateway.rest.v3_paths import IN_TOPIC, RECORDS

TAG = "Streams"
HEARTBEAT_S = 15.0
RETRY_MS = 2000
# An id of many positions is long: past so many partitions only the last event of a batch has one.
IDS_EACH_MAX = 16
_LAST = Parameter("Last-Event-ID", "header", STRING, "Go on after this event, as browsers do by themselves.")
_LAST_QUERY = Parameter("last_event_id", "query", STRING, "The same, for those who cannot set headers.")
_EVENT = structure(("event", "data"), id=STRING, event={"type": "string", "enum": ["record", "error"]}, data=STRING)


class Events:
    def __init__(self, services: Services, codecs: SchemaCodecs) -> None:
        self._services = services
        self._codecs = codecs
        self._consumed = services.measures.consumed.child("events")

    def rows(self) -> list[Row]:
        path, parameters = f"{RECORDS}:stream", (*IN_TOPIC, *PARAMETERS, _LAST, _LAST_QUERY)
        answers = (Answer(200, "Records as events; their ids are positions.", _EVENT, ("text/event-stream",)),)
        summary = "Follow a topic by Server-Sent Events."
        return [Operation("GET", path, self.follow, summary, TAG, answers, parameters, None, (400, 404, 429))]

    async def follow(self, request: Request) -> Response:
        resume = request.headers.get("last-event-id") or request.query_params.get("last_event_id")
        visit_of(request).become_stream()
        tail = await open_tail(request, self._services, resume)
        pieces = self._pieces(tail)
        return Streamed(until_gone(request.receive, self._services.stopping, pieces), "text/event-stream")

    async def _pieces(self, tail: Tail) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            said_at = loop.time()
            async for messages in tail.batches(self._services):
                if messages:
                    yield await self._events(tail, messages)
                    said_at = loop.time()
                elif loop.time() - said_at >= HEARTBEAT_S:
                    yield b": alive\n\n"
                    said_at = loop.time()
        except KafkaFailed as failure:
            problem = failure.problem()
            told = orjson.dumps({"error_code": problem.code, "message": problem.message})
            yield b"event: error\ndata: " + told + b"\n\n"
        finally:
            await tail.consumer.close()

    async def _events(self, tail: Tail, messages: list[object]) -> bytes:
        written = bytearray()
        for place, message in enumerate(messages):
            tail.note(message)
            if len(tail.positions) <= IDS_EACH_MAX or place == len(messages) - 1:
                written += f"id: {format_positions(tail.positions)}\n".encode()
            # JSON has no raw line ends, so one data line holds it whole.
            written += b"event: record\ndata: " + orjson.dumps(await tell(message, tail.format, self._codecs)) + b"\n\n"
        self._consumed.value += len(messages)
        return bytes(written)
