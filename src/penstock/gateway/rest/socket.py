"""Records over a WebSocket: those of a topic to the reader, the reader's to the topic, each with its report.

Called by gateway.rest. Every message is one JSON object with a `type`:
to the reader    record (as rest.telling tells it), report (of a record it sent, with its `id`), error
from the reader  what v3 takes as a record, with an `id` of its choice
Laws:
- At most UNREPORTED_MAX records of one socket are on their way; more are not read before some are reported.
- Reports come in the order of the records.
"""

import asyncio
import contextlib
from typing import Any, cast

import orjson
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem
from penstock.gateway.kafka import KafkaFailed
from penstock.gateway.limits import visit_of
from penstock.gateway.rest.schemas import SchemaCodecs
from penstock.gateway.rest.table import Parameter, Row, Socket
from penstock.gateway.rest.tail import PARAMETERS, Tail, open_tail
from penstock.gateway.rest.telling import tell
from penstock.gateway.rest.trace_context import trace_headers
from penstock.gateway.rest.v3_deliveries import Deliveries, Sent
from penstock.gateway.rest.v3_paths import IN_TOPIC, RECORDS, NamedTopic, find_topic
from penstock.gateway.rest.v3_record_maker import RecordMaker

TAG = "Streams"
UNREPORTED_MAX = 1000
DONE, GOING_AWAY, WRONG_DATA, FAILED = 1000, 1001, 1003, 1011
ID_MAX = 200
_READ = Parameter("read", "query", {"type": "boolean"}, "false: only send records, read none.")
# What the reader calls it, and the record on its way.
_Named = tuple[Any, Sent]


class Sockets:
    def __init__(self, services: Services, codecs: SchemaCodecs) -> None:
        self._services = services
        self._codecs = codecs
        self._consumed = services.measures.consumed.child("socket")
        self._deliveries = Deliveries(services, "socket")

    def rows(self) -> list[Row]:
        summary = "Follow a topic and send to it over a WebSocket."
        return [Socket(f"{RECORDS}:socket", self.serve, summary, TAG, (*IN_TOPIC, *PARAMETERS, _READ))]

    async def serve(self, socket: WebSocket) -> None:
        visit_of(socket).become_stream()
        topic = await find_topic(socket, self._services)
        tail = None
        if socket.query_params.get("read", "true").lower() != "false":
            tail = await open_tail(socket, self._services, socket.query_params.get("last_event_id"))
        try:
            await socket.accept()
            await self._serve(socket, topic, tail)
        finally:
            if tail is not None:
                await tail.consumer.close()

    async def _serve(self, socket: WebSocket, topic: NamedTopic, tail: Tail | None) -> None:
        """Until the reader goes, the limit is reached, the gateway stops, or something fails."""
        sent: asyncio.Queue[_Named] = asyncio.Queue(UNREPORTED_MAX)
        stopping = asyncio.ensure_future(self._services.stopping.wait())
        tasks: list[asyncio.Future[Any]] = [
            stopping,
            asyncio.ensure_future(self._take(socket, topic, sent)),
            asyncio.ensure_future(self._report(socket, topic.name, sent)),
        ]
        if tail is not None:
            tasks.append(asyncio.ensure_future(self._give(socket, tail)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            fault = next((task.exception() for task in done if task.exception() is not None), None)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await _part(socket, fault, is_stopping=stopping.done())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _give(self, socket: WebSocket, tail: Tail) -> None:
        async for messages in tail.batches(self._services):
            for message in messages:
                tail.note(message)
                await _say(socket, {"type": "record", **await tell(message, tail.format, self._codecs)})
            self._consumed.value += len(messages)

    async def _take(self, socket: WebSocket, topic: NamedTopic, sent: "asyncio.Queue[_Named]") -> None:
        maker = RecordMaker(self._services, self._codecs, topic, trace_headers(socket))
        while True:
            given = _parse(await socket.receive())
            made = await maker.attempt({key: value for key, value in given.items() if key not in ("id", "type")})
            await sent.put((given.get("id"), await self._deliveries.send_patiently([made], topic.name)))

    async def _report(self, socket: WebSocket, topic: str, sent: "asyncio.Queue[_Named]") -> None:
        while True:
            name, record = await sent.get()
            (told,) = await self._deliveries.reports(record, topic)
            await _say(socket, {"type": "report", "id": name, **told})


def _parse(message: Message) -> dict[str, Any]:
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    try:
        given: Any = orjson.loads(message.get("text") or "")
    except orjson.JSONDecodeError:
        given = None
    if not isinstance(given, dict):
        raise HttpProblem(400, 400, "A message is one JSON object, sent as text.")
    found = cast("dict[str, Any]", given)
    name = found.get("id")
    if not isinstance(name, str | int | None) or (isinstance(name, str) and len(name) > ID_MAX):
        raise HttpProblem(400, 400, f"The id of a record is a number, or text of at most {ID_MAX} characters.")
    return found


async def _part(socket: WebSocket, fault: BaseException | None, *, is_stopping: bool) -> None:
    if isinstance(fault, WebSocketDisconnect):
        return
    if isinstance(fault, HttpProblem | KafkaFailed):
        problem = fault.problem() if isinstance(fault, KafkaFailed) else fault
        await _say(socket, {"type": "error", "error_code": problem.code, "message": problem.message})
        await socket.close(WRONG_DATA if problem.status < 500 else FAILED, problem.message[:100])
    elif fault is not None:
        raise fault
    elif is_stopping:
        await socket.close(GOING_AWAY, "the gateway is stopping")
    else:
        await socket.close(DONE, "the limit is reached")


async def _say(socket: WebSocket, told: dict[str, Any]) -> None:
    await socket.send_text(orjson.dumps(told).decode())
