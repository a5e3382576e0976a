"""What a handler is given: the request, and the parts of the broker it may use.

Called by server.dispatch, which makes the requests, and broker.py, which makes the one context.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock, Rng
from penstock.config import BrokerConfig
from penstock.disk import Disk
from penstock.groups.coordinator import GroupCoordinator
from penstock.metrics import BrokerMetrics, Counter
from penstock.model import Endpoint, NodeId, Principal
from penstock.replication.replicas import Replicas
from penstock.security.quotas import Quotas
from penstock.wire.apis import ApiKey

if TYPE_CHECKING:
    from penstock.cluster.controller import Controller
    from penstock.cluster.image import ClusterImage
    from penstock.cluster.partition_changes import PartitionChanges
    from penstock.handlers.fetch_sessions import FetchSessions
    from penstock.handlers.final_refusals import FinalRefusals
    from penstock.handlers.inquiries import TransactionInquiries
    from penstock.handlers.produce_waits import ProduceWaits
    from penstock.handlers.producer_ids import ProducerIds
    from penstock.replication.in_sync import InSyncReplicas
    from penstock.replication.throttle import LeaderThrottle
    from penstock.telemetry import Reception
    from penstock.tracing import Tracer
    from penstock.transactions.coordinator import TransactionCoordinator
    from penstock.transactions.markers import WriteMarkers
    from penstock.validation.validation import SchemaValidation


@dataclass(frozen=True, slots=True)
class Node:
    """How clients reach this broker."""

    node_id: NodeId
    endpoint: Endpoint
    rack: str | None

    @property
    def host(self) -> str:
        return self.endpoint.host

    @property
    def port(self) -> int:
        return self.endpoint.port


@dataclass(slots=True)
class Outbox:
    """Answers of all connections that lie in our memory because their clients do not take them."""

    stuck_bytes: int = 0


@dataclass(slots=True)
class ConnectionState:
    """What the broker remembers of one connection between requests."""

    client_host: str
    principal: Principal
    client_port: int = 0
    number: int = 0  # in the order in which the broker's connections were opened
    software_name: str = ""
    software_version: str = ""
    # Set by a handler whose client is over a quota; the connection reads nothing for so long.
    throttle_ms: int = 0
    # A fetch waits for data, a produce for its transaction or schemas: what was sent after it is not taken meanwhile.
    holds_back_the_next: bool = False
    # Told by a handler that no longer holds back the next, though its answer has yet to come.
    take_more: Callable[[], None] = lambda: None
    # (topic id, partition) -> offset of the last fetch, from which the records delivered since are counted.
    fetch_positions: dict[tuple[Any, int], int] = field(default_factory=dict[tuple[Any, int], int])
    outbox: Outbox = field(default_factory=Outbox)  # shared by all connections of a broker
    # Whose counters its requests are added to; a client says its id with every request and hardly ever changes it.
    client_traffic: "ClientTraffic | None" = None

    def throttle(self, throttle_ms: int, quota: str, metrics: BrokerMetrics) -> None:
        """Remember that the client has to wait; of several quotas the longest wait counts."""
        if throttle_ms > 0:
            self.throttle_ms = max(self.throttle_ms, throttle_ms)
            metrics.throttled_requests.child(quota).value += 1
            metrics.throttle_ms.child(quota).value += throttle_ms


@dataclass(slots=True)
class ClientTraffic:
    """One client id's counters, looked up once for each connection."""

    client_id: str | None
    requests: Counter
    request_bytes: Counter
    fetch_bytes: Counter


@dataclass(slots=True)
class Request:
    """A request that was decoded whole."""

    api_key: ApiKey
    version: int
    client_id: str | None
    connection: ConnectionState
    body: Any

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    @property
    def client_host(self) -> str:
        return self.connection.client_host


@dataclass(slots=True)  # not frozen: made for every request, and frozen ones take three times as long to make
class RawRequest:
    """A request that its handler parses itself, straight from the frame.

    The view is only good until the handler returns: the connection reads the next frame into the same buffer.
    """

    version: int
    correlation_id: int
    client_id: str | None
    connection: ConnectionState
    view: memoryview
    body_offset: int
    started: float  # on the monotonic clock
    throttle_ms: int = 0  # what the answer is to say, set by whoever counts the request's time


@dataclass(slots=True)
class HandlerContext:
    node: Node
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    rng: Rng
    disk: Disk
    image: "ClusterImage"
    controller: "Controller"
    partition_changes: "PartitionChanges"
    replicas: Replicas
    in_sync: "InSyncReplicas"
    leader_throttle: "LeaderThrottle"
    metrics: BrokerMetrics
    quotas: Quotas
    groups: GroupCoordinator
    transactions: "TransactionCoordinator"
    write_markers: "WriteMarkers"  # to the partitions led here
    inquiries: "TransactionInquiries"
    fetch_sessions: "FetchSessions"
    final_refusals: "FinalRefusals"
    produce_waits: "ProduceWaits"
    producer_ids: "ProducerIds"
    telemetry: "Reception"
    # Makes an internal topic if it is not there yet.
    ensure_internal_topic: Callable[[str], Awaitable[None]]
    validation: "SchemaValidation | None" = None  # only tests leave it out
    tracer: "Tracer | None" = None  # where tracing is switched on


def throttle_by_time(
    context: HandlerContext, connection: ConnectionState, client_id: str | None, started: float
) -> int:
    """Count the loop's time since `started` against the client's request quota; how long it has to wait."""
    quota = context.quotas.request
    if quota is None:
        return 0
    now = context.clock.monotonic()
    throttle_ms = quota.record(connection.principal, client_id, (now - started) * 100, now)
    connection.throttle(throttle_ms, "request", context.metrics)
    return throttle_ms
