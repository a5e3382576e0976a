"""The bytes of one connection cut into frames, large ones received where they will stay.

Called by the event loop, for client.connection. Over asyncio's streams a reply of 8 MiB is copied three times, and
came at 300 MB/s where this came at 1,700: that is what a follower lives on.
Invariants:
- A frame that was handed over is never written to again (TRAPS S14).
- Every frame is handed over once, in order, without its length; after `on_lost` none is.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from penstock.errors import MalformedFrame
from penstock.wire.primitives import I32

LENGTH_BYTES = I32.size
FRAME_BYTES_MIN = 4  # a correlation id
SCRATCH_BYTES = 32 * 1024


class FrameProtocol(asyncio.BufferedProtocol):
    def __init__(
        self, frame_bytes_max: int, on_frame: Callable[[memoryview], None], on_lost: Callable[[Exception | None], None]
    ) -> None:
        """`on_lost` hears why nothing more comes; None if the other side hung up. The first time counts."""
        self._frame_bytes_max = frame_bytes_max
        self._on_frame = on_frame
        self._on_lost = on_lost
        # Small frames are received here and copied out; a large one gets a buffer of its own.
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._large: memoryview | None = None
        self._filled = 0
        self._writable: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def write(self, frame: bytes | bytearray) -> None:
        self._transport.write(frame)

    async def drain(self) -> None:
        """Wait until the other side has taken enough of what was written."""
        if self._writable is not None:
            await asyncio.shield(self._writable)

    def close(self) -> None:
        """After what was written has gone out."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return (self._scratch if self._large is None else self._large)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        large = self._large
        if large is None:
            self._take_frames()
        elif self._filled == len(large):
            self._large, self._filled = None, 0
            self._on_frame(large)

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()
        if not self.closed.done():
            self.closed.set_result(None)
        self._on_lost(exc)

    # Inside

    def _take_frames(self) -> None:
        scratch, filled = self._scratch, self._filled
        at = 0
        while filled - at >= LENGTH_BYTES and not self._transport.is_closing():
            size = I32.unpack_from(scratch, at)[0]
            # The first bytes of a TLS alert or of "HTTP" are, read as a length, far beyond any limit.
            if not FRAME_BYTES_MIN <= size <= self._frame_bytes_max:
                self._filled = 0
                self._on_lost(MalformedFrame(f"a frame of {size} bytes came: that is not plain Kafka"))
                return
            start = at + LENGTH_BYTES
            end = start + size
            if end <= filled:
                self._on_frame(memoryview(bytes(scratch[start:end])))
                at = end
            elif LENGTH_BYTES + size > SCRATCH_BYTES:
                self._large = memoryview(bytearray(size))
                self._filled = filled - start
                self._large[: self._filled] = scratch[start:filled]
                return
            else:
                break
        self._filled = filled - at
        if at:
            scratch[: self._filled] = scratch[at:filled]
