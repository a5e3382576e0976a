"""The simulated loop and network do what asyncio and TCP promise, and fail as they do."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.simulation.loop import Host, World
from tests.simulation.network import Network

SERVER = ("10.0.0.1", 9092)


class Pair:
    """Two hosts, one of which echoes lines."""

    def __init__(self) -> None:
        self.world = World(1)
        self.network = Network(self.world)
        self.server = Host("server", SERVER[0])
        self.client = Host("client", "10.0.1.1")
        self.heard: list[bytes] = []

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):
            while line := await reader.readline():
                self.heard.append(line)
                writer.write(line)
                await writer.drain()
        writer.close()

    def run(self, work: Callable[["Pair"], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.world.spawn(self.server, asyncio.start_server(self._echo, *SERVER))
            await self.world.spawn(self.client, work(self))

        try:
            self.world.loop.run_until_complete(self.world.spawn(self.world.nature, main()))
            assert not self.world.problems
        finally:
            self.world.bury(self.server)
            self.world.bury(self.client)
            self.world.close()


@pytest.fixture
def pair() -> Pair:
    return Pair()


async def ask(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], line: bytes) -> bytes:
    streams[1].write(line)
    return await streams[0].readline()


async def write_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 999 + b"\n")
        await writer.drain()


def test_bytes_arrive_whole_and_in_order_after_a_while(pair):
    async def work(pair: Pair) -> None:
        streams = await asyncio.open_connection(*SERVER)
        for number in range(200):
            assert await ask(streams, b"%d\n" % number) == b"%d\n" % number
        assert 0 < pair.world.elapsed_s < 2
        streams[1].close()
        await streams[1].wait_closed()

    pair.run(work)


def test_a_large_transfer_to_a_slow_reader_is_held_back(pair):
    async def work(pair: Pair) -> None:
        reader, writer = await asyncio.open_connection(*SERVER)
        pair.world.stop_host(pair.server)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(write_for_ever(writer), 10)
        pair.world.continue_host(pair.server)
        assert await reader.readexactly(1000) == b"x" * 999 + b"\n"

    pair.run(work)


def test_a_connection_to_nobody_is_refused(pair):
    async def work(pair: Pair) -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(SERVER[0], 1)

    pair.run(work)


def test_what_is_sent_over_a_cut_arrives_when_it_is_mended(pair):
    async def work(pair: Pair) -> None:
        streams = await asyncio.open_connection(*SERVER)
        pair.network.cut(pair.client.address, pair.server.address)
        asking = asyncio.create_task(ask(streams, b"late\n"))
        await asyncio.sleep(5)
        assert not asking.done()
        pair.network.mend(pair.client.address, pair.server.address)
        assert await asking == b"late\n"

    pair.run(work)


def test_a_cut_one_way_lets_the_other_way_through(pair):
    async def work(pair: Pair) -> None:
        streams = await asyncio.open_connection(*SERVER)
        pair.network.cut(pair.server.address, pair.client.address)
        asking = asyncio.create_task(ask(streams, b"heard\n"))
        await asyncio.sleep(5)
        assert pair.heard == [b"heard\n"]
        assert not asking.done()
        pair.network.mend(pair.server.address, pair.client.address)
        assert await asking == b"heard\n"

    pair.run(work)


def test_nobody_connects_over_a_cut(pair):
    async def work(pair: Pair) -> None:
        pair.network.cut(pair.server.address, pair.client.address)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.open_connection(*SERVER)

    pair.run(work)


def test_a_frame_that_was_held_back_arrives_after_the_one_sent_later_on_a_new_connection(pair):
    async def work(pair: Pair) -> None:
        _, writer = await asyncio.open_connection(*SERVER)
        for transport in pair.network.between(pair.client.address, pair.server.address):
            transport.stall(3)
        writer.write(b"first\n")
        # The client has given up on it; what it sent is on its way all the same.
        writer.transport.abort()
        assert await ask(await asyncio.open_connection(*SERVER), b"second\n") == b"second\n"
        await asyncio.sleep(5)
        assert pair.heard == [b"second\n", b"first\n"]

    pair.run(work)


def test_a_reset_ends_both_sides_in_the_middle_of_a_frame(pair):
    async def work(pair: Pair) -> None:
        streams = await asyncio.open_connection(*SERVER)
        streams[1].write(b"half a line and its end\n")
        for transport in pair.network.between(pair.client.address, pair.server.address):
            transport.other.break_off(mid_frame=True)
            transport.break_off(mid_frame=True)
        with pytest.raises(ConnectionResetError):
            await streams[0].readline()
        await asyncio.sleep(1)
        assert pair.heard == []
        assert not pair.network.transports

    pair.run(work)


def test_a_killed_process_resets_its_connections(pair):
    async def work(pair: Pair) -> None:
        streams = await asyncio.open_connection(*SERVER)
        pair.world.bury(pair.server)
        pair.network.kill(pair.server, is_silent=False)
        with pytest.raises(ConnectionResetError):
            await ask(streams, b"hello\n")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*SERVER)

    pair.run(work)


def test_a_machine_without_power_says_nothing_until_it_is_back(pair):
    async def work(pair: Pair) -> None:
        streams = await asyncio.open_connection(*SERVER)
        pair.world.bury(pair.server)
        pair.network.kill(pair.server, is_silent=True)
        asking = asyncio.create_task(ask(streams, b"hello\n"))
        await asyncio.sleep(20)
        assert not asking.done()
        pair.network.power_on(pair.server.address)
        with pytest.raises(ConnectionResetError):
            await asking

    pair.run(work)


def test_a_stopped_host_does_nothing_until_it_goes_on_and_time_has_passed_then(pair):
    async def work(pair: Pair) -> None:
        streams = await asyncio.open_connection(*SERVER)
        pair.world.stop_host(pair.server)
        asking = asyncio.create_task(ask(streams, b"hello\n"))
        await asyncio.sleep(7)
        assert pair.heard == []
        pair.world.continue_host(pair.server)
        assert await asking == b"hello\n"

    pair.run(work)


def test_nothing_of_a_dead_host_is_ever_run_again():
    world = World(1)
    host, ran = Host("host", "10.0.0.1"), []

    async def live() -> Any:
        while True:
            await asyncio.sleep(1)
            ran.append(world.elapsed_s)

    async def main() -> None:
        world.spawn(host, live())
        await asyncio.sleep(2.5)
        world.bury(host)
        await asyncio.sleep(10)

    world.loop.run_until_complete(world.spawn(world.nature, main()))
    world.close()
    assert ran == [1, 2]
