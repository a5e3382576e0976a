"""What the log says of one consumer group: its epochs, members, target and patterns, and who holds which partition.

Called by groups.consumer_group, and for loading by groups.consumer_groups.
Invariants:
- `apply` is the only way facts change, in a running broker as in one that loads.
- Every partition that a member holds, or has yet to give back, has that member as its owner, and no other.
- Records of a compacted log may come in an order they were not written in: whoever is told of a partition last has it.
"""

from dataclasses import replace
from uuid import UUID

from penstock.groups.assignors import Assignment
from penstock.groups.consumer_group_records import (
    ConsumerGroupRecord,
    GroupEpochRecord,
    MemberRecord,
    PatternRecord,
    StandingRecord,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.groups.consumer_member import ConsumerMember, MemberProfile, Standing

_NO_PROFILE = MemberProfile()
_NEW = Standing()


class ConsumerFacts:
    __slots__ = ("epoch", "members", "metadata_hash", "owners", "patterns", "static_ids", "target", "target_epoch")

    def __init__(self) -> None:
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Assignment] = {}
        self.patterns: dict[str, frozenset[str]] = {}
        self.owners: dict[tuple[UUID, int], str] = {}
        self.static_ids: dict[str, str] = {}

    def copy(self) -> "ConsumerFacts":
        other = ConsumerFacts()
        other.epoch, other.metadata_hash, other.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        other.members = self.members.copy()
        other.target = self.target.copy()
        other.patterns = self.patterns.copy()
        other.owners = self.owners.copy()
        other.static_ids = self.static_ids.copy()
        return other

    def apply(self, record: ConsumerGroupRecord) -> None:
        match record:
            case GroupEpochRecord(_, value):
                self.epoch, self.metadata_hash = (0, 0) if value is None else value
            case TargetEpochRecord(_, value):
                self.target_epoch = 0 if value is None else value.epoch
            case TargetRecord(_, member_id, value):
                if value:
                    self.target[member_id] = value
                else:
                    self.target.pop(member_id, None)
            case PatternRecord(_, pattern, value):
                if value is None:
                    self.patterns.pop(pattern, None)
                else:
                    self.patterns[pattern] = value.topics
            case MemberRecord(_, member_id, value):
                self._apply_profile(member_id, value)
            case StandingRecord(_, member_id, value):
                self._apply_standing(member_id, value or _NEW)

    def drop_strays(self) -> None:
        """After loading: a standing without a profile is what compaction left of a member that is gone."""
        for member in list(self.members.values()):
            if member.profile is _NO_PROFILE:
                self._apply_profile(member.member_id, None)
        self.target = {member_id: part for member_id, part in self.target.items() if member_id in self.members}

    def _apply_profile(self, member_id: str, profile: MemberProfile | None) -> None:
        member = self.members.get(member_id)
        instance_id = None if member is None else member.profile.instance_id
        if instance_id is not None and self.static_ids.get(instance_id) == member_id:
            del self.static_ids[instance_id]
        if profile is None:
            self._apply_standing(member_id, _NEW)
            del self.members[member_id]
            return
        if profile.instance_id is not None:
            self.static_ids[profile.instance_id] = member_id
        if member is None:
            self.members[member_id] = ConsumerMember(member_id, profile, _NEW)
        else:
            self.members[member_id] = replace(member, profile=profile)

    def _apply_standing(self, member_id: str, standing: Standing) -> None:
        member = self.members.get(member_id)
        if member is None:
            member = ConsumerMember(member_id, _NO_PROFILE, _NEW)
        owners = self.owners
        for held in (member.standing.assigned, member.standing.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    if owners.get((topic_id, partition)) == member_id:
                        del owners[topic_id, partition]
        for held in (standing.assigned, standing.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    owners[topic_id, partition] = member_id
        self.members[member_id] = replace(member, standing=standing)
