"""Charts as they grow: the history at once, then each new moment, as Server-Sent Events.

Called through the console's routes.
Laws: an open stream is somebody who looks (see watching); a slow reader gets fewer moments, never a queue of them; the
number of streams is bounded.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.gateway.console.asking import choice_of, text_of
from penstock.gateway.console.history import CLUSTER
from penstock.gateway.console.service import Console
from penstock.gateway.errors import Busy, json_response

STREAMS_MAX = 100
HEARTBEAT_S = 15.0

MEASURED = ("messages_in", "messages_out", "bytes_in", "bytes_out")
SERIES = {
    # Without the brokers' own counters: what offsets show.
    CLUSTER: ("messages_in", "messages_out", "lag"),
    "topic": ("messages_in",),
    "group": ("lag", "progress"),
}
SERIES_MEASURED = {
    CLUSTER: (*MEASURED, "produce_p50", "produce_p99", "lag"),
    "topic": MEASURED,
    "group": ("lag", "progress"),
}


class Streams:
    """How many are open, in one gateway."""

    def __init__(self) -> None:
        self.open = 0


def history_of(console: Console, scope: str, name: str) -> dict[str, Any]:
    history = console.watcher.history
    names = (SERIES_MEASURED if console.watcher.has_metrics else SERIES)[scope]
    return {"times": history.times(), "series": {one: history.series((scope, name, one)) for one in names}}


def moment_of(console: Console, scope: str, name: str) -> dict[str, Any]:
    history = console.watcher.history
    names = (SERIES_MEASURED if console.watcher.has_metrics else SERIES)[scope]
    values = {one: history.latest((scope, name, one)) for one in names}
    return {"time": history.latest_ms, "values": values, "failure": console.watcher.failure}


async def show_history(console: Console, request: Request) -> Response:
    scope, name = _asked(request)
    console.watcher.look()
    return json_response(history_of(console, scope, name))


async def stream(console: Console, streams: Streams, request: Request) -> Response:
    scope, name = _asked(request)
    if streams.open >= STREAMS_MAX:
        raise Busy(f"{STREAMS_MAX} pages are open already: close one, or try again later")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_events(console, streams, scope, name), media_type="text/event-stream", headers=headers)


def _asked(request: Request) -> tuple[str, str]:
    scope = choice_of(request, "scope", tuple(SERIES), CLUSTER)
    return scope, "" if scope == CLUSTER else text_of(request, "name")


async def _events(console: Console, streams: Streams, scope: str, name: str) -> AsyncGenerator[bytes]:
    streams.open += 1
    try:
        console.watcher.look()
        yield _event("history", history_of(console, scope, name))
        told_ms = console.watcher.history.latest_ms
        while not console.stopping.is_set():
            if not await _wait(console):
                yield b": still here\n\n"
            console.watcher.look()
            moment = moment_of(console, scope, name)
            if moment["time"] != told_ms or moment["failure"]:
                told_ms = moment["time"]
                yield _event("moment", moment)
    finally:
        streams.open -= 1


async def _wait(console: Console) -> bool:
    """For the next moment, or for the gateway's end; False where neither came for long."""
    waiting = [asyncio.ensure_future(console.watcher.next_sample()), asyncio.ensure_future(console.stopping.wait())]
    try:
        done, _ = await asyncio.wait(waiting, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
    return bool(done)


def _event(kind: str, content: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + orjson.dumps(content) + b"\n\n"
