"""What stands before every request: who may call, how much may be sent, how long that may take; and what is counted.

Called by gateway.app, which puts it around the routes, and by handlers, for bodies (read_json, visit_of).
Laws:
- A body is refused while it arrives, not after: at most `body_bytes_max` of it is ever held, chunked or not.
- Whatever happens inside, the caller gets JSON, and no stack trace.
- A page of another origin can neither read answers nor change anything, unless its origin is allowed.
"""

import asyncio
import logging
from typing import Any
from urllib.parse import urlsplit

import orjson
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.clock import Clock
from penstock.gateway.errors import RETRY_AFTER_S, HttpProblem
from penstock.gateway.measures import GatewayMeasures
from penstock.gateway.read_only import READING, refusal
from penstock.gateway.settings import GatewaySettings

log = logging.getLogger(__name__)
request_log = logging.getLogger("penstock.gateway.requests")

HEADERS_MAX = 100
PATH_BYTES_MAX = 8 * 1024
# A stream of records may pause, but not for ever.
STREAM_IDLE_S = 300.0
_DIGITS_MAX = 18

_ALWAYS_ANSWERED = ("/health/live", "/health/ready", "/metrics")
_PAGE_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_PAGE_HEADERS = [*_HEADERS, (b"content-security-policy", _PAGE_POLICY.encode())]
_CLOSE = (b"connection", b"close")


class Visit:
    """One request on its way: its body as it arrives, and what it counts as."""

    __slots__ = ("_deadline", "_guard", "_has_body", "_limit", "_receive", "body_bytes", "is_stream", "status")

    def __init__(self, guard: "Guard", scope: Scope, receive: Receive, headers: dict[bytes, bytes]) -> None:
        self._guard = guard
        self._receive = receive
        self._limit = guard.settings.body_bytes_max
        self._has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        self._deadline = asyncio.get_running_loop().time() + guard.settings.body_timeout_s
        self.body_bytes = 0
        self.is_stream = False
        self.status = 0

    @property
    def is_body_left(self) -> bool:
        return self._has_body

    def become_stream(self) -> None:
        """From now on only pauses are limited, not the whole; and it takes a place among the streams."""
        if not self.is_stream:
            self._guard.count_stream()
            self.is_stream = True

    async def receive(self) -> Message:
        if not self._has_body:
            return await self._receive()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(loop.time() + STREAM_IDLE_S if self.is_stream else self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HttpProblem(408, 408, "The body of the request did not arrive in time.") from None
        if message["type"] == "http.request":
            self.body_bytes += len(message.get("body", b""))
            if self.body_bytes > self._limit and not self.is_stream:
                raise too_large(self._limit)
            self._has_body = bool(message.get("more_body", False))
        return message


class Guard:
    """Around the whole application."""

    def __init__(self, app: ASGIApp, settings: GatewaySettings, measures: GatewayMeasures, clock: Clock) -> None:
        self._app = app
        self.settings = settings
        self._measures = measures
        self._clock = clock
        self._running = 0
        self._streams = 0
        measures.requests_running.read = lambda: self._running
        measures.streams_open.read = lambda: self._streams

    def count_stream(self) -> None:
        if self._streams >= self.settings.streams_max:
            raise HttpProblem(
                503,
                503,
                f"{self.settings.streams_max} streams are open, as many as the gateway serves: try again later.",
                {"retry-after": str(RETRY_AFTER_S)},
            )
        self._streams += 1
        self._running -= 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        visit = Visit(self, scope, receive, headers)
        scope["penstock.visit"] = visit
        is_socket = scope["type"] == "websocket"
        origin = headers.get(b"origin", b"").decode("latin-1")
        may_share = bool(origin) and self.settings.allows_origin(origin)
        begun = self._clock.monotonic()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                visit.status = message["status"]
                message["headers"] = _complete(message.get("headers", []), origin if may_share else "", visit)
            elif message["type"] == "websocket.accept":
                visit.status = 101
            await send(message)

        self._running += 1
        try:
            refused = self._refusal(scope, headers, origin, may_share)
            if refused is not None:
                raise refused
            if origin and scope.get("method") == "OPTIONS" and b"access-control-request-method" in headers:
                await _preflight(answer, headers)
                return
            scope["path"] = _keep_slashes(scope)
            await self._app(scope, visit.receive, answer)
        except HttpProblem as problem:
            await _tell(problem, scope, answer, visit, is_socket)
        except Exception:
            # The last place before the server: a mistake of ours is one caller's 500, with its trace in the log.
            log.exception("%s %s failed", scope.get("method", "WebSocket"), scope.get("path"))
            problem = HttpProblem(500, 500, "The gateway failed at this request; its log says why.")
            await _tell(problem, scope, answer, visit, is_socket)
        finally:
            if visit.is_stream:
                self._streams -= 1
            else:
                self._running -= 1
            self._measure(scope, visit, (self._clock.monotonic() - begun) * 1000)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes], origin: str, may_share: bool) -> HttpProblem | None:
        if len(scope["headers"]) > HEADERS_MAX:
            return HttpProblem(431, 431, f"The request has more than {HEADERS_MAX} headers.")
        if len(scope["raw_path"]) + len(scope["query_string"]) > PATH_BYTES_MAX:
            return HttpProblem(414, 414, f"The address of the request is longer than {PATH_BYTES_MAX} bytes.")
        host = headers.get(b"host", b"").decode("latin-1")
        if not self.settings.allows_host(_without_port(host)):
            return HttpProblem(
                421,
                421,
                f"The gateway does not answer for the host {host[:200]!r}: start it with --allow-host to let it.",
            )
        # Simple forms and sockets are sent by browsers without asking first.
        is_safe = scope["type"] == "http" and scope["method"] in READING
        if origin and not may_share and not is_safe and _host_of(origin) != host.lower():
            return HttpProblem(
                403, 403, f"Pages of {origin[:200]} may not use this gateway: start it with --allow-origin to let them."
            )
        if self.settings.read_only and (refused := refusal(scope)) is not None:
            return refused
        length = headers.get(b"content-length", b"")
        is_too_long = len(length) > _DIGITS_MAX or (length.isdigit() and int(length) > self.settings.body_bytes_max)
        if is_too_long and b"transfer-encoding" not in headers:
            return too_large(self.settings.body_bytes_max)
        if self._running > self.settings.requests_max and scope["path"] not in _ALWAYS_ANSWERED:
            return HttpProblem(
                503,
                503,
                f"The gateway serves {self.settings.requests_max} requests at once and is busy: try again later.",
                {"retry-after": str(RETRY_AFTER_S)},
            )
        return None

    def _measure(self, scope: Scope, visit: Visit, took_ms: float) -> None:
        route = getattr(scope.get("route"), "path", "") or "_none"
        method = scope.get("method", "SOCKET")
        self._measures.count(method, route, visit.status, took_ms, visit.body_bytes, visit.is_stream)
        if self.settings.request_log:
            request_log.info("%s %s %d %.1f ms", method, scope.get("path"), visit.status, took_ms)


def visit_of(connection: HTTPConnection) -> Visit:
    return connection.scope["penstock.visit"]


def too_large(limit: int) -> HttpProblem:
    return HttpProblem(413, 413, f"The body of the request is larger than {limit} bytes: send it in parts.")


async def read_json(request: Request, media_types: tuple[str, ...] = ("application/json",)) -> Any:
    """The body as JSON, or a problem: 415 where it is said to be something else, 400 where it is none.

    That it must be said to be JSON keeps pages of other origins from sending it without the browser asking us first.
    """
    kind = content_type(request)
    if kind not in media_types and not (kind.endswith("+json") and "application/*+json" in media_types):
        raise HttpProblem(415, 415, f"The content type {kind[:100]!r} is not read here: send {media_types[0]}.")
    return parse_json(await request.body())


def parse_json(body: bytes | bytearray | memoryview) -> Any:
    if not body:
        raise HttpProblem(400, 400, "The request has no body: send JSON.")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise HttpProblem(400, 400, f"The body is not valid JSON: {error}.") from None


def content_type(request: HTTPConnection) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _preflight(send: Send, headers: dict[bytes, bytes]) -> None:
    """A browser asks whether a page may send; who may not gets no permission, and so does not."""
    asked = headers.get(b"access-control-request-headers", b"")
    told = [
        (b"access-control-allow-methods", b"GET, POST, PUT, DELETE, OPTIONS"),
        (b"access-control-allow-headers", asked[:1000] or b"content-type"),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": told})
    await send({"type": "http.response.body", "body": b""})


async def _tell(problem: HttpProblem, scope: Scope, send: Send, visit: Visit, is_socket: bool) -> None:
    if is_socket:
        if visit.status == 0:
            # Before the handshake: an HTTP answer instead of it.
            body = orjson.dumps({"error_code": problem.code, "message": problem.message})
            told = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "websocket.http.response.start", "status": problem.status, "headers": told})
            await send({"type": "websocket.http.response.body", "body": body})
            visit.status = problem.status
        return
    if visit.status:
        # Half an answer is out: ending the connection is the only way to say that it is not whole.
        raise ConnectionAbortedError(problem.message)
    await problem.response()(scope, visit.receive, send)


def _complete(headers: Any, shared_with: str, visit: Visit) -> list[tuple[bytes, bytes]]:
    given: list[tuple[bytes, bytes]] = list(headers)
    names = dict(given)
    kind = names.get(b"content-type", b"")
    own = _PAGE_HEADERS if kind.startswith(b"text/html") else _HEADERS
    # A page that says it itself knows better; of two policies a browser would obey both.
    complete = given + [header for header in own if header[0] not in names]
    if shared_with:
        complete += [(b"access-control-allow-origin", shared_with.encode("latin-1")), (b"vary", b"Origin")]
    if visit.is_body_left and b"connection" not in names and not visit.is_stream:
        # What the caller still sends is not read: better a new connection than to take it in for nothing.
        complete.append(_CLOSE)
    return complete


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


# Stands for a slash that was written %2F: it belongs to a name and divides nothing. No caller can send it, because it
# is half a surrogate pair, which UTF-8 cannot spell.
SLASH = "\udc2f"


def _keep_slashes(scope: Scope) -> str:
    """The path with %2F told from /: subjects and groups may have slashes in their names."""
    raw: bytes = scope["raw_path"]
    if b"%2F" not in raw and b"%2f" not in raw:
        return scope["path"]
    from urllib.parse import unquote

    parts = raw.decode("latin-1").replace("%2f", "%2F").split("%2F")
    return SLASH.join([unquote(part, errors="replace") for part in parts])
