"""Answers that come piece by piece for as long as the caller reads them.

Called by v3_records and rest.events. Starlette's own StreamingResponse reads the request's body to learn that the
caller has gone; these answers read that body themselves, or have to end when the gateway stops.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class Streamed(Response):
    """Sends each piece when the one before has left; a reader that is slow is waited for."""

    def __init__(self, pieces: AsyncGenerator[bytes], media_type: str) -> None:
        super().__init__(None, 200, {"x-accel-buffering": "no"}, media_type)
        self._pieces = pieces
        # The length is not known; without it the server sends chunks.
        self.raw_headers = [one for one in self.raw_headers if one[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with contextlib.aclosing(self._pieces):
            async for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def until_gone(receive: Receive, stopping: asyncio.Event, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """`pieces` until the caller has gone or the gateway is to stop; whatever is being waited for is given up then."""
    leaving = asyncio.ensure_future(_disconnect(receive))
    ending = asyncio.ensure_future(stopping.wait())
    coming: asyncio.Future[bytes] | None = None
    try:
        while True:
            coming = asyncio.ensure_future(_next(pieces))
            await asyncio.wait([coming, leaving, ending], return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                return
            try:
                yield coming.result()
            except StopAsyncIteration:
                return
    finally:
        for waiting in (leaving, ending, coming):
            if waiting is not None and not waiting.done():
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                    await waiting
        await pieces.aclose()


async def _next(pieces: AsyncIterator[bytes]) -> bytes:
    return await anext(pieces)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
