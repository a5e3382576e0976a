"""The groups of one partition of `__consumer_offsets`: what each request leads to, and how records change them.

Called by groups.coordinator, which finds the shard, and by coordination.Shard, which applies the records.
Invariants:
- A group without a record, a member, a promised member id or an offset is forgotten at once.
- Nothing joins or commits to a group whose deletion is under way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from uuid import UUID

from penstock.cluster.image import ClusterImage
from penstock.cluster.layout import Layout
from penstock.config import BrokerConfig
from penstock.coordination import Decision, Now, Reply, Waiter
from penstock.errors import ErrorCode
from penstock.groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, Step
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_group_records import ConsumerGroupRecord, GroupEpochRecord
from penstock.groups.consumer_groups import ConsumerGroups, Group
from penstock.groups.group_records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    decode_record,
    encode_record,
)
from penstock.groups.group_state import DEAD, EMPTY
from penstock.groups.member import UNKNOWN_MEMBER, JoinReply, JoinRequest, Leaver, SyncReply, SyncRequest
from penstock.groups.offsets import GroupOffsets, OffsetToCommit, PartitionKey

# What groups of one shard may be made of thin air: far above any real number, and small enough to hold in memory.
GROUPS_MAX = 100_000
MEMBER_METADATA_BYTES_MAX = 1024 * 1024
MINUTE_MS = 60_000


class GroupShard:
    __slots__ = ("_changed", "_config", "_in_transaction", "_is_live", "_offsets", "consumer", "groups")

    def __init__(
        self, config: BrokerConfig, changed: Callable[[Group], None], image: ClusterImage | None = None
    ) -> None:
        self.groups: dict[str, Group] = {}
        image = ClusterImage(Layout()) if image is None else image
        self.consumer = ConsumerGroups(self.groups, config, image, self._new_group, GROUPS_MAX)
        self._offsets: dict[str, GroupOffsets] = {}
        # The groups that an open transaction has brought offsets for, by its producer.
        self._in_transaction: dict[int, set[str]] = {}
        self._config = config
        # Told when a record, not a request, has changed a group, since its deadlines may be others now.
        self._changed = changed
        self._is_live = False

    # The state machine that coordination drives

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        return decode_record(key, value)

    def apply(self, record: CoordinatorRecord, now: Now) -> Iterable[Reply]:
        if isinstance(record, OffsetRecord):
            self._apply_offset(record)
            return ()
        if not isinstance(record, GroupRecord):
            self._apply_of_consumer_group(record)
            return ()
        group = self.groups.get(record.group_id)
        if record.metadata is None:
            self._apply_deletion(record.group_id)
        elif not self._is_live or group is None:
            self.groups[record.group_id] = ClassicGroup.restored(
                record.group_id,
                record.metadata,
                self._config.group_initial_rebalance_delay_ms,
                self._config.group_max_size,
            )
        elif isinstance(group, ClassicGroup):
            replies = group.committed(record.metadata, now)
            self._changed(group)
            return replies
        return ()

    def apply_in_transaction(self, producer_id: int, record: CoordinatorRecord, now: Now) -> Iterable[Reply]:
        if not isinstance(record, OffsetRecord) or record.committed is None:
            # Only commits are part of transactions; a deletion takes effect at once, whoever wrote it.
            return self.apply(record, now)
        self._offsets_of(record.group_id).apply_in_transaction(producer_id, record)
        self._ensure_group(record.group_id)
        self._in_transaction.setdefault(producer_id, set()).add(record.group_id)
        return ()

    def end_transaction(self, producer_id: int, is_commit: bool, now: Now) -> Iterable[Reply]:
        for group_id in self._in_transaction.pop(producer_id, ()):
            # Gone if the group was deleted meanwhile, and its pending offsets with it.
            if (offsets := self._offsets.get(group_id)) is not None:
                offsets.end_transaction(producer_id, is_commit)
                self._forget_if_none_left(group_id, offsets)
        return ()

    def _apply_of_consumer_group(self, record: ConsumerGroupRecord) -> None:
        if not self._is_live:
            self.consumer.load(record)
            return
        # The group has known it since it decided so; only its end waits for the log.
        group = self.groups.get(record.group_id)
        is_end = isinstance(record, GroupEpochRecord) and record.value is None
        if is_end and isinstance(group, ConsumerGroup) and group.state is DEAD:
            del self.groups[record.group_id]
            self._changed(group)

    def loaded(self, now: Now) -> Iterator[tuple[Group, Step]]:
        """Every record is applied: what each group does first."""
        self._is_live = True
        for group in list(self.groups.values()):
            if isinstance(group, ConsumerGroup):
                yield group, self.consumer.resume(group, now)
            else:
                yield group, group.resume(now)

    def _apply_offset(self, record: OffsetRecord) -> None:
        group_id = record.group_id
        if record.committed is not None:
            self._offsets_of(group_id).apply(record)
            self._ensure_group(group_id)
        elif (offsets := self._offsets.get(group_id)) is not None:
            offsets.apply(record)
            self._forget_if_none_left(group_id, offsets)

    def _ensure_group(self, group_id: str) -> None:
        """A group that only ever stores offsets exists because of them."""
        if group_id not in self.groups:
            self.groups[group_id] = self._new_group(group_id)

    def _forget_if_none_left(self, group_id: str, offsets: GroupOffsets) -> None:
        if offsets or self._offsets.get(group_id) is not offsets:
            return
        del self._offsets[group_id]
        if self._is_live and (group := self.groups.get(group_id)) is not None:
            self.forget_if_vacant(group)

    def _apply_deletion(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        # Not if it goes on in the consumer protocol.
        if isinstance(group, ClassicGroup) and (group.state is DEAD or not self._is_live):
            del self.groups[group_id]
            if self._is_live:
                self._changed(group)

    # Membership

    def join(self, group_id: str, request: JoinRequest, waiter: Waiter, now: Now) -> Step:
        code = ErrorCode.NONE
        group = self.groups.get(group_id)
        if sum(len(metadata) for _, metadata in request.protocols) > MEMBER_METADATA_BYTES_MAX:
            code = ErrorCode.INVALID_REQUEST
        elif group is None and request.member_id != UNKNOWN_MEMBER:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        elif group is None and len(self.groups) >= GROUPS_MAX:
            code = ErrorCode.POLICY_VIOLATION
        if code is not ErrorCode.NONE:
            return Step(replies=[(waiter, JoinReply(code, request.member_id))])
        if isinstance(group, ConsumerGroup) and group.state is EMPTY:
            return self._join_as_classic(group, request, waiter, now)
        if isinstance(group, ConsumerGroup):
            return self.consumer.join(group, request, waiter, now)
        if group is None:
            group = self.groups[group_id] = self._new_group(group_id)
        return group.join(request, waiter, now)

    def _join_as_classic(self, group: ConsumerGroup, request: JoinRequest, waiter: Waiter, now: Now) -> Step:
        """Nobody is left in the consumer group: it becomes a classic one, which begins with this member."""
        classic, records = self.consumer.to_empty_classic(group)
        step = classic.join(request, waiter, now)

        def undo(code: ErrorCode) -> Sequence[Reply]:
            if self.groups.get(group.group_id) is classic:
                self.groups[group.group_id] = group
            return [(waiter, JoinReply(code, request.member_id)) for waiter in classic.waiters()]

        assert step.undo is None, "the first to join leaves nothing behind that would be taken back"
        return Decision([*records, *step.records], step.replies, undo if records else None, rests_on_earlier=True)

    def sync(self, group_id: str, request: SyncRequest, waiter: Waiter, now: Now) -> Step:
        group = self.groups.get(group_id)
        if group is None:
            return Step(replies=[(waiter, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))])
        if isinstance(group, ConsumerGroup):
            return self.consumer.sync(group, request, waiter, now)
        return group.sync(request, waiter, now)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ConsumerGroup):
            return self.consumer.classic_heartbeat(group, member_id, instance_id, generation, now)
        return group.heartbeat(member_id, instance_id, generation, now)

    def leave(self, group_id: str, leavers: Sequence[Leaver], waiter: Waiter, now: Now) -> Step:
        """The reply is a code for each leaver."""
        group = self.groups.get(group_id)
        if group is None:
            return Step(replies=[(waiter, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavers))])
        if isinstance(group, ConsumerGroup):
            return self.consumer.leave(group, leavers, waiter, now)
        step, codes = group.leave(leavers, now)
        step.replies.append((waiter, codes))
        return step

    def tick(self, group_id: str, now: Now) -> Step:
        """Do what is due at `now`."""
        group = self.groups.get(group_id)
        if group is None:
            return Step()
        return self.consumer.tick(group, now) if isinstance(group, ConsumerGroup) else group.tick(now)

    # Offsets

    def commit(
        self,
        group_id: str,
        committer: tuple[str, str | None, int],
        offsets: Sequence[OffsetToCommit],
        retention_ms: int,
        waiter: Waiter,
        now: Now,
        *,
        is_transactional: bool = False,
    ) -> Step:
        """The reply is a code for each offset. A committer is a member id, an instance id and a generation."""
        code = self._check_commit(group_id, committer, offsets, now, is_transactional)
        if code is not ErrorCode.NONE:
            return Decision(replies=[(waiter, [code] * len(offsets))])
        metadata_max = self._config.offset_metadata_max_bytes
        expire_ms = now.wall_ms + retention_ms if retention_ms >= 0 else -1
        codes: list[ErrorCode] = []
        records: list[OffsetRecord] = []
        for topic, topic_id, partition, offset, leader_epoch, metadata in offsets:
            if len(metadata) > metadata_max:
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            codes.append(ErrorCode.NONE)
            committed = CommittedOffset(offset, leader_epoch, metadata, now.wall_ms, expire_ms, topic_id)
            records.append(OffsetRecord(group_id, topic, partition, committed))
        if not records:
            return Decision(replies=[(waiter, codes)])
        kept = self._offsets_of(group_id)
        kept.sent(records, is_transactional=is_transactional)

        def undo(_code: ErrorCode) -> Sequence[Reply]:
            kept.refused(records, is_transactional=is_transactional)
            self._forget_if_none_left(group_id, kept)
            return ()

        return Decision(list(records), [(waiter, codes)], undo)

    def _check_commit(
        self,
        group_id: str,
        committer: tuple[str, str | None, int],
        offsets: Sequence[OffsetToCommit],
        now: Now,
        is_transactional: bool,
    ) -> ErrorCode:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            member_id, _instance_id, epoch = committer
            partitions = ((offset.topic_id, offset.partition) for offset in offsets)
            return group.check_commit(member_id, epoch, partitions, is_transactional=is_transactional)
        if group is not None:
            return group.check_commit(*committer, now, is_transactional=is_transactional)
        if committer[2] >= 0:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.POLICY_VIOLATION if len(self.groups) >= GROUPS_MAX else ErrorCode.NONE

    def offset(self, group_id: str, topic: str, topic_id: UUID, partition: int) -> CommittedOffset | None:
        offsets = self._offsets.get(group_id)
        return None if offsets is None else offsets.get(topic, topic_id, partition)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        offsets = self._offsets.get(group_id)
        return offsets is not None and offsets.is_unstable(topic, partition)

    def offsets(self, group_id: str) -> Iterable[tuple[str, int, CommittedOffset]]:
        return self._offsets.get(group_id, ())

    def delete_offsets(self, group_id: str, keys: Sequence[PartitionKey], waiter: Waiter) -> Step:
        """The reply is a code for the group and a code for each offset."""
        group = self.groups.get(group_id)
        code = ErrorCode.NONE
        if group is None or group.state is DEAD:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            code = ErrorCode.NON_EMPTY_GROUP
        if group is None or code is not ErrorCode.NONE:
            return Step(replies=[(waiter, (code, []))])
        offsets = self._offsets.get(group_id)
        known: set[PartitionKey] = set() if offsets is None else offsets.known()
        step = Step()
        codes: list[ErrorCode] = []
        for topic, partition in keys:
            if group.is_subscribed_to(topic):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            codes.append(ErrorCode.NONE)
            if (topic, partition) in known:
                step.records.append(OffsetRecord(group_id, topic, partition, None))
        step.replies.append((waiter, (ErrorCode.NONE, codes)))
        return step

    def forget_topic(self, topic: str, topic_id: UUID) -> Iterator[Step]:
        """A topic was deleted: one decision for each group that has offsets of it."""
        for group_id, offsets in list(self._offsets.items()):
            keys = offsets.of_topic(topic, topic_id)
            if keys:
                yield Step([OffsetRecord(group_id, *key, None) for key in keys])

    # The end of offsets and groups

    def delete_group(self, group_id: str, waiter: Waiter) -> Step:
        """The reply is a code."""
        group = self.groups.get(group_id)
        if group is None or group.state is DEAD:
            return Step(replies=[(waiter, ErrorCode.GROUP_ID_NOT_FOUND)])
        if group.state is not EMPTY:
            return Step(replies=[(waiter, ErrorCode.NON_EMPTY_GROUP)])
        offsets = self._offsets.get(group_id)
        step = self._delete(group, set() if offsets is None else offsets.known())
        step.replies.append((waiter, ErrorCode.NONE))
        return step

    def expire(self, group_id: str, now: Now) -> Step:
        """Delete what has outlived its use: offsets, and the group itself when nothing is left of it."""
        group = self.groups.get(group_id)
        if group is None or group.state is DEAD:
            return Step()
        offsets = self._offsets.get(group_id)
        keys: set[PartitionKey] = set()
        if offsets is not None:
            retention_ms = self._config.offsets_retention_minutes * MINUTE_MS
            keys = set(offsets.expired(group, retention_ms, now.wall_ms))
        all_expired = offsets is None or keys == offsets.known()
        if all_expired and group.state is EMPTY and not group.has_pending_members:
            return self._delete(group, keys)
        return Step([OffsetRecord(group_id, *key, None) for key in keys])

    def forget_if_vacant(self, group: Group) -> bool:
        if group.is_saved or group.state is not EMPTY or group.has_pending_members or self._offsets.get(group.group_id):
            return False
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
        return True

    def _delete(self, group: Group, keys: Iterable[PartitionKey]) -> Step:
        group.delete()

        def undo(_code: ErrorCode) -> Sequence[Reply]:
            group.deletion_refused()
            return ()

        tombstones: list[CoordinatorRecord] = [OffsetRecord(group.group_id, *key, None) for key in keys]
        if isinstance(group, ConsumerGroup):
            return Step([*tombstones, *group.tombstones()], undo=undo)
        return Step([*tombstones, GroupRecord(group.group_id, None)], undo=undo)

    def _new_group(self, group_id: str) -> ClassicGroup:
        config = self._config
        return ClassicGroup(group_id, config.group_initial_rebalance_delay_ms, config.group_max_size)

    def _offsets_of(self, group_id: str) -> GroupOffsets:
        offsets = self._offsets.get(group_id)
        if offsets is None:
            offsets = self._offsets[group_id] = GroupOffsets()
        return offsets
