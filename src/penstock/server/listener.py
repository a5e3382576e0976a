"""The door: accepts connections within the limits, sweeps away the dead ones, closes them all at the end.

Called by broker. One listener, one port.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import socket
from collections import Counter, deque
from collections.abc import Callable

from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.config.setting import INT_MAX
from penstock.handlers.answers import Answer
from penstock.handlers.context import ConnectionState, Outbox
from penstock.metrics import BrokerMetrics
from penstock.model import ANONYMOUS, Endpoint
from penstock.security.quotas import Quotas, RateSensor
from penstock.server.connection import Connection
from penstock.server.dispatch import Dispatcher
from penstock.wire.apis import BY_KEY

logger = logging.getLogger(__name__)

SHARED_BUFFER_BYTES = 256 * 1024
CROWDED_BUFFER_BYTES = 4 * 1024  # what is received at once of a frame that may have to be kept past the budget
SWEEP_S = 5.0
SWEEP_S_MIN = 0.02


class Listener:
    def __init__(self, config: BrokerConfig, clock: Clock, metrics: BrokerMetrics, quotas: Quotas) -> None:
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._quotas = quotas
        self._dispatcher: Dispatcher | None = None
        self._connections: set[Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._receive_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.shared_buffer = self._receive_buffer
        self.frame_bytes_max = config.socket_request_max_bytes
        self.now = clock.monotonic
        self.handle: Callable[[ConnectionState, memoryview], Answer]  # since serve(); before it nobody is connected
        self.held_bytes = 0
        self.received_bytes = self.sent_bytes = 0
        self._starved: deque[Connection] = deque()
        self._to_write: list[Connection] = []
        self._exempt: Connection | None = None
        self._outbox = Outbox()
        self._numbers = itertools.count(1)
        self._creation = RateSensor(config.quota_window_num, config.quota_window_size_seconds)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def software(self) -> Counter[tuple[str, str]]:
        """How many connections there are of each client, by the name and version it gave."""
        states = (connection.state for connection in self._connections)
        return Counter((state.software_name, state.software_version) for state in states if state is not None)

    async def bind(self, endpoint: Endpoint) -> Endpoint:
        """Take the address, without answering yet; gives it back with the port we got."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self),
            endpoint.host,
            endpoint.port,
            backlog=self._config.socket_listen_backlog_size,
            reuse_address=True,
            start_serving=False,
        )
        self._set_socket_options()
        return Endpoint(endpoint.host, self._server.sockets[0].getsockname()[1])

    def _set_socket_options(self) -> None:
        # On the listening socket: every connection it accepts begins with the same.
        assert self._server is not None
        for listening in self._server.sockets:
            # A peer that vanished while we hold its answer back is noticed by the kernel only.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, size in (
                (socket.SO_SNDBUF, self._config.socket_send_buffer_bytes),
                (socket.SO_RCVBUF, self._config.socket_receive_buffer_bytes),
            ):
                if size >= 0:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)

    async def serve(self, dispatcher: Dispatcher) -> None:
        assert self._server is not None
        self._dispatcher, self.handle = dispatcher, dispatcher.handle
        await self._server.start_serving()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
        if self._server is not None:
            self._server.close()
        if self._dispatcher is not None:
            await self._dispatcher.close()
        for connection in tuple(self._connections):
            connection.close("stop", "the broker stops")
        if self._server is not None:
            await self._server.wait_closed()

    # For connections

    def opened(self, connection: Connection) -> ConnectionState | None:
        config = self._config
        address = connection.peer
        limit = config.connection_limits.get(address, config.max_connections_per_ip)
        reason = ""
        if len(self._connections) >= config.max_connections:
            reason = "max.connections"
        elif self._by_address[address] >= limit:
            reason = "max.connections.per.ip"
        elif self._is_too_fast():
            reason = "max.connection.creation.rate"
        elif self._quotas.connections is not None and self._quotas.connections.record(address, self.now()) > 0:
            reason = "connection_creation_rate"
        if reason:
            self._metrics.connections_refused.child(reason).value += 1
            logger.warning("refused a connection from %s: %s is reached", address, reason)
            return None
        self._metrics.connections_accepted.value += 1
        self._connections.add(connection)
        self._by_address[address] += 1
        return ConnectionState(address, ANONYMOUS, number=next(self._numbers), outbox=self._outbox)

    def _is_too_fast(self) -> bool:
        limit = self._config.max_connection_creation_rate
        if limit >= INT_MAX:
            return False
        is_over = limit == 0 or self._creation.record(1, limit, self.now()) > 0
        if is_over and limit:
            self._creation.record(-1, limit, self.now())  # who was refused does not count against the next
        return is_over

    def closing(self, connection: Connection, reason: str, why: str) -> None:
        self._metrics.connections_closed.child(reason).value += 1
        logger.info("closing the connection of %s: %s", connection.peer, why)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._by_address[connection.peer] -= 1
        if self._by_address[connection.peer] <= 0:
            del self._by_address[connection.peer]

    def at_turns_end(self, connection: Connection) -> None:
        if not self._to_write:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._to_write.append(connection)

    def _end_turn(self) -> None:
        connections, self._to_write = self._to_write, []
        for connection in connections:
            connection.write_replies()

    def request_bytes_max(self, start: memoryview) -> int:
        api = BY_KEY.get(int.from_bytes(start[:2], "big", signed=True))
        if api is None:
            return 0
        return api.request_bytes_max if api.request_bytes_max is not None else self.frame_bytes_max

    @property
    def is_crowded(self) -> bool:
        # Half: what is kept between frames then never takes the room that frames under way need.
        return 0 <= self._config.queued_max_request_bytes < 2 * self.held_bytes

    def hold(self, size: int) -> None:
        self.held_bytes += size
        budget = self._config.queued_max_request_bytes
        if 0 <= budget < self.held_bytes:
            self.shared_buffer = self._receive_buffer[:CROWDED_BUFFER_BYTES]

    def may_grow(self, connection: Connection, size: int) -> bool:
        budget = self._config.queued_max_request_bytes
        if budget >= 0 and self.held_bytes + size > budget:
            # One request is let in whatever it takes: else many that are half here would wait for each other for ever.
            if self._exempt is not None and self._exempt is not connection:
                self._starved.append(connection)
                return False
            self._exempt = connection
        self.hold(size)
        return True

    def let_go(self, connection: Connection, size: int) -> None:
        self.held_bytes -= size
        budget = self._config.queued_max_request_bytes
        if self.held_bytes <= budget:
            self.shared_buffer = self._receive_buffer
        if self._exempt is connection or self.held_bytes <= budget:
            self._exempt = None
        starved, self._starved = self._starved, deque()
        for waiting in starved:
            waiting.resume()

    async def _sweep(self) -> None:
        """Close who says nothing, or sends a frame byte by byte; take memory back from who is quiet."""
        while True:
            frame_s = self._config.penstock_frame_timeout_ms / 1000
            idle_ms = self._config.connections_max_idle_ms
            idle_s = idle_ms / 1000 if idle_ms >= 0 else math.inf
            await asyncio.sleep(max(SWEEP_S_MIN, min(SWEEP_S, frame_s, idle_s)))
            now = self._clock.monotonic()
            for connection in tuple(self._connections):
                quiet_s = now - connection.last_active
                if quiet_s > idle_s and connection.is_idle:
                    connection.close("idle", "idle longer than connections.max.idle.ms")
                elif connection.waits_for_bytes_since < now - frame_s:
                    connection.close("slow", "a frame took too long to arrive")
                elif self._starved and connection.waits_for_bytes_since < math.inf and quiet_s > SWEEP_S:
                    connection.close("slow", "it sends nothing, and others wait for the memory it holds")
                elif quiet_s > SWEEP_S:
                    connection.release_buffer()
