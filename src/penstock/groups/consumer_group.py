"""One group of the consumer protocol (KIP-848). Rules only: no clock, no I/O.

Called by groups.consumer_groups. A method takes a request and the time and gives a decision. What the decision's
records say is true for the next one at once, so that requests need not wait for each other's records; it is taken
back if the log refuses them, and no answer leaves before the records it rests on are committed.

A group's epoch rises when members or topics change; the target is made anew for that epoch with the next heartbeat;
each member is brought there by its own heartbeats.
Invariants:
- The epochs of the group and of its target never fall, and no member is ahead of the target.
- A partition has one owner at most, until that one has given it back or is out of the group.
- A static instance has one member id.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from penstock.coordination import Decision, Now, Reply, Waiter
from penstock.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from penstock.groups.assignors import Assignment
from penstock.groups.classic_group import CONSUMER_PROTOCOL_TYPE, Step
from penstock.groups.consumer_deadlines import Awaited, Deadlines
from penstock.groups.consumer_draft import Draft, Terms
from penstock.groups.consumer_facts import ConsumerFacts
from penstock.groups.consumer_group_records import (
    ConsumerGroupRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    PatternRecord,
    StandingRecord,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.groups.consumer_member import (
    JOIN_EPOCH,
    NOTHING_HELD,
    STATIC_LEAVE_EPOCH,
    UNCHANGED,
    ConsumerMember,
    HeartbeatReply,
    HeartbeatRequest,
    MemberProfile,
    MemberState,
    Standing,
    partitions_of,
)
from penstock.groups.consumer_target import (
    match,
    metadata_hash,
    new_matches,
    new_target,
    preferred_assignor,
    subscribed_ids,
    subscribed_names,
    unused_patterns,
)
from penstock.groups.group_state import ASSIGNING, DEAD, EMPTY, RECONCILING, STABLE, GroupState
from penstock.groups.member import UNKNOWN_MEMBER
from penstock.groups.rebalance_cause import Cause, CauseKind, RebalanceCause
from penstock.groups.reconciliation import reconcile

RETRY_MS = 1_000
NEVER = -1
MISSED = {
    Awaited.HEARTBEAT: "no heartbeat in time from",
    Awaited.REVOCATION: "partitions not given back in time by",
    Awaited.JOIN: "no JoinGroup in time from",
    Awaited.SYNC: "no SyncGroup in time from",
}


class ConsumerGroup:
    __slots__ = (
        "_behind",
        "_is_deleted",
        "_topics_seen",
        "deadlines",
        "facts",
        "group_id",
        "last_rebalance",
        "rebalances",
        "state_ms",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.facts = ConsumerFacts()
        self.deadlines = Deadlines()
        self.rebalances = 0
        self.last_rebalance: RebalanceCause | None = None
        self.state_ms = -1  # since when it has no members, for offsets to be kept from then on
        # Who has not said yet that it holds what it was given, neither more nor less.
        self._behind: set[str] = set()
        self._topics_seen = NEVER  # which version of the topics it was last compared with
        self._is_deleted = False

    def resume(self, terms: Terms, now: Now) -> None:
        """After loading: sessions start anew, and topics may have changed while nobody looked."""
        self.facts.drop_strays()
        self.state_ms = now.wall_ms
        for member in self.facts.members.values():
            self.renew_session(member, terms, now)
            self._watch_revocation(member, now)

    # Heartbeats

    def heartbeat(self, request: HeartbeatRequest, terms: Terms, waiter: Waiter, now: Now) -> Step:
        """The reply is a HeartbeatReply. Raises what is wrong with the request."""
        self._check_not_deleted()
        draft = Draft(self.facts)
        before = self._admit(draft, request, terms)
        member = self.update_profile(draft, before, _updated(before.profile, request), terms, now)
        self.retarget(draft, terms, now)
        member = self.bring_nearer(draft, member, request.owned, terms, now)
        self.renew_session(member, terms, now)
        reply = HeartbeatReply(
            member.member_id,
            member.standing.epoch,
            terms.heartbeat_interval_ms,
            partitions_of(member.standing.assigned) if self._must_tell(before, member, request) else None,
        )
        return self.adopt(draft, [(waiter, reply)], now)

    def _must_tell(self, before: ConsumerMember, member: ConsumerMember, request: HeartbeatRequest) -> bool:
        """Whether the member may not know its assignment.

        Kafka tells it once, when it changes. A heartbeat that arrives late, and whose answer goes to a connection that
        is no more, would take the news with it; so here it is told until it says that it holds just that.
        """
        assigned, owned = member.standing.assigned, request.owned
        if assigned != before.standing.assigned or (owned is not None and owned != partitions_of(assigned)):
            self._behind.add(member.member_id)
        elif owned is not None:
            self._behind.discard(member.member_id)
        return request.member_epoch == JOIN_EPOCH or request.is_full or member.member_id in self._behind

    def leave_for_now(self, member: ConsumerMember, reply: Reply, now: Now) -> Step:
        """A static member goes and will be back as the same instance: what it holds waits for it."""
        self._check_not_deleted()
        draft = Draft(self.facts)
        gone = replace(member.standing, epoch=STATIC_LEAVE_EPOCH, revoking=NOTHING_HELD)
        draft.write(StandingRecord(self.group_id, member.member_id, gone))
        self.deadlines.met(member.member_id, Awaited.REVOCATION)
        return self.adopt(draft, [reply], now)

    def put_out(self, member_ids: Sequence[str], cause: Cause, terms: Terms, replies: list[Reply], now: Now) -> Step:
        draft = Draft(self.facts)
        for member_id in member_ids:
            for record in _tombstones(self.group_id, member_id):
                draft.write(record)
            self.deadlines.forget(member_id)
            self._behind.discard(member_id)
        self._raise_epoch_if_due(draft, cause, terms, now)
        if not draft.facts.members:
            self.state_ms = now.wall_ms
        return self.adopt(draft, replies, now)

    def leaver(self, request: HeartbeatRequest) -> ConsumerMember:
        if request.instance_id is not None:
            return self._holder(request.instance_id, request.member_id)
        return self.member(request.member_id)

    def member(self, member_id: str) -> ConsumerMember:
        member = self.facts.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"member {member_id} is not in group {self.group_id}")
        return member

    def check_size(self, member_id: str, terms: Terms) -> None:
        if len(self.facts.members) >= terms.size_max and member_id not in self.facts.members:
            raise GroupMaxSizeReached(f"group {self.group_id} has {terms.size_max} members and takes no more")

    def _admit(self, draft: Draft, request: HeartbeatRequest, terms: Terms) -> ConsumerMember:
        """The member that speaks: known, new, or a static one under its new id."""
        member_id, instance_id = request.member_id, request.instance_id
        is_joining = request.member_epoch == JOIN_EPOCH
        holder_id = None if instance_id is None else self.facts.static_ids.get(instance_id)
        if is_joining and holder_id is not None and holder_id != member_id:
            holder = self.facts.members[holder_id]
            if not holder.is_classic and holder.standing.epoch != STATIC_LEAVE_EPOCH:
                raise UnreleasedInstanceId(f"instance {instance_id} is member {holder_id}, which has not left")
            return self.replace_static(draft, holder, member_id)
        self.check_size(member_id, terms)
        if instance_id is not None and not is_joining:
            member = self._holder(instance_id, member_id)
        elif is_joining:
            member = self.facts.members.get(member_id) or ConsumerMember(member_id, MemberProfile(), Standing())
        else:
            member = self.member(member_id)
        _check_epoch(member, request)
        return member

    def _holder(self, instance_id: str, member_id: str) -> ConsumerMember:
        holder_id = self.facts.static_ids.get(instance_id)
        if holder_id is None:
            raise UnknownMemberId(f"instance {instance_id} is not in group {self.group_id}")
        if holder_id != member_id:
            raise FencedInstanceId(f"instance {instance_id} is member {holder_id} by now")
        return self.facts.members[holder_id]

    def replace_static(self, draft: Draft, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """The same instance under a new id: it takes over what the old one had, in an epoch of its own."""
        group_id = self.group_id
        target = draft.facts.target.get(old.member_id, {})
        standing = replace(old.standing, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        self._behind.discard(old.member_id)
        for record in _tombstones(group_id, old.member_id):
            draft.write(record)
        draft.write(MemberRecord(group_id, member_id, old.profile))
        draft.write(TargetRecord(group_id, member_id, target))
        draft.write(StandingRecord(group_id, member_id, standing))
        return draft.facts.members[member_id]

    def update_profile(
        self, draft: Draft, member: ConsumerMember, profile: MemberProfile, terms: Terms, now: Now
    ) -> ConsumerMember:
        """Keep what the member says of itself, and raise the group's epoch if it means other topics now."""
        old = member.profile
        is_new = member.member_id not in draft.facts.members
        cause = None
        if profile.pattern != old.pattern or profile.topics != old.topics:
            kind, what = (CauseKind.JOINED, "joined") if is_new else (CauseKind.REJOINED, "changed its subscription")
            cause = Cause(kind, f"member {member.member_id} {what}")
        if profile.pattern not in ("", old.pattern) and profile.pattern not in draft.facts.patterns:
            draft.write(PatternRecord(self.group_id, profile.pattern, match(profile.pattern, terms.image, now.wall_ms)))
        if is_new or profile != old:
            draft.write(MemberRecord(self.group_id, member.member_id, profile))
        if draft.facts.epoch == 0:
            cause = cause or Cause(CauseKind.JOINED, "the group is new")
        if cause is not None or self._topics_seen != terms.topics_version:
            self._raise_epoch_if_due(draft, cause, terms, now)
        return draft.facts.members[member.member_id]

    def _raise_epoch_if_due(self, draft: Draft, cause: Cause | None, terms: Terms, now: Now) -> None:
        """Without a cause of its own only if its topics are others than they were."""
        for record in unused_patterns(self.group_id, draft.facts):
            draft.write(record)
        if self._topics_seen != terms.topics_version:
            for record in new_matches(self.group_id, draft.facts, terms.image, now.wall_ms):
                draft.write(record)
        draft.topics_seen = terms.topics_version
        hashed = metadata_hash(draft.facts, terms.image.topics)
        if cause is not None or hashed != draft.facts.metadata_hash:
            self.raise_epoch(draft, cause or Cause(CauseKind.TOPICS_CHANGED, "its topics changed"), hashed, now)

    def raise_epoch(self, draft: Draft, cause: Cause, hashed: int, now: Now) -> None:
        draft.write(GroupEpochRecord(self.group_id, GroupEpoch(draft.facts.epoch + 1, hashed)))
        self.rebalances += 1
        self.last_rebalance = cause.began(now.wall_ms)

    def retarget(self, draft: Draft, terms: Terms, now: Now) -> None:
        facts = draft.facts
        if facts.epoch > facts.target_epoch:
            assignor = preferred_assignor(facts, terms.assignors)
            for record in new_target(self.group_id, facts, assignor, terms.image.topics, now.wall_ms):
                draft.write(record)

    def bring_nearer(
        self, draft: Draft, member: ConsumerMember, owned: Assignment | None, terms: Terms, now: Now
    ) -> ConsumerMember:
        """One step from what the member holds to its part of the target."""
        facts, standing = draft.facts, member.standing
        if standing.state is MemberState.STABLE and standing.epoch == facts.target_epoch:
            return member
        member_id = member.member_id
        moved = reconcile(
            member_id,
            standing,
            facts.target_epoch,
            facts.target.get(member_id, {}),
            subscribed_ids(facts, member.profile, terms.image.topics),
            owned,
            facts.owners.get,
        )
        if moved == standing:
            return member
        for held in (moved.assigned, moved.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    assert facts.owners.get((topic_id, partition)) in (None, member_id)
        draft.write(StandingRecord(self.group_id, member_id, moved))
        member = draft.facts.members[member_id]
        self._watch_revocation(member, now)
        return member

    def adopt(self, draft: Draft, replies: list[Reply], now: Now) -> Step:
        """The draft's facts are those of the group from here on, unless its records are refused."""
        before, after = self.facts, draft.facts
        self.facts = after
        if draft.topics_seen is not None:
            self._topics_seen = draft.topics_seen

        def undo(_code: ErrorCode) -> Sequence[Reply]:
            assert self.facts is after, "what was decided on top of this was to be taken back first"
            self.facts = before
            self._topics_seen = NEVER
            self.expect_again(now)
            return ()

        return Decision(list(draft.records), replies, undo if draft.records else None, rests_on_earlier=True)

    def expect_again(self, now: Now) -> None:
        """Who was to go is still here, since the log refused it; silent, it is put out a little later."""
        for member_id in self.facts.members:
            self.deadlines.set_if_none(member_id, Awaited.HEARTBEAT, now.steady_ms + RETRY_MS)

    # Offsets

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        partitions: Iterable[tuple[UUID, int]],
        *,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """May this member, or a client that is none, commit offsets for these partitions now?"""
        if self._is_deleted:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if epoch < 0 and (not self.facts.members or (is_transactional and member_id == UNKNOWN_MEMBER)):
            return ErrorCode.NONE
        member = self.facts.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        standing = member.standing
        if epoch == standing.epoch:
            return ErrorCode.NONE
        if member.is_classic:
            return ErrorCode.ILLEGAL_GENERATION
        if epoch > standing.epoch:
            return ErrorCode.STALE_MEMBER_EPOCH
        # It has not heard of its newest epoch yet; what it held before and still holds is its own all the same.
        for partition in partitions:
            given = standing.epoch_of(*partition)
            if given is None or given > epoch:
                return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """May whoever says this of itself be told offsets? Who says nothing may."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.facts.members.get(member_id or UNKNOWN_MEMBER)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.standing.epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    # Time

    def renew_session(self, member: ConsumerMember, terms: Terms, now: Now) -> None:
        classic = member.profile.classic
        timeout_ms = terms.session_timeout_ms if classic is None else classic.session_timeout_ms
        self.deadlines.set(member.member_id, Awaited.HEARTBEAT, now.steady_ms + timeout_ms)

    def _watch_revocation(self, member: ConsumerMember, now: Now) -> None:
        if member.standing.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
            at_ms = now.steady_ms + member.profile.rebalance_timeout_ms
            self.deadlines.set(member.member_id, Awaited.REVOCATION, at_ms)
        else:
            self.deadlines.met(member.member_id, Awaited.REVOCATION)

    def next_deadline_ms(self) -> int | None:
        return self.deadlines.next_ms()

    def late_members(self, now: Now) -> tuple[list[str], Cause]:
        """Those to be put out of the group, and why."""
        late: list[str] = []
        causes: list[str] = []
        for member_id, awaited in self.deadlines.missed(now.steady_ms):
            if member_id in self.facts.members:
                late.append(member_id)
                causes.append(f"{MISSED[awaited]} {member_id}")
            else:
                # The log refused its joining.
                self.deadlines.forget(member_id)
        return late, Cause(CauseKind.TIMED_OUT, "; ".join(causes))

    # The end

    def delete(self) -> None:
        """From here on nobody can join; the group is gone once its tombstones are committed."""
        assert not self.facts.members
        self._is_deleted = True

    def deletion_refused(self) -> None:
        self._is_deleted = False

    def tombstones(self) -> list[ConsumerGroupRecord]:
        """Of everything the log has of it; the epoch last, since with it the group ends."""
        records: list[ConsumerGroupRecord] = []
        for member_id in self.facts.members:
            records += _tombstones(self.group_id, member_id)
        records += [PatternRecord(self.group_id, pattern, None) for pattern in self.facts.patterns]
        return [*records, TargetEpochRecord(self.group_id, None), GroupEpochRecord(self.group_id, None)]

    def _check_not_deleted(self) -> None:
        if self._is_deleted:
            raise CoordinatorNotAvailable(f"group {self.group_id} is being deleted")

    # What it knows

    @property
    def state(self) -> GroupState:
        facts = self.facts
        if self._is_deleted:
            return DEAD
        if not facts.members:
            return EMPTY
        if facts.epoch > facts.target_epoch:
            return ASSIGNING
        for member in facts.members.values():
            standing = member.standing
            if standing.state is not MemberState.STABLE or standing.epoch != facts.target_epoch:
                return RECONCILING
        return STABLE

    @property
    def is_saved(self) -> bool:
        return self.facts.epoch > 0

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def is_simple(self) -> bool:
        return False

    @property
    def has_pending_members(self) -> bool:
        return False

    @property
    def last_rebalance_cause(self) -> str:
        return "" if self.last_rebalance is None else self.last_rebalance.reason

    def waiters(self) -> list[Waiter]:
        """Nobody waits for another member in this protocol."""
        return []

    def assignor(self, allowed: tuple[str, ...]) -> str:
        return preferred_assignor(self.facts, allowed)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in subscribed_names(self.facts)


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    """Let the member's own epoch pass, and the one before if the answer with the new one may have been lost."""
    said, known = request.member_epoch, member.standing.epoch
    if said in (known, JOIN_EPOCH):
        return
    if said == member.standing.previous_epoch and said < known and request.owned is not None:
        assigned = partitions_of(member.standing.assigned)
        if all(partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in request.owned.items()):
            return
    raise FencedMemberEpoch(f"member {member.member_id} says epoch {said} and is in {known}: it must join anew")


def _updated(profile: MemberProfile, request: HeartbeatRequest) -> MemberProfile:
    timeout_ms = request.rebalance_timeout_ms
    return MemberProfile(
        instance_id=profile.instance_id if request.instance_id is None else request.instance_id,
        rack=profile.rack if request.rack is None else request.rack,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=profile.topics if request.topics is None else request.topics,
        pattern=profile.pattern if request.pattern is None else request.pattern,
        rebalance_timeout_ms=profile.rebalance_timeout_ms if timeout_ms == UNCHANGED else timeout_ms,
        assignor=profile.assignor if request.assignor is None else request.assignor,
        classic=None,
    )


def _tombstones(group_id: str, member_id: str) -> tuple[ConsumerGroupRecord, ...]:
    return (
        StandingRecord(group_id, member_id, None),
        TargetRecord(group_id, member_id, None),
        MemberRecord(group_id, member_id, None),
    )
