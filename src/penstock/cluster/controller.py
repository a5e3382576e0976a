"""Everything that changes the cluster's metadata on somebody's behalf: topics, settings, quotas, producer ids.

Called by handlers.admin, handlers.metadata (auto-creation) and broker. Every broker has one; `fence` says whether this
broker may act as the controller.
Invariants:
- Every decision is a comparison inside the transaction that acts on it; the image only saves hopeless attempts.
- A topic's own key is the last written and the first deleted, so that no reader sees half a topic.
- Nothing returns before this broker's image holds what was written.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from penstock.clock import Rng
from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import PartitionState, Topic, metric_name
from penstock.cluster.layout import QuotaEntity, decode, encode
from penstock.cluster.overrides import ConfigChange, ConfigResource, altered_configs, altered_quotas, replaced_configs
from penstock.cluster.placement import place
from penstock.cluster.store import (
    Ambiguous,
    Compare,
    Delete,
    Get,
    KeyValue,
    MetadataStore,
    Operation,
    Put,
    TxnResult,
    created_at,
    holds,
    modified_at,
)
from penstock.cluster.topic_plan import (
    OPERATIONS_PER_TXN,
    PARTITIONS_PER_REQUEST_MAX,
    NewTopic,
    TopicPlan,
    candidates,
    check_assignment,
    check_new_name,
    first_state,
    pack,
    partition_puts,
    plan_topic,
    too_many_partitions,
)
from penstock.config.setting import Scope
from penstock.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopicName,
    NotController,
    PenstockError,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model import ProducerId, TopicId

PRODUCER_IDS_PER_BLOCK = 1_000
# Each round lost means that another writer won one; only a storm of them gets this far.
SWAP_ROUNDS_MAX = 20
VALUE_BYTES_MAX = 500_000
PLANS_PER_TURN = 50

T = TypeVar("T")
Fence = Callable[[], Sequence[Compare]]
CheckConfigs = Callable[[Mapping[str, str]], object]


class Controller:
    """`check_topic` and `check_group` raise InvalidConfig where settings contradict each other or the broker's."""

    def __init__(
        self,
        store: MetadataStore,
        feed: ImageFeed,
        rng: Rng,
        *,
        fence: Fence,
        check_topic: CheckConfigs,
        check_group: CheckConfigs,
    ) -> None:
        self._store = store
        self._feed = feed
        self._image = feed.image
        self._layout = feed.image.layout
        self._rng = rng
        self._fence = fence
        self._check_topic = check_topic
        self._check_group = check_group
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
            result = await self._commit_pieces([unchanged], [*puts, Put(key, encode(grown.as_json()))], [key])
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
        await self._rewrite_configs(
            resource, lambda stored: altered_configs(resource, stored, changes), validate_only=validate_only
        )

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """AlterConfigs of one resource: what is not named goes back to its default."""
        await self._rewrite_configs(
            resource, lambda _: replaced_configs(resource, configs), validate_only=validate_only
        )

    async def alter_client_quotas(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        def rewrite(present: KeyValue | None) -> Mapping[str, Any] | None:
            return altered_quotas(entity, decode(present.value) if present else {}, changes) or None

        await self._swap(self._layout.quota(entity), rewrite, validate_only=validate_only)

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

    async def bump_leader_epochs(self, partitions: Iterable[tuple[TopicId, int]]) -> None:
        """Give each partition a new leader epoch, as after an unclean stop: what was read of the old one may be gone.

        Partitions deleted meanwhile are passed over.
        """
        pending = list(partitions)
        for _ in range(SWAP_ROUNDS_MAX):
            lost: list[tuple[TopicId, int]] = []
            seen = 0
            for chunk in _chunks(pending):
                keys = [self._layout.partition(*each) for each in chunk if self._state(*each)]
                states = [state for each in chunk if (state := self._state(*each))]
                result = await self._commit(
                    [modified_at(key, state.mod_revision) for key, state in zip(keys, states, strict=True)],
                    [Put(key, encode(_bumped(state).as_json())) for key, state in zip(keys, states, strict=True)],
                    keys,
                )
                if result.ok and keys:
                    seen = result.revision
                elif not result.ok:
                    lost.extend(chunk)
                    seen = max([seen, *(present.mod_revision for present in result.reads if present)])
            await self._feed.reached(seen)
            if not lost:
                return
            pending = lost
        raise Ambiguous("partitions kept changing while their leader epochs were raised")

    async def clean_orphans(self) -> int:
        """Delete partition keys without a topic; call it on becoming the controller, before any creation."""
        keys = [self._layout.partition(*each) for each in self._image.orphans()]
        await self._commit_pieces([], [Delete(key) for key in keys], [])
        return len(keys)

    def _plan(self, new: NewTopic) -> TopicPlan:
        check_new_name(self._image, new.name)
        if self._creating.get(metric_name(new.name), new.name) != new.name:
            raise InvalidTopicName(f"topic {new.name!r} collides with {self._creating[metric_name(new.name)]!r}")
        plan = plan_topic(self._image, new, self._rng.uuid(), self._next_leader)
        self._check_topic(plan.topic.configs)
        self._next_leader += len(plan.topic.partitions)
        return plan

    async def _create(self, plans: Sequence[TopicPlan]) -> dict[str, Topic | PenstockError]:
        results: dict[str, Topic | PenstockError] = {}
        for group in pack(plans):
            pending = group
            try:
                for plan in group:
                    for piece in plan.early:
                        await self._commit([], piece, [])
                while pending:
                    result = await self._commit(
                        [created_at(plan.key, 0) for plan in pending],
                        [put for plan in pending for put in plan.puts],
                        [plan.key for plan in pending],
                    )
                    if result.ok:
                        for plan in pending:
                            results[plan.topic.name] = _as_written(plan.topic, result.revision)
                        break
                    taken = [plan for plan, present in zip(pending, result.reads, strict=True) if present]
                    assert taken, "a refused creation names the topic that was there first"
                    for plan in taken:
                        results[plan.topic.name] = _already_exists(plan.topic.name)
                        await self._forget([put.key for piece in plan.early for put in piece])
                    pending = [plan for plan in pending if plan not in taken]
            except PenstockError as error:
                results.update((plan.topic.name, error) for plan in pending)
        await self._feed.reached(max((t.mod_revision for t in results.values() if isinstance(t, Topic)), default=0))
        return results

    async def _delete(self, topics: Sequence[Topic]) -> dict[str, Topic | PenstockError]:
        results: dict[str, Topic | PenstockError] = {}
        revision = 0
        for group in _chunks(topics):
            pending = list(group)
            try:
                while pending:
                    keys = [self._layout.topic(topic.name) for topic in pending]
                    result = await self._commit(
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
        await self._forget([self._layout.partition(*each) for each in places])
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
        return [first_state(replicas) for replicas in chosen]

    async def _rewrite_configs(
        self,
        resource: ConfigResource,
        rewrite: Callable[[Mapping[str, str]], dict[str, str]],
        *,
        validate_only: bool,
    ) -> None:
        def rewrite_topic(present: KeyValue | None) -> Mapping[str, Any]:
            if present is None:
                raise _unknown(resource.name)
            fields = decode(present.value)
            configs = rewrite(fields["configs"])
            self._check_topic(configs)
            return {**fields, "configs": configs}

        def rewrite_own_key(present: KeyValue | None) -> Mapping[str, Any] | None:
            configs = rewrite(decode(present.value) if present else {})
            if resource.scope is Scope.GROUP:
                self._check_group(configs)
            return configs or None

        if resource.scope is Scope.TOPIC:
            await self._swap(self._layout.topic(resource.name), rewrite_topic, validate_only=validate_only)
            return
        if resource.scope is Scope.BROKER and resource.name and not resource.name.isdecimal():
            raise InvalidRequest(f"{resource.name!r} is no broker id")
        if resource.scope is Scope.GROUP and not resource.name:
            raise InvalidRequest("a group's settings need the name of the group")
        key = self._layout.config(resource.scope.value, resource.name)
        await self._swap(key, rewrite_own_key, validate_only=validate_only)

    async def _swap(
        self, key: str, rewrite: Callable[[KeyValue | None], Mapping[str, Any] | None], *, validate_only: bool
    ) -> None:
        """Read, rewrite, compare-and-swap; None from `rewrite` means that the key should not be there."""
        present = await self._store.get(key)
        for _ in range(SWAP_ROUNDS_MAX):
            fields = rewrite(present)
            value = None if fields is None else encode(fields)
            if value is not None and len(value) > VALUE_BYTES_MAX:
                raise InvalidConfig(f"{len(value)} bytes of settings, {VALUE_BYTES_MAX} allowed")
            if validate_only:
                return
            if value == (present.value if present else None):
                await self._feed.reached(present.mod_revision if present else 0)
                return
            result = await self._commit(
                [modified_at(key, present.mod_revision if present else 0)],
                [Delete(key) if value is None else Put(key, value)],
                [key],
            )
            if result.ok:
                await self._feed.reached(result.revision)
                return
            present = result.reads[0]
        raise Ambiguous(f"{key} kept changing")

    async def _commit(self, compare: Sequence[Compare], then: Sequence[Operation], look: Sequence[str]) -> TxnResult:
        """A transaction under the controller's fence; where a comparison failed, `reads` holds the keys of `look`."""
        fence = self._fence()
        seen = [Get(key) for key in (*(each.key for each in fence), *look)]
        result = await self._store.txn([*fence, *compare], then, seen)
        if result.ok:
            return result
        for each, present in zip(fence, result.reads, strict=False):
            if not holds(each, present):
                raise NotController("another broker has become the controller")
        return TxnResult(result.ok, result.revision, result.reads[len(fence) :])

    async def _commit_pieces(
        self, compare: Sequence[Compare], then: Sequence[Operation], look: Sequence[str]
    ) -> TxnResult:
        """Like _commit for any number of operations: in order, each piece under the same comparisons."""
        result = TxnResult(True, 0)
        for piece in _chunks(then):
            result = await self._commit(compare, piece, look)
            if not result.ok:
                break
        return result

    async def _forget(self, keys: Sequence[str]) -> None:
        """Delete keys no reader sees; what fails here is left to clean_orphans."""
        with contextlib.suppress(PenstockError):
            await self._commit_pieces([], [Delete(key) for key in keys], [])

    def _find(self, wanted: str | TopicId) -> Topic | PenstockError:
        if isinstance(wanted, str):
            return self._image.topics.get(wanted) or _unknown(wanted)
        return self._image.topics_by_id.get(wanted) or UnknownTopicId(f"there is no topic with id {wanted}")

    def _state(self, topic_id: TopicId, index: int) -> PartitionState | None:
        topic = self._image.topics_by_id.get(topic_id)
        return topic.partitions[index] if topic and index < len(topic.partitions) else None


def _bumped(state: PartitionState) -> PartitionState:
    return replace(state, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1)


def _as_written(topic: Topic, revision: int) -> Topic:
    return replace(topic, create_revision=revision, mod_revision=revision)


def _already_exists(name: str) -> TopicAlreadyExists:
    return TopicAlreadyExists(f"topic {name!r} already exists")


def _unknown(name: str) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(f"there is no topic {name!r}")


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + OPERATIONS_PER_TXN] for at in range(0, len(items), OPERATIONS_PER_TXN))
