"""Records over a WebSocket: those of a topic to the reader, the reader's to the topic, each with its report.

Called by gateway.rest. Every message is one JSON object with a `type`:
to the reader    record (as rest.tail tells it), report (of a record it sent, with its `id`), error
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
from penstock.gateway.kafka import Busy, KafkaFailed, Outcome
from penstock.gateway.limits import visit_of
from penstock.gateway.rest.envelope import CLUSTER_ID, cluster_id, links_for
from penstock.gateway.rest.names import topic_in
from penstock.gateway.rest.schemas import SchemaCodecs
from penstock.gateway.rest.table import Parameter, Row, Socket, path_parameters
from penstock.gateway.rest.tail import PARAMETERS, Tail, open_tail, tell
from penstock.gateway.rest.v2_topics import TOPIC_NAME
from penstock.gateway.rest.v3_partitions import not_found
from penstock.gateway.rest.v3_records import BUSY_PAUSE_S, DELIVERED, Made, Ready, RecordMaker, report

TAG = "Streams"
UNREPORTED_MAX = 1000
DONE, GOING_AWAY, WRONG_DATA, FAILED = 1000, 1001, 1003, 1011
ID_MAX = 200
_READ = Parameter("read", "query", {"type": "boolean"}, "false: only send records, read none.")


_Named = tuple[Any, Made, "asyncio.Future[list[Outcome]] | None"]


class Sockets:
    def __init__(self, services: Services, codecs: SchemaCodecs) -> None:
        self._services = services
        self._codecs = codecs
        self._consumed = services.measures.consumed.child("socket")
        self._delivered = services.measures.produced.child("socket")
        self._failed = services.measures.produce_failed.child("socket")

    def rows(self) -> list[Row]:
        path = "/v3/clusters/{cluster_id}/topics/{topic_name}/records:socket"
        parameters = (*path_parameters(cluster_id=CLUSTER_ID, topic_name=TOPIC_NAME), *PARAMETERS, _READ)
        return [Socket(path, self.serve, "Follow a topic and send to it over a WebSocket.", TAG, parameters)]

    async def serve(self, socket: WebSocket) -> None:
        visit_of(socket).become_stream()
        await links_for(socket, self._services)
        topic = topic_in(socket, not_found(), "topic_name")
        if await self._services.kafka.topic(topic) is None:
            raise not_found()
        tail = None
        if socket.query_params.get("read", "true").lower() != "false":
            tail = await open_tail(socket, self._services, socket.query_params.get("last_event_id"))
        try:
            await socket.accept()
            await self._serve(socket, topic, tail)
        finally:
            if tail is not None:
                await tail.consumer.close()

    async def _serve(self, socket: WebSocket, topic: str, tail: Tail | None) -> None:
        """Until the reader goes, the limit is reached, the gateway stops, or something fails."""
        sent: asyncio.Queue[_Named] = asyncio.Queue(UNREPORTED_MAX)
        stopping = asyncio.ensure_future(self._services.stopping.wait())
        tasks: list[asyncio.Future[Any]] = [
            stopping,
            asyncio.ensure_future(self._take(socket, topic, sent)),
            asyncio.ensure_future(self._report(socket, topic, sent)),
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

    async def _take(self, socket: WebSocket, topic: str, sent: "asyncio.Queue[_Named]") -> None:
        maker = RecordMaker(self._services, self._codecs, topic)
        while True:
            given = _parse(await socket.receive())
            name = given.get("id")
            try:
                made = await maker.make({key: value for key, value in given.items() if key not in ("id", "type")})
            except HttpProblem as problem:
                await sent.put((name, problem, None))
                continue
            await sent.put((name, made, await self._send(topic, made)))

    async def _send(self, topic: str, made: Ready) -> "asyncio.Future[list[Outcome]]":
        while True:
            try:
                return self._services.kafka.produce_many(topic, [made.record])
            except Busy:
                # Nothing more is read from the socket meanwhile.
                await asyncio.sleep(BUSY_PAUSE_S)

    async def _report(self, socket: WebSocket, topic: str, sent: "asyncio.Queue[_Named]") -> None:
        cluster = await cluster_id(self._services)
        while True:
            name, made, future = await sent.get()
            outcome = (await future)[0] if future is not None else made
            assert not isinstance(outcome, Ready)
            told = report(made, outcome, topic, cluster)
            (self._delivered if told["error_code"] == DELIVERED else self._failed).value += 1
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
