"""What a gateway is told when it starts: where to listen, which cluster, how much it takes on at once.

Called by cli.gateway, which reads them from the command line, and by every part of the gateway.
Law: whatever somebody outside can make large has its bound here or as a constant beside the code that meets it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from penstock.gateway.listening import DEFAULT_LISTEN
from penstock.model import Endpoint

MIB = 1024 * 1024
# Of all clients the gateway makes, which come and go with requests: they push no metrics of their own, and do not write
# a line each about a broker that is away. What matters comes back as the error of a call.
CLIENT_PROPERTIES: Mapping[str, str] = {"enable.metrics.push": "false", "log_level": "0"}
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class GatewaySettings:
    bootstrap: str
    listen: Endpoint = DEFAULT_LISTEN
    # librdkafka's, for every connection to the cluster: security.protocol, sasl.*, ssl.*… over CLIENT_PROPERTIES.
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    schemas_topic: str = "_schemas"
    # The console: the pages that brokers show their metrics on (http://host:port/metrics).
    metrics_addresses: tuple[str, ...] = ()
    # Nothing is changed through this gateway: see gateway.read_only.
    read_only: bool = False

    # Who may call. Empty origins: no page of another origin may; hosts: names beside those of the loopback.
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()

    # How much, how long.
    body_bytes_max: int = 10 * MIB
    body_timeout_s: float = 30.0
    requests_max: int = 512
    connections_max: int = 4096
    streams_max: int = 200
    stop_timeout_s: float = 10.0
    request_log: bool = False

    # Towards the cluster.
    ask_timeout_s: float = 10.0
    ask_threads: int = 8
    delivery_timeout_s: float = 30.0
    queue_records_max: int = 100_000
    queue_bytes_max: int = 64 * MIB
    consumers_max: int = 200
    consumer_idle_s: float = 300.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", {**CLIENT_PROPERTIES, **self.properties})

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the gateway."""
        if self.listen.host == "localhost":
            return True
        try:
            return ip_address(self.listen.host).is_loopback
        except ValueError:
            return False

    def allows_host(self, host: str) -> bool:
        """Whether a request may name this host (without its port).

        A page elsewhere can let its own name point to 127.0.0.1 and then read what the gateway answers; the Host header
        still has that name. Behind any other address the gateway cannot know its names, unless it is told them.
        """
        if host in self.allowed_hosts:
            return True
        if self.is_loopback:
            return host in LOOPBACK_NAMES or host == self.listen.host
        return not self.allowed_hosts or _is_address(host)

    def allows_origin(self, origin: str) -> bool:
        return origin in self.allowed_origins


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
