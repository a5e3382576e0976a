"""Three real brokers in one process, on one metadata file: real sockets, real logs, real leases."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from penstock.broker import Broker
from penstock.client.connection import ClientConnection
from penstock.config import BrokerConfig
from penstock.errors import ErrorCode, PenstockError
from penstock.records.batch import read_header
from penstock.records.record import Record, decode_records, encode_batch
from penstock.replication.partition import Partition
from penstock.wire.apis import ApiKey

SETTINGS = {
    "listeners": "127.0.0.1:0",
    "penstock.http.listen": "",
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.segment.delete.delay.ms": "0",
}
PATIENCE_S = 30.0


class Cluster:
    def __init__(self, root: Path, settings: dict[str, str]) -> None:
        self.root = root
        self.settings = settings
        self.brokers: dict[int, Broker] = {}

    async def start(self, *nodes: int) -> None:
        for node in nodes:
            static = {
                **SETTINGS,
                "node.id": str(node),
                "broker.rack": f"rack-{node}",
                "log.dirs": str(self.root / f"broker-{node}"),
                "penstock.metadata": f"sqlite:{self.root / 'metadata.db'}",
                **self.settings,
            }
            broker = Broker(BrokerConfig(static))
            await broker.start()
            self.brokers[node] = broker

    async def stop(self, *nodes: int) -> None:
        for node in nodes:
            await self.brokers.pop(node).stop()

    async def crash(self, *nodes: int) -> None:
        for node in nodes:
            await self.brokers.pop(node).crash()

    async def stop_fetching(self, node: int) -> None:
        """The broker fetches nothing more of what it follows now; a new leader it will follow."""
        followers = self.brokers[node].replicas.followers
        assert followers is not None
        await followers.close()

    async def close(self) -> None:
        for node in list(self.brokers):
            with contextlib.suppress(PenstockError):
                await self.crash(node)

    async def create(self, name: str, partitions: int = 1, replicas: int = 3, **configs: str) -> None:
        given = {key.replace("_", "."): value for key, value in configs.items()}
        node, broker = next(iter(self.brokers.items()))
        await self.until(lambda: len(broker.image.brokers) == len(self.brokers))
        reply = await self.request(
            node,
            ApiKey.CREATE_TOPICS,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": replicas,
                    "assignments": (),
                    "configs": [{"name": key, "value": value} for key, value in given.items()],
                }
            ],
            timeout=5_000,
        )
        assert reply.topics[0].error_code == ErrorCode.NONE, reply
        await self.until(lambda: all(name in each.image.topics for each in self.brokers.values()))

    async def request(self, node: int, api_key: ApiKey, version: int | None = None, **body: Any) -> Any:
        async with await ClientConnection.connect(self.brokers[node].endpoint) as connection:
            return await connection.request(api_key, version, body, timeout_s=PATIENCE_S)

    def replica(self, node: int, name: str, index: int = 0) -> Partition:
        replicas = self.brokers[node].replicas
        return replicas.replica_of(replicas.topics[name], index)

    def leader_of(self, name: str, index: int = 0) -> int | None:
        """The broker that leads, as it sees itself, in the newest epoch any broker has heard of."""
        epochs = [
            broker.image.topics[name].partitions[index].leader_epoch
            for broker in self.brokers.values()
            if name in broker.image.topics
        ]
        for node, broker in self.brokers.items():
            topic = broker.replicas.topics.get(name)
            partition = topic.partitions.get(index) if topic is not None else None
            if partition is not None and partition.is_leader and partition.leader_epoch == max(epochs):
                return node
        return None

    async def leader(self, name: str, index: int = 0) -> int:
        await self.until(lambda: self.leader_of(name, index) is not None)
        found = self.leader_of(name, index)
        assert found is not None
        return found

    async def send(
        self, node: int, name: str, *values: str, acks: int = -1, timeout_ms: int = 5_000, **batch: Any
    ) -> Any:
        """One batch by a Produce request; the partition's answer."""
        records = [Record(number, 1_700_000_000_000, None, value.encode()) for number, value in enumerate(values)]
        reply = await self.request(
            node,
            ApiKey.PRODUCE,
            9,
            acks=acks,
            timeout=timeout_ms,
            topic_data=[
                {"name": name, "partition_data": [{"index": 0, "records": bytes(encode_batch(records, **batch))}]}
            ],
        )
        return reply.responses[0].partition_responses[0]

    def values(self, node: int, name: str, end: int | None = None) -> list[str]:
        """What a replica has below its high watermark, or below `end`, read from its files."""
        partition = self.replica(node, name)
        log = partition.log
        limit = partition.high_watermark if end is None else end
        offset, found = log.log_start, list[str]()
        while offset < limit:
            chunk = log.read(offset, 1 << 20, limit, cached_only=False)
            assert chunk
            header = read_header(chunk)
            found += [(record.value or b"").decode() for record in decode_records(chunk, header, 1 << 20)]
            offset = type(offset)(header.next_offset)
        return found

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that has no event of its own to be waited for."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if holds():
                    return
                await asyncio.sleep(0.005)

    async def in_sync(self, name: str, *nodes: int) -> None:
        """Wait until all brokers know these, and no others, to be in sync."""
        await self.until(
            lambda: all(set(each.image.topics[name].partitions[0].isr) == set(nodes) for each in self.brokers.values())
        )


@contextlib.asynccontextmanager
async def running_cluster(root: Path, *nodes: int, **settings: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(root, {key.replace("_", "."): value for key, value in settings.items()})
    try:
        await cluster.start(*nodes)
        yield cluster
    finally:
        await cluster.close()
