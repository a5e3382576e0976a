"""A member of a consumer group: what it says of itself, where it stands, and what it asks and is answered.

Called by groups.consumer_group and all that serves it. Values only: whoever changes a member makes another.

A member says its profile, which is kept as one record, and the coordinator keeps its standing, which is another: its
epoch, the partitions it may read and those it has yet to give back. Each partition carries the epoch in which it was
given, so that a commit sent before the member heard of its newest epoch is known to be its own (KIP-1251).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from penstock.groups.assignors import Assignment

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2  # a static member that will be back within its session
UNCHANGED = -1  # for a time-out that a heartbeat does not repeat

Held = Mapping[UUID, Mapping[int, int]]  # partitions of topics, each with the epoch in which it was given
NOTHING_HELD: Held = {}


class MemberState(IntEnum):
    """Kafka's numbers, as the log has them."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # has yet to give partitions back, and stays in its epoch until then
    UNRELEASED_PARTITIONS = 2  # is in the target's epoch and waits for partitions that others have yet to give back
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicProfile:
    """Of a member that speaks the classic protocol, while its group is moved to the new one or back."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProfile:
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str = ""  # "" subscribes to nothing
    rebalance_timeout_ms: int = UNCHANGED
    assignor: str | None = None
    classic: ClassicProfile | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=lambda: NOTHING_HELD)
    revoking: Held = field(default_factory=lambda: NOTHING_HELD)

    def epoch_of(self, topic_id: UUID, partition: int) -> int | None:
        """In which epoch the partition was given to the member; None if it does not hold it."""
        for held in (self.assigned, self.revoking):
            given = held.get(topic_id, NOTHING_GIVEN).get(partition)
            if given is not None:
                return given
        return None


NOTHING_GIVEN: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    profile: MemberProfile
    standing: Standing

    @property
    def is_classic(self) -> bool:
        return self.profile.classic is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """None or UNCHANGED where the member has nothing new to say."""

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = UNCHANGED
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None

    @property
    def is_full(self) -> bool:
        """It repeats all it has to say, as after an error: it may have missed an answer."""
        has_subscription = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms != UNCHANGED and has_subscription and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None  # None: as before


def partitions_of(held: Held) -> Assignment:
    """Without the epochs: what a member is told."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in held.items() if partitions}
