"""What the console's API shares: the cluster, the registry, the one watcher, and what it is allowed to do.

Called by gateway.console, which makes one for each gateway, and by every part of the API.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.clock import Clock
from penstock.gateway.console.watching import Watcher
from penstock.gateway.errors import HttpProblem, KafkaFailed
from penstock.gateway.kafka import Kafka
from penstock.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from penstock.gateway.registry import Registry

T = TypeVar("T")

SCANS_MAX = 8
# What a cluster refuses in its own words, where nothing more exact is known.
REFUSED = 42200


class ConsoleServices(Protocol):
    """Of the gateway's Services, what the console uses."""

    kafka: Kafka
    settings: GatewaySettings
    clock: Clock
    stopping: asyncio.Event

    @property
    def registry(self) -> "Registry | None": ...


@dataclass
class Console:
    services: ConsoleServices
    watcher: Watcher
    is_readonly: bool
    scans_max: int = SCANS_MAX
    scans_open: int = 0
    # Of the doctor: see operations.
    doctor: dict[str, Any] = field(default_factory=dict[str, Any])
    tasks: "set[asyncio.Task[None]]" = field(default_factory=set["asyncio.Task[None]"])

    @property
    def kafka(self) -> Kafka:
        return self.services.kafka

    @property
    def clock(self) -> Clock:
        return self.services.clock

    @property
    def registry(self) -> "Registry | None":
        """None where the gateway has none. Read each time: its part may be started after the console."""
        return self.services.registry

    @property
    def stopping(self) -> asyncio.Event:
        return self.services.stopping

    async def ask(self, call: Callable[[Cluster], T]) -> T:
        """As Kafka.ask, but what penstock.admin has put into words is told in those words, with its advice."""

        def guarded(cluster: Cluster) -> T:
            # First, so that nobody listening is said as such.
            cluster.find_listener()
            try:
                return call(cluster)
            except CommandFailed as failure:
                told = f"{failure.what}. {failure.advice}".rstrip(". ") + "."
                raise HttpProblem(422, REFUSED, told) from None

        return await self.kafka.ask(guarded)


def value_of(cluster: Cluster, future: Any) -> Any:
    """What a future of the admin client gives; librdkafka's error with its own status, not in a command's words."""
    value, error = cluster.outcome(future)
    if error is not None:
        raise KafkaFailed.of(error)
    return value


def make_console(services: ConsoleServices) -> Console:
    metrics = services.settings.metrics_addresses
    return Console(services, Watcher(services.kafka, services.clock, metrics), services.settings.read_only)
