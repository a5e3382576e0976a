"""A group as it stands at one moment: its members, who owns what, how far each partition has been read.

Called by `penstock groups describe`, by the console and, twice with some time between, by admin.doctor.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from penstock.admin.cluster import Cluster
from penstock.admin.group_facts import NOTHING_KNOWN, GroupFacts, ask_facts
from penstock.admin.offsets import EARLIEST, LATEST, committed_offsets, find_offsets
from penstock.admin.readable import NO_TIMESTAMP, first_messages
from penstock.clock import SystemClock
from penstock.model import Endpoint, TopicPartition

CONSUMER = "consumer"
# Groups that Spark queries commit to, so that others see how far they are; they read by their own checkpoints.
SPARK_PREFIX = "spark-"


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]
    # Of members of the consumer protocol: what it is to come to. None where a group knows no such thing.
    target: tuple[TopicPartition, ...] | None = None

    @property
    def to_give_back(self) -> tuple[TopicPartition, ...]:
        """What it holds and others wait for."""
        return () if self.target is None else tuple(sorted(set(self.partitions) - set(self.target)))


@dataclass(frozen=True, slots=True)
class PartitionLag:
    at: TopicPartition
    committed: int | None
    start: int | None
    end: int | None
    owner: Member | None
    # librdkafka's error where the partition's end could not be asked for: most often, the topic is gone.
    error: Any
    # How old the first message still to be read is; 0 where there is none, None where nobody asked or knows.
    behind_s: float | None = None

    @property
    def position(self) -> int | None:
        """Where the group reads next. What retention has deleted nobody can read."""
        return None if self.committed is None else max(self.committed, self.start or 0)

    @property
    def lag(self) -> int | None:
        """Offsets still to be read."""
        if self.position is None or self.end is None:
            return None
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class GroupView:
    group: str
    state: str
    kind: str
    assignor: str
    coordinator: str | None
    members: tuple[Member, ...]
    partitions: tuple[PartitionLag, ...]
    facts: GroupFacts = NOTHING_KNOWN

    @property
    def does_not_exist(self) -> bool:
        """Brokers describe a group nobody has heard of as dead."""
        return self.state in ("dead", "unknown") and not self.partitions and not self.members

    @property
    def only_shows_progress(self) -> bool:
        """Whether nobody ever joins it: offsets are committed there for others to see."""
        return self.group.startswith(SPARK_PREFIX) and not self.members

    @property
    def total_lag(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def behind_s(self) -> float | None:
        """How old the oldest message is that the group has yet to read."""
        return max((one.behind_s for one in self.partitions if one.behind_s is not None), default=None)


def list_groups(cluster: Cluster) -> list[Any]:
    """librdkafka's listing of every group, by name."""
    answer: Any = cluster.result(cluster.ask(cluster.admin.list_consumer_groups), "listing groups")
    return sorted(answer.valid, key=lambda one: one.group_id)


def view_groups(cluster: Cluster, names: Iterable[str]) -> list[GroupView]:
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return []
    futures = cluster.ask(cluster.admin.describe_consumer_groups, wanted)
    described = cluster.results(futures, "describing group")
    return [_view(cluster, name, described[name]) for name in wanted]


def with_delays(cluster: Cluster, view: GroupView) -> GroupView:
    """The same with every `behind_s`: one message of each partition that is behind is read for it."""
    waiting = {one.at: one.position for one in view.partitions if one.lag and one.position is not None}
    firsts = first_messages(cluster, waiting)
    now_ms = SystemClock().now_ms()

    def behind_s(one: PartitionLag) -> float | None:
        if one.at not in waiting:
            return None if one.lag is None else 0.0
        first_ms = firsts.get(one.at, NO_TIMESTAMP)
        if first_ms is None:
            return 0.0
        return None if first_ms == NO_TIMESTAMP else max(0, now_ms - first_ms) / 1000

    return replace(view, partitions=tuple(replace(one, behind_s=behind_s(one)) for one in view.partitions))


def _view(cluster: Cluster, name: str, described: Any) -> GroupView:
    members = tuple(_member(member) for member in described.members)
    owners = {at: member for member in members for at in member.partitions}
    committed = committed_offsets(cluster, name)
    partitions = sorted(owners.keys() | committed.keys())
    kind = described.type.name.lower()
    node = described.coordinator
    coordinator = None if node is None else Endpoint(node.host, node.port)
    starts, ends = find_offsets(cluster, partitions, EARLIEST), find_offsets(cluster, partitions, LATEST)
    return GroupView(
        name,
        described.state.name.lower().replace("_", " "),
        kind,
        described.partition_assignor or "",
        str(node).strip() if node is not None else None,
        members,
        tuple(
            PartitionLag(at, committed.get(at), starts[at].offset, ends[at].offset, owners.get(at), ends[at].error)
            for at in partitions
        ),
        ask_facts(cluster, name, kind == CONSUMER, coordinator),
    )


def _member(member: Any) -> Member:
    target = getattr(member, "target_assignment", None)
    return Member(
        member.member_id,
        member.client_id,
        # Java's brokers put a slash before an address that has no name.
        member.host.lstrip("/"),
        member.group_instance_id or None,
        _partitions(member.assignment),
        None if target is None else _partitions(target),
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    held = assignment.topic_partitions if assignment is not None else ()
    return tuple(sorted(TopicPartition(one.topic, one.partition) for one in held))
