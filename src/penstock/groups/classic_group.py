"""One group of the classic protocol: who is in it, which generation, who waits for what. Rules only: no clock, no I/O.

Called by groups.group_shard. A method takes a request and the time and gives a Decision; a waiter it was handed is
answered in that decision or a later one. Deadlines are kept as numbers: the caller asks next_deadline_ms() and
calls tick() then.

A rebalance lives in memory alone, as in Kafka: a crash ends it and its members join again. What others build on, a
generation with its assignment, is a record, and counts only once committed() says that the record is.

Invariants:
- The generation never falls.
- A generation has one leader, and one assignment: the first the leader sent.
- A static instance has one member id; whoever comes with an older one is fenced.
"""

from collections.abc import Sequence

from penstock.coordination import Decision, Now, Reply, Waiter
from penstock.errors import ErrorCode
from penstock.groups import classic_refusals as refusals
from penstock.groups.group_records import CoordinatorRecord, GroupMetadata, GroupRecord
from penstock.groups.group_state import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, TRANSITIONS, Event
from penstock.groups.join_window import JoinWindow
from penstock.groups.member import (
    UNKNOWN_MEMBER,
    JoinedMember,
    JoinReply,
    JoinRequest,
    Leaver,
    Member,
    SyncReply,
    SyncRequest,
    protocols_of,
)
from penstock.groups.rebalance_cause import Cause, CauseKind, RebalanceCause
from penstock.groups.roster import Roster

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
CONSUMER_PROTOCOL_TYPE = "consumer"

Step = Decision[CoordinatorRecord]


class ClassicGroup:
    __slots__ = (
        "_assignment_in_flight",
        "_join_window",
        "_pending_sync",
        "_sync_deadline_ms",
        "generation",
        "group_id",
        "is_saved",
        "last_rebalance",
        "members",
        "pending",
        "protocol",
        "protocol_type",
        "rebalances",
        "size_max",
        "state",
        "state_ms",
    )

    def __init__(self, group_id: str, initial_delay_ms: int = 0, size_max: int = 2**31 - 1) -> None:
        self.group_id = group_id
        self.size_max = size_max
        self.state = EMPTY
        self.state_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = Roster()
        self.is_saved = False  # the log holds a record of this group, or is about to
        self.rebalances = 0
        self.last_rebalance: RebalanceCause | None = None
        # Ids given out and not yet used to join: until when the group waits for each.
        self.pending: dict[str, int] = {}
        self._pending_sync: set[str] = set()
        self._sync_deadline_ms: int | None = None
        self._join_window = JoinWindow(initial_delay_ms)
        self._assignment_in_flight = False

    @classmethod
    def restored(cls, group_id: str, saved: GroupMetadata, initial_delay_ms: int, size_max: int) -> "ClassicGroup":
        group = cls(group_id, initial_delay_ms, size_max)
        group.is_saved = True
        group.protocol_type = saved.protocol_type or None
        group.generation = saved.generation
        group.protocol = saved.protocol
        group.state_ms = saved.state_ms
        for member in saved.members:
            group.members.add(Member.restored(member, saved.protocol_type, saved.protocol))
        if saved.leader is not None and saved.leader in group.members:
            group.members.leader = saved.leader
        group.state = STABLE if group.members else EMPTY
        return group

    def resume(self, now: Now) -> Step:
        """After loading: sessions start anew, since nobody could heartbeat while the coordinator was away."""
        step = Step()
        for member in self.members:
            member.renew_session(now)
        if len(self.members) > self.size_max:
            self._prepare_rebalance(step, Cause(CauseKind.OTHER, "more members than group.max.size"), now)
        return step

    def rebalance(self, step: Step, cause: Cause, now: Now) -> None:
        """From outside: the group was made of one of the other protocol."""
        self._prepare_rebalance(step, cause, now)

    def release_all(self) -> list[Reply]:
        """The group goes on in the other protocol: who waits here shall join anew."""
        step = Step()
        for member in self.members:
            if member.joining is not None:
                step.replies.append((member.joining, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))
            if member.syncing is not None:
                step.replies.append((member.syncing, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)))
            member.joining = member.syncing = None
        return step.replies

    @property
    def last_rebalance_cause(self) -> str:
        return "" if self.last_rebalance is None else self.last_rebalance.reason

    # Joining

    def join(self, request: JoinRequest, waiter: Waiter, now: Now) -> Step:
        step = Step()
        code = refusals.of_join(self, request)
        if code is ErrorCode.GROUP_MAX_SIZE_REACHED and request.member_id in self.members:
            self._remove(step, request.member_id)
            self._complete_join_if_ready(step, now)
        if code is not ErrorCode.NONE:
            member_id = UNKNOWN_MEMBER if code is ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id
            step.replies.append((waiter, JoinReply(code, member_id)))
        elif request.member_id != UNKNOWN_MEMBER:
            self._join_known(step, request, waiter, now)
        elif request.instance_id is not None:
            old_id = self.members.static_id(request.instance_id)
            if old_id is None:
                self._add(step, request, request.new_member_id, waiter, now)
            else:
                self._replace_static(step, request, old_id, waiter, now)
        elif request.must_know_its_id:
            self.pending[request.new_member_id] = now.steady_ms + request.session_timeout_ms
            step.replies.append((waiter, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)))
        else:
            self._add(step, request, request.new_member_id, waiter, now)
        return step

    def _join_known(self, step: Step, request: JoinRequest, waiter: Waiter, now: Now) -> None:
        member_id = request.member_id
        if self.pending.pop(member_id, None) is not None:
            self._add(step, request, member_id, waiter, now)
            return
        member = self.members[member_id]
        unchanged = member.supports_as_before(request)
        if self.state is PREPARING:
            self._update(step, member, request, waiter)
            self._complete_join_if_ready(step, now)
        elif unchanged and (self.state is COMPLETING or member_id != self.members.leader):
            # The reply to its last JoinGroup was lost, or it does not know that all is well: tell it once more.
            member.renew_session(now)
            step.replies.append((waiter, self._join_reply(member_id)))
        else:
            self._update(step, member, request, waiter)
            what = "leader" if unchanged else "changed member"
            reason = f"{what} {member_id} joined again{_because(request.reason)}"
            self._prepare_rebalance(step, Cause(CauseKind.REJOINED, reason), now)

    def _add(self, step: Step, request: JoinRequest, member_id: str, waiter: Waiter, now: Now) -> None:
        if not self.members:
            self.protocol_type = request.protocol_type
        member = Member(member_id, request)
        member.is_new = True
        member.session_deadline_ms = now.steady_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        member.joining = waiter
        self.members.add(member)
        if self.state is PREPARING:
            self._join_window.somebody_joined()
            self._complete_join_if_ready(step, now)
        else:
            reason = f"member {member_id} joined{_because(request.reason)}"
            self._prepare_rebalance(step, Cause(CauseKind.JOINED, reason), now)

    def _update(self, step: Step, member: Member, request: JoinRequest, waiter: Waiter) -> None:
        if member.joining is not None:
            # It asked again, on another connection most likely: nobody shall wait for ever on the first.
            step.replies.append((member.joining, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))
        member.joining = waiter
        self.members.set_protocols(member, protocols_of(request))
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def _replace_static(self, step: Step, request: JoinRequest, old_id: str, waiter: Waiter, now: Now) -> None:
        old = self.members[old_id]
        leader_before = self.members.leader
        self._fence(step, old)
        new = Member(request.new_member_id, request)
        new.assignment = old.assignment
        new.renew_session(now)
        self._swap(old, new)
        if self.state is STABLE and self.members.elect_protocol() == self.protocol:
            # The instance came back and nothing else changed: it takes over the assignment without a rebalance.
            skips = request.may_skip_assignment and self.members.leader == new.member_id
            # An older client that saw itself named leader would assign anew; the former name makes it a follower.
            leader = self.members.leader if request.may_skip_assignment else leader_before
            reply = self._join_reply(new.member_id, leader=leader, skip_assignment=skips, with_members=skips)
            step.replies.append((waiter, reply))
            kept = {member.member_id: member.assignment for member in self.members}
            step.records.append(GroupRecord(self.group_id, self._snapshot(kept, self.state_ms)))

            def swap_back(code: ErrorCode) -> list[Reply]:
                if self.members.get(new.member_id) is new:
                    self._swap(new, old)
                    old.renew_session(now)
                return [(waiter, JoinReply(code, UNKNOWN_MEMBER))]

            step.undo = swap_back
            return
        new.joining = waiter
        if self.state is PREPARING:
            self._complete_join_if_ready(step, now)
        else:
            reason = f"instance {request.instance_id} came back as {new.member_id}{_because(request.reason)}"
            self._prepare_rebalance(step, Cause(CauseKind.REJOINED, reason), now)

    def _swap(self, old: Member, new: Member) -> None:
        self.members.replace(old, new)
        if old.member_id in self._pending_sync:
            self._pending_sync.remove(old.member_id)
            self._pending_sync.add(new.member_id)

    def _fence(self, step: Step, member: Member) -> None:
        if member.joining is not None:
            step.replies.append((member.joining, JoinReply(ErrorCode.FENCED_INSTANCE_ID, member.member_id)))
        if member.syncing is not None:
            step.replies.append((member.syncing, SyncReply(ErrorCode.FENCED_INSTANCE_ID)))
        member.joining = member.syncing = None

    # Rebalancing

    def _prepare_rebalance(self, step: Step, cause: Cause, now: Now) -> None:
        if self.state is COMPLETING:
            self._give_up_assignment(step, ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._pending_sync.clear()
        self._sync_deadline_ms = None
        self._assignment_in_flight = False
        was_empty = self.state is EMPTY
        self._move(Event.REBALANCE, now)
        self.rebalances += 1
        self.last_rebalance = cause.began(now.wall_ms)
        if was_empty:
            self._join_window.open_initial(self.members.rebalance_timeout_ms(), now)
        else:
            self._join_window.open(self.members.rebalance_timeout_ms(), now)
            self._complete_join_if_ready(step, now)

    def _complete_join_if_ready(self, step: Step, now: Now) -> None:
        if self.state is not PREPARING or self._join_window.is_initial or self.pending:
            return
        if all(member.joining is not None for member in self.members):
            self._complete_join(step, now)

    def _complete_join(self, step: Step, now: Now) -> None:
        for member in list(self.members):
            # A static member may be restarting: its place is kept until its session runs out.
            if member.joining is None and member.instance_id is None:
                self._remove(step, member.member_id)
        if self.members and not self.members.elect_leader():
            self._join_window.open(self.members.rebalance_timeout_ms(), now)
            return
        self._join_window.close()
        self.generation += 1
        if not self.members:
            self.protocol = None
            self._move(Event.EMPTIED, now)
            step.records.append(GroupRecord(self.group_id, self._snapshot({}, self.state_ms)))
            return
        self.protocol = self.members.elect_protocol()
        self._move(Event.ALL_JOINED, now)
        self._sync_deadline_ms = now.steady_ms + self.members.rebalance_timeout_ms()
        for member in self.members:
            if member.joining is not None:
                step.replies.append((member.joining, self._join_reply(member.member_id)))
                member.joining = None
                member.is_new = False
                member.renew_session(now)
                self._pending_sync.add(member.member_id)

    # The assignment

    def sync(self, request: SyncRequest, waiter: Waiter, now: Now) -> Step:
        step = Step()
        code = refusals.of_sync(self, request)
        if code is not ErrorCode.NONE:
            step.replies.append((waiter, SyncReply(code)))
            return step
        member = self.members[request.member_id]
        self._pending_sync.discard(request.member_id)
        if not self._pending_sync:
            self._sync_deadline_ms = None
        if self.state is STABLE:
            member.renew_session(now)
            step.replies.append((waiter, self._sync_reply(member)))
            return step
        if member.syncing is not None:
            step.replies.append((member.syncing, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.syncing = waiter
        # One assignment a generation: a leader that repeats itself waits for the first, whatever it says now.
        if request.member_id == self.members.leader and not self._assignment_in_flight:
            self._assignment_in_flight = True
            step.records.append(GroupRecord(self.group_id, self._snapshot(request.assignments, now.wall_ms)))
            step.undo = lambda code: self._assignment_refused(request.generation, code, now)
        return step

    def committed(self, saved: GroupMetadata, now: Now) -> list[Reply]:
        """A record of this group is committed. Only an awaited assignment changes anything: the rest is known."""
        if not self._assignment_in_flight or self.generation != saved.generation:
            return []
        self._assignment_in_flight = False
        self._move(Event.ASSIGNED, now)
        self.state_ms = saved.state_ms
        replies: list[Reply] = []
        for entry in saved.members:
            member = self.members[entry.member_id]
            member.assignment = entry.assignment
            if member.syncing is not None:
                replies.append((member.syncing, self._sync_reply(member)))
                member.syncing = None
                member.renew_session(now)
        return replies

    def _assignment_refused(self, generation: int, code: ErrorCode, now: Now) -> list[Reply]:
        if not self._assignment_in_flight or self.generation != generation:
            return []
        step = Step()
        self._give_up_assignment(step, code, now)
        self._prepare_rebalance(step, Cause(CauseKind.OTHER, f"the assignment could not be stored: {code.name}"), now)
        assert not step.records, "nobody has joined, so the rebalance cannot be over"
        return step.replies

    def _give_up_assignment(self, step: Step, code: ErrorCode, now: Now) -> None:
        for member in self.members:
            if member.syncing is not None:
                step.replies.append((member.syncing, SyncReply(code)))
                member.syncing = None
                member.renew_session(now)  # it stood still while the member waited for us

    # Staying and leaving

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
        code = refusals.of_heartbeat(self, member_id, instance_id, generation)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.members[member_id].renew_session(now)
        return code

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: Now, *, is_transactional: bool = False
    ) -> ErrorCode:
        """May this member, or a client that is none, commit offsets for the group now?"""
        code = refusals.of_commit(self, member_id, instance_id, generation, is_transactional=is_transactional)
        # What a producer sends in a transaction is no sign of life of the consumer.
        if code is ErrorCode.NONE and not is_transactional and (member := self.members.get(member_id)) is not None:
            member.renew_session(now)
        return code

    def leave(self, leavers: Sequence[Leaver], now: Now) -> tuple[Step, list[ErrorCode]]:
        step = Step()
        if self.state is DEAD:
            return step, [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(leavers)
        codes: list[ErrorCode] = []
        reasons: list[str] = []
        for leaver in leavers:
            member_id = leaver.member_id
            if member_id == UNKNOWN_MEMBER and leaver.instance_id is not None:
                # An administrator removes an instance without knowing its id of the day.
                member_id = self.members.static_id(leaver.instance_id) or UNKNOWN_MEMBER
            if self.pending.pop(member_id, None) is not None:
                codes.append(ErrorCode.NONE)
                continue
            code = self.members.check(member_id, leaver.instance_id)
            codes.append(code)
            if code is ErrorCode.NONE:
                self._remove(step, member_id)
                reasons.append(f"member {member_id} left{_because(leaver.reason)}")
        self._after_removal(step, Cause(CauseKind.LEFT, "; ".join(reasons)), now)
        return step, codes

    def _remove(self, step: Step, member_id: str) -> None:
        member = self.members.remove(member_id)
        if member.joining is not None:
            step.replies.append((member.joining, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER)))
        if member.syncing is not None:
            step.replies.append((member.syncing, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)))

    def _after_removal(self, step: Step, cause: Cause, now: Now) -> None:
        """Without a reason nobody was removed."""
        if cause.reason and self.state in (STABLE, COMPLETING):
            self._prepare_rebalance(step, cause, now)
        else:
            self._complete_join_if_ready(step, now)

    # Time

    def next_deadline_ms(self) -> int | None:
        deadlines = [member.session_deadline_ms for member in self.members if not member.is_parked]
        deadlines += self.pending.values()
        deadlines += [at for at in (self._join_window.deadline_ms, self._sync_deadline_ms) if at is not None]
        return min(deadlines, default=None)

    def tick(self, now: Now) -> Step:
        """Do what is due at `now`."""
        step = Step()
        steady_ms = now.steady_ms
        self.pending = {member_id: until for member_id, until in self.pending.items() if until > steady_ms}
        late = [m for m in self.members if m.session_deadline_ms <= steady_ms and not m.is_parked]
        for member in late:
            self._remove(step, member.member_id)
        names = ", ".join(member.member_id for member in late)
        reason = f"no heartbeat in time from {names}" if late else ""
        self._after_removal(step, Cause(CauseKind.TIMED_OUT, reason), now)
        if self._join_window.is_over(now):
            self._complete_join(step, now)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= steady_ms:
            names = ", ".join(sorted(self._pending_sync))
            for member_id in list(self._pending_sync):
                self._remove(step, member_id)
            self._prepare_rebalance(step, Cause(CauseKind.TIMED_OUT, f"no SyncGroup in time from {names}"), now)
        return step

    # The end

    def delete(self) -> None:
        """From here on nobody can join; the group is gone once its tombstone is committed."""
        self.pending.clear()
        self.state = TRANSITIONS[self.state, Event.DELETED]

    def deletion_refused(self) -> None:
        self.state = TRANSITIONS[self.state, Event.DELETION_REFUSED]

    # What it knows

    @property
    def has_pending_members(self) -> bool:
        return bool(self.pending)

    @property
    def is_simple(self) -> bool:
        """Only ever used to keep offsets: no member has joined it."""
        return self.protocol_type is None

    def waiters(self) -> list[Waiter]:
        parked = [waiter for member in self.members for waiter in (member.joining, member.syncing)]
        return [waiter for waiter in parked if waiter is not None]

    def is_subscribed_to(self, topic: str) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.members.is_subscribed_to(topic)

    def _move(self, event: Event, now: Now) -> None:
        self.state = TRANSITIONS[self.state, event]
        self.state_ms = now.wall_ms

    def _snapshot(self, assignments: dict[str, bytes], state_ms: int) -> GroupMetadata:
        self.is_saved = True
        members = tuple(m.saved(self.protocol, assignments.get(m.member_id, b"")) for m in self.members)
        return GroupMetadata(
            self.protocol_type or "", self.generation, self.protocol, self.members.leader, state_ms, members
        )

    def _join_reply(
        self, member_id: str, *, leader: str | None = None, skip_assignment: bool = False, with_members: bool = True
    ) -> JoinReply:
        members: tuple[JoinedMember, ...] = ()
        if with_members and member_id == self.members.leader:
            protocol = self.protocol or ""
            members = tuple(
                JoinedMember(m.member_id, m.instance_id, m.protocols.get(protocol, b"")) for m in self.members
            )
        return JoinReply(
            ErrorCode.NONE,
            member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            leader or self.members.leader or UNKNOWN_MEMBER,
            skip_assignment,
            members,
        )

    def _sync_reply(self, member: Member) -> SyncReply:
        return SyncReply(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""
