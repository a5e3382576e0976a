"""The cluster as lists show it: topics and groups as rows, gathered in bulk, then only read.

Called by watching, which gathers in threads (everything that takes a Cluster blocks), and by the API, which reads.
Laws: no request is made for a single topic; what a broker did not say is None, never a guess.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.admin.cluster import Cluster
from penstock.admin.cluster_view import ClusterView, Partition, view_cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.group_lag import SPARK_PREFIX, list_groups
from penstock.admin.offsets import EARLIEST, LATEST, LogDir, committed_offsets, describe_log_dirs, find_offsets
from penstock.gateway.console.listing import natural
from penstock.model import INTERNAL_TOPICS, TopicPartition

PARTITIONS_PER_REQUEST = 2000

Offsets = Mapping[TopicPartition, int]


@dataclass(slots=True)
class TopicRow:
    name: str
    is_internal: bool
    partitions: int = 0
    replication: int = 0
    under_replicated: int = 0
    offline: int = 0
    # Offsets between start and end: what compaction removed counts.
    messages: int | None = None
    # On all brokers together, replicas included.
    size_bytes: int | None = None


@dataclass(slots=True)
class GroupRow:
    name: str
    state: str
    kind: str
    committed: Offsets | None = None
    lag: int | None = None
    # Offsets committed per second, since the last look.
    progress: float | None = None
    topics: tuple[str, ...] = ()

    @property
    def is_spark(self) -> bool:
        return self.name.startswith(SPARK_PREFIX)


@dataclass(slots=True)
class Snapshot:
    view: ClusterView
    topics: dict[str, TopicRow]
    starts: Offsets = field(default_factory=dict[TopicPartition, int])
    ends: Offsets = field(default_factory=dict[TopicPartition, int])
    log_dirs: Sequence[LogDir] = ()
    # Of one replica: the largest, since a follower may be behind.
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])

    def partitions_of(self, topic: str) -> list[Partition]:
        known = self.view.partitions
        count = self.topics[topic].partitions
        # Numbers go from 0 on, so that no search through all partitions is needed.
        return [known[at] for at in (TopicPartition(topic, one) for one in range(count)) if at in known]


def gather_view(cluster: Cluster) -> ClusterView:
    return view_cluster(cluster, with_min_insync=False)


def gather_offsets(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, is_start: bool
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for first in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        some = partitions[first : first + PARTITIONS_PER_REQUEST]
        answers = find_offsets(cluster, some, EARLIEST if is_start else LATEST)
        found.update((at, one.offset) for at, one in answers.items() if one.offset is not None)
    return found


def gather_log_dirs(cluster: Cluster) -> list[LogDir]:
    return describe_log_dirs(cluster)


def gather_groups(cluster: Cluster) -> list[GroupRow]:
    listed: list[Any] = list_groups(cluster)
    return [GroupRow(one.group_id, one.state.name.lower().replace("_", " "), one.type.name.lower()) for one in listed]


def gather_committed(cluster: Cluster, groups: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
    found: dict[str, dict[TopicPartition, int]] = {}
    for group in groups:
        try:
            found[group] = committed_offsets(cluster, group)
        except CommandFailed:
            continue  # its coordinator is away: the others are shown all the same
    return found


def build_topics(view: ClusterView, starts: Offsets, ends: Offsets, log_dirs: Iterable[LogDir]) -> dict[str, TopicRow]:
    """By name, in the order in which lists show them."""
    names = sorted({at.topic for at in view.partitions}, key=natural)
    rows = {name: TopicRow(name, is_internal(name)) for name in names}
    for at, partition in view.partitions.items():
        row = rows[at.topic]
        row.partitions += 1
        row.replication = max(row.replication, len(partition.replicas))
        row.under_replicated += partition.is_under_replicated
        row.offline += partition.leader is None
        if at in starts and at in ends:
            row.messages = (row.messages or 0) + max(0, ends[at] - starts[at])
    for log_dir in log_dirs:
        for at, size in log_dir.sizes.items():
            row = rows.get(at.topic)
            if row is not None:
                row.size_bytes = (row.size_bytes or 0) + size
    return rows


def largest_sizes(log_dirs: Iterable[LogDir]) -> dict[TopicPartition, int]:
    sizes: dict[TopicPartition, int] = {}
    for log_dir in log_dirs:
        for at, size in log_dir.sizes.items():
            sizes[at] = max(size, sizes.get(at, 0))
    return sizes


def sum_lag(committed: Offsets, starts: Offsets, ends: Offsets) -> int | None:
    """Offsets still to be read; None where no end is known."""
    lags = [max(0, ends[at] - max(offset, starts.get(at, 0))) for at, offset in committed.items() if at in ends]
    return sum(lags) if lags or not committed else None


def growth(before: Offsets, after: Offsets) -> dict[str, int]:
    """By topic: how far ends went on. A partition that is new or was made anew adds nothing."""
    grown: dict[str, int] = {}
    for at, end in after.items():
        earlier = before.get(at)
        if earlier is not None:
            grown[at.topic] = grown.get(at.topic, 0) + max(0, end - earlier)
    return grown


def is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS or topic.startswith("_")
