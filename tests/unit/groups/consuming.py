"""Members of consumer groups for tests: a client that answers its coordinator as it should, and topics to read."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from penstock.clock import Rng
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.layout import Layout
from penstock.config import BrokerConfig
from penstock.errors import ErrorCode, PenstockError
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import HeartbeatReply, HeartbeatRequest
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.offsets import OffsetToCommit

REBALANCE_MS = 60_000
SESSION_MS = 45_000

Owned = set[tuple[str, int]]


def image_of(**topics: int) -> ClusterImage:
    image = ClusterImage(Layout())
    for name, partitions in topics.items():
        put_topic(image, name, partitions)
    return image


def put_topic(image: ClusterImage, name: str, partitions: int, topic_id: UUID | None = None) -> Topic:
    """Make the topic, or let it grow."""
    if topic_id is None:
        known = image.topics.get(name)
        topic_id = UUID(int=(len(image.topics) + 1) << 64) if known is None else known.id
    topic = Topic(name, topic_id, (PartitionState(1, 0, (1,), (1,)),) * partitions, {})
    image.topics[name] = image.topics_by_id[topic_id] = topic
    return topic


def drop_topic(image: ClusterImage, name: str) -> None:
    del image.topics_by_id[image.topics.pop(name).id]


class Client:
    """Does what it is told at once: gives back what it no longer is assigned, and says what it holds."""

    def __init__(self, get: Callable[[], GroupCoordinator], member_id: str, *topics: str, **said: Any) -> None:
        self._get = get
        self.member_id = member_id
        self.epoch = 0
        self.said: dict[str, Any] = {"topics": frozenset(topics), "rebalance_timeout_ms": REBALANCE_MS, **said}
        self.owned: dict[UUID, frozenset[int]] = {}
        self.interval_ms = 0

    def request(self, **changes: Any) -> HeartbeatRequest:
        fields: dict[str, Any] = {
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "instance_id": self.said.get("instance_id"),
            "owned": self.owned,
        }
        if self.epoch == 0:
            fields |= self.said
        return HeartbeatRequest(**{**fields, **changes})

    async def send(self, **changes: Any) -> HeartbeatReply:
        """Without taking the answer to heart."""
        return await self._get().consumer_heartbeat("g", self.request(**changes))

    async def beat(self, **changes: Any) -> HeartbeatReply:
        reply = await self.send(**changes)
        self.epoch = reply.member_epoch
        self.interval_ms = reply.heartbeat_interval_ms
        if reply.assignment is not None:
            self.owned = reply.assignment
        return reply

    async def leave(self) -> HeartbeatReply:
        return await self.send(member_epoch=-1)

    def partitions(self) -> list[int]:
        return sorted(partition for partitions in self.owned.values() for partition in partitions)


async def settle(*clients: Client) -> None:
    """Heartbeats until nothing moves any more."""
    for _ in range(20):
        before = [(client.epoch, client.owned) for client in clients]
        for client in clients:
            await client.beat()
        if before == [(client.epoch, client.owned) for client in clients]:
            return
    raise AssertionError("the group does not come to rest")


class World:
    """A coordinator, and the one started after it."""

    def __init__(self, clock: Any, ledger: Any, settings: dict[str, str]) -> None:
        self.clock, self.ledger, self.settings = clock, ledger, settings
        self.image: ClusterImage = image_of(orders=4)
        self.coordinator: GroupCoordinator

    async def start(self) -> None:
        config = BrokerConfig({"offsets.topic.num.partitions": "1", **self.settings})
        self.coordinator = GroupCoordinator(config, self.clock, Rng(7), self.image)
        await self.coordinator.lead(self.ledger)

    async def restart(self) -> None:
        self.coordinator.close()
        await self.start()

    def client(self, member_id: str, *topics: str, **said: Any) -> Client:
        return Client(lambda: self.coordinator, member_id, *(topics or ("orders",)), **said)

    @property
    def group(self) -> ConsumerGroup:
        group = self.coordinator.find("g")
        assert isinstance(group, ConsumerGroup)
        return group

    def topics_changed(self) -> None:
        self.coordinator.topics_changed()

    async def commit(self, client: Client, epoch: int | None = None, partition: int = 0) -> ErrorCode:
        topic = self.image.topics["orders"]
        offset = OffsetToCommit("orders", topic.id, partition, 7, 0, "")
        by = (client.member_id, None, client.epoch if epoch is None else epoch)
        (code,) = await self.coordinator.commit_offsets("g", by, [offset])
        return code


async def refused(sending: Any) -> ErrorCode:
    with pytest.raises(PenstockError) as raised:
        await sending
    return raised.value.code
