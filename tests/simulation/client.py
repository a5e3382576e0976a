"""A small client of a simulated cluster: finds leaders and coordinators, keeps connections, gives up fast.

Called by load. It retries nothing by itself: what an unanswered request means is for the load to know.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from tests.simulation.loop import Host, World

from penstock.client.connection import ClientConnection
from penstock.errors import ErrorCode, PenstockError
from penstock.model import Endpoint
from penstock.wire.apis import ApiKey

TIMEOUT_S = 2.0
BACKOFF_S = 0.15
NO_NODE = -1

# What a request may fail with when nobody knows whether it was done.
LOST = (OSError, TimeoutError, PenstockError)


class Client:
    def __init__(self, world: World, host: Host, bootstrap: list[Endpoint]) -> None:
        self.world = world
        self.host = host
        self._bootstrap = bootstrap
        self._next_bootstrap = 0
        self._connections: dict[Endpoint, ClientConnection] = {}
        self._endpoints: dict[int, Endpoint] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._coordinators: dict[tuple[str, int], Endpoint] = {}

    async def ask(self, endpoint: Endpoint, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        """One request; one of LOST where no answer came."""
        connection = self._connections.get(endpoint) or await self.connect(endpoint)
        try:
            return await connection.request(api_key, version, body)
        except LOST:
            await self.drop(endpoint, connection)
            raise

    async def connect(self, endpoint: Endpoint) -> ClientConnection:
        """A connection to be used from now on. Requests started in one turn then leave in the order of their start."""
        if endpoint not in self._connections:
            made = await ClientConnection.connect(
                endpoint, client_id=self.host.name, timeout_s=TIMEOUT_S, negotiate=False
            )
            self._connections[endpoint] = made
        return self._connections[endpoint]

    async def ask_any(self, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        endpoint = self._bootstrap[self._next_bootstrap % len(self._bootstrap)]
        try:
            return await self.ask(endpoint, api_key, version, body)
        except LOST:
            self._next_bootstrap += 1
            raise

    async def drop(self, endpoint: Endpoint, connection: ClientConnection | None = None) -> None:
        """Do not use this connection again; another may have been made meanwhile."""
        kept = self._connections.get(endpoint)
        if kept is not None and (connection is None or kept is connection):
            del self._connections[endpoint]
        if connection is not None:
            with contextlib.suppress(*LOST):
                await connection.close()

    async def leader(self, topic: str, partition: int) -> Endpoint | None:
        if (topic, partition) not in self._leaders:
            await self._learn(topic)
        return self._endpoints.get(self._leaders.get((topic, partition), NO_NODE))

    async def _learn(self, topic: str) -> None:
        answer = await self.ask_any(
            ApiKey.METADATA, 9, {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        )
        self._endpoints.update({each.node_id: Endpoint(each.host, each.port) for each in answer.brokers})
        for found in answer.topics:
            for each in found.partitions:
                if each.leader_id != NO_NODE:
                    self._leaders[found.name, each.partition_index] = each.leader_id
        if not answer.topics or not answer.topics[0].partitions:
            self._next_bootstrap += 1

    def forget_leader(self, topic: str, partition: int) -> None:
        """It is not where we thought; the next question goes to another broker too, which may know better."""
        self._leaders.pop((topic, partition), None)
        self._next_bootstrap += 1

    async def coordinator(self, key: str, kind: int) -> Endpoint | None:
        found = self._coordinators.get((key, kind))
        if found is not None:
            return found
        answer = await self.ask_any(ApiKey.FIND_COORDINATOR, 3, {"key": key, "key_type": kind})
        if answer.error_code != ErrorCode.NONE:
            self._next_bootstrap += 1
            return None
        found = self._coordinators[key, kind] = Endpoint(answer.host, answer.port)
        return found

    def forget_coordinator(self, key: str, kind: int) -> None:
        self._coordinators.pop((key, kind), None)

    async def back_off(self) -> None:
        await asyncio.sleep(BACKOFF_S * (0.5 + self.world.chance.random()))
