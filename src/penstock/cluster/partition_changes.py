"""Changes of partitions that a broker makes itself: in its own name, or for a client that asked it.

Called by replication (ISR changes of what this broker leads), broker (before it joins, before it stops) and handlers
(elections and reassignments that clients ask for).
Every write compares this broker's registration, so that one the cluster has taken for gone changes nothing any more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from penstock.cluster import elections, reassignment
from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import PartitionState, Topic, partition_state
from penstock.cluster.layout import encode
from penstock.cluster.membership import Membership, persist
from penstock.cluster.partition_writes import Outcome, PartitionWrites, Place, Seen, check_step, is_written
from penstock.cluster.store import Ambiguous, Compare, Get, MetadataStore, Put, created_at, holds, modified_at
from penstock.config import BrokerConfig
from penstock.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    IneligibleReplica,
    PenstockError,
    PreferredLeaderNotAvailable,
    RegistrationLost,
    UnknownTopicOrPartition,
)
from penstock.model import TopicId


class PartitionMoved(PenstockError):
    """Somebody else changed the partition first; `actual` is what it is now, None if it was deleted."""

    def __init__(self, actual: PartitionState | None) -> None:
        super().__init__("the partition was changed by somebody else")
        self.actual = actual


class ElectionMode(Enum):
    """As ElectLeaders numbers them."""

    PREFERRED = 0
    UNCLEAN = 1


class PartitionChanges:
    def __init__(self, store: MetadataStore, feed: ImageFeed, membership: Membership, config: BrokerConfig) -> None:
        self._store = store
        self._image = feed.image
        self._layout = feed.image.layout
        self._membership = membership
        self._config = config
        self._writes = PartitionWrites(store, feed)

    async def change_isr(
        self, topic_id: TopicId, index: int, seen: PartitionState, isr: Sequence[int], epochs: Mapping[int, int]
    ) -> PartitionState:
        """As its leader, say who is in sync; `epochs` has the broker epoch of each who is added.

        Gives the state as written. Raises PartitionMoved, IneligibleReplica (it is not written, nor was or will be by
        an attempt before), RegistrationLost, Unavailable, or Ambiguous: then it may yet be written, and whoever asked
        must go on as if it were and as if it were not.
        """
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None:
            raise PartitionMoved(None)
        for node, epoch in epochs.items():
            self._check_eligible(node, epoch)
        new = elections.with_isr(seen, isr, self._min_insync(topic))
        check_step(seen, new)
        key = self._layout.partition(topic_id, index)
        fence, refusal = self._fence()
        lives = {node: modified_at(self._layout.broker(node), epoch) for node, epoch in epochs.items()}
        compare: list[Compare] = [*fence, modified_at(key, seen.mod_revision), *lives.values()]
        try:
            result = await self._store.txn(
                compare, [Put(key, encode(new.as_json()))], [Get(each.key) for each in compare]
            )
        except Ambiguous:
            item = await self._store.get(key)
            if item is not None and item.mod_revision == seen.mod_revision:
                raise
            if item is not None and is_written(item, new):
                return partition_state(item)
            raise PartitionMoved(partition_state(item) if item is not None else None) from None
        if result.ok:
            return replace(new, mod_revision=result.revision)
        reads = dict(zip([each.key for each in compare], result.reads, strict=True))
        if not all(holds(each, reads[each.key]) for each in fence):
            raise refusal
        item = reads[key]
        if item is None or item.mod_revision != seen.mod_revision:
            # Told first: an attempt before this one may have added a broker that is gone by now.
            raise PartitionMoved(partition_state(item) if item is not None else None)
        raise IneligibleReplica(next(node for node, life in lives.items() if not holds(life, reads[life.key])))

    async def still_leads(self, topic_id: TopicId, index: int, leader_epoch: int) -> bool:
        """Whether this broker leads in `leader_epoch` by the store itself, at some moment after the question.

        The image may be behind: a broker cut off from the store goes on in an epoch that is over. Raises Unavailable.
        """
        item = await self._store.get(self._layout.partition(topic_id, index))
        if item is None:
            return False
        state = partition_state(item)
        return state.leader == self._membership.node_id and state.leader_epoch == leader_epoch

    async def hand_over(self, places: Iterable[Place]) -> list[Place]:
        """Before a clean stop: others lead, and this broker leaves the ISRs. Gives what it could not give away."""
        node = self._membership.node_id

        def rule(seen: Seen) -> PartitionState | None:
            return elections.hand_over(seen.state, node, seen.live - {node}, self._min_insync(seen.topic))

        outcomes = await self._writes.rewrite(places, rule, self._fence)
        return [place for place in outcomes if (state := self._image.partition(*place)) and state.leader == node]

    async def leave(self, places: Mapping[Place, bool]) -> None:
        """Before this broker joins: leave ISR and ELR of partitions of which it may have lost something.

        The value says whether it may stay where nobody else is left who could lead: its log is whole and not new. Not
        to have left is not to be safe, so whatever hinders a change is raised.
        """
        node = self._membership.node_id
        key = self._layout.broker(node)

        def rule(seen: Seen) -> PartitionState | None:
            return elections.lost_data(seen.state, node, may_stay=places[seen.topic.id, seen.index])

        def nobody_is_registered() -> tuple[list[Compare], PenstockError]:
            return [created_at(key, 0)], RegistrationLost(f"another broker has joined as {node} meanwhile")

        async def leave_all() -> None:
            for outcome in (await self._writes.rewrite(places, rule, nobody_is_registered)).values():
                if isinstance(outcome, PenstockError) and not isinstance(outcome, UnknownTopicOrPartition):
                    raise outcome

        await persist(leave_all)

    async def give_up(self, places: Iterable[Place]) -> None:
        """While this broker runs: leave ISR and ELR of partitions whose logs are broken, where others could lead."""
        node = self._membership.node_id

        def rule(seen: Seen) -> PartitionState | None:
            is_alone = {*seen.state.isr, *seen.state.elr} == {node}
            return None if is_alone else elections.lost_data(seen.state, node, may_stay=False)

        for outcome in (await self._writes.rewrite(places, rule, self._fence)).values():
            if isinstance(outcome, PenstockError) and not isinstance(outcome, UnknownTopicOrPartition):
                raise outcome

    async def elect(self, places: Iterable[Place], mode: ElectionMode) -> dict[Place, Outcome]:
        """ElectLeaders: the preferred replica leads, or, unclean, anybody where nobody does."""

        def rule(seen: Seen) -> PartitionState | None:
            if mode is ElectionMode.PREFERRED:
                return preferred_election(seen)
            return self._unclean_election(seen)

        return await self._writes.rewrite(places, rule, self._fence)

    async def reassign(self, targets: Mapping[Place, Sequence[int] | None]) -> dict[Place, Outcome]:
        """AlterPartitionReassignments: the replicas each partition should have; None takes a running move back."""

        def rule(seen: Seen) -> PartitionState | None:
            target, min_insync = targets[seen.topic.id, seen.index], self._min_insync(seen.topic)
            if target is None:
                return reassignment.cancelled(seen.state, seen.live, min_insync)
            reassignment.check_target(seen.state, target, seen.registered)
            return reassignment.begun(seen.state, target, seen.live, min_insync)

        return await self._writes.rewrite(targets, rule, self._fence)

    def running_reassignments(self) -> list[tuple[Topic, int, PartitionState]]:
        return [
            (topic, index, state)
            for topic in self._image.topics.values()
            for index, state in enumerate(topic.partitions)
            if state.adding or state.removing
        ]

    def _unclean_election(self, seen: Seen) -> PartitionState:
        if seen.state.leader in seen.registered:
            raise ElectionNotNeeded("the partition has a leader")
        elected = elections.elect_leader(
            seen.state, seen.live, is_unclean_allowed=True, min_insync=self._min_insync(seen.topic)
        )
        if elected is None:
            raise EligibleLeadersNotAvailable("none of the partition's replicas is there")
        return elected

    def _check_eligible(self, node: int, epoch: int) -> None:
        """A broker is in sync only in the very life in which it caught up, and only if it is to stay (TRAPS R8)."""
        broker = self._image.brokers.get(node)
        if broker is None or broker.epoch != epoch or broker.is_stopping:
            raise IneligibleReplica(node)

    def _min_insync(self, topic: Topic) -> int:
        return self._config.topic(topic.configs).min_insync_replicas

    def _fence(self) -> tuple[list[Compare], PenstockError]:
        return self._membership.registration_fence(), RegistrationLost("this broker's registration has lapsed")


def preferred_election(seen: Seen) -> PartitionState:
    """Called by supervisor as well."""
    preferred = elections.preferred_order(seen.state)[0]
    if seen.state.leader == preferred and preferred in seen.live:
        raise ElectionNotNeeded("the preferred replica leads already")
    if preferred not in seen.state.isr or preferred not in seen.live:
        raise PreferredLeaderNotAvailable(f"broker {preferred} is not in sync, stopping or not there")
    return elections.lead_by(seen.state, preferred)
