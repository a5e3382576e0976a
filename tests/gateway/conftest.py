"""Fixtures: `gateway_factory`, real gateways on threads of their own; `gateway`, one beside a broker."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import httpx
import pytest
import uvloop

from penstock.gateway.server import GatewayServer
from penstock.gateway.settings import GatewaySettings
from penstock.model import Endpoint
from penstock.testing import EmbeddedBroker

T = TypeVar("T")
DEADLINE_S = 30.0


class RunningGateway:
    """The gateway that `penstock gateway` runs: same sockets, same limits, in this process."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._thread.start()
        self.server = self.run(self._make(settings))
        self.endpoint = self.run(self.server.start())
        self.url = f"http://{self.endpoint}"
        self.http = httpx.Client(base_url=self.url, timeout=DEADLINE_S)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the gateway's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    @property
    def services(self) -> Any:
        return self.server.app.state.services

    def wait_until_ready(self) -> "RunningGateway":
        deadline = time.monotonic() + DEADLINE_S
        while (answer := self.http.get("/health/ready")).status_code != 200:
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        if self._loop.is_closed():
            return
        self.http.close()
        self.run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    async def _make(self, settings: GatewaySettings) -> GatewayServer:
        return GatewayServer(settings)


GatewayFactory = Callable[..., RunningGateway]


@pytest.fixture
def gateway_factory() -> Iterator[GatewayFactory]:
    """Makes gateways for a bootstrap address and other settings; all are stopped when the test ends."""
    made: list[RunningGateway] = []

    def make(bootstrap: str, **settings: Any) -> RunningGateway:
        settings.setdefault("listen", Endpoint("127.0.0.1", 0))
        made.append(RunningGateway(GatewaySettings(bootstrap, **settings)))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def gateway(penstock_broker: EmbeddedBroker, gateway_factory: GatewayFactory) -> RunningGateway:
    """A gateway that is ready, beside a broker."""
    return gateway_factory(penstock_broker.bootstrap).wait_until_ready()
