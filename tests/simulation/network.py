"""The network between simulated hosts: in memory, in order, never losing a byte of a connection that lives, as TCP.

Called by asyncio itself, through loop.SimulatedLoop, and by faults, which cut, slow, stall and reset.
What can happen to bytes: they are late; they wait while the way is cut, in one direction or in both; they arrive in
pieces; a connection ends in the middle of them. A repeated request is a client's doing, on another connection: `stall`
holds back what one connection carries while a newer one overtakes it, and delivers it afterwards.
A process that is killed has its connections reset by its kernel; a machine that loses power says nothing, and answers
with a reset once it is back and is sent something on a connection it does not remember.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.loop import Host, World, current_host

DELAY_S = 0.0003
JITTER_S = 0.0005
RETRANSMISSION_S = 0.3
# What the two kernels hold between a sender and a receiver that does not read.
KERNEL_BYTES = 128 * 1024
WRITE_HIGH_BYTES = 64 * 1024
SPLIT_CHANCE = 0.02
CONNECT_RETRY_S = 1.0

FINISH = object()
RESET = object()


class _Listening:
    """What the broker asks a listening socket."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def setsockopt(self, *_: Any) -> None:
        pass


class Server:
    def __init__(self, network: "Network", host: Host, factory: Callable[[], Any], address: tuple[str, int]) -> None:
        self._network = network
        self.host = host
        self.factory = factory
        self.address = address
        self.sockets = [_Listening(address)]
        self.is_serving = False
        self.waiting: list[Callable[[], None]] = []

    async def start_serving(self) -> None:
        self.is_serving = True
        waiting, self.waiting = self.waiting, []
        for accept in waiting:
            accept()

    def close(self) -> None:
        if self._network.servers.get(self.address) is self:
            del self._network.servers[self.address]

    async def wait_closed(self) -> None:
        pass


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: "Network", host: Host, protocol: Any, peer: str, number: int) -> None:
        super().__init__({"peername": (peer, number), "sockname": (host.address, number)})
        self._network = network
        self._world = network.world
        self.host = host
        self.number = number
        self._protocol = protocol
        self.other: Transport
        self._is_closing = False
        self.is_over = False
        self._is_reading = True
        self._is_writing_paused = False
        self._high = WRITE_HIGH_BYTES
        self._low = WRITE_HIGH_BYTES // 4
        # Sent and not yet there, each with the time before which it does not arrive; the last time keeps them in order.
        self._way: deque[tuple[float, Any]] = deque()
        self._way_free_at = 0.0
        self._stalled_until = 0.0
        self._is_moving = False
        # Arrived and not yet read by the other side's protocol (this is what the other end received).
        self._received: deque[Any] = deque()
        self._is_reading_scheduled = False
        self._unread_bytes = 0

    # What protocols and streams call

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._schedule_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = WRITE_HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return max(0, self._unread_bytes - KERNEL_BYTES)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._send(FINISH)

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        content = bytes(data)
        self._unread_bytes += len(content)
        self._send(content)
        if not self._is_writing_paused and self.get_write_buffer_size() > self._high:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._send(FINISH)
            self._end(None)

    def abort(self) -> None:
        self._is_closing = True
        if not self.is_over:
            self._send(RESET)
            self._end(None)

    # The way to the other end

    def _send(self, content: Any) -> None:
        self._way_free_at = max(self._way_free_at, self._world.loop.time() + self._network.delay_s(self))
        self._way.append((self._way_free_at, content))
        self._move()

    def _move(self) -> None:
        """Have the first of what is under way arrive when its time comes, and the way is open."""
        if self._is_moving or not self._way:
            return
        self._is_moving = True
        due = max(self._way[0][0], self._stalled_until)
        self._world.after(max(0.0, due - self._world.loop.time()), self._arrive)

    def _arrive(self) -> None:
        self._is_moving = False
        if not self._way:
            return
        if self._network.is_cut(self.host.address, self.other.host.address):
            self._network.waiting_for_heal.append(self)
            self._network.held_back += 1
            return
        if self._stalled_until > self._world.loop.time():
            self._move()
            return
        _, content = self._way.popleft()
        chance = self._world.chance
        if isinstance(content, bytes) and len(content) > 1 and chance.random() < SPLIT_CHANCE:
            at = chance.randrange(1, len(content))
            self._way.appendleft((self._world.loop.time() + self._network.delay_s(self), content[at:]))
            content = content[:at]
        self._world.mark("arrive", self.number, self.host.name, _size(content))
        self.other.take(content)
        self._move()

    def healed(self) -> None:
        """The way is open again: what was sent meanwhile is sent once more by the kernel, a little later."""
        if self._way and not self._is_moving:
            self._is_moving = True
            self._world.after(self._world.chance.uniform(0, RETRANSMISSION_S), self._arrive)

    def stall(self, seconds: float) -> None:
        self._stalled_until = max(self._stalled_until, self._world.loop.time() + seconds)

    # From the other end

    def take(self, content: Any) -> None:
        if self.host.is_dead:
            # Nobody remembers this connection. A machine without power does not even say so, until it is back.
            if not self._network.is_up(self.host.address):
                self._network.unanswered.append(self)
            elif content is not RESET:
                self.reset_other()
            return
        if self.is_over:
            if isinstance(content, bytes):
                self.reset_other()
            return
        self._received.append(content)
        self._schedule_reading()

    def reset_other(self) -> None:
        self._world.after(self._network.delay_s(self), self.other.take, RESET)

    def _schedule_reading(self) -> None:
        is_accepted = self._protocol is not None
        if is_accepted and self._received and not self._is_reading_scheduled and not self.is_over:
            self._is_reading_scheduled = True
            self._world.soon_on(self.host, self._read)

    def _read(self) -> None:
        self._is_reading_scheduled = False
        while self._received and not self.is_over:
            content = self._received[0]
            if content is RESET:
                self._received.clear()
                self._is_closing = True
                self._end(ConnectionResetError("connection reset by peer"))
                return
            if not self._is_reading or self._is_closing:
                return
            self._received.popleft()
            if content is FINISH:
                if not self._protocol.eof_received():
                    self.close()
                return
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                buffer = self._protocol.get_buffer(-1)
                size = min(len(buffer), len(content))
                buffer[:size] = content[:size]
                if size < len(content):
                    self._received.appendleft(content[size:])
                self.other.delivered(size)
                self._protocol.buffer_updated(size)
            else:
                self.other.delivered(len(content))
                self._protocol.data_received(content)

    def delivered(self, size: int) -> None:
        """The other side's program has read so much of what this one sent."""
        self._unread_bytes -= size
        if self._is_writing_paused and self.get_write_buffer_size() <= self._low and not self.is_over:
            self._is_writing_paused = False
            self._world.soon_on(self.host, self._protocol.resume_writing)

    def _end(self, error: Exception | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._network.forget(self)
            self._world.soon_on(self.host, self._protocol.connection_lost, error)

    def break_off(self, *, mid_frame: bool) -> None:
        """The connection ends here and now for both, whatever was under way; a part of it may have come through."""
        if mid_frame and self._way and isinstance(self._way[0][1], bytes) and not self.other.is_over:
            first = self._way[0][1]
            self.other.take(first[: self._world.chance.randrange(len(first)) + 1])
        self._way.clear()
        self.take(RESET)

    def die(self, *, is_silent: bool) -> None:
        """The process behind this end is gone."""
        self.is_over = True
        self._network.forget(self)
        if is_silent:
            self._way.clear()
        else:
            self._way.append((self._world.loop.time() + self._network.delay_s(self), RESET))
            self._move()


def _size(content: Any) -> object:
    return len(content) if isinstance(content, bytes) else "finish" if content is FINISH else "reset"


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        world.network = self
        self.servers: dict[tuple[str, int], Server] = {}
        self.transports: dict[Transport, None] = {}
        self.waiting_for_heal: list[Transport] = []
        self.unanswered: list[Transport] = []
        # How often something could not arrive because of a cut.
        self.held_back = 0
        self._cuts: dict[tuple[str, str], int] = {}
        self._slow: dict[tuple[str, str], float] = {}
        self._down: set[str] = set()
        self._number = 0

    # What asyncio calls

    def listen(self, factory: Callable[[], Any], host: str, port: int, *, start_serving: bool) -> Server:
        address = (host, port)
        if address in self.servers:
            raise OSError(98, f"address already in use: {address}")
        server = self.servers[address] = Server(self, current_host(), factory, address)
        server.is_serving = start_serving
        return server

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Transport, Any]:
        own = current_host()
        made: asyncio.Future[tuple[Transport, Any]] = self.world.loop.create_future()
        self._call(own, factory, (host, port), made)
        return await made

    def _call(self, own: Host, factory: Any, to: tuple[str, int], made: "asyncio.Future[Any]") -> None:
        """The first packet of a connection: lost where the way is cut either way, and then sent again."""
        if made.done() or own.is_dead:
            return
        world = self.world
        is_lost = self.is_cut(own.address, to[0]) or self.is_cut(to[0], own.address) or not self.is_up(to[0])
        if is_lost:
            self.held_back += 1
            world.after(CONNECT_RETRY_S, self._call, own, factory, to, made)
            return
        world.after(self._link_delay_s(own.address, to[0]) * 2, self._accept, own, factory, to, made)

    def _accept(self, own: Host, factory: Any, to: tuple[str, int], made: "asyncio.Future[Any]") -> None:
        if made.done() or own.is_dead:
            return
        server = self.servers.get(to)
        if server is None or server.host.is_dead:
            made.set_exception(ConnectionRefusedError(111, f"connection refused by {to}"))
            return
        self._number += 1
        near = Transport(self, own, None, to[0], self._number)
        far = Transport(self, server.host, None, own.address, self._number)
        near.other, far.other = far, near
        self.transports[near] = self.transports[far] = None
        self.world.mark("connect", own.name, to)

        def accept() -> None:
            protocol = server.factory()
            far.set_protocol(protocol)
            protocol.connection_made(far)
            far.resume_reading()

        far.pause_reading()
        if server.is_serving:
            self.world.soon_on(server.host, accept)
        else:
            server.waiting.append(lambda: self.world.soon_on(server.host, accept))

        def connected() -> None:
            if made.done():
                near.set_protocol(asyncio.Protocol())
                near.abort()
                return
            protocol = factory()
            near.set_protocol(protocol)
            protocol.connection_made(near)
            made.set_result((near, protocol))

        self.world.soon_on(own, connected)

    # What the transports ask

    def delay_s(self, transport: Transport) -> float:
        return self._link_delay_s(transport.host.address, transport.other.host.address)

    def _link_delay_s(self, source: str, target: str) -> float:
        extra = self._slow.get((source, target), 0.0)
        chance = self.world.chance
        return DELAY_S + chance.random() * JITTER_S + (extra * chance.uniform(0.5, 1.5) if extra else 0.0)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def is_up(self, address: str) -> bool:
        return address not in self._down

    def forget(self, transport: Transport) -> None:
        self.transports.pop(transport, None)

    # Faults

    def cut(self, source: str, target: str) -> None:
        """From now on nothing that `source` sends reaches `target`. Cuts are counted: each wants its own mend."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def mend(self, source: str, target: str) -> None:
        left = self._cuts.get((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left
            return
        self._cuts.pop((source, target), None)
        waiting, self.waiting_for_heal = self.waiting_for_heal, []
        for transport in waiting:
            if self.is_cut(transport.host.address, transport.other.host.address):
                self.waiting_for_heal.append(transport)
            else:
                transport.healed()

    def slow_down(self, source: str, target: str, delay_s: float) -> None:
        self._slow[source, target] = delay_s

    def speed_up(self, source: str, target: str) -> None:
        self._slow.pop((source, target), None)

    def between(self, source: str, target: str) -> list[Transport]:
        """The ends at `source` of the connections to `target`."""
        return [
            transport
            for transport in self.transports
            if (transport.host.address, transport.other.host.address) == (source, target)
        ]

    def kill(self, host: Host, *, is_silent: bool) -> None:
        """The host's process is gone: its doors and its ends of all connections with it."""
        for server in [server for server in self.servers.values() if server.host is host]:
            server.close()
        for transport in [transport for transport in self.transports if transport.host is host]:
            transport.die(is_silent=is_silent)
        if is_silent:
            self._down.add(host.address)

    def power_on(self, address: str) -> None:
        """The machine runs again, and does not know the connections it had: who went on sending is told so."""
        self._down.discard(address)
        asked, self.unanswered = self.unanswered, []
        for transport in asked:
            if self.is_up(transport.host.address):
                self.world.after(self.world.chance.uniform(0, CONNECT_RETRY_S), transport.reset_other)
            else:
                self.unanswered.append(transport)
