"""Members of a consumer group that speak the classic protocol still: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Called by groups.consumer_groups, while a group is moved from one protocol to the other. A JoinGroup does for such a
member what a heartbeat does for the others, and is answered at once; the member's epoch is its generation. It is told
of a new target by REBALANCE_IN_PROGRESS, gives back what it no longer owns by joining again, and fetches what it was
given with SyncGroup. No member leads: the broker assigns.
"""

from collections.abc import Sequence

from penstock.coordination import Decision, Now, Waiter
from penstock.errors import ErrorCode
from penstock.groups.assignors import Assignment
from penstock.groups.classic_group import CONSUMER_PROTOCOL_TYPE, Step
from penstock.groups.consumer_deadlines import Awaited
from penstock.groups.consumer_draft import Draft, Terms
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import (
    ClassicProfile,
    ConsumerMember,
    MemberProfile,
    MemberState,
    Standing,
)
from penstock.groups.consumer_target import Topics
from penstock.groups.member import UNKNOWN_MEMBER, JoinReply, JoinRequest, Leaver, SyncReply, SyncRequest
from penstock.groups.subscription import TopicPartitions, read_subscription, write_assignment


def join(group: ConsumerGroup, request: JoinRequest, terms: Terms, waiter: Waiter, now: Now) -> Step:
    """The reply is a JoinReply. Raises GroupMaxSizeReached."""
    member_id = request.member_id or request.new_member_id
    code = _join_refusal(group, request)
    if code is ErrorCode.NONE and request.member_id == UNKNOWN_MEMBER and _must_know_its_id(request):
        code = ErrorCode.MEMBER_ID_REQUIRED
    subscription = read_subscription(request.protocols[0][1]) if request.protocols else None
    if code is ErrorCode.NONE and subscription is None:
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if subscription is None or code is not ErrorCode.NONE:
        return Step(replies=[(waiter, JoinReply(code, member_id))])
    draft = Draft(group.facts)
    before = _admit(group, draft, request, member_id, terms)
    profile = MemberProfile(
        instance_id=request.instance_id,
        rack=subscription.rack,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=ClassicProfile(request.session_timeout_ms, request.protocols),
    )
    member = group.update_profile(draft, before, profile, terms, now)
    group.retarget(draft, terms, now)
    member = group.bring_nearer(draft, member, _by_id(subscription.owned, terms.image.topics), terms, now)
    group.renew_session(member, terms, now)
    group.deadlines.met(member_id, Awaited.JOIN)
    group.deadlines.set(member_id, Awaited.SYNC, now.steady_ms + request.rebalance_timeout_ms)
    reply = JoinReply(ErrorCode.NONE, member_id, member.standing.epoch, CONSUMER_PROTOCOL_TYPE, request.protocols[0][0])
    return group.adopt(draft, [(waiter, reply)], now)


def sync(group: ConsumerGroup, request: SyncRequest, terms: Terms, waiter: Waiter, now: Now) -> Step:
    """The reply is a SyncReply."""
    code = _check(group, request.member_id, request.instance_id, request.generation)
    member = group.facts.members.get(request.member_id)
    classic = None if member is None else member.profile.classic
    if member is None or classic is None or code is not ErrorCode.NONE:
        return Decision(replies=[(waiter, SyncReply(code))], rests_on_earlier=True)
    protocol, metadata = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol not in (None, protocol):
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    elif member.standing.epoch < group.facts.epoch and not _is_giving_back(member):
        code = ErrorCode.REBALANCE_IN_PROGRESS
        _expect_join(group, member, now)
    if code is not ErrorCode.NONE:
        return Decision(replies=[(waiter, SyncReply(code))], rests_on_earlier=True)
    group.deadlines.met(request.member_id, Awaited.SYNC)
    group.renew_session(member, terms, now)
    subscription = read_subscription(metadata)
    by_id = terms.image.topics_by_id
    held = [(by_id[topic_id].name, held) for topic_id, held in member.standing.assigned.items() if topic_id in by_id]
    assignment = write_assignment(0 if subscription is None else subscription.version, held)
    reply = SyncReply(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, protocol, assignment)
    return Decision(replies=[(waiter, reply)], rests_on_earlier=True)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, terms: Terms, now: Now
) -> ErrorCode:
    code = _check(group, member_id, instance_id, generation)
    if code is not ErrorCode.NONE:
        return code
    member = group.facts.members[member_id]
    group.renew_session(member, terms, now)
    if member.standing.epoch < group.facts.epoch or _could_get_more(group, member):
        _expect_join(group, member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leavers(group: ConsumerGroup, asked: Sequence[Leaver]) -> tuple[list[str], list[ErrorCode]]:
    """Who is to be removed, and a code for each that asked. Also members of the new protocol: an administrator may."""
    removed: list[str] = []
    codes: list[ErrorCode] = []
    for leaver in asked:
        member_id = leaver.member_id
        code = ErrorCode.NONE
        if leaver.instance_id is not None:
            holder_id = group.facts.static_ids.get(leaver.instance_id)
            if holder_id is None:
                code = ErrorCode.UNKNOWN_MEMBER_ID
            elif member_id not in (UNKNOWN_MEMBER, holder_id):
                code = ErrorCode.FENCED_INSTANCE_ID
            else:
                member_id = holder_id
        member = group.facts.members.get(member_id)
        if code is ErrorCode.NONE and (member is None or (leaver.instance_id is None and not member.is_classic)):
            code = ErrorCode.UNKNOWN_MEMBER_ID
        codes.append(code)
        if code is ErrorCode.NONE and member_id not in removed:
            removed.append(member_id)
    return removed, codes


def _join_refusal(group: ConsumerGroup, request: JoinRequest) -> ErrorCode:
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not request.protocols:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    common = {name for name, _ in request.protocols}
    for member_id, member in group.facts.members.items():
        if member.profile.classic is not None and member_id != request.member_id:
            common &= {name for name, _ in member.profile.classic.protocols}
    if not common:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.instance_id is None or request.member_id == UNKNOWN_MEMBER:
        return ErrorCode.NONE
    holder_id = group.facts.static_ids.get(request.instance_id)
    if holder_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if holder_id == request.member_id else ErrorCode.FENCED_INSTANCE_ID


def _must_know_its_id(request: JoinRequest) -> bool:
    return request.must_know_its_id and request.instance_id is None


def _admit(group: ConsumerGroup, draft: Draft, request: JoinRequest, member_id: str, terms: Terms) -> ConsumerMember:
    holder_id = None if request.instance_id is None else group.facts.static_ids.get(request.instance_id)
    if holder_id is not None and holder_id != member_id:
        return group.replace_static(draft, group.facts.members[holder_id], member_id)
    group.check_size(member_id, terms)
    member = group.facts.members.get(member_id)
    return ConsumerMember(member_id, MemberProfile(), Standing()) if member is None else member


def _check(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    if instance_id is not None:
        holder_id = group.facts.static_ids.get(instance_id)
        if holder_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = group.facts.members.get(member_id)
    if member is None or not member.is_classic:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if generation == member.standing.epoch else ErrorCode.ILLEGAL_GENERATION


def _is_giving_back(member: ConsumerMember) -> bool:
    return member.standing.state is MemberState.UNREVOKED_PARTITIONS


def _could_get_more(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """It waited for partitions, and all of them have been given back."""
    if member.standing.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    owners = group.facts.owners
    for topic_id, partitions in group.facts.target.get(member.member_id, {}).items():
        if any(owners.get((topic_id, partition)) not in (None, member.member_id) for partition in partitions):
            return False
    return True


def _expect_join(group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
    at_ms = now.steady_ms + member.profile.rebalance_timeout_ms
    group.deadlines.set_if_none(member.member_id, Awaited.JOIN, at_ms)


def _by_id(partitions: TopicPartitions, topics: Topics) -> Assignment:
    return {topics[name].id: frozenset(indexes) for name, indexes in partitions if name in topics}
