"""Frames come out as they were sent, however the bytes are cut on their way."""

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.framing import SCRATCH_BYTES, FrameProtocol
from penstock.errors import MalformedFrame

FRAME_BYTES_MAX = 4 * SCRATCH_BYTES


class Transport:
    """The edge of the world: what a loop's transport is to its protocol."""

    def __init__(self) -> None:
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        self.is_closed = True


class Receiver:
    def __init__(self) -> None:
        self.frames: list[memoryview] = []
        self.losses: list[Exception | None] = []
        self.transport = Transport()
        self.protocol = FrameProtocol(FRAME_BYTES_MAX, self.frames.append, self.losses.append)
        self.protocol.connection_made(cast(Any, self.transport))

    def receive(self, data: bytes) -> None:
        """As a loop fills the protocol's buffer: no more at once than that has room for."""
        while data:
            buffer = self.protocol.get_buffer(-1)
            assert len(buffer) > 0
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.protocol.buffer_updated(count)
            data = data[count:]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


sizes = st.one_of(
    st.integers(4, 40),
    st.integers(SCRATCH_BYTES - 8, SCRATCH_BYTES + 8),
    st.integers(SCRATCH_BYTES, FRAME_BYTES_MAX),
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(sizes, st.integers(0, 255)), min_size=1, max_size=6),
    st.lists(st.integers(1, 3 * SCRATCH_BYTES), min_size=1, max_size=8),
)
def test_frames_of_all_sizes_survive_every_cut(frames: list[tuple[int, int]], cuts: list[int]) -> None:
    bodies = [bytes([fill]) * size for size, fill in frames]
    stream = b"".join(map(framed, bodies))

    async def run() -> None:
        receiver = Receiver()
        at = 0
        turn = 0
        while at < len(stream):
            size = cuts[turn % len(cuts)]
            receiver.receive(stream[at : at + size])
            at += size
            turn += 1
        # Looked at only now: a frame that was handed over is not written to again.
        assert [bytes(frame) for frame in receiver.frames] == bodies
        assert receiver.losses == []

    asyncio.run(run())


async def test_frames_that_come_byte_by_byte_are_whole() -> None:
    receiver = Receiver()
    for byte in framed(b"first") + framed(b"second"):
        receiver.receive(bytes([byte]))
    assert receiver.frames == [b"first", b"second"]


@pytest.mark.parametrize("size", [-1, 0, 3, FRAME_BYTES_MAX + 1])
async def test_a_length_that_cannot_be_ends_it(size: int) -> None:
    receiver = Receiver()
    receiver.receive(framed(b"good") + size.to_bytes(4, "big", signed=True) + b"rest")
    assert receiver.frames == [b"good"]
    assert [type(loss) for loss in receiver.losses] == [MalformedFrame]


async def test_who_waits_to_write_goes_on_when_there_is_room_or_when_nothing_more_can_be_written() -> None:
    receiver = Receiver()
    await receiver.protocol.drain()
    for ending in (receiver.protocol.resume_writing, lambda: receiver.protocol.connection_lost(None)):
        receiver.protocol.pause_writing()
        waiting = asyncio.ensure_future(receiver.protocol.drain())
        await asyncio.sleep(0)
        assert not waiting.done()
        ending()
        await waiting
    assert receiver.losses == [None]
