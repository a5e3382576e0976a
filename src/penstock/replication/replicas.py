"""The partitions this broker holds, found by topic name and by topic id in one step each, and the role it has in each.

Called by handlers on every walk, by broker when the cluster image changes.
Laws:
- A role follows the image: who leads, in which epoch. While a log is being cut its partition keeps the role it has,
  and takes the newest that came meanwhile when that is done.
- A replica the cluster gave to others is deleted; one that nobody ever claimed is not (TRAPS L3).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from penstock.cluster.image import ClusterImage, PartitionState
from penstock.config import TopicConfig
from penstock.errors import (
    NotLeaderOrFollower,
    PenstockError,
    StorageFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.metrics import BrokerMetrics, Counter
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.replication.followers import Followers
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Traffic:
    """One topic's counters, looked up once."""

    messages_in: Counter
    messages_out: Counter
    batches_in: Counter
    bytes_in: Counter
    bytes_out: Counter


@dataclass(slots=True)
class HostedTopic:
    name: str
    id: UUID
    config: TopicConfig
    partitions: dict[int, Partition]
    traffic: Traffic


class Replicas:
    """`on_lead` and `on_resign` are called when this broker begins and ends to lead a partition in an epoch."""

    def __init__(self, logs: LogDirectory, metrics: BrokerMetrics, image: ClusterImage, node_id: int) -> None:
        self.logs = logs
        self.node_id = node_id
        self._metrics = metrics
        self._image = image
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[UUID, HostedTopic] = {}
        self.followers: Followers | None = None
        self.on_lead: Callable[[Partition], None] = lambda _: None
        self.on_resign: Callable[[Partition], None] = lambda _: None
        self.on_damage: Callable[[Partition, PenstockError], None] = lambda partition, error: None
        # Partitions whose log is being cut, and what they are to be when that is done.
        self._cutting: dict[Partition, PartitionState | None] = {}
        self._has_resigned = False

    # Finding

    def find(self, name: str, index: int) -> Partition:
        """The partition, led here."""
        topic = self.topics.get(name)
        if topic is None:
            raise self.not_here(name, index)
        return self.partition_of(topic, index)

    def find_by_id(self, topic_id: UUID, index: int) -> Partition:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise self.not_here(topic_id, index)
        return self.partition_of(topic, index)

    def partition_of(self, topic: HostedTopic, index: int) -> Partition:
        partition = topic.partitions.get(index)
        if partition is None or not partition.is_leader:
            raise self.replica_of(topic, index).not_leader()
        return partition

    def replica_of(self, topic: HostedTopic, index: int) -> Partition:
        """The partition, led or followed here."""
        partition = topic.partitions.get(index)
        if partition is None:
            failure = self.logs.offline.get(TopicPartition(topic.name, index))
            if failure is not None:
                raise StorageFailed(str(failure))
            raise self.not_here(topic.name, index)
        return partition

    def not_here(self, topic: str | UUID, index: int) -> PenstockError:
        """What is not in the cluster, or only not on this broker."""
        by_name, by_id = self._image.topics, self._image.topics_by_id
        known = by_name.get(topic) if isinstance(topic, str) else by_id.get(topic)
        if known is not None and 0 <= index < len(known.partitions):
            return NotLeaderOrFollower(f"{known.name}-{index} is kept by other brokers")
        if known is None and isinstance(topic, UUID):
            return UnknownTopicId(f"there is no topic with id {topic}")
        if known is None:
            return UnknownTopicOrPartition(f"there is no topic {topic!r}")
        return UnknownTopicOrPartition(f"topic {known.name!r} has no partition {index}")

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    # Roles

    def host(self, name: str, topic_id: UUID, config: TopicConfig, states: Mapping[int, PartitionState]) -> None:
        """Take part in a topic as `states` says; partitions it names that are none of ours any more are let go."""
        topic = self.topics.get(name)
        mine = any(self.node_id in state.replicas for state in states.values())
        if topic is None:
            if not mine:
                return
            topic = HostedTopic(name, topic_id, config, {}, self._traffic(name))
            self.topics[name] = self.topics_by_id[topic_id] = topic
        assert topic.id == topic_id
        for index, state in states.items():
            partition = topic.partitions.get(index)
            if self.node_id not in state.replicas:
                if partition is not None or TopicPartition(name, index) in self.logs.offline:
                    self._let_go(topic, index)
                continue
            if partition is None:
                partition = self._open(topic, index, state)
            if partition is not None:
                self.take(partition, state)

    def take(self, partition: Partition, state: PartitionState) -> None:
        """Be what the state says: the leader in a new epoch, the same leader still, or a follower."""
        if self._has_resigned:
            return
        if partition in self._cutting:
            self._cutting[partition] = state
            return
        if state.leader == self.node_id:
            if partition.is_leader and partition.state is not None and state.leader_epoch == partition.leader_epoch:
                partition.adopt(state, self.node_id)
                return
            self._leave(partition)
            self.on_resign(partition)
            self._metrics.leaderships.value += 1
            if self._is_unclean(partition.state, state):
                self._metrics.unclean_elections.value += 1
                logger.error("%s: leads without having been in sync; records may be lost", partition.at)
            partition.lead(state, self.node_id)
            self.on_lead(partition)
        elif partition.is_leader or state.leader_epoch != partition.leader_epoch or partition.state is None:
            self.on_resign(partition)
            partition.follow(state)
            if self.followers is not None:
                self.followers.follow(partition)
        else:
            partition.state = state

    def _is_unclean(self, former: PartitionState | None, state: PartitionState) -> bool:
        """Whether this broker was made the leader without having been in sync.

        Only the state right before tells: one that was cut off from the store may not have seen that it came back.
        """
        if former is None or former.partition_epoch + 1 != state.partition_epoch:
            return False
        return self.node_id not in former.isr and self.node_id not in former.elr

    def resign(self) -> None:
        """Lead nothing more, whatever the cluster says: this broker is about to end."""
        self._has_resigned = True
        for partition in self.led():
            self.on_resign(partition)
            if partition.state is not None:
                partition.follow(partition.state)

    async def cut(self, partition: Partition, work: Callable[[], Awaitable[PartitionLog]]) -> None:
        """Let the log of a follower be cut by `work`; it keeps its role until that is done."""
        assert not partition.is_leader
        if partition in self._cutting:
            return
        self._cutting[partition] = None

        async def cut() -> None:
            try:
                partition.cut(await work())
            except (PenstockError, OSError) as error:
                logger.error("%s: could not be cut: %s", partition.at, error)
            finally:
                state = self._cutting.pop(partition)
                if state is not None and self.has(partition):
                    self.take(partition, state)

        # Goes on if whoever fetches it is ended meanwhile: the log that takes the old one's place must not be lost.
        await asyncio.shield(cut())

    async def rebuild(self, partition: Partition, begin_new_life: Callable[[], Awaitable[bool]]) -> bool:
        """Set the damaged log of a follower aside and fetch everything anew, in the life that begins here.

        `begin_new_life` says whether that may be, the return value whether it is so.
        """
        if partition.is_leader or partition in self._cutting or not self.has(partition):
            return False
        at, topic = partition.at, self.topics[partition.at.topic]
        self._leave(partition)
        self._cutting[partition] = None
        try:
            if not await begin_new_life() or not self.has(partition):
                return False
            if at in self.logs.logs:
                self.logs.take_offline(at, StorageFailed(f"{at} is damaged"))
            await self.logs.set_damaged_aside(at)
            if not self.has(partition):
                return False
            partition.begin_anew(self.logs.open_one(LogRequest(at, topic.id, topic.config, has_peers=True)))
            self._listen_for_damage(partition)
            return True
        finally:
            state = self._cutting.pop(partition) or partition.state
            if state is not None and self.has(partition):
                partition.state = None
                self.take(partition, state)

    def has(self, partition: Partition) -> bool:
        """Whether it is one of ours still, and not another of its name."""
        topic = self.topics.get(partition.at.topic)
        return topic is not None and topic.partitions.get(partition.at.partition) is partition

    def _listen_for_damage(self, partition: Partition) -> None:
        partition.log.on_damage = lambda error: self.on_damage(partition, error)

    def is_cutting(self, partition: Partition) -> bool:
        return partition in self._cutting

    def configure(self, name: str, config: TopicConfig) -> None:
        topic = self.topics.get(name)
        if topic is not None:
            topic.config = config
            for partition in topic.partitions.values():
                partition.log.config = config
                # Fewer in sync may do from now on.
                partition.advance()

    def drop(self, name: str) -> None:
        """The topic is gone; a new one of the same name may come in the next moment."""
        topic = self.topics.get(name)
        if topic is None:
            return
        self._metrics.forget_topic(name)
        for index in list(topic.partitions):
            self._let_go(topic, index)
        for at in [at for at in self.logs.offline if at.topic == name]:
            self.logs.delete(at)
        self.topics.pop(name, None)
        self.topics_by_id.pop(topic.id, None)

    def _open(self, topic: HostedTopic, index: int, state: PartitionState) -> Partition | None:
        at = TopicPartition(topic.name, index)
        log = self.logs.logs.get(at)
        if log is not None and log.topic_id != topic.id:
            # Opened at the start, before this topic took the place of another of its name.
            self.logs.delete(at)
            log = None
        has_peers = len(state.replicas) > 1
        if log is None and at not in self.logs.offline:
            # A log that does not open is offline, which replica_of tells whoever asks for it.
            with contextlib.suppress(StorageFailed):
                log = self.logs.open_one(LogRequest(at, topic.id, topic.config, has_peers))
        if log is None:
            return None
        partition = topic.partitions[index] = Partition(at, topic.id, LeaderEpoch(state.leader_epoch), log)
        self._listen_for_damage(partition)
        if has_peers:
            saved = self.logs.high_watermarks.get(at)
            partition.start_from(saved.offset if saved is not None and saved.topic_id == topic.id else Offset(0))
        return partition

    def _let_go(self, topic: HostedTopic, index: int) -> None:
        partition = topic.partitions.pop(index, None)
        if partition is not None:
            self._leave(partition)
            self.on_resign(partition)
            partition.close()
        self.logs.delete(TopicPartition(topic.name, index))
        if not topic.partitions:
            self.topics.pop(topic.name, None)
            self.topics_by_id.pop(topic.id, None)

    def _leave(self, partition: Partition) -> None:
        if self.followers is not None:
            self.followers.leave(partition)

    # For housekeeping

    def failures(self) -> list[PenstockError]:
        """Logs that did not open, and logs that have failed since."""
        running = [partition.log.failure for partition in self.partitions() if partition.log.failure is not None]
        return [*self.logs.offline.values(), *running]

    def led(self) -> list[Partition]:
        return [partition for partition in self.partitions() if partition.is_leader]

    def shared(self, step: int) -> Iterator[list[Partition]]:
        """What others keep too, found among `step` partitions at a time: between two steps the loop may turn."""
        some: list[Partition] = []
        looked_at = 0
        for topic in list(self.topics.values()):
            for partition in list(topic.partitions.values()):
                if looked_at == step:
                    yield some
                    some, looked_at = [], 0
                looked_at += 1
                # Since the walk began some may have been let go.
                if not partition.is_sole and self.has(partition):
                    some.append(partition)
        yield some

    def stable_offset(self, at: TopicPartition) -> Offset | None:
        topic = self.topics.get(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        return None if partition is None else partition.last_stable_offset

    def committed_offsets(self) -> dict[TopicPartition, Offset]:
        return {partition.at: partition.high_watermark for partition in self.partitions()}

    def shared_watermarks(self) -> dict[TopicPartition, Offset]:
        """How far what others keep too is committed: the one thing of it that no log says."""
        return {partition.at: partition.high_watermark for partition in self.partitions() if not partition.is_sole}

    def _traffic(self, name: str) -> Traffic:
        metrics = self._metrics
        return Traffic(
            metrics.messages_in.child(name),
            metrics.messages_out.child(name),
            metrics.batches_in.child(name),
            metrics.bytes_in.child(name),
            metrics.bytes_out.child(name),
        )
