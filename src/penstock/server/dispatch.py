"""From a frame to its handler (server.routes) and back, and the one place where unexpected failures are caught.

Called by server.connection for every frame.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import cache, partial

from penstock.errors import ErrorCode, MalformedFrame, PenstockError
from penstock.handlers.answers import LATER, Answer, Hangup, LateReply, Reply
from penstock.handlers.context import (
    ClientTraffic,
    ConnectionState,
    HandlerContext,
    RawRequest,
    Request,
    throttle_by_time,
)
from penstock.metrics import Counter, Histogram
from penstock.server.routes import ROUTES, Body, RawHandler
from penstock.wire.apis import APIS, Api, ApiKey
from penstock.wire.frame import RequestHeader, parse_request_header, response_frame
from penstock.wire.messages import decode_request, encode_response, load_entity
from penstock.wire.schema import field_specs

logger = logging.getLogger(__name__)

CLIENT_ID_CHARACTERS_MAX = 100  # of its name on /metrics; the wire lets it have 32,767


@dataclass(frozen=True, slots=True)
class Row:
    """An API and its counters, found by one look-up."""

    api: Api
    raw: RawHandler | None  # parses the frame itself
    requests: Counter
    latency_ms: Histogram
    in_flight: Counter  # goes down again


class Dispatcher:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._tasks: set[asyncio.Task[Reply]] = set()
        self._now = context.clock.monotonic
        metrics = context.metrics
        self._rows: dict[int, Row] = {}
        for api in APIS:
            is_produce = api.key is ApiKey.PRODUCE
            latency_ms = metrics.produce_latency if is_produce else metrics.request_latency.child(api.name)
            requests = metrics.requests.child(api.name)
            self._rows[api.key.value] = Row(api, ROUTES[api.key].raw, requests, latency_ms, Counter())
        metrics.requests_in_flight.read = lambda: [
            ((row.api.name,), row.in_flight.value) for row in self._rows.values() if row.requests.value
        ]

    def handle(self, connection: ConnectionState, frame: memoryview) -> Answer:
        """Start one request. MalformedFrame: the sender speaks something else, and is hung up on."""
        started = self._now()
        header = parse_request_header(frame)
        api_key, version, correlation_id, client_id, body_offset = header
        row = self._rows.get(api_key)
        if row is None:
            raise MalformedFrame(f"API {api_key} is not served")
        row.requests.value += 1
        client = connection.client_traffic
        if client is None or client.client_id != client_id:
            client = connection.client_traffic = self._traffic_of(client_id)
        client.requests.value += 1
        client.request_bytes.value += len(frame)
        api, raw = row.api, row.raw
        if not api.low <= version <= api.high:
            answer = _unsupported(api, header)
        elif api.request_bytes_max is not None and len(frame) > api.request_bytes_max:
            raise MalformedFrame(f"{len(frame)} bytes of {api.name}; at most {api.request_bytes_max} are taken")
        elif raw is None:
            answer = self._decoded(row, connection, frame, header, started)
        else:
            try:
                answer = raw(
                    self._context,
                    RawRequest(version, correlation_id, client_id, connection, frame, body_offset, started),
                )
            except MalformedFrame:
                raise
            except Exception:
                logger.exception("%s v%d failed", api.name, version)
                answer = Hangup(f"{api.name} failed")
        if isinstance(answer, LateReply):
            answer.started, answer.latency_ms = started, row.latency_ms
        elif isinstance(answer, LATER):
            row.in_flight.value += 1
            answer.add_done_callback(partial(self._answered, row, started))
        else:
            row.latency_ms.observe((self._now() - started) * 1000)
        return answer

    def _answered(self, row: Row, started: float, _: object = None) -> None:
        row.in_flight.value -= 1
        row.latency_ms.observe((self._now() - started) * 1000)

    def _traffic_of(self, client_id: str | None) -> ClientTraffic:
        metrics, name = self._context.metrics, (client_id or "")[:CLIENT_ID_CHARACTERS_MAX]
        return ClientTraffic(
            client_id,
            metrics.client_requests.child(name),
            metrics.client_request_bytes.child(name),
            metrics.client_fetch_bytes.child(name),
        )

    def _decoded(
        self, row: Row, connection: ConnectionState, frame: memoryview, header: RequestHeader, started: float
    ) -> Answer:
        api, route = row.api, ROUTES[row.api.key]
        body = decode_request(api.key, header.version, bytes(frame[header.body_offset :]))
        request = Request(api.key, header.version, header.client_id, connection, body)
        assert route.handler is not None
        try:
            answer = route.handler(self._context, request)
            throttle_ms = throttle_by_time(self._context, connection, header.client_id, started)
            if inspect.isawaitable(answer):
                return self._start(api, header, answer, throttle_ms)
            return _frame(api, header, answer, throttle_ms)
        except Exception as error:
            return _failure(api, header, error)

    async def close(self) -> None:
        """Give up what is still under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(
        self, api: Api, header: RequestHeader, answer: Awaitable[Body], throttle_ms: int
    ) -> asyncio.Future[Reply]:
        async def finish() -> Reply:
            try:
                return _frame(api, header, await answer, throttle_ms)
            except Exception as error:
                return _failure(api, header, error)

        task = asyncio.get_running_loop().create_task(finish())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A client that hangs up has nothing more to hear, but what it asked for is not left half done.
        return asyncio.shield(task)


def _frame(api: Api, header: RequestHeader, body: Body, throttle_ms: int = 0) -> bytes:
    if throttle_ms > body.get("throttle_time", 0) and "throttle_time" in _fields(api, header.version):
        body = {**body, "throttle_time": throttle_ms}
    encoded = encode_response(api.key, header.version, body)
    return response_frame(api.key, header.version, header.correlation_id, encoded)


def _unsupported(api: Api, header: RequestHeader) -> Reply:
    if api.key is not ApiKey.API_VERSIONS:
        raise MalformedFrame(f"{api.name} v{header.version} is not served; v{api.low} to v{api.high} are")
    # KIP-511: told in version 0, which every client reads, together with the versions it may try instead.
    body = {
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "api_keys": [{"api_key": api.key, "min_version": api.low, "max_version": api.high}],
    }
    return response_frame(api.key, 0, header.correlation_id, encode_response(api.key, 0, body))


def _failure(api: Api, header: RequestHeader, error: Exception) -> Reply:
    """The answer to a request whose handler failed as a whole."""
    if isinstance(error, PenstockError):
        code, message = error.code, str(error)
    else:
        logger.error("%s v%d failed", api.name, header.version, exc_info=error)
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says how"
    fields = _fields(api, header.version)
    if "error_code" not in fields:
        # This version has no place for an error of the whole request, and an empty answer would pass for the truth.
        return Hangup(f"{api.name} failed: {message}")
    body = {"error_code": code, "error_message": message}
    return _frame(api, header, {name: value for name, value in body.items() if name in fields})


@cache
def _fields(api: Api, version: int) -> set[str]:
    """What a response of this version can say at its top level."""
    return {spec.name for spec in field_specs(load_entity(api.key, version, "response"))}
