"""What REST asks of a cluster: blocking questions to librdkafka's admin client, answered as plain values.

Called through Kafka.ask, in its threads; settings are rest.asking_configs' affair. A refusal is librdkafka's
KafkaException, which Kafka.ask translates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.admin.cluster import Cluster, admin_types
from penstock.model import TopicPartition

# librdkafka gives the future of an answer a little longer than the answer itself.
_SLACK_S = 1.0


class Node(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None


class ClusterFacts(NamedTuple):
    cluster_id: str
    controller: int | None
    nodes: tuple[Node, ...]


class Partition(NamedTuple):
    id: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Topic(NamedTuple):
    name: str
    is_internal: bool
    partitions: tuple[Partition, ...]


class GroupMember(NamedTuple):
    id: str
    client_id: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


class Group(NamedTuple):
    name: str
    is_simple: bool
    state: str
    assignor: str
    coordinator: int | None
    members: tuple[GroupMember, ...]


def describe_cluster(cluster: Cluster) -> ClusterFacts:
    found: Any = answer(cluster, ask(cluster, cluster.admin.describe_cluster))
    nodes = tuple(sorted(Node(one.id, one.host, one.port, one.rack or None) for one in found.nodes))
    controller = None if found.controller is None or found.controller.id < 0 else int(found.controller.id)
    return ClusterFacts(str(found.cluster_id), controller, nodes)


def list_topics(cluster: Cluster) -> list[Topic]:
    """All of them, by name. Without a name, so that none is made by being asked for."""
    metadata: Any = cluster.admin.list_topics(timeout=cluster.timeout_s)
    return [
        Topic(
            name,
            name.startswith("__"),
            tuple(
                Partition(one.id, one.leader if one.leader >= 0 else None, tuple(one.replicas), tuple(one.isrs))
                for one in sorted(topic.partitions.values(), key=lambda one: one.id)
            ),
        )
        for name, topic in sorted(metadata.topics.items())
    ]


def describe_topic(cluster: Cluster, name: str) -> Topic:
    from confluent_kafka import TopicCollection

    asked = ask(cluster, cluster.admin.describe_topics, TopicCollection([name]))
    found: Any = answer(cluster, asked[name])
    partitions = tuple(
        Partition(
            one.id,
            None if one.leader is None or one.leader.id < 0 else int(one.leader.id),
            tuple(node.id for node in one.replicas),
            tuple(node.id for node in one.isr),
        )
        for one in sorted(found.partitions, key=lambda one: one.id)
    )
    return Topic(found.name, bool(found.is_internal), partitions)


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int,
    replication_factor: int,
    assignments: Sequence[Sequence[int]] | None,
    configs: Mapping[str, str],
    validate_only: bool,
) -> None:
    """-1 for partitions or replicas lets the cluster choose; `assignments` say it all instead."""
    placed = {"replica_assignment": [list(one) for one in assignments]} if assignments else {}
    count = len(assignments) if assignments else partitions
    factor = {} if assignments else {"replication_factor": replication_factor}
    new = admin_types().NewTopic(name, num_partitions=count, config=dict(configs), **factor, **placed)
    asked = ask(cluster, cluster.admin.create_topics, [new], validate_only=validate_only)
    answer(cluster, asked[name])


def delete_topic(cluster: Cluster, name: str) -> None:
    answer(cluster, ask(cluster, cluster.admin.delete_topics, [name])[name])


def grow_topic(cluster: Cluster, name: str, partitions: int) -> None:
    asked = ask(cluster, cluster.admin.create_partitions, [admin_types().NewPartitions(name, partitions)])
    answer(cluster, asked[name])


def find_ends(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Where each starts and ends; raises for the first that cannot be asked."""
    from confluent_kafka import TopicPartition as Place

    wanted = sorted(set(partitions))
    if not wanted:
        return {}
    spec = admin_types().OffsetSpec
    places = [Place(one.topic, one.partition) for one in wanted]
    firsts = ask(cluster, cluster.admin.list_offsets, {place: spec.earliest() for place in places})
    lasts = ask(cluster, cluster.admin.list_offsets, {place: spec.latest() for place in places})
    return {
        TopicPartition(place.topic, place.partition): (
            int(answer(cluster, firsts[place]).offset),
            int(answer(cluster, lasts[place]).offset),
        )
        for place in places
    }


def list_groups(cluster: Cluster) -> list[str]:
    found: Any = answer(cluster, ask(cluster, cluster.admin.list_consumer_groups))
    if found.errors and not found.valid:
        raise found.errors[0]
    return sorted(str(one.group_id) for one in found.valid)


def describe_groups(cluster: Cluster, names: Sequence[str]) -> list[Group]:
    """Raises for the first that cannot be described; one that nobody has heard of is DEAD and has no members."""
    if not names:
        return []
    asked = ask(cluster, cluster.admin.describe_consumer_groups, list(names))
    return [_group(answer(cluster, asked[name])) for name in names]


def _group(found: Any) -> Group:
    members = tuple(
        GroupMember(
            one.member_id,
            one.client_id,
            one.group_instance_id or None,
            tuple(
                sorted(
                    TopicPartition(held.topic, held.partition)
                    for held in (one.assignment.topic_partitions if one.assignment is not None else ())
                )
            ),
        )
        for one in found.members
    )
    node = found.coordinator
    return Group(
        found.group_id,
        bool(found.is_simple_consumer_group),
        found.state.name,
        found.partition_assignor or "",
        None if node is None or node.id < 0 else int(node.id),
        members,
    )


def ask(cluster: Cluster, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Not Cluster.ask, which puts librdkafka's refusals into words for people: here they must keep their codes."""
    return call(*arguments, request_timeout=cluster.timeout_s, **options)


def answer(cluster: Cluster, future: Any) -> Any:
    return future.result(cluster.timeout_s + _SLACK_S)
