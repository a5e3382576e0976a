"""The topic a benchmark runs on: found, or made when it is missing.

Called by cli.bench. Nothing is deleted: what a benchmark wrote can be looked at, and whoever ran it is told the name.
"""

import time
from dataclasses import dataclass

from penstock.admin.cluster import Cluster, admin_types
from penstock.admin.failures import CommandFailed, explain
from penstock.admin.offsets import EARLIEST, LATEST, find_offsets
from penstock.clock import SystemClock
from penstock.model import TopicPartition

_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class BenchTopic:
    name: str
    partitions: int
    replication_factor: int
    brokers: int
    was_made: bool = False


def find_topic(cluster: Cluster, name: str, was_made: bool = False) -> BenchTopic | None:
    metadata = cluster.metadata()
    topic = metadata.topics.get(name)
    if topic is None or topic.error is not None or not topic.partitions:
        return None
    replicas = max(len(one.replicas) for one in topic.partitions.values())
    return BenchTopic(name, len(topic.partitions), replicas, len(metadata.brokers), was_made)


def ensure_topic(cluster: Cluster, name: str, partitions: int | None, replication_factor: int | None) -> BenchTopic:
    """The topic as it is, or a new one; the failure says where an existing one is not what was asked for."""
    found = find_topic(cluster, name)
    if found is None:
        return _make(cluster, name, partitions, replication_factor)
    for asked, there, what in (
        (partitions, found.partitions, "partitions"),
        (replication_factor, found.replication_factor, "replicas"),
    ):
        if asked is not None and asked != there:
            raise CommandFailed(
                f"topic {name} is there already and has {there} {what}, not {asked}",
                "Leave the option out to measure the topic as it is, or name another with --topic.",
            )
    return found


def _make(cluster: Cluster, name: str, partitions: int | None, replication_factor: int | None) -> BenchTopic:
    # -1 leaves the choice to the broker.
    asked = admin_types().NewTopic(name, partitions or -1, replication_factor or -1)
    future = cluster.ask(cluster.admin.create_topics, [asked])[name]
    _, error = cluster.outcome(future)
    if error is not None and error.name() != "TOPIC_ALREADY_EXISTS":
        raise explain(error, f"creating topic {name}")
    clock = SystemClock()
    deadline = clock.monotonic() + cluster.timeout_s
    # Another broker than the one that made it may answer, and hear of it a moment later.
    while (found := find_topic(cluster, name, was_made=error is None)) is None:
        if clock.monotonic() > deadline:
            raise CommandFailed(
                f"topic {name} was made, but its partitions have no place after {cluster.timeout_s:g} s",
                "`penstock doctor` may find out why; or give it longer with --timeout.",
            )
        time.sleep(_LOOK_S)
    return found


def begins_of(cluster: Cluster, topic: BenchTopic) -> dict[TopicPartition, int]:
    """Where each partition begins now."""
    return _offsets(cluster, topic, EARLIEST)


def ends_of(cluster: Cluster, topic: BenchTopic) -> dict[TopicPartition, int]:
    """Where each partition ends now."""
    return _offsets(cluster, topic, LATEST)


def _offsets(cluster: Cluster, topic: BenchTopic, moment: int) -> dict[TopicPartition, int]:
    partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    offsets: dict[TopicPartition, int] = {}
    for at, found in find_offsets(cluster, partitions, moment).items():
        if found.error is not None:
            raise explain(found.error, f"looking for where {at} begins or ends")
        offsets[at] = found.offset or 0
    return offsets
