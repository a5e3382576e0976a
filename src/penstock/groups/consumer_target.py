"""What a consumer group is to come to: the topics its members mean, and which of them shall read which partition.

Called by groups.consumer_group. Plain functions of the group's facts and of the topics there are.
"""

from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from uuid import UUID

from penstock.cluster.image import ClusterImage, Topic
from penstock.groups.assignors import ASSIGNORS, MemberSubscription
from penstock.groups.consumer_facts import ConsumerFacts
from penstock.groups.consumer_group_records import (
    ConsumerGroupRecord,
    PatternRecord,
    ResolvedPattern,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.groups.consumer_member import MemberProfile
from penstock.groups.subscription_regex import compile_pattern, resolve

Topics = Mapping[str, Topic]


def subscribed_names(facts: ConsumerFacts) -> set[str]:
    """By any member. Most members say the same, so each set of topics is looked at once."""
    names: set[str] = set()
    for topics, pattern in {(member.profile.topics, member.profile.pattern) for member in facts.members.values()}:
        names |= topics
        names |= facts.patterns.get(pattern, frozenset())
    return names


def subscribed_ids(facts: ConsumerFacts, profile: MemberProfile, topics: Topics) -> frozenset[UUID]:
    """Of the topics there are."""
    names = profile.topics | facts.patterns.get(profile.pattern, frozenset())
    return frozenset(topics[name].id for name in names if name in topics)


def metadata_hash(facts: ConsumerFacts, topics: Topics) -> int:
    """Of what the target is made from: another hash, another target. 0 if the group reads no topic that exists."""
    present = sorted(name for name in subscribed_names(facts) if name in topics)
    if not present:
        return 0
    digest = blake2b(digest_size=8)
    for name in present:
        topic = topics[name]
        digest.update(topic.id.bytes + len(topic.partitions).to_bytes(4))
    return int.from_bytes(digest.digest(), signed=True)


def match(pattern: str, image: ClusterImage, now_ms: int) -> ResolvedPattern:
    """Raises InvalidRegularExpression."""
    return ResolvedPattern(resolve(compile_pattern(pattern), image.topics), image.revision, now_ms)


def new_matches(group_id: str, facts: ConsumerFacts, image: ClusterImage, now_ms: int) -> list[PatternRecord]:
    """Of patterns that match other topics than they did."""
    resolved = {pattern: match(pattern, image, now_ms) for pattern in facts.patterns}
    return [
        PatternRecord(group_id, pattern, found)
        for pattern, found in resolved.items()
        if found.topics != facts.patterns[pattern]
    ]


def unused_patterns(group_id: str, facts: ConsumerFacts) -> list[PatternRecord]:
    """Tombstones of those that nobody subscribes with any more."""
    in_use = {member.profile.pattern for member in facts.members.values()} if facts.patterns else set[str]()
    return [PatternRecord(group_id, pattern, None) for pattern in facts.patterns if pattern not in in_use]


def preferred_assignor(facts: ConsumerFacts, allowed: tuple[str, ...]) -> str:
    """What most of those members want that want any; of several the first by name."""
    votes = Counter(name for member in facts.members.values() if (name := member.profile.assignor) in allowed)
    return min(votes, key=lambda name: (-votes[name], name)) if votes else allowed[0]


def new_target(
    group_id: str, facts: ConsumerFacts, assignor: str, topics: Topics, now_ms: int
) -> list[ConsumerGroupRecord]:
    """The target for the group's epoch: a record for each member whose part changes, then the epoch."""
    known: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
    members: list[MemberSubscription] = []
    for member_id, member in facts.members.items():
        profile = member.profile
        subscription = (profile.topics, profile.pattern)
        if subscription not in known:
            known[subscription] = subscribed_ids(facts, profile, topics)
        members.append(MemberSubscription(member_id, profile.instance_id, profile.rack, known[subscription]))
    sizes = {topic.id: len(topic.partitions) for name in subscribed_names(facts) if (topic := topics.get(name))}
    target = ASSIGNORS[assignor](members, facts.target, sizes)
    records: list[ConsumerGroupRecord] = [
        TargetRecord(group_id, member_id, part)
        for member_id, part in target.items()
        if part != facts.target.get(member_id, {})
    ]
    records.append(TargetEpochRecord(group_id, TargetEpoch(facts.epoch, now_ms)))
    return records
