"""Another broker for the tests of handlers: real frames over a real socket, answered by handlers of the test's node.

The node's image says that a partition is led by that broker, while the node itself does what a leader does: so what is
sent to the other broker goes over the wire, and comes to the same coordinators and logs.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from penstock.handlers import transactions
from penstock.handlers.context import ConnectionState, Request
from penstock.model import ANONYMOUS, GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, Endpoint
from penstock.wire.apis import ApiKey
from penstock.wire.frame import parse_request_header, response_frame
from penstock.wire.messages import decode_request, encode_response

OTHER = 2
HANDLERS = {
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.handle_add_partitions_to_txn,
    ApiKey.WRITE_TXN_MARKERS: transactions.handle_write_txn_markers,
}


class OtherBroker:
    def __init__(self, node: Any) -> None:
        self.node = node
        self.asked: list[Any] = []
        # Answers that are made and not yet sent, while it holds them.
        self.held: list[asyncio.Event] | None = None
        self.answered = asyncio.Condition()
        self._server: asyncio.Server
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        brokers = self.node.context.image.brokers
        endpoint = Endpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])
        brokers[OTHER] = replace(brokers[1], id=OTHER, endpoint=endpoint)

    async def close(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    def lead(self, topic: str, index: int | None = None) -> None:
        """Be the leader of a partition, or of all, as the image has it."""
        self._set_leader(topic, index, OTHER)

    def resign(self, topic: str, index: int | None = None, leader: int = 1) -> None:
        self._set_leader(topic, index, leader)

    async def holds(self, count: int) -> None:
        """Return once so many answers are held."""
        async with self.answered:
            await self.answered.wait_for(lambda: len(self.held or ()) >= count)

    def release(self) -> None:
        held, self.held = self.held or [], None
        for gate in held:
            gate.set()

    def _set_leader(self, topic: str, index: int | None, leader: int) -> None:
        image = self.node.context.image
        known = image.topics[topic]
        partitions = tuple(
            replace(state, leader=leader) if index in (None, each) else state
            for each, state in enumerate(known.partitions)
        )
        image.topics[topic] = image.topics_by_id[known.id] = replace(known, partitions=partitions)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                writer.write(await self._answer(await reader.readexactly(size)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, frame: bytes) -> bytes:
        api_key, version, correlation_id, client_id, offset = parse_request_header(memoryview(frame))
        body = decode_request(api_key, version, frame[offset:])
        self.asked.append(body)
        state = ConnectionState("127.0.0.1", ANONYMOUS)
        request = Request(ApiKey(api_key), version, client_id, state, body)
        answer = await HANDLERS[ApiKey(api_key)](self.node.context, request)
        if self.held is not None:
            gate = asyncio.Event()
            self.held.append(gate)
            async with self.answered:
                self.answered.notify_all()
            await gate.wait()
        return response_frame(api_key, version, correlation_id, encode_response(api_key, version, answer))


@asynccontextmanager
async def other_broker(node: Any) -> AsyncGenerator[OtherBroker]:
    # Made while the node is alone, so that it leads all their partitions.
    for topic in (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
        await node.context.ensure_internal_topic(topic)
    other = OtherBroker(node)
    await other.open()
    try:
        yield other
    finally:
        other.release()
        await other.close()
