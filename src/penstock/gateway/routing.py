"""Which handler a path belongs to: routes looked up by their first segment, names with slashes kept whole.

Called by gateway.app.
Laws:
- Of two routes that both match, the first in the list wins, as with Starlette's own router.
- A slash that was written %2F divides nothing: the handler gets it as part of the parameter.
- A path that nobody serves is a 404, one that others methods are served at a 405 with `Allow`; both are JSON.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from starlette.routing import BaseRoute, Match, Router
from starlette.types import Receive, Scope, Send

from penstock.gateway.errors import HttpProblem
from penstock.gateway.limits import SLASH


class SegmentRouter(Router):
    def __init__(self, routes: Sequence[BaseRoute], **options: Any) -> None:
        super().__init__(routes, redirect_slashes=False, **options)
        self._everywhere: list[tuple[int, BaseRoute]] = []
        self._by_segment: dict[str, list[tuple[int, BaseRoute]]] = {}
        for place, route in enumerate(routes):
            segment = _first_segment(getattr(route, "path", ""))
            if "{" in segment or not hasattr(route, "path_regex") or not segment:
                self._everywhere.append((place, route))
            else:
                self._by_segment.setdefault(segment, []).append((place, route))
        # The root belongs to whoever serves "/", and a mount at "" to everybody.
        self._candidates = {
            segment: [route for _, route in sorted([*own, *self._everywhere], key=lambda one: one[0])]
            for segment, own in self._by_segment.items()
        }
        self._rest = [route for _, route in self._everywhere]

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await super().app(scope, receive, send)
            return
        scope.setdefault("router", self)
        allowed: set[str] = set()
        for route in self._routes_for(scope["path"]):
            match, found = route.matches(scope)
            if match is Match.FULL:
                scope["route"] = route
                scope.update(found)
                _restore_slashes(scope)
                await route.handle(scope, receive, send)
                return
            if match is Match.PARTIAL:
                scope["route"] = route
                allowed |= set(getattr(route, "methods", None) or ())
        if scope["type"] == "websocket":
            raise HttpProblem(404, 404, "There is no socket at this path.")
        if allowed:
            told = ", ".join(sorted(allowed))
            raise HttpProblem(405, 405, f"{scope['method']} is not served at this path: use {told}.", {"allow": told})
        raise HttpProblem(404, 404, "There is nothing at this path: /openapi.json lists what there is.")

    def _routes_for(self, path: str) -> Iterator[BaseRoute]:
        yield from self._candidates.get(_first_segment(path), self._rest)


def _first_segment(path: str) -> str:
    return path[1:].partition("/")[0]


def _restore_slashes(scope: Scope) -> None:
    parameters = scope.get("path_params")
    if parameters and SLASH in scope["path"]:
        scope["path_params"] = {
            name: value.replace(SLASH, "/") if isinstance(value, str) else value for name, value in parameters.items()
        }
