"""The partitions this broker holds, found by topic name and by topic id in one step each.

Called by handlers on every walk, by broker when the cluster image changes.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from penstock.config import TopicConfig
from penstock.errors import PenstockError, StorageFailed, UnknownTopicId, UnknownTopicOrPartition
from penstock.log.directory import LogDirectory, LogRequest
from penstock.metrics import BrokerMetrics, Counter
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.replication.partition import Partition


@dataclass(frozen=True, slots=True)
class Traffic:
    """One topic's counters, looked up once."""

    messages_in: Counter
    messages_out: Counter
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
    def __init__(self, logs: LogDirectory, metrics: BrokerMetrics) -> None:
        self.logs = logs
        self._metrics = metrics
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[UUID, HostedTopic] = {}

    def find(self, name: str, index: int) -> Partition:
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r} here")
        return self.partition_of(topic, index)

    def find_by_id(self, topic_id: UUID, index: int) -> Partition:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id} here")
        return self.partition_of(topic, index)

    def partition_of(self, topic: HostedTopic, index: int) -> Partition:
        partition = topic.partitions.get(index)
        if partition is None:
            failure = self.logs.offline.get(TopicPartition(topic.name, index))
            if failure is not None:
                raise StorageFailed(str(failure))
            raise UnknownTopicOrPartition(f"topic {topic.name!r} has no partition {index} here")
        return partition

    def host(self, name: str, topic_id: UUID, config: TopicConfig, epochs: dict[int, LeaderEpoch]) -> None:
        """Take part in a topic, or in more of it: `epochs` names the partitions this broker leads."""
        topic = self.topics.get(name)
        if topic is None:
            topic = HostedTopic(name, topic_id, config, {}, self._traffic(name))
            self.topics[name] = self.topics_by_id[topic_id] = topic
        assert topic.id == topic_id
        for index, epoch in epochs.items():
            at = TopicPartition(name, index)
            if index in topic.partitions:
                topic.partitions[index].leader_epoch = epoch
                continue
            log = self.logs.logs.get(at)
            if log is None and at not in self.logs.offline:
                # A log that does not open is offline, which partition_of tells whoever asks for it.
                with contextlib.suppress(StorageFailed):
                    log = self.logs.open_one(LogRequest(at, topic_id, config))
            if log is not None:
                topic.partitions[index] = Partition(at, topic_id, epoch, log)

    def configure(self, name: str, config: TopicConfig) -> None:
        topic = self.topics.get(name)
        if topic is not None:
            topic.config = config
            for partition in topic.partitions.values():
                partition.log.config = config

    def drop(self, name: str) -> None:
        """The topic is gone; a new one of the same name may come in the next moment."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        del self.topics_by_id[topic.id]
        self._metrics.forget_topic(name)
        for index, partition in topic.partitions.items():
            partition.close()
            self.logs.delete(TopicPartition(name, index))
        for at in [at for at in self.logs.offline if at.topic == name]:
            self.logs.delete(at)

    def failures(self) -> list[PenstockError]:
        """Logs that did not open, and logs that have failed since."""
        running = [partition.log.failure for partition in self.partitions() if partition.log.failure is not None]
        return [*self.logs.offline.values(), *running]

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def stable_offsets(self) -> dict[TopicPartition, Offset]:
        return {partition.at: partition.last_stable_offset for partition in self.partitions()}

    def committed_offsets(self) -> dict[TopicPartition, Offset]:
        return {partition.at: partition.high_watermark for partition in self.partitions()}

    def _traffic(self, name: str) -> Traffic:
        metrics = self._metrics
        return Traffic(
            metrics.messages_in.child(name),
            metrics.messages_out.child(name),
            metrics.bytes_in.child(name),
            metrics.bytes_out.child(name),
        )
