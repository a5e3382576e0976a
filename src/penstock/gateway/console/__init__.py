"""The web console: a page at /, and the JSON API under /api that it asks.

Called by gateway.app. The page is plain HTML, CSS and ES modules from static/; whatever it can do, a script can do over
the same API. Page addresses lie under /console, because REST and the registry own /topics, /subjects and others.
Laws:
- Every handler is one function of (Console, Request); this file alone says where each is, and which change things.
- What changes anything is sent as POST with JSON, from the console's own origin, to a console that is not read-only.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from penstock.gateway.console import (
    assets,
    downloading,
    groups,
    live,
    messages,
    operations,
    producing,
    schemas,
    topic_changes,
    topics,
)
from penstock.gateway.console.asking import require_change
from penstock.gateway.console.service import Console, ConsoleServices, make_console

__all__ = ["routes", "start", "stop"]

Handler = Callable[[Console, Request], Awaitable[Response]]

READING: dict[str, Handler] = {
    "/api/session": operations.show_session,
    "/api/overview": operations.show_overview,
    "/api/topics": topics.list_topics,
    "/api/topic": topics.show_topic,
    "/api/configs": topics.show_configs,
    "/api/messages": messages.browse,
    "/api/messages/download": downloading.download,
    "/api/message": messages.show_one,
    "/api/groups": groups.list_groups,
    "/api/groups/delays": groups.list_delays,
    "/api/group": groups.show_group,
    "/api/subjects": schemas.list_subjects,
    "/api/subject": schemas.show_subject,
    "/api/transactions": operations.show_transactions,
    "/api/transactions/held": operations.show_hanging,
    "/api/doctor": operations.show_doctor,
    "/api/history": live.show_history,
}
# Posted because they carry a body or cost something, but they change nothing.
ASKING: dict[str, Handler] = {
    "/api/doctor/run": operations.run_doctor,
    "/api/subject/check": schemas.check_schema,
}
CHANGING: dict[str, Handler] = {
    "/api/topic/create": topic_changes.create_topic,
    "/api/topic/delete": topic_changes.delete_topic,
    "/api/topic/partitions": topic_changes.add_partitions,
    "/api/topic/empty": topic_changes.empty_topic,
    "/api/configs/change": topic_changes.change_configs,
    "/api/messages/produce": producing.produce,
    "/api/group/delete": groups.delete_group,
    "/api/group/reset": groups.reset_group,
    "/api/subject/register": schemas.register_schema,
    "/api/subject/level": schemas.set_level,
    "/api/subject/delete": schemas.delete_subject,
}


def routes(services: ConsoleServices) -> list[BaseRoute]:
    def console() -> Console:
        # Made on the gateway's loop, when it is first needed.
        return _of(services)

    streams = live.Streams()

    async def stream(request: Request) -> Response:
        return await live.stream(console(), streams, request)

    made: list[BaseRoute] = [
        Route("/", assets.serve_page, methods=["GET"]),
        Route("/console", assets.serve_page, methods=["GET"]),
        Route("/console/{path:path}", assets.serve_page, methods=["GET"]),
        Route("/favicon.ico", assets.serve_icon, methods=["GET"]),
        Route(assets.PREFIX + "/{version}/{name:path}", assets.serve_asset, methods=["GET"]),
        Route("/api/live", stream, methods=["GET"]),
    ]
    made += [Route(path, _reading(console, handler), methods=["GET"]) for path, handler in READING.items()]
    made += [Route(path, _posted(console, handler, False), methods=["POST"]) for path, handler in ASKING.items()]
    made += [Route(path, _posted(console, handler, True), methods=["POST"]) for path, handler in CHANGING.items()]
    return made


async def start(services: ConsoleServices) -> None:
    _of(services).watcher.start()


async def stop(services: ConsoleServices) -> None:
    console = _of(services)
    await console.watcher.stop()
    for task in list(console.tasks):
        task.cancel()
    await asyncio.gather(*console.tasks, return_exceptions=True)


def _of(services: ConsoleServices) -> Console:
    """The one console of these services, kept among them as every part may keep a field of its own there."""
    kept = vars(services)
    if "console" not in kept:
        kept["console"] = make_console(services)
    return kept["console"]


def _reading(console: Callable[[], Console], handler: Handler) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        response = await handler(console(), request)
        response.headers.setdefault("cache-control", "no-store")
        return response

    return answer


def _posted(console: Callable[[], Console], handler: Handler, is_change: bool) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        require_change(request, console().is_readonly and is_change, console().services.settings.allowed_origins)
        response = await handler(console(), request)
        response.headers.setdefault("cache-control", "no-store")
        return response

    return answer
