"""Other brokers: one connection to each, made anew when it breaks or when the broker has moved."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.client.peers import Peers
from penstock.errors import ErrorCode, PeerUnreachable
from penstock.model import Endpoint
from penstock.wire.apis import ApiKey
from penstock.wire.frame import parse_request_header, response_frame
from penstock.wire.messages import encode_response


class Peer:
    """Another broker: answers every request with an empty list of topics, unless it is told to be silent."""

    def __init__(self) -> None:
        self.connections: list[asyncio.StreamWriter] = []
        self.is_silent = False
        self.asked: list[str | None] = []
        self.was_asked = asyncio.Event()
        self._server: asyncio.Server
        self.endpoint: Endpoint

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = Endpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        for writer in self.connections:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                header = parse_request_header(memoryview(await reader.readexactly(size)))
                self.asked.append(header.client_id)
                self.was_asked.set()
                if not self.is_silent:
                    body = encode_response(ApiKey.METADATA, header.version, {"controller_id": 7})
                    writer.write(response_frame(ApiKey.METADATA, header.version, header.correlation_id, body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.open()
    yield peer
    await peer.close()


class Registry(dict[int, Endpoint]):
    """Where each node is, as the image says it."""


@pytest.fixture
def registry(peer: Peer) -> Registry:
    return Registry({2: peer.endpoint})


@pytest.fixture
async def peers(registry: Registry) -> AsyncIterator[Peers]:
    peers = Peers(registry.get, "broker-1")
    yield peers
    await peers.close()


async def ask(peers: Peers, timeout_s: float = 10.0) -> int:
    reply: Any = await peers.request(2, ApiKey.METADATA, 1, {"topics": []}, timeout_s=timeout_s)
    return reply.controller_id


async def test_all_who_ask_a_broker_share_one_connection(peers: Peers, peer: Peer) -> None:
    assert await asyncio.gather(*(ask(peers) for _ in range(5))) == [7] * 5
    assert await ask(peers) == 7
    assert len(peer.connections) == 1
    assert set(peer.asked) == {"broker-1"}


async def test_a_connection_that_broke_is_made_anew(peers: Peers, peer: Peer) -> None:
    peer.is_silent = True
    asking = asyncio.ensure_future(ask(peers))
    await peer.was_asked.wait()
    peer.hang_up()
    with pytest.raises(PeerUnreachable, match="hung up"):
        await asking
    peer.is_silent = False
    assert await ask(peers) == 7
    assert len(peer.connections) == 2


async def test_a_broker_that_moved_is_asked_at_its_new_place(peers: Peers, peer: Peer, registry: Registry) -> None:
    old = await peers.connection(2)
    elsewhere = Peer()
    await elsewhere.open()
    registry[2] = elsewhere.endpoint
    assert await ask(peers) == 7
    assert (peer.asked, elsewhere.asked) == ([], ["broker-1"])
    assert old.is_broken
    await elsewhere.close()


async def test_a_broker_that_is_not_registered_is_not_asked(peers: Peers, registry: Registry) -> None:
    del registry[2]
    with pytest.raises(PeerUnreachable, match="broker 2 at None: not registered") as failure:
        await ask(peers)
    assert (failure.value.node_id, failure.value.code) == (2, ErrorCode.NETWORK_EXCEPTION)


async def test_a_broker_that_does_not_listen_is_tried_again_by_the_next_who_asks(
    peers: Peers, peer: Peer, registry: Registry
) -> None:
    gone = Peer()
    await gone.open()
    await gone.close()
    registry[2] = gone.endpoint
    for _ in range(2):
        with pytest.raises(PeerUnreachable, match=f"broker 2 at {gone.endpoint}"):
            await ask(peers)
    registry[2] = peer.endpoint
    assert await ask(peers) == 7


async def test_a_broker_that_hangs_is_given_up_and_asked_on_a_new_connection(peers: Peers, peer: Peer) -> None:
    peer.is_silent = True
    await peers.connection(2)
    with pytest.raises(PeerUnreachable, match="broker 2"):
        await ask(peers, timeout_s=0.02)
    peer.is_silent = False
    assert await ask(peers) == 7
    assert len(peer.connections) == 2


async def test_one_who_gives_up_while_connecting_does_not_end_it_for_the_others(peers: Peers, peer: Peer) -> None:
    first = asyncio.ensure_future(peers.connection(2))
    second = asyncio.ensure_future(peers.connection(2))
    await asyncio.sleep(0)
    first.cancel()
    assert not (await second).is_broken
    assert first.cancelled()
    assert await ask(peers) == 7
    assert len(peer.connections) == 1


async def test_what_is_closed_asks_nobody(peers: Peers, peer: Peer) -> None:
    peer.is_silent = True
    asking = asyncio.ensure_future(ask(peers))
    await peer.was_asked.wait()
    await peers.close()
    with pytest.raises(PeerUnreachable):
        await asking
    with pytest.raises(PeerUnreachable, match="closed here"):
        await ask(peers)
