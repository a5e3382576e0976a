"""The gateway as one ASGI application: its parts' routes behind one guard.

Called by gateway.server. Each part is a package of the gateway with

    def routes(services: Services) -> list[BaseRoute]     what it serves; may set its own field of `services`
    async def start(services: Services) -> None           optional; may wait for the cluster, which may be away
    async def stop(services: Services) -> None            optional
    def not_ready(services: Services) -> str | None       optional; why /health/ready should still say no

Laws:
- Parts know one another only through Services; a part that is not installed is left out.
- The gateway answers as soon as it listens: whatever waits for the cluster runs beside, and /health/ready tells.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.clock import Clock, SystemClock
from penstock.gateway.errors import Busy, HttpProblem, KafkaFailed, json_response
from penstock.gateway.kafka import Kafka
from penstock.gateway.limits import Guard
from penstock.gateway.measures import GatewayMeasures
from penstock.gateway.routing import SegmentRouter
from penstock.gateway.settings import GatewaySettings
from penstock.metrics.registry import Registry as Metrics

if TYPE_CHECKING:
    from penstock.gateway.registry import Registry

log = logging.getLogger(__name__)

# In this order: the registry's and REST's paths are fixed by others, the console takes what is left.
PARTS = ("registry", "rest", "console")
START_RETRY_S = 2.0


@dataclass
class Services:
    """What the parts share. `registry` is set by its part, before routes() of the others."""

    kafka: Kafka
    settings: GatewaySettings
    measures: GatewayMeasures
    clock: Clock
    registry: "Registry | None" = None
    # What parts want closed at the end, the last first, before the Kafka handles go.
    closing: list[Callable[[], Awaitable[None]]] = field(default_factory=list[Callable[[], Awaitable[None]]])
    # Set when the gateway is asked to end: streams look at it, because nobody else would end them.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def metrics(self) -> Metrics:
        """Where a part adds what only it counts."""
        return self.measures.registry


class _Life:
    """Starting and stopping the parts, and whether they are ready."""

    def __init__(self, services: Services, parts: dict[str, Any]) -> None:
        self._services = services
        self._parts = parts
        self._waiting = set(parts)

    @contextlib.asynccontextmanager
    async def span(self, _: Starlette) -> AsyncGenerator[None]:
        services = self._services
        await services.kafka.start()
        loop = asyncio.get_running_loop()
        starting = [loop.create_task(self._start(name, part)) for name, part in self._parts.items()]
        try:
            yield
        finally:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            for name, part in reversed(self._parts.items()):
                await self._stop(name, part)
            for close in reversed(services.closing):
                await close()
            await services.kafka.close()

    def why_not_ready(self) -> str | None:
        kafka = self._services.kafka
        if not kafka.is_connected:
            return kafka.refusal or f"the cluster at {self._services.settings.bootstrap} does not answer"
        for name, part in self._parts.items():
            if name in self._waiting:
                return f"the {name} is still starting"
            ask: Callable[[Services], str | None] | None = getattr(part, "not_ready", None)
            reason = None if ask is None else ask(self._services)
            if reason is not None:
                return reason
        return None

    async def _start(self, name: str, part: Any) -> None:
        start: Callable[[Services], Awaitable[None]] | None = getattr(part, "start", None)
        told = ""
        while start is not None:
            try:
                await start(self._services)
                break
            except KafkaFailed as failure:
                if str(failure) != told:
                    log.warning("the %s cannot start yet: %s", name, failure)
                told = str(failure)
            except Exception:
                # One service that fails at its start leaves the others working, and is tried again.
                log.exception("the %s could not start", name)
            await asyncio.sleep(START_RETRY_S)
        self._waiting.discard(name)

    async def _stop(self, name: str, part: Any) -> None:
        stop: Callable[[Services], Awaitable[None]] | None = getattr(part, "stop", None)
        if stop is None:
            return
        try:
            await stop(self._services)
        except Exception:
            # The others are stopped all the same.
            log.exception("the %s did not stop cleanly", name)


def build_app(settings: GatewaySettings, clock: Clock | None = None) -> Starlette:
    clock = clock or SystemClock()
    measures = GatewayMeasures()
    kafka = Kafka(
        settings.bootstrap,
        settings.properties,
        ask_timeout_s=settings.ask_timeout_s,
        ask_threads=settings.ask_threads,
        delivery_timeout_s=settings.delivery_timeout_s,
        queue_records_max=settings.queue_records_max,
        queue_bytes_max=settings.queue_bytes_max,
        consumers_max=settings.consumers_max,
    )
    services = Services(kafka, settings, measures, clock)
    _read_gauges(measures, kafka)
    parts = _find_parts()
    life = _Life(services, parts)
    routes: list[BaseRoute] = _own_routes(services, life)
    for part in parts.values():
        routes += part.routes(services)
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, settings=settings, measures=measures, clock=clock)],
        exception_handlers={
            HttpProblem: _answer_problem,
            KafkaFailed: _answer_problem,
            Busy: _answer_busy,
            HTTPException: _answer_http,
        },
    )
    app.router = SegmentRouter(routes, lifespan=life.span)
    app.state.services = services
    return app


def _find_parts() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in PARTS:
        module = f"{__package__}.{name}"
        if importlib.util.find_spec(module) is None:
            continue
        part = importlib.import_module(module)
        if hasattr(part, "routes"):
            found[name] = part
    return found


def _own_routes(services: Services, life: _Life) -> list[BaseRoute]:
    async def live(_: Request) -> Response:
        return json_response({"status": "live"})

    async def ready(_: Request) -> Response:
        reason = life.why_not_ready()
        if reason is None:
            return json_response({"status": "ready"})
        return json_response({"error_code": 503, "message": f"Not ready: {reason}."}, 503)

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(services.metrics.render(), media_type="text/plain; version=0.0.4")

    return [
        Route("/health/live", live, methods=["GET"]),
        Route("/health/ready", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]


def _read_gauges(measures: GatewayMeasures, kafka: Kafka) -> None:
    measures.queue_records.read = lambda: kafka.records_under_way
    measures.queue_bytes.read = lambda: kafka.bytes_under_way
    measures.consumers.read = lambda: kafka.consumers_open
    measures.connected.read = lambda: int(kafka.is_connected)


async def _answer_problem(request: Request, error: Exception) -> Response:
    problem = error.problem() if isinstance(error, KafkaFailed) else error
    assert isinstance(problem, HttpProblem)
    return problem.response()


async def _answer_busy(request: Request, error: Exception) -> Response:
    assert isinstance(error, Busy)
    services: Services = request.app.state.services
    services.measures.refused_busy.value += 1
    return error.problem().response()


async def _answer_http(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses."""
    assert isinstance(error, HTTPException)
    return HttpProblem(error.status_code, error.status_code, f"{error.detail}.", error.headers).response()
