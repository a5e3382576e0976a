"""The consumer groups among those of one partition of `__consumer_offsets`: found, made, changed to classic and back.

Called by groups.group_shard, which keeps groups of both protocols in one table and hands it here.
Invariants:
- A group that was made for a request which was then refused is not kept.
- A group changes its protocol in one decision: the records that end the one group and those that make the other.
"""

from collections.abc import Callable, Sequence

from penstock.cluster.image import ClusterImage
from penstock.config import BrokerConfig
from penstock.coordination import Decision, Now, Reply, Waiter
from penstock.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    GroupIdNotFound,
    PenstockError,
    PolicyViolation,
    UnsupportedAssignor,
)
from penstock.groups import classic_members, migration
from penstock.groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, Step
from penstock.groups.consumer_draft import Terms
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_group_records import ConsumerGroupRecord, GroupEpochRecord
from penstock.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    HeartbeatReply,
    HeartbeatRequest,
)
from penstock.groups.group_records import CoordinatorRecord, GroupRecord
from penstock.groups.group_state import DEAD
from penstock.groups.member import JoinReply, JoinRequest, Leaver, SyncRequest
from penstock.groups.rebalance_cause import Cause, CauseKind

Group = ClassicGroup | ConsumerGroup

UPGRADES = ("upgrade", "bidirectional")
DOWNGRADES = ("downgrade", "bidirectional")


class ConsumerGroups:
    __slots__ = ("_config", "_groups", "_groups_max", "_image", "_new_classic", "_topics_version")

    def __init__(
        self,
        groups: dict[str, Group],
        config: BrokerConfig,
        image: ClusterImage,
        new_classic: Callable[[str], ClassicGroup],
        groups_max: int,
    ) -> None:
        self._groups = groups
        self._config = config
        self._image = image
        self._new_classic = new_classic
        self._groups_max = groups_max
        self._topics_version = 0

    def terms(self, group_id: str) -> Terms:
        config = self._config
        own = config.group(self._image.group_configs.get(group_id, {}))
        return Terms(
            self._image,
            self._topics_version,
            own.consumer_session_timeout_ms,
            own.consumer_heartbeat_interval_ms,
            config.group_consumer_max_size,
            config.group_consumer_assignors,
        )

    def topics_changed(self) -> None:
        self._topics_version += 1

    # Loading

    def load(self, record: ConsumerGroupRecord) -> None:
        group = self._groups.get(record.group_id)
        if isinstance(record, GroupEpochRecord) and record.value is None:
            if isinstance(group, ConsumerGroup):
                del self._groups[record.group_id]
            return
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            # A group made by its offsets, or what a compacted log left of the classic group this one was.
            group = self._groups[record.group_id] = ConsumerGroup(record.group_id)
        group.facts.apply(record)

    def resume(self, group: ConsumerGroup, now: Now) -> Step:
        group.resume(self.terms(group.group_id), now)
        return Step()

    # The consumer protocol

    def heartbeat(self, group_id: str, request: HeartbeatRequest, waiter: Waiter, now: Now) -> Step:
        """The reply is a HeartbeatReply. Raises what is wrong with the request."""
        terms = self.terms(group_id)
        if request.assignor is not None and request.assignor not in terms.assignors:
            raise UnsupportedAssignor(f"assignor {request.assignor} is not one of {', '.join(terms.assignors)}")
        group = self._groups.get(group_id)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(group, request, waiter, now)
        if isinstance(group, ConsumerGroup):
            return group.heartbeat(request, terms, waiter, now)
        if request.member_epoch != JOIN_EPOCH:
            raise GroupIdNotFound(f"there is no consumer group {group_id}")
        if group is None:
            if len(self._groups) >= self._groups_max:
                raise PolicyViolation(f"{self._groups_max} groups are kept here, and no more")
            return self._make(None, ConsumerGroup(group_id), [], request, waiter, now)
        if group.state is DEAD:
            raise CoordinatorNotAvailable(f"group {group_id} is being deleted")
        if not group.members:
            records: list[CoordinatorRecord] = [GroupRecord(group_id, None)] if group.is_saved else []
            return self._make(group, ConsumerGroup(group_id), records, request, waiter, now)
        self._check_upgrade(group, terms)
        return self._make(group, *migration.to_consumer_group(group, terms, now), request, waiter, now)

    def _leave(self, group: Group | None, request: HeartbeatRequest, waiter: Waiter, now: Now) -> Step:
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound("there is no consumer group of that name")
        member = group.leaver(request)
        reply = (waiter, HeartbeatReply(member.member_id, request.member_epoch))
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            return group.leave_for_now(member, reply, now)
        cause = Cause(CauseKind.LEFT, f"member {member.member_id} left")
        return self._put_out(group, [member.member_id], cause, [reply], now)

    def tick(self, group: ConsumerGroup, now: Now) -> Step:
        """Put out whom the group has waited for in vain."""
        late, cause = group.late_members(now)
        return self._put_out(group, late, cause, [], now) if late else Step()

    # Members of the classic protocol

    def join(self, group: ConsumerGroup, request: JoinRequest, waiter: Waiter, now: Now) -> Step:
        try:
            step = classic_members.join(group, request, self.terms(group.group_id), waiter, now)
        except PenstockError as error:
            return Step(replies=[(waiter, JoinReply(error.code, request.member_id))])
        if not step.records or not self._becomes_classic(group, set()):
            return step
        # A static instance that spoke the new protocol, as the last one, is back with the old one.
        cause = Cause(CauseKind.REJOINED, f"instance {request.instance_id} joined by the classic protocol")
        return self._turn_classic(group, set(), cause, step, now)

    def sync(self, group: ConsumerGroup, request: SyncRequest, waiter: Waiter, now: Now) -> Step:
        return classic_members.sync(group, request, self.terms(group.group_id), waiter, now)

    def classic_heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> ErrorCode:
        terms = self.terms(group.group_id)
        return classic_members.heartbeat(group, member_id, instance_id, generation, terms, now)

    def leave(self, group: ConsumerGroup, asked: Sequence[Leaver], waiter: Waiter, now: Now) -> Step:
        removed, codes = classic_members.leavers(group, asked)
        if not removed:
            return Step(replies=[(waiter, codes)])
        cause = Cause(CauseKind.LEFT, "; ".join(f"member {member_id} left" for member_id in removed))
        return self._put_out(group, removed, cause, [(waiter, codes)], now)

    # From one protocol to the other

    def to_empty_classic(self, group: ConsumerGroup) -> tuple[ClassicGroup, list[CoordinatorRecord]]:
        """For a classic member that joins a consumer group nobody is in: the group starts anew."""
        classic = self._new_classic(group.group_id)
        records: list[CoordinatorRecord] = [*group.tombstones()] if group.is_saved else []
        self._groups[group.group_id] = classic
        return classic, records

    def _check_upgrade(self, group: ClassicGroup, terms: Terms) -> None:
        if self._config.group_consumer_migration_policy not in UPGRADES:
            raise GroupIdNotFound(f"group {group.group_id} is classic, and group.consumer.migration.policy keeps it so")
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise GroupIdNotFound(f"group {group.group_id} is no group of consumers")
        if len(group.members) > terms.size_max:
            raise GroupIdNotFound(f"group {group.group_id} has more members than group.consumer.max.size")

    def _make(
        self,
        old: ClassicGroup | None,
        new: ConsumerGroup,
        records: list[CoordinatorRecord],
        request: HeartbeatRequest,
        waiter: Waiter,
        now: Now,
    ) -> Step:
        """The group comes to be with its first member of the new protocol."""
        group_id = new.group_id
        step = new.heartbeat(request, self.terms(group_id), waiter, now)
        self._groups[group_id] = new
        # Who waits for the old group's rebalance is told to join anew, which leads it into the new group.
        waiting = [] if old is None else old.release_all()
        new.rebalances += 0 if old is None else old.rebalances

        def undo(code: ErrorCode) -> Sequence[Reply]:
            assert step.undo is not None
            replies = step.undo(code)
            if old is not None and self._groups.get(group_id) is new:
                self._groups[group_id] = old
            return replies

        return Decision([*records, *step.records], [*waiting, *step.replies], undo, rests_on_earlier=True)

    def _put_out(
        self, group: ConsumerGroup, member_ids: list[str], cause: Cause, replies: list[Reply], now: Now
    ) -> Step:
        if not self._becomes_classic(group, set(member_ids)):
            return group.put_out(member_ids, cause, self.terms(group.group_id), replies, now)
        return self._turn_classic(group, set(member_ids), cause, Step(replies=replies), now)

    def _turn_classic(self, group: ConsumerGroup, leaving: set[str], cause: Cause, so_far: Step, now: Now) -> Step:
        """On top of what was decided so far. Whoever stays is asked to join anew."""
        config, group_id = self._config, group.group_id
        classic, records = migration.to_classic_group(
            group, leaving, config.group_initial_rebalance_delay_ms, config.group_max_size, self._image, now
        )
        self._groups[group_id] = classic
        classic.rebalances = group.rebalances
        step = classic.resume(now)
        reason = f"{cause.reason}; the last member of the consumer protocol is gone"
        classic.rebalance(step, Cause(cause.kind, reason), now)

        def undo(code: ErrorCode) -> Sequence[Reply]:
            if self._groups.get(group_id) is classic:
                self._groups[group_id] = group
                group.expect_again(now)
            return () if so_far.undo is None else so_far.undo(code)

        records = [*so_far.records, *records, *step.records]
        return Decision(records, [*so_far.replies, *step.replies], undo, rests_on_earlier=True)

    def _becomes_classic(self, group: ConsumerGroup, leaving: set[str]) -> bool:
        staying = [member for member_id, member in group.facts.members.items() if member_id not in leaving]
        return (
            bool(staying)
            and all(member.is_classic for member in staying)
            and self._config.group_consumer_migration_policy in DOWNGRADES
            and len(staying) <= self._config.group_max_size
        )
