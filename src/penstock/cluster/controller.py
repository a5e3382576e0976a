"""Everything that changes the cluster's metadata on somebody's behalf: topics, settings, quotas, producer ids.

Called by handlers.topics, handlers.configs, handlers.quotas, handlers.metadata (auto-creation) and broker. Any broker
does this for its clients, fenced by its registration; what the controller does unasked is in supervisor.
Invariants:
- Every decision is a comparison inside the transaction that acts on it; the image only saves hopeless attempts.
- A topic's own key is the last written and the first deleted, so that no reader sees half a topic.
- Partitions written ahead of their topic's key are guarded by creating/<id>, which goes with this broker (orphans.py).
- Nothing returns before this broker's image holds what was written.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.clock import Rng
from penstock.cluster.elections import first_state
from penstock.cluster.feed import ImageFeed
from penstock.cluster.fenced_writes import FencedWrites, chunks
from penstock.cluster.image import PartitionState, Topic, metric_name
from penstock.cluster.layout import QuotaEntity, decode, encode
from penstock.cluster.membership import Membership
from penstock.cluster.overrides import ConfigChange, ConfigResource
from penstock.cluster.placement import place
from penstock.cluster.setting_changes import SettingChanges
from penstock.cluster.store import Ambiguous, Delete, Get, MetadataStore, Put, created_at, modified_at
from penstock.cluster.topic_plan import (
    PARTITIONS_PER_REQUEST_MAX,
    NewTopic,
    TopicPlan,
    candidates,
    check_assignment,
    check_new_name,
    pack,
    partition_puts,
    plan_topic,
    too_many_partitions,
)
from penstock.config import BrokerConfig
from penstock.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopicName,
    PenstockError,
    RegistrationLost,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model import ProducerId, TopicId

PRODUCER_IDS_PER_BLOCK = 1_000
# Each round lost means that another writer won one; only a storm of them gets this far.
SWAP_ROUNDS_MAX = 20
PLANS_PER_TURN = 50


class Controller:
    def __init__(
        self, store: MetadataStore, feed: ImageFeed, rng: Rng, membership: Membership, config: BrokerConfig
    ) -> None:
        self._store = store
        self._feed = feed
        self._image = feed.image
        self._layout = feed.image.layout
        self._rng = rng
        self._membership = membership
        self._config = config
        self._writes = FencedWrites(store, membership.registration_fence)
        self._settings = SettingChanges(store, feed, self._writes, config)
        # Names on their way into the store, by metric name: the image does not know them yet.
        self._creating: dict[str, str] = {}
        self._next_leader = rng.below(1 << 16)

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | PenstockError]:
        """Create each topic or say why not, in the order asked; many share a transaction."""
        names = Counter(new.name for new in wanted)
        results: dict[int, Topic | PenstockError] = {}
        plans: dict[int, TopicPlan] = {}
        budget = PARTITIONS_PER_REQUEST_MAX
        try:
            for position, new in enumerate(wanted):
                # A request for thousands must not hold up the produce and fetch of others.
                if position % PLANS_PER_TURN == PLANS_PER_TURN - 1:
                    await asyncio.sleep(0)
                try:
                    if names[new.name] > 1:
                        raise InvalidRequest(f"topic {new.name!r} is named twice in one request")
                    plan = self._plan(new)
                    budget -= len(plan.topic.partitions)
                    if budget < 0:
                        raise too_many_partitions(PARTITIONS_PER_REQUEST_MAX - budget)
                    plans[position] = plan
                    self._creating[metric_name(new.name)] = new.name
                except PenstockError as error:
                    results[position] = error
            if validate_only:
                results.update((position, plan.topic) for position, plan in plans.items())
            else:
                made = await self._create(list(plans.values()))
                results.update((position, made[plan.topic.name]) for position, plan in plans.items())
        finally:
            for plan in plans.values():
                self._creating.pop(metric_name(plan.topic.name), None)
        return [results[position] for position in range(len(wanted))]

    async def delete_topics(self, wanted: Sequence[str | TopicId]) -> list[Topic | PenstockError]:
        """Delete each topic, named or by id, or say why not, in the order asked. Logs go when the image says so."""
        topics = [self._find(each) for each in wanted]
        times = Counter(topic.name for topic in topics if isinstance(topic, Topic))
        results: dict[int, Topic | PenstockError] = {}
        pending: dict[int, Topic] = {}
        for position, topic in enumerate(topics):
            if isinstance(topic, PenstockError):
                results[position] = topic
            elif times[topic.name] > 1:
                results[position] = InvalidRequest(f"topic {topic.name!r} is named twice in one request")
            else:
                pending[position] = topic
        deleted = await self._delete(list(pending.values()))
        results.update((position, deleted[topic.name]) for position, topic in pending.items())
        return [results[position] for position in range(len(wanted))]

    async def create_partitions(
        self,
        name: str,
        total: int,
        assignment: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Grow a topic to `total` partitions; the assignment, if given, is that of the new ones."""
        for _ in range(SWAP_ROUNDS_MAX):
            topic = self._image.topics.get(name)
            if topic is None:
                raise _unknown(name)
            states = self._plan_growth(topic, total, assignment)
            grown = replace(topic, partitions=topic.partitions + tuple(states))
            if validate_only:
                return grown
            key = self._layout.topic(name)
            puts = partition_puts(self._layout, topic.id, enumerate(states, len(topic.partitions)))
            unchanged = modified_at(key, topic.mod_revision)
            result = await self._writes.commit_pieces([unchanged], [*puts, Put(key, encode(grown.as_json()))], [key])
            if result.ok:
                await self._feed.reached(result.revision)
                return grown
            present = result.reads[0]
            if present is None or present.create_revision != topic.create_revision:
                # Whoever deleted it deletes what was written here as well: it came before, or was refused.
                raise UnknownTopicOrPartition(f"topic {name!r} was deleted")
            # Partition keys already written lie beyond the topic's count, where the next round writes them again.
            await self._feed.reached(present.mod_revision)
        raise Ambiguous(f"topic {name!r} kept changing while partitions were added")

    async def alter_configs(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """IncrementalAlterConfigs of one resource."""
        await self._settings.alter(resource, changes, validate_only=validate_only)

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """AlterConfigs of one resource: what is not named goes back to its default."""
        await self._settings.replace(resource, configs, validate_only=validate_only)

    async def alter_client_quotas(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        await self._settings.alter_client_quotas(entity, changes, validate_only=validate_only)

    async def allocate_producer_id_block(self) -> range:
        """A block of producer ids that no broker has or will ever get again."""
        key = self._layout.producer_ids
        present = await self._store.get(key)
        for _ in range(SWAP_ROUNDS_MAX):
            first = decode(present.value)["next"] if present else 0
            put = Put(key, encode({"next": first + PRODUCER_IDS_PER_BLOCK}))
            # Not fenced: any broker may take a block, the comparison alone keeps blocks apart.
            result = await self._store.txn(
                [modified_at(key, present.mod_revision if present else 0)], [put], [Get(key)]
            )
            if result.ok:
                return range(ProducerId(first), ProducerId(first + PRODUCER_IDS_PER_BLOCK))
            present = result.reads[0]
        raise Ambiguous("other brokers kept taking producer ids first")

    def _plan(self, new: NewTopic) -> TopicPlan:
        check_new_name(self._image, new.name)
        if self._creating.get(metric_name(new.name), new.name) != new.name:
            raise InvalidTopicName(f"topic {new.name!r} collides with {self._creating[metric_name(new.name)]!r}")
        plan = plan_topic(self._image, new, self._rng.uuid(), self._next_leader, self._config)
        self._config.check_topic(plan.topic.configs)
        self._next_leader += len(plan.topic.partitions)
        return plan

    async def _create(self, plans: Sequence[TopicPlan]) -> dict[str, Topic | PenstockError]:
        results: dict[str, Topic | PenstockError] = {}
        for group in pack(plans):
            pending = group
            try:
                guards = {plan.guard: await self._write_early(plan) for plan in group if plan.early}
                while pending:
                    guarded = [plan.guard for plan in pending if plan.early]
                    result = await self._writes.commit(
                        [
                            *(created_at(plan.key, 0) for plan in pending),
                            *(created_at(guard, guards[guard]) for guard in guarded),
                        ],
                        [*(put for plan in pending for put in plan.puts), *(Delete(guard) for guard in guarded)],
                        [plan.key for plan in pending],
                    )
                    if result.ok:
                        for plan in pending:
                            results[plan.topic.name] = _as_written(plan.topic, result.revision)
                        break
                    taken = [plan for plan, present in zip(pending, result.reads, strict=True) if present]
                    if not taken:
                        raise RegistrationLost("this broker was taken for gone while it created a topic")
                    for plan in taken:
                        results[plan.topic.name] = _already_exists(plan.topic.name)
                        early = [put.key for piece in plan.early for put in piece]
                        await self._writes.forget([*early, *([plan.guard] if early else [])])
                    pending = [plan for plan in pending if plan not in taken]
            except PenstockError as error:
                results.update((plan.topic.name, error) for plan in pending)
        await self._feed.reached(max((t.mod_revision for t in results.values() if isinstance(t, Topic)), default=0))
        return results

    async def _write_early(self, plan: TopicPlan) -> int:
        """Write what does not fit into the topic's own transaction, under a guard; gives the guard's revision."""
        guard = Put(plan.guard, encode({"topic": plan.topic.name}), self._membership.lease_id)
        revision = (await self._writes.commit([created_at(plan.guard, 0)], [guard], [])).revision
        for piece in plan.early:
            if not (await self._writes.commit([created_at(plan.guard, revision)], piece, [])).ok:
                raise RegistrationLost("this broker was taken for gone while it created a topic")
        return revision

    async def _delete(self, topics: Sequence[Topic]) -> dict[str, Topic | PenstockError]:
        results: dict[str, Topic | PenstockError] = {}
        revision = 0
        for group in chunks(topics):
            pending = list(group)
            try:
                while pending:
                    keys = [self._layout.topic(topic.name) for topic in pending]
                    result = await self._writes.commit(
                        [created_at(key, topic.create_revision) for key, topic in zip(keys, pending, strict=True)],
                        [Delete(key) for key in keys],
                        keys,
                    )
                    if result.ok:
                        revision = result.revision
                        results.update((topic.name, topic) for topic in pending)
                        break
                    gone = [
                        topic
                        for topic, present in zip(pending, result.reads, strict=True)
                        if present is None or present.create_revision != topic.create_revision
                    ]
                    assert gone, "a refused deletion names the topic that was gone first"
                    results.update((topic.name, _unknown(topic.name)) for topic in gone)
                    pending = [topic for topic in pending if topic not in gone]
            except PenstockError as error:
                results.update((topic.name, error) for topic in pending)
        await self._feed.reached(revision)
        deleted = [topic for topic in results.values() if isinstance(topic, Topic)]
        # Asked of the image, not of the topic: a growth cut short may have left keys beyond the topic's count.
        places = [place for topic in deleted for place in self._image.orphans(topic.id)]
        await self._writes.forget([self._layout.partition(*each) for each in places])
        return results

    def _plan_growth(
        self, topic: Topic, total: int, assignment: Sequence[Sequence[int]] | None
    ) -> list[PartitionState]:
        present = len(topic.partitions)
        added = total - present
        if added <= 0:
            raise InvalidPartitions(f"topic {topic.name!r} has {present} partitions already; {total} is no growth")
        if added > PARTITIONS_PER_REQUEST_MAX:
            raise too_many_partitions(added)
        replication_factor = len(topic.partitions[0].replicas)
        if assignment is None:
            chosen = place(candidates(self._image), added, replication_factor, self._next_leader)
            self._next_leader += added
        else:
            if len(assignment) != added:
                raise InvalidReplicaAssignment(f"{added} partitions are added but {len(assignment)} are assigned")
            check_assignment(self._image, assignment, replication_factor)
            chosen = [tuple(replicas) for replicas in assignment]
        return [first_state(replicas, self._image.live) for replicas in chosen]

    def _find(self, wanted: str | TopicId) -> Topic | PenstockError:
        if isinstance(wanted, str):
            return self._image.topics.get(wanted) or _unknown(wanted)
        return self._image.topics_by_id.get(wanted) or UnknownTopicId(f"there is no topic with id {wanted}")


def _as_written(topic: Topic, revision: int) -> Topic:
    return replace(topic, create_revision=revision, mod_revision=revision)


def _already_exists(name: str) -> TopicAlreadyExists:
    return TopicAlreadyExists(f"topic {name!r} already exists")


def _unknown(name: str) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(f"there is no topic {name!r}")
