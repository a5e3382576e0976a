"""One client connection: bytes in, whole frames to dispatch, replies out in the order of their requests.

Called by uvloop, through server.listener. Laws:
- A frame is handled where it was received; a view of it is dead once dispatch has returned (TRAPS S14).
- Nothing is allocated for what a length claims, only for what has come (TRAPS S1).
- Requests of one connection start in order and may overlap; their replies leave in order.
- At most REQUESTS_IN_FLIGHT_MAX requests are open; past that, or while the client does not read, we do not read.
- A reply that its handler leaves to the end of the loop's turn (LateReply) is made and sent there, with those of the
  other connections: what they share, the write to a log above all, is then done once.
- Nothing is taken behind a fetch that waits, as in Kafka: 64 fetches answered at once would be gigabytes. Nor behind a
  produce whose transaction has to be asked first, or its batches would be overtaken by those sent after them.

Small requests are handled in a buffer that all connections share, since uvloop fills and hands it over in one step;
only a connection in the middle of a frame has a buffer of its own.
"""

import asyncio
import logging
import math
from collections import deque
from struct import Struct
from typing import Protocol, cast

from penstock.errors import MalformedFrame
from penstock.handlers.answers import LATER, Answer, Hangup, LateReply, PendingReply, Reply
from penstock.handlers.context import ConnectionState

logger = logging.getLogger(__name__)

_LENGTH = Struct(">i")
LENGTH_BYTES = _LENGTH.size
HEADER_START_BYTES = 8  # the length, then the API's key and version
REQUESTS_IN_FLIGHT_MAX = 64
OWN_BUFFER_BYTES_MIN = 4 * 1024
OWN_BUFFER_KEPT_BYTES_MAX = 2 << 20
WRITE_HIGH_BYTES = 256 * 1024
JOINED_BYTES_MAX = 64 * 1024
LATE_REPLY_BYTES = 64  # about; it is not made yet


class Host(Protocol):
    """What a connection needs of the listener that made it."""

    shared_buffer: memoryview
    frame_bytes_max: int
    received_bytes: int
    sent_bytes: int

    @property
    def is_crowded(self) -> bool:
        """Memory for requests is getting short: buffers are kept only as long as a frame needs them."""
        ...

    def handle(self, state: ConnectionState, frame: memoryview, /) -> Answer: ...
    def opened(self, connection: "Connection") -> ConnectionState | None: ...
    def closing(self, connection: "Connection", reason: str, why: str) -> None:
        """It is we who close this connection; told once."""
        ...

    def closed(self, connection: "Connection") -> None: ...
    def at_turns_end(self, connection: "Connection") -> None:
        """Have write_replies() called when all connections have been read in this turn of the loop."""
        ...

    def now(self) -> float: ...
    def request_bytes_max(self, start: memoryview) -> int:
        """How large the request that starts like this may be."""
        ...

    def hold(self, size: int) -> None:
        """Count bytes of requests that are in memory and not yet whole."""
        ...

    def may_grow(self, connection: "Connection", size: int) -> bool:
        """Count `size` more if there is room for them; False: wait until `resume` is called."""
        ...

    def let_go(self, connection: "Connection", size: int) -> None: ...


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_buffer",
        "_filled",
        "_has_late_replies",
        "_host",
        "_is_starved",
        "_is_writable",
        "_pending",
        "_replies",
        "_replies_bytes",
        "_stuck_bytes",
        "_transport",
        "_unmuting",
        "_unsent_bytes",
        "frame_since",
        "last_active",
        "peer",
        "state",
    )

    def __init__(self, host: Host) -> None:
        self._host = host
        self._transport: asyncio.Transport | None = None
        self._buffer: memoryview | None = None
        self._filled = 0
        self._pending: deque[asyncio.Future[Reply] | PendingReply] = deque()
        self._is_writable = True
        self.state: ConnectionState | None = None
        self.peer = ""
        self.last_active = 0.0
        self.frame_since: float | None = None
        self._is_starved = False
        self._unmuting: asyncio.TimerHandle | None = None
        # Of answers that are made and wait for those before them.
        self._unsent_bytes = 0
        # Replies made while frames are being taken, or late in this turn; None otherwise.
        self._replies: list[bytes | LateReply] | None = None
        self._replies_bytes = 0
        self._has_late_replies = False
        self._stuck_bytes = 0

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else "local"
        self.last_active = self._host.now()
        self.state = self._host.opened(self)
        if self.state is None:
            transport.close()
            return
        self.state.take_more = self._resume
        self.state.client_port = cast(int, peer[1]) if peer else 0
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._buffer is None or self._filled == 0:
            return self._host.shared_buffer
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        host = self._host
        self.last_active = host.now()
        host.received_bytes += nbytes
        if self._filled == 0:
            received = self._host.shared_buffer[:nbytes]
            used = self._take_frames(received)
            if used < nbytes:
                self._keep(received[used:])
            return
        self._filled += nbytes
        self._pump()
        self._make_room()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._count_stuck(0)
        self._filled = 0
        self._drop_buffer()
        pending, self._pending = self._pending, deque()
        for answer in pending:
            answer.cancel()
        if self.state is not None:
            self._host.closed(self)

    def pause_writing(self) -> None:
        self._is_writable = False
        if self._transport is not None:
            self._count_stuck(self._transport.get_write_buffer_size())
        self._pause()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._count_stuck(0)
        self._resume()

    # From the listener

    def close(self, reason: str, why: str) -> None:
        """End it now. `reason` is one of a few, to be counted; `why` is for people."""
        self.write_replies()
        # Without a transport nothing more is taken or written, though connection_lost comes only later.
        transport, self._transport = self._transport, None
        if transport is not None:
            self._host.closing(self, reason, why)
            transport.abort()

    def release_buffer(self) -> None:
        """Give back the memory of a connection that has gone quiet."""
        if self._filled == 0:
            self._drop_buffer()

    def resume(self) -> None:
        """There is memory for the rest of the frame now."""
        self._make_room()
        self._resume()

    @property
    def waits_for_bytes_since(self) -> float:
        """When the frame that is not all here began; never, while it is we who do not read."""
        return self.frame_since if self.frame_since is not None and self._may_take else math.inf

    @property
    def is_idle(self) -> bool:
        """Nothing is under way. Who does not read what we sent is idle too, whatever it has asked for since."""
        return not self._pending and (self._filled == 0 or not self._is_writable)

    # Frames in

    @property
    def _may_take(self) -> bool:
        return (
            self._transport is not None
            and self._is_writable
            and len(self._pending) < REQUESTS_IN_FLIGHT_MAX
            and self._unsent_bytes < WRITE_HIGH_BYTES
            and self._unmuting is None
            and not self._is_starved
            and self.state is not None
            and not self.state.holds_back_the_next
        )

    def _take_frames(self, received: memoryview) -> int:
        """Handle every whole frame in `received`; how many bytes they took."""
        at, end = 0, len(received)
        host, state = self._host, self.state
        if state is None:
            return end
        if self._replies is None:
            self._replies = []
        while end - at >= LENGTH_BYTES:
            if not self._may_take:
                if self._transport is None:
                    return end
                self._pause()
                break
            (size,) = _LENGTH.unpack_from(received, at)
            if not 0 < size <= host.frame_bytes_max:
                self.close("size", f"a frame of {size} bytes; socket.request.max.bytes is {host.frame_bytes_max}")
                return end
            stop = at + LENGTH_BYTES + size
            if stop > end:
                if end - at >= HEADER_START_BYTES and size > host.request_bytes_max(received[at + LENGTH_BYTES : end]):
                    self.close("size", f"{size} bytes are more than this request may have")
                    return end
                break
            try:
                self._answer(host.handle(state, received[at + LENGTH_BYTES : stop]))
                if state.throttle_ms:
                    self._mute(state)
            except MalformedFrame as error:
                self.close("malformed", str(error))
                return end
            at = stop
        if not self._has_late_replies:
            self.write_replies()
        if at == end:
            self.frame_since = None
        elif at > 0 or self.frame_since is None:
            self.frame_since = self.last_active
        return at

    def _keep(self, rest: memoryview) -> None:
        """Hold on to the start of a frame until the rest of it comes."""
        if self._transport is None:
            return
        if self._buffer is None or len(self._buffer) <= len(rest):
            # What has been received is kept in any case; only what would come after it can be made to wait.
            self._drop_buffer()
            self._buffer = memoryview(bytearray(max(OWN_BUFFER_BYTES_MIN, 2 * len(rest))))
            self._host.hold(len(self._buffer))
        self._buffer[: len(rest)] = rest
        self._filled = len(rest)

    def _make_room(self) -> None:
        """Let the buffer grow with what has come, at most twofold; past the broker's budget, read no more for now."""
        buffer = self._buffer
        if buffer is None or self._filled < len(buffer) or self._transport is None:
            return
        size = min(2 * len(buffer), max(self._host.frame_bytes_max + LENGTH_BYTES, len(buffer) + 1))
        self._is_starved = not self._host.may_grow(self, size - len(buffer))
        if self._is_starved:
            self._pause()
            return
        self._buffer = memoryview(bytearray(size))
        self._buffer[: self._filled] = buffer

    def _drop_buffer(self) -> None:
        if self._buffer is not None:
            size, self._buffer = len(self._buffer), None
            self._host.let_go(self, size)
        self._is_starved = False

    def _pump(self) -> None:
        """Handle what our own buffer holds."""
        if self._buffer is None or self._filled == 0:
            return
        used = self._take_frames(self._buffer[: self._filled])
        if self._transport is None or used == 0:
            return
        rest = self._buffer[used : self._filled]
        if len(self._buffer) > OWN_BUFFER_KEPT_BYTES_MAX or self._host.is_crowded:
            # Of a large buffer, or when others wait for memory, only the start of the next frame is kept.
            self._filled = 0
            self._drop_buffer()
            if rest:
                self._keep(rest)
            return
        # The two may overlap; assigning one memoryview to another moves as memmove does.
        self._buffer[: len(rest)] = rest
        self._filled = len(rest)

    # Replies out

    def _answer(self, answer: Answer) -> None:
        if isinstance(answer, LateReply):
            if self._pending:
                self._answer(self._made([answer])[0])
                return
            if self._replies is None:
                self._replies = []
            self._replies.append(answer)
            self._replies_bytes += LATE_REPLY_BYTES
            if not self._has_late_replies:
                self._has_late_replies = True
                self._host.at_turns_end(self)
            elif self._replies_bytes > JOINED_BYTES_MAX:
                self.write_replies()
                self._replies = []
        elif isinstance(answer, LATER):
            self._pending.append(answer)
            answer.add_done_callback(self._on_answer)
        elif self._pending:
            if answer is not None:
                ready: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
                ready.set_result(answer)
                self._pending.append(ready)
                if not isinstance(answer, Hangup):
                    self._unsent_bytes += len(answer) if isinstance(answer, bytes) else sum(map(len, answer))
        else:
            self._write(answer)

    def _on_answer(self, _: asyncio.Future[Reply] | None = None) -> None:
        pending = self._pending
        if self._replies is None:
            self._replies = []
        while pending:
            answer = pending[0]
            if isinstance(answer, PendingReply):
                if not answer.is_done:
                    break
                pending.popleft()
                self._write(answer.reply)
                continue
            if not answer.done():
                break
            pending.popleft()
            if answer.cancelled():
                self.close("failed", "a request was given up")
                return
            error = answer.exception()
            if error is not None:
                logger.error("a request of %s failed", self.peer, exc_info=error)
                self.close("failed", f"a request failed: {error!r}")
                return
            self._write(answer.result())
        self.write_replies()
        if not pending:
            self._unsent_bytes = 0
        if self.state is not None and self.state.throttle_ms:
            self._mute(self.state)
        self._resume()

    def _write(self, reply: Reply) -> None:
        transport = self._transport
        if transport is None or reply is None:
            return
        if isinstance(reply, bytes):
            if self._replies is None:
                self._host.sent_bytes += len(reply)
                transport.write(reply)
                return
            self._replies.append(reply)
            self._replies_bytes += len(reply)
            if self._replies_bytes > JOINED_BYTES_MAX:
                # Not more: a client that does not read is noticed by what the transport cannot send.
                self.write_replies()
                self._replies = []
        elif isinstance(reply, Hangup):
            self.close("hangup", reply.why)
        else:
            self.write_replies()
            self._host.sent_bytes += sum(map(len, reply))
            transport.writelines(reply)

    def write_replies(self) -> None:
        """Send what the frames of one reading earned in one go: the system call costs more than most requests."""
        replies, self._replies = self._replies, None
        self._replies_bytes, self._has_late_replies = 0, False
        if not replies or self._transport is None:
            return
        try:
            frames = self._made(replies)
        except Exception as error:
            logger.exception("a request of %s failed", self.peer)
            self.close("failed", f"a request failed: {error!r}")
            return
        joined = frames[0] if len(frames) == 1 else b"".join(frames)
        self._host.sent_bytes += len(joined)
        self._transport.write(joined)

    def _made(self, replies: list[bytes | LateReply]) -> list[bytes]:
        frames = [reply if isinstance(reply, bytes) else reply.make() for reply in replies]
        now = self._host.now()
        for reply in replies:
            if isinstance(reply, LateReply) and reply.latency_ms is not None:
                reply.latency_ms.observe((now - reply.started) * 1000)
        return frames

    # Flow

    def _count_stuck(self, size: int) -> None:
        if self.state is not None:
            self.state.outbox.stuck_bytes += size - self._stuck_bytes
            self._stuck_bytes = size

    def _mute(self, state: ConnectionState) -> None:
        """Read nothing more for a while: the client is over its quota, and was told so."""
        seconds, state.throttle_ms = state.throttle_ms / 1000, 0
        if self._transport is None:
            return
        loop = asyncio.get_running_loop()
        if self._unmuting is not None:
            # Answers that were under way may be throttled too: the latest end counts, not the first.
            seconds = max(seconds, self._unmuting.when() - loop.time())
            self._unmuting.cancel()
        self._unmuting = loop.call_later(seconds, self._unmute)
        self._pause()

    def _unmute(self) -> None:
        self._unmuting = None
        self._resume()

    def _pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _resume(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or transport.is_reading() or not self._may_take:
            return
        self._pump()
        if self._may_take:  # False also when handling those frames ended the connection
            if self.frame_since is not None:
                # Its time was ours while we did not read.
                self.frame_since = self._host.now()
            transport.resume_reading()
