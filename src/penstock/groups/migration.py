"""Groups that change their protocol while they run: a classic group becomes a consumer group, and back.

Called by groups.consumer_groups. Both give the group that is to be and the records that make it so; the group that was
stays as it is, since the log may refuse them.
"""

from uuid import UUID

from penstock.cluster.image import ClusterImage
from penstock.coordination import Now
from penstock.errors import GroupIdNotFound
from penstock.groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from penstock.groups.consumer_draft import Draft, Terms
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_group_records import (
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    StandingRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.groups.consumer_member import ClassicProfile, MemberProfile, Standing
from penstock.groups.consumer_target import metadata_hash
from penstock.groups.group_records import CoordinatorRecord, GroupMetadata, GroupRecord, MemberMetadata
from penstock.groups.member import Member
from penstock.groups.subscription import read_assignment, read_subscription, write_assignment

# What these put beside an assignment nobody needs: librdkafka's sticky ones repeat the member's own subscription there.
ASSIGNORS_WITHOUT_DATA = ("range", "roundrobin", "sticky", "cooperative-sticky")


def to_consumer_group(classic: ClassicGroup, terms: Terms, now: Now) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
    """Members keep what they were assigned last, in an epoch that is their generation. Raises GroupIdNotFound."""
    group_id, epoch = classic.group_id, classic.generation
    group = ConsumerGroup(group_id)
    draft = Draft(group.facts)
    taken: set[tuple[UUID, int]] = set()
    standings: dict[str, Standing] = {}
    for member in classic.members:
        draft.write(MemberRecord(group_id, member.member_id, _profile(classic, member)))
        held = _held(classic, member, taken, terms.image)
        standings[member.member_id] = Standing(epoch, epoch, assigned=held)
    hashed = metadata_hash(draft.facts, terms.image.topics)
    draft.write(GroupEpochRecord(group_id, GroupEpoch(epoch, hashed)))
    for member_id, standing in standings.items():
        target = {topic_id: frozenset(partitions) for topic_id, partitions in standing.assigned.items()}
        draft.write(TargetRecord(group_id, member_id, target))
    draft.write(TargetEpochRecord(group_id, TargetEpoch(epoch, now.wall_ms)))
    for member_id, standing in standings.items():
        draft.write(StandingRecord(group_id, member_id, standing))
    group.facts = draft.facts
    for member in group.facts.members.values():
        group.renew_session(member, terms, now)
    return group, [GroupRecord(group_id, None), *draft.records]


def _profile(classic: ClassicGroup, member: Member) -> MemberProfile:
    metadata = member.protocols.get(classic.protocol or "")
    if metadata is None:
        metadata = next(iter(member.protocols.values()), b"")
    subscription = read_subscription(metadata)
    if subscription is None:
        raise GroupIdNotFound(f"group {classic.group_id} stays classic: member {member.member_id} is no consumer")
    return MemberProfile(
        instance_id=member.instance_id,
        rack=subscription.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicProfile(member.session_timeout_ms, tuple(member.protocols.items())),
    )


def _held(
    classic: ClassicGroup, member: Member, taken: set[tuple[UUID, int]], image: ClusterImage
) -> dict[UUID, dict[int, int]]:
    """What the members' own leader gave it. Of partitions given twice, which the log cannot say, the first has it."""
    given = read_assignment(member.assignment)
    if given is None or (given.has_user_data and classic.protocol not in ASSIGNORS_WITHOUT_DATA):
        raise GroupIdNotFound(
            f"group {classic.group_id} stays classic: the assignment of member {member.member_id} cannot be read, "
            "or carries data that only its own assignor understands"
        )
    held: dict[UUID, dict[int, int]] = {}
    for name, indexes in given.partitions:
        topic = image.topics.get(name)
        if topic is None:
            continue
        for index in indexes:
            if index < len(topic.partitions) and (topic.id, index) not in taken:
                taken.add((topic.id, index))
                held.setdefault(topic.id, {})[index] = classic.generation
    return held


def to_classic_group(
    group: ConsumerGroup, leaving: set[str], initial_delay_ms: int, size_max: int, image: ClusterImage, now: Now
) -> tuple[ClassicGroup, list[CoordinatorRecord]]:
    """All that stay speak the classic protocol: they go on with what they hold, and are asked to join anew."""
    members: list[MemberMetadata] = []
    protocols: dict[str, dict[str, bytes]] = {}
    for member_id, member in group.facts.members.items():
        profile = member.profile
        if member_id in leaving or profile.classic is None:
            continue
        protocols[member_id] = dict(profile.classic.protocols)
        subscription = read_subscription(profile.classic.protocols[0][1])
        held = [
            (image.topics_by_id[topic_id].name, partitions)
            for topic_id, partitions in member.standing.assigned.items()
            if topic_id in image.topics_by_id
        ]
        members.append(
            MemberMetadata(
                member_id,
                profile.instance_id,
                profile.client_id,
                profile.client_host,
                profile.rebalance_timeout_ms,
                profile.classic.session_timeout_ms,
                b"",
                write_assignment(0 if subscription is None else subscription.version, held),
            )
        )
    protocol = next(
        (name for name in protocols[members[0].member_id] if all(name in offered for offered in protocols.values())),
        None,
    )
    saved = tuple(
        member._replace(subscription=protocols[member.member_id].get(protocol or "", b"")) for member in members
    )
    metadata = GroupMetadata(
        CONSUMER_PROTOCOL_TYPE, group.facts.epoch, protocol, members[0].member_id, now.wall_ms, saved
    )
    classic = ClassicGroup.restored(group.group_id, metadata, initial_delay_ms, size_max)
    for member in classic.members:
        classic.members.set_protocols(member, protocols[member.member_id])
    return classic, [*group.tombstones(), GroupRecord(group.group_id, metadata)]
