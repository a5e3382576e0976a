"""The group coordinator: which partition keeps a group, whether it is led here, and the timers its groups ask for.

Called by handlers.groups and handlers.group_offsets, and by the broker, which tells it what it leads.
Invariants:
- A group is served by the one broker that leads its partition of `__consumer_offsets`, and only once that is loaded.
- For every group that has a deadline, a timer is set no later than it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any
from uuid import UUID

from penstock.clock import Clock, Rng
from penstock.cluster.image import ClusterImage
from penstock.config import BrokerConfig
from penstock.coordination import Decision, Led, Ledger, LedPartitions, Now, call_at, partition_of, read_clock
from penstock.errors import ErrorCode, InvalidGroupId, PenstockError
from penstock.groups.classic_group import Step
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_groups import Group
from penstock.groups.consumer_member import HeartbeatReply, HeartbeatRequest
from penstock.groups.group_records import CommittedOffset, CoordinatorRecord
from penstock.groups.group_shard import GroupShard
from penstock.groups.member import JoinReply, JoinRequest, Leaver, SyncReply, SyncRequest
from penstock.groups.offsets import OffsetToCommit, PartitionKey
from penstock.groups.rebalance_cause import CauseKind
from penstock.records.markers import Marker

log = logging.getLogger(__name__)

SWEEP_GROUPS_PER_TURN = 500
CLIENT_NAME_CHARACTERS_MAX = 200  # of a client's or instance's name in the member id made of it

_Led = Led[CoordinatorRecord, GroupShard]  # a partition of `__consumer_offsets`


class GroupCoordinator:
    def __init__(self, config: BrokerConfig, clock: Clock, rng: Rng, image: ClusterImage | None = None) -> None:
        # What the topic has, once it exists; until then what it will be made with.
        self.partition_count = config.offsets_topic_num_partitions
        self._config = config
        self._image = image  # the topics there are, which consumer groups are assigned; None: none
        self._clock = clock
        self._rng = rng
        self._led: LedPartitions[CoordinatorRecord, GroupShard] = LedPartitions(
            clock, self._released, config.offsets_commit_timeout_ms
        )
        self._timers: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        # For /metrics: all rebalances and commits since the start, also of groups that are gone.
        self.rebalances = dict.fromkeys(CauseKind, 0)
        self.offset_commits = 0
        self._rebalances_seen: dict[str, int] = {}

    # What this broker leads

    async def lead(self, ledger: Ledger) -> None:
        """Load the partition and serve its groups. Requests for them are told to wait meanwhile."""
        groups = GroupShard(self._config, lambda group: self._settle(led, group), self._image)
        led: _Led = self._led.begin(ledger, groups)
        count = await self._led.load(led)
        if count is None:
            return
        now = read_clock(self._clock)
        for group, step in groups.loaded(now):
            self._carry_out(led, group.group_id, step)
        if self._sweep_timer is None:
            self._set_sweep_timer()
        log.info("%s: loaded %d groups from %d records", ledger.topic_partition, len(groups.groups), count)

    def resign(self, partition: int) -> None:
        self._led.resign(partition)

    def close(self) -> None:
        self._led.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    def partition_of(self, group_id: str) -> int:
        return partition_of(group_id, self.partition_count)

    # Membership

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        led = self._leader_of(group_id)
        config = self._config
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            return JoinReply(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        waiter = self._waiter()
        self._carry_out(led, group_id, led.machine.join(group_id, request, waiter, read_clock(self._clock)))
        return await waiter

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        led = self._leader_of(group_id)
        waiter = self._waiter()
        self._carry_out(led, group_id, led.machine.sync(group_id, request, waiter, read_clock(self._clock)))
        return await waiter

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        led = self._leader_of(group_id)
        return led.machine.heartbeat(group_id, member_id, instance_id, generation, read_clock(self._clock))

    async def consumer_heartbeat(self, group_id: str, request: HeartbeatRequest) -> HeartbeatReply:
        """Of a member of the consumer protocol, also when it joins and leaves. Raises what is wrong with it."""
        led = self._leader_of(group_id)
        waiter = self._waiter()
        now = read_clock(self._clock)
        self._carry_out(led, group_id, led.machine.consumer.heartbeat(group_id, request, waiter, now))
        return await waiter

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[ErrorCode]:
        """A code for each leaver."""
        led = self._leader_of(group_id)
        waiter = self._waiter()
        self._carry_out(led, group_id, led.machine.leave(group_id, leavers, waiter, read_clock(self._clock)))
        return await waiter

    def new_member_id(self, client_id: str, instance_id: str | None) -> str:
        name = client_id if instance_id is None else instance_id
        return f"{name[:CLIENT_NAME_CHARACTERS_MAX]}-{self._rng.uuid()}"

    # Offsets

    def commit_offsets(
        self,
        group_id: str,
        committer: tuple[str, str | None, int],
        offsets: Sequence[OffsetToCommit],
        retention_ms: int = -1,
    ) -> Awaitable[list[ErrorCode]]:
        """A code for each offset. `committer`: member id, instance id, generation ("", None, -1 if no member)."""
        led = self._leader_of(group_id, may_be_empty=True)
        self.offset_commits += len(offsets)
        waiter = self._waiter()
        now = read_clock(self._clock)
        led.shard.perform(led.machine.commit(group_id, committer, offsets, retention_ms, waiter, now))
        return waiter

    def commit_in_transaction(
        self,
        group_id: str,
        producer_id: int,
        producer_epoch: int,
        committer: tuple[str, str | None, int],
        offsets: Sequence[OffsetToCommit],
    ) -> Awaitable[list[ErrorCode]]:
        """As commit_offsets, but nothing of it is seen before the producer's transaction is committed.

        The awaitable raises InvalidProducerEpoch for a zombie.
        """
        led = self._leader_of(group_id)
        self.offset_commits += len(offsets)
        waiter = self._waiter()
        now = read_clock(self._clock)
        step = led.machine.commit(group_id, committer, offsets, -1, waiter, now, is_transactional=True)
        led.shard.perform_in_transaction(step, producer_id, producer_epoch)
        return waiter

    def write_marker(
        self, partition: int, marker: Marker, producer_id: int, producer_epoch: int, *, is_version_2: bool = False
    ) -> Awaitable[None]:
        """End a transaction in a partition of `__consumer_offsets`; done when its offsets count, or are dropped.

        Raises NotCoordinator and CoordinatorLoadInProgress here; the awaitable raises what else came in between.
        """
        shard = self._led.at(partition, f"partition {partition}").shard
        return shard.append_marker(marker, producer_id, producer_epoch, is_version_2=is_version_2)

    def check_leads(self, partition: int) -> None:
        """Raises NotCoordinator and CoordinatorLoadInProgress."""
        self._led.at(partition, f"partition {partition}")

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may yet change the offset committed for the partition."""
        return self._leader_of(group_id, may_be_empty=True).machine.is_unstable(group_id, topic, partition)

    def committed_offset(self, group_id: str, topic: str, topic_id: UUID, partition: int) -> CommittedOffset | None:
        return self._leader_of(group_id, may_be_empty=True).machine.offset(group_id, topic, topic_id, partition)

    def committed_offsets(self, group_id: str) -> list[tuple[str, int, CommittedOffset]]:
        return list(self._leader_of(group_id, may_be_empty=True).machine.offsets(group_id))

    async def delete_offsets(self, group_id: str, keys: Sequence[PartitionKey]) -> tuple[ErrorCode, list[ErrorCode]]:
        """A code for the group and, if that is NONE, a code for each offset."""
        led = self._leader_of(group_id)
        waiter = self._waiter()
        led.shard.perform(led.machine.delete_offsets(group_id, keys, waiter))
        return await waiter

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """May whoever says this of itself be told the group's offsets? Only consumer groups look at it."""
        group = self._leader_of(group_id, may_be_empty=True).machine.groups.get(group_id)
        return group.check_fetch(member_id, member_epoch) if isinstance(group, ConsumerGroup) else ErrorCode.NONE

    def is_consumer_member(self, group_id: str, member_id: str) -> bool:
        """Whether it is in the group and speaks the consumer protocol."""
        group = self._leader_of(group_id, may_be_empty=True).machine.groups.get(group_id)
        member = group.facts.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        return member is not None and not member.is_classic

    def topics_changed(self) -> None:
        """Topics came, went or grew: consumer groups look with their next heartbeat whether it concerns them."""
        for led in self._led:
            led.machine.consumer.topics_changed()

    def topic_deleted(self, topic: str, topic_id: UUID) -> None:
        """Forget the offsets committed for this topic, not those for another that has its name by now."""
        for led in self._led.active():
            for step in led.machine.forget_topic(topic, topic_id):
                led.shard.perform(step)

    # Groups as a whole

    def find(self, group_id: str) -> Group | None:
        return self._leader_of(group_id, may_be_empty=True).machine.groups.get(group_id)

    def list_groups(self) -> list[Group]:
        """All groups served here. Raises CoordinatorLoadInProgress while some are not known yet."""
        self._led.check_loaded("groups")
        return list(self.groups())

    async def delete_group(self, group_id: str) -> ErrorCode:
        led = self._leader_of(group_id, may_be_empty=True)
        waiter = self._waiter()
        self._carry_out(led, group_id, led.machine.delete_group(group_id, waiter))
        return await waiter

    # For metrics and doctor

    def groups(self) -> Iterator[Group]:
        for led in self._led.active():
            yield from led.machine.groups.values()

    def groups_by_state(self) -> Counter[str]:
        return Counter(group.state.value for group in self.groups())

    def members_by_state(self) -> Counter[str]:
        """How many members groups in each state have, together."""
        counts: Counter[str] = Counter()
        for group in self.groups():
            members = group.facts.members if isinstance(group, ConsumerGroup) else group.members
            counts[group.state.value] += len(members)
        return counts

    def all_committed_offsets(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        """(group, topic, partition, what it committed): what lag is made of."""
        for led in self._led.active():
            for group_id in led.machine.groups:
                for topic, partition, committed in led.machine.offsets(group_id):
                    yield group_id, topic, partition, committed

    # Inside

    def _leader_of(self, group_id: str, may_be_empty: bool = False) -> _Led:
        if not group_id and not may_be_empty:
            raise InvalidGroupId("a group needs a name")
        return self._led.at(partition_of(group_id, self.partition_count), f"group {group_id!r}")

    def _waiter(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def _carry_out(self, led: _Led, group_id: str, step: Step) -> None:
        """Perform what a group decided, and see to its timer, now and if the decision has to be taken back."""
        undo = step.undo
        group = led.machine.groups.get(group_id)
        if undo is not None and group is not None:

            def undo_and_settle(code: ErrorCode) -> Sequence[Any]:
                replies = undo(code)
                self._settle(led, led.machine.groups.get(group_id, group))
                return replies

            step = Decision(step.records, step.replies, undo_and_settle)
        led.shard.perform(step)
        if group is not None:
            self._settle(led, group)

    def _settle(self, led: _Led, group: Group) -> None:
        """Set the group's timer to its next deadline, or forget the group if there is nothing left of it."""
        group_id = group.group_id
        seen = self._rebalances_seen.pop(group_id, 0)
        if group.last_rebalance is not None:
            self.rebalances[group.last_rebalance.kind] += max(0, group.rebalances - seen)
        deadline_ms = None
        if led.machine.groups.get(group_id) is group and not led.machine.forget_if_vacant(group):
            deadline_ms = group.next_deadline_ms()
            self._rebalances_seen[group_id] = group.rebalances
        armed = self._timers.get(group_id)
        if armed is not None:
            # A timer that fires early finds nothing due and is set anew; heartbeats would otherwise reset it each time.
            if deadline_ms is not None and armed[0] <= deadline_ms:
                return
            armed[1].cancel()
            del self._timers[group_id]
        if deadline_ms is not None:
            timer = call_at(self._clock, deadline_ms / 1000, lambda: self._on_timer(led, group_id))
            self._timers[group_id] = (deadline_ms, timer)

    def _on_timer(self, led: _Led, group_id: str) -> None:
        self._timers.pop(group_id, None)
        if led.is_active:
            self._carry_out(led, group_id, led.machine.tick(group_id, read_clock(self._clock)))

    def _released(self, led: _Led, error: PenstockError) -> None:
        """All who wait for something of this partition are told that it will not come from here."""
        for group in led.machine.groups.values():
            armed = self._timers.pop(group.group_id, None)
            if armed is not None:
                armed[1].cancel()
            for waiter in group.waiters():
                if not waiter.done():
                    waiter.set_exception(error)

    def _set_sweep_timer(self) -> None:
        interval_s = self._config.offsets_retention_check_interval_ms / 1000
        self._sweep_timer = call_at(self._clock, self._clock.monotonic() + interval_s, self._sweep)

    def _sweep(self) -> None:
        self._set_sweep_timer()
        self._sweep_some([(led, group_id) for led in self._led.active() for group_id in led.machine.groups])

    def _sweep_some(self, rest: list[tuple[_Led, str]]) -> None:
        """A part of the groups each turn, so that a broker of many groups does not stand still."""
        now: Now = read_clock(self._clock)
        for led, group_id in rest[:SWEEP_GROUPS_PER_TURN]:
            if led.is_active:
                self._carry_out(led, group_id, led.machine.expire(group_id, now))
        if len(rest) > SWEEP_GROUPS_PER_TURN:
            asyncio.get_running_loop().call_soon(self._sweep_some, rest[SWEEP_GROUPS_PER_TURN:])
