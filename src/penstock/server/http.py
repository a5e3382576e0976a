"""The broker's own small HTTP door: /metrics for Prometheus, /health/live and /health/ready for whoever restarts it.

Called by broker. Reads only, answers GET and HEAD, one request a connection; everything a person would want to do over
HTTP is the gateway's. Written by hand because a web framework would weigh more than the broker.
"""

import asyncio
import json
from collections.abc import Callable
from typing import NamedTuple

from penstock.model import Endpoint

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_DEADLINE_S = 5.0
CONNECTIONS_MAX = 64


class Page(NamedTuple):
    status: str
    content_type: str
    body: str


Pages = dict[str, Callable[[], Page]]


class HttpDoor:
    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open = 0

    async def open(self, endpoint: Endpoint) -> Endpoint:
        self._server = await asyncio.start_server(self._serve, endpoint.host, endpoint.port, limit=REQUEST_BYTES_MAX)
        return Endpoint(endpoint.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > CONNECTIONS_MAX:
                return
            async with asyncio.timeout(REQUEST_DEADLINE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # not HTTP, or not in time: nobody is owed an answer
        finally:
            self._open -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response(Page("405 Method Not Allowed", "text/plain", "only GET and HEAD are served here\n"), "GET")
        make = self._pages.get(path)
        if make is None:
            known = "".join(f"{name}\n" for name in self._pages)
            return _response(Page("404 Not Found", "text/plain", f"there are these pages:\n{known}"), method)
        return _response(make(), method)


def health_page(problems: list[str]) -> Page:
    """What a probe reads: 200 when all is well, 503 with the reasons when it is not."""
    status = "503 Service Unavailable" if problems else "200 OK"
    body = json.dumps({"status": "not ready" if problems else "ok", "problems": problems})
    return Page(status, "application/json", body + "\n")


def _response(page: Page, method: str) -> bytes:
    body = page.body.encode()
    head = (
        f"HTTP/1.1 {page.status}\r\nContent-Type: {page.content_type}; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\nCache-Control: no-store\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else body)
