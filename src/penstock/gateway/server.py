"""The gateway under uvicorn: a socket, bounded headers, a clean end.

Called by cli.gateway and by tests, each on an event loop of its own.
Laws:
- The port that was really taken is known as soon as start() returns, also where 0 was asked for.
- stop() lets requests that are under way finish, for as long as the settings say; streams are told to end.
- Headers are bounded in bytes and in time before any of our code sees a request: nobody holds a connection for nothing.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Generator
from typing import Any

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.gateway.app import build_app
from penstock.gateway.errors import KafkaFailed
from penstock.gateway.listening import BACKLOG, listen_at
from penstock.gateway.settings import GatewaySettings
from penstock.model import Endpoint

log = logging.getLogger(__name__)

HEADER_BYTES_MAX = 64 * 1024
HEADER_TIMEOUT_S = 10.0
KEEP_ALIVE_S = 60
SOCKET_MESSAGE_BYTES_MAX = 1024 * 1024
SOCKET_MESSAGES_MAX = 16


class GatewayServer:
    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.app = build_app(settings)
        self.endpoint = settings.listen
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> Endpoint:
        """Listen; gives the address. Raises OSError where it cannot be had, KafkaFailed for bad properties."""
        listening = listen_at(self.settings.listen)
        try:
            # Before uvicorn has a hand in it, which would make a page of log of what is one sentence.
            await self.app.state.services.kafka.start()
        except KafkaFailed:
            listening.close()
            raise
        self.endpoint = Endpoint(self.settings.listen.host, listening.getsockname()[1])
        config = uvicorn.Config(
            self.app,
            loop="none",
            http=_protocol(self.settings.connections_max),
            ws="websockets-sansio",
            ws_max_size=SOCKET_MESSAGE_BYTES_MAX,
            ws_max_queue=SOCKET_MESSAGES_MAX,
            ws_per_message_deflate=False,
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(self.settings.stop_timeout_s),
            backlog=BACKLOG,
        )
        config.load()
        self._server = _Server(config)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve([listening]))
        ready = asyncio.get_running_loop().create_task(self._server.is_started.wait())
        await asyncio.wait([self._serving, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._serving.done():
            listening.close()
            self._serving.result()
            raise OSError("the gateway could not start; its log says why")
        return self.endpoint

    async def stop(self) -> None:
        if self._server is not None and self._serving is not None:
            self.app.state.services.stopping.set()
            self._server.should_exit = True
            await self._serving


class _Server(uvicorn.Server):
    """Signals are the caller's affair, and whoever waits for the start is woken."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_started = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            # uvicorn's way to say that the application did not start.
            self.should_exit = True
            return
        self.is_started.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol takes headers of any length, for any time."""

    connections_max = 0

    _head_bytes = 0
    _is_in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # uvicorn's line for each request cannot spell every path the guard lets through; --request-log has one of ours.
        self.access_log = False
        if len(self.connections) > self.connections_max:
            self._refuse(503, "Service Unavailable", "The gateway has too many connections: try again later.")
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        was_in_head = self._is_in_head
        super().data_received(data)
        if self._is_in_head and was_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEADER_BYTES_MAX:
                text = f"The headers of the request are larger than {HEADER_BYTES_MAX} bytes."
                self._refuse(431, "Request Header Fields Too Large", text)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._head_bytes = 0
        self._end_head()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        self._is_in_head = True
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        self._end_head()
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "Bad Request", msg)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEADER_TIMEOUT_S, self._head_is_late)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._refuse(408, "Request Timeout", "The headers of the request did not arrive in time.")

    def _refuse(self, status: int, reason: str, message: str) -> None:
        body = orjson.dumps({"error_code": status, "message": message})
        head = (
            f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def _protocol(most: int) -> type[BoundedHttp]:
    """uvicorn makes the protocols itself, and tells them nothing of ours."""

    class Protocol(BoundedHttp):
        connections_max = most

    return Protocol
