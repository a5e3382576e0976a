"""The cluster as it is now: brokers, who leads and holds what, what is being moved. Asked for once, then only read.

Called by the `cluster` commands. Works with any Kafka cluster; what only our own connection can ask for (moves that are
under way) is left out where it cannot.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.admin.cluster import Cluster, admin_types
from penstock.admin.failures import CommandFailed
from penstock.admin.offsets import error_name
from penstock.admin.placing import Replicas
from penstock.model import Endpoint, TopicPartition
from penstock.wire.apis import ApiKey

MIN_INSYNC = "min.insync.replicas"
_TOPICS_PER_REQUEST = 500


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    endpoint: Endpoint
    rack: str | None


@dataclass(frozen=True, slots=True)
class Move:
    """A reassignment that is under way."""

    adding: Replicas
    removing: Replicas


@dataclass(frozen=True, slots=True)
class Partition:
    at: TopicPartition
    leader: int | None
    replicas: Replicas
    in_sync: Replicas
    move: Move | None = None

    @property
    def original(self) -> Replicas:
        """Where its replicas are, or were before a move that is under way."""
        adding = self.move.adding if self.move is not None else ()
        return tuple(node for node in self.replicas if node not in adding)

    @property
    def target(self) -> Replicas:
        """Where its replicas are, or will be when a move that is under way is done."""
        removing = self.move.removing if self.move is not None else ()
        return tuple(node for node in self.replicas if node not in removing)

    @property
    def is_under_replicated(self) -> bool:
        """A replica that is only just being added is not missed."""
        return any(node not in self.in_sync for node in self.original)

    @property
    def is_led_by_preferred(self) -> bool:
        return self.leader == self.target[0] if self.target else True


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str | None
    controller: int | None
    brokers: Mapping[int, Broker]
    partitions: Mapping[TopicPartition, Partition]
    # Whether `Partition.move` could be asked for at all.
    knows_moves: bool
    # Only of topics with a partition that lacks replicas in sync.
    min_insync: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def racks(self) -> dict[int, str | None]:
        return {node: broker.rack for node, broker in self.brokers.items()}

    @property
    def missing(self) -> list[int]:
        """Brokers that hold replicas and are not there."""
        named = {node for partition in self.partitions.values() for node in partition.replicas}
        return sorted(named - self.brokers.keys())

    def is_under_min_insync(self, partition: Partition) -> bool:
        wanted = min(self.min_insync.get(partition.at.topic, 1), len(partition.replicas))
        return len(partition.in_sync) < wanted

    def assignment(self, topics: Iterable[str] | None = None) -> dict[TopicPartition, Replicas]:
        """Who holds what once all moves that are under way are done."""
        wanted = None if topics is None else set(topics)
        return {
            at: partition.target
            for at, partition in sorted(self.partitions.items())
            if wanted is None or at.topic in wanted
        }

    def leaders(self) -> Counter[int]:
        return Counter(one.leader for one in self.partitions.values() if one.leader is not None)

    def preferred(self) -> Counter[int]:
        return Counter(one.target[0] for one in self.partitions.values() if one.target)

    def holders(self) -> Counter[int]:
        return Counter(node for one in self.partitions.values() for node in one.replicas)

    def require_broker(self, node: int) -> Broker:
        broker = self.brokers.get(node)
        if broker is None:
            there = ", ".join(map(str, sorted(self.brokers)))
            raise CommandFailed(f"there is no broker {node}", f"Those that are there: {there}.")
        return broker


def view_cluster(cluster: Cluster, *, with_min_insync: bool = False) -> ClusterView:
    described: Any = cluster.result(cluster.ask(cluster.admin.describe_cluster), "describing the cluster")
    brokers = {node.id: Broker(node.id, Endpoint(node.host, node.port), node.rack) for node in described.nodes}
    # Moves first: one that ends between the two questions is then shown as under way, not as something unplanned.
    moves = list_moves(cluster) if cluster.is_plaintext else {}
    metadata = cluster.metadata()
    partitions: dict[TopicPartition, Partition] = {}
    for name, topic in metadata.topics.items():
        for index, one in topic.partitions.items():
            at = TopicPartition(name, index)
            leader = one.leader if one.leader >= 0 else None
            partitions[at] = Partition(at, leader, tuple(one.replicas), tuple(one.isrs), moves.get(at))
    lacking = sorted({at.topic for at, one in partitions.items() if len(one.in_sync) < len(one.replicas)})
    controller = metadata.controller_id if metadata.controller_id in brokers else None
    return ClusterView(
        described.cluster_id,
        controller,
        dict(sorted(brokers.items())),
        partitions,
        cluster.is_plaintext,
        _min_insync(cluster, lacking) if with_min_insync else {},
    )


def list_moves(cluster: Cluster) -> dict[TopicPartition, Move]:
    """Every reassignment that is under way."""
    reply = cluster.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None, "timeout": _timeout_ms(cluster)})
    if int(reply.error_code):
        why = reply.error_message or error_name(int(reply.error_code))
        raise CommandFailed(f"listing the reassignments that are under way: {why}")
    return {
        TopicPartition(topic.name, one.partition_index): Move(tuple(one.adding_replicas), tuple(one.removing_replicas))
        for topic in reply.topics
        for one in topic.partitions
    }


def _min_insync(cluster: Cluster, topics: list[str]) -> dict[str, int]:
    types = admin_types()
    found: dict[str, int] = {}
    for first in range(0, len(topics), _TOPICS_PER_REQUEST):
        asked = [
            types.ConfigResource(types.ResourceType.TOPIC, name) for name in topics[first : first + _TOPICS_PER_REQUEST]
        ]
        for resource, future in cluster.ask(cluster.admin.describe_configs, asked).items():
            entries: Any = cluster.result(future, f"asking for the settings of {resource.name}")
            found[resource.name] = int(entries[MIN_INSYNC].value)
    return found


def _timeout_ms(cluster: Cluster) -> int:
    return int(cluster.timeout_s * 1000)
