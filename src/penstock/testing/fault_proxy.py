"""A door in front of each server, through which every connection goes and at which faults are made.

Built by testing.cluster: one FaultProxy for a whole cluster, one door per broker and one per broker and member of the
metadata store. It needs no rights: a cut is bytes that are not carried on, as on a line that went silent.
Invariants:
- Everything but the public methods of FaultProxy runs on the proxy's own loop and thread.
- Bytes of one connection and one direction arrive in order or not at all.
- A connection made while its way is cut stays open and unanswered, and goes through once it is healed.
"""

import asyncio
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import uvloop

from penstock.model import Endpoint

T = TypeVar("T")

# Who stands at either end of a connection: the node id of a broker, or one of the two words.
Party = int | str
CLIENTS: Party = "clients"
STORE: Party = "store"

CALL_DEADLINE_S = 10.0
# How long an answer to a frame that was held is listened for, and then thrown away.
LATE_ANSWER_S = 5.0
_RESET = struct.pack("ii", 1, 0)


def plain_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


@dataclass(slots=True)
class Hold:
    """Requests of these kinds are taken from their sender, whose connection breaks, and delivered late."""

    source: Party
    target: Party
    api_keys: frozenset[int]
    hold_s: float
    left: int


class Door:
    """Where one server is reached: who comes in is told by `source_of`, where it stands may change while it is away."""

    def __init__(
        self,
        target: Party,
        source_of: Callable[[Endpoint], Party],
        make_socket: Callable[[], socket.socket] = plain_socket,
    ) -> None:
        self.target = target
        self.source_of = source_of
        self.make_socket = make_socket
        self.server = Endpoint("", 0)
        self.address = Endpoint("", 0)


class FaultProxy:
    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="penstock-fault-proxy", daemon=True)
        self._thread.start()
        self._servers: list[asyncio.AbstractServer] = []
        self.pipes: set[Pipe] = set()
        self.cuts: set[tuple[Party, Party]] = set()
        self.delays: dict[tuple[Party, Party], float] = {}
        self.holds: list[Hold] = []
        self.resets_left: Counter[tuple[Party, Party]] = Counter()
        self.counts: Counter[str] = Counter()
        self.carried_bytes: Counter[tuple[Party, Party]] = Counter()

    @property
    def is_closed(self) -> bool:
        return not self._thread.is_alive()

    def open_door(self, door: Door, host: str, port: int = 0) -> None:
        """Listen; afterwards `door.address` is where the server is to be reached."""
        listener = door.make_socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        door.address = Endpoint(host, listener.getsockname()[1])
        self._servers.append(self._run(self.loop.create_server(lambda: Half(Pipe(self, door)), sock=listener)))

    def cut(self, source: Party, target: Party) -> int:
        """From now on nothing that `source` sends reaches `target`; how many connections that silences."""
        return self._run(self._cut(source, target))

    def heal(self) -> None:
        """Everything gets through again, what was sent meanwhile first."""
        self._run(self._heal())

    def delay(self, source: Party, target: Party, delay_s: float) -> None:
        """What `source` sends reaches `target` that much later; 0 ends it."""
        self._run(self._put(self.delays, (source, target), delay_s))

    def reset(self, source: Party, target: Party, count: int = 1) -> None:
        """The next `count` things `source` sends to `target` break off in the middle, and so do their connections."""
        self._run(self._put(self.resets_left, (source, target), count))

    def hold(self, hold: Hold) -> None:
        self._run(self._add_hold(hold))

    def close(self) -> None:
        if self.is_closed:
            return
        self._run(self._close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CALL_DEADLINE_S)
        self.loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(CALL_DEADLINE_S)

    async def _cut(self, source: Party, target: Party) -> int:
        self.cuts.add((source, target))
        return sum([pipe.review() for pipe in self.pipes])

    async def _heal(self) -> None:
        self.cuts.clear()
        self.delays.clear()
        self.holds.clear()
        self.resets_left.clear()
        for pipe in list(self.pipes):
            pipe.review()

    async def _put(self, table: dict[tuple[Party, Party], Any], key: tuple[Party, Party], value: Any) -> None:
        table[key] = value

    async def _add_hold(self, hold: Hold) -> None:
        self.holds.append(hold)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for pipe in list(self.pipes):
            pipe.abort()


class Pipe:
    """One connection through a door: the half that faces who came in, and the half that faces the server."""

    def __init__(self, proxy: FaultProxy, door: Door) -> None:
        self.proxy = proxy
        self.door = door
        self.source: Party = CLIENTS
        self.near: Half | None = None
        self.far: Half | None = None
        self._early: list[bytes] = []  # came in before the server was reached
        self._connecting: asyncio.Task[None] | None = None
        self._is_over = False

    def entered(self, near: "Half") -> None:
        self.near = near
        host, port = near.transport.get_extra_info("peername")[:2]
        self.source = self.door.source_of(Endpoint(host, port))
        self.proxy.pipes.add(self)
        self.review()

    def is_cut(self, sender: "Half") -> bool:
        way = (self.source, self.door.target)
        return (way if sender is self.near else way[::-1]) in self.proxy.cuts

    def review(self) -> int:
        """Read from each half as far as the cuts let its bytes through; 1 if something is cut."""
        assert self.near is not None
        way = (self.source, self.door.target)
        is_open = way not in self.proxy.cuts and way[::-1] not in self.proxy.cuts
        if self.far is None:
            self.near.listen(False)
            # A connection needs both directions.
            if is_open and self._connecting is None and not self._is_over:
                self._connecting = self.proxy.loop.create_task(self._connect())
        else:
            self.near.listen(way not in self.proxy.cuts)
            self.far.listen(way[::-1] not in self.proxy.cuts)
        return int(not is_open)

    async def _connect(self) -> None:
        connection = self.door.make_socket()
        connection.setblocking(False)
        try:
            async with asyncio.timeout(CALL_DEADLINE_S):
                await self.proxy.loop.sock_connect(connection, (self.door.server.host, self.door.server.port))
                _, self.far = await self.proxy.loop.create_connection(lambda: Half(self), sock=connection)
        except (OSError, TimeoutError):
            connection.close()
            self.abort()
            return
        if self._is_over:
            self.abort()
            return
        assert self.near is not None
        for data in self._early:
            self.carry(self.near, data)
        self.review()

    def carry(self, sender: "Half", data: bytes) -> None:
        receiver = self.far if sender is self.near else self.near
        if receiver is None:
            # uvloop reads once more after it was told in connection_made not to.
            self._early.append(data)
            return
        if receiver.is_lost:
            return
        way = (self.source, self.door.target) if sender is self.near else (self.door.target, self.source)
        proxy = self.proxy
        if proxy.resets_left[way] > 0 and len(data) > 1:
            proxy.resets_left[way] -= 1
            proxy.counts["resets"] += 1
            receiver.transport.write(data[: len(data) // 2])
            self.abort()
            return
        proxy.carried_bytes[way] += len(data)
        receiver.send(data, proxy.delays.get(way, 0.0))

    def hold_for(self, api_key: int) -> Hold | None:
        for hold in self.proxy.holds:
            if (hold.source, hold.target) == (self.source, self.door.target) and api_key in hold.api_keys and hold.left:
                return hold
        return None

    def take(self, frame: bytes, hold: Hold) -> None:
        """Break with the sender; the server gets the frame when the sender has long made up its mind."""
        hold.left -= 1
        self.proxy.counts["held"] += 1
        assert self.near is not None
        near, self.near = self.near, Half(self)
        self.near.is_lost = True
        near.break_off()
        self.proxy.loop.call_later(hold.hold_s, self._deliver, frame)

    def _deliver(self, frame: bytes) -> None:
        if self.far is not None and not self.far.is_lost:
            self.proxy.counts["delivered late"] += 1
            self.far.transport.write(frame)
            self.proxy.loop.call_later(LATE_ANSWER_S, self.abort)

    def ended(self, half: "Half") -> None:
        """One side is gone: the other gets what is on its way and then the same news."""
        if half is not self.near and half is not self.far:
            return
        other = self.far if half is self.near else self.near
        if other is not None and not other.is_lost:
            other.finish()
        if other is None or other.is_lost:
            self._is_over = True
            self.proxy.pipes.discard(self)

    def abort(self) -> None:
        self._is_over = True
        self.proxy.pipes.discard(self)
        for half in (self.near, self.far):
            if half is not None and not half.is_lost:
                half.break_off()


class Half(asyncio.Protocol):
    """One end of a pipe. Frames are told apart only while somebody wants to hold one."""

    def __init__(self, pipe: Pipe) -> None:
        self.transport: asyncio.Transport
        self.is_lost = False
        self._pipe = pipe
        self._is_wanted = True
        self._is_full = False
        self._late: deque[tuple[float, bytes]] = deque()
        self._frame_left = 0
        self._taken = bytearray()
        self._hold: Hold | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self.transport = cast(asyncio.Transport, transport)
        if self._pipe.near is None:
            self._pipe.entered(self)

    def data_received(self, data: bytes) -> None:
        pipe = self._pipe
        if self is pipe.near:
            data = self._without_held(data)
        if data:
            pipe.carry(self, data)
        if self._hold is not None and len(self._taken) >= self._frame_left and self is pipe.near:
            pipe.take(bytes(self._taken[: self._frame_left]), self._hold)

    def _without_held(self, data: bytes) -> bytes:
        """Follow the frames; what belongs to one that is to be held, and what comes after it, stays here."""
        at = 0
        while self._hold is None and at < len(data):
            if self._frame_left == 0:
                if len(data) - at < 6:
                    # A header in two pieces is let through. Where not even its length is there, the frames of this
                    # connection cannot be told apart any more: what is left of one is less than nothing from now on.
                    size = int.from_bytes(data[at : at + 4], "big") + 4 if len(data) - at >= 4 else -1
                    self._frame_left = size - (len(data) - at)
                    break
                size, api_key = struct.unpack_from(">iH", data, at)
                self._hold = self._pipe.hold_for(api_key)
                self._frame_left = size + 4
                if self._hold is not None:
                    break
            if self._frame_left < 0:
                break
            step = min(self._frame_left, len(data) - at)
            self._frame_left -= step
            at += step
        if self._hold is None:
            return data
        self._taken += data[at:]
        return data[:at]

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._pipe.ended(self)

    def pause_writing(self) -> None:
        self._is_full = True
        self._listen_to_other()

    def resume_writing(self) -> None:
        self._is_full = False
        self._listen_to_other()

    def _listen_to_other(self) -> None:
        other = self._pipe.far if self is self._pipe.near else self._pipe.near
        if other is not None:
            other.listen(other._is_wanted)

    def listen(self, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        if self.is_lost or self.transport.is_closing():
            return
        other = self._pipe.far if self is self._pipe.near else self._pipe.near
        if is_wanted and not (other is not None and other._is_full):
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def send(self, data: bytes, delay_s: float) -> None:
        if delay_s == 0 and not self._late:
            self.transport.write(data)
            return
        loop = self._pipe.proxy.loop
        # Never before what was sent earlier, even if the delay has become shorter since.
        due = max(loop.time() + delay_s, self._late[-1][0] if self._late else 0.0)
        self._late.append((due, data))
        loop.call_at(due, self._send_late)

    def _send_late(self) -> None:
        while self._late and self._late[0][0] <= self._pipe.proxy.loop.time() + 0.001:
            _, data = self._late.popleft()
            if not self.is_lost:
                self.transport.write(data)

    def finish(self) -> None:
        if self._late:
            self._pipe.proxy.loop.call_at(self._late[-1][0] + 0.01, self.transport.close)
        else:
            self.transport.close()

    def break_off(self) -> None:
        """End with a reset, as a host does that lost its mind, not with an orderly goodbye."""
        if self.is_lost:
            return
        raw = self.transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()
