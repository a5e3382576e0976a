"""Many partitions changed by one rule: many to a transaction, each by compare-and-swap, lost rounds played again.

Called by partition_changes, fenced by a broker's registration, and by supervisor, fenced by the controller's key.
Invariants:
- A state is written only over the very state the rule was shown, and a new leader only in the life it was seen in.
- One who may lack something is made leader only while those who have it are really gone, not just from a late image.
- What a transaction may or may not have done is read again; a rule is asked anew only about what is really there.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import NO_LEADER, PartitionState, Topic, partition_state
from penstock.cluster.layout import encode
from penstock.cluster.store import (
    Ambiguous,
    Compare,
    Get,
    KeyValue,
    MetadataStore,
    Put,
    Unavailable,
    created_at,
    holds,
    modified_at,
)
from penstock.errors import PenstockError, UnknownTopicOrPartition
from penstock.model import TopicId

logger = logging.getLogger(__name__)

# Comparisons and reads have the store's limit of 128 each: the fence, the partitions and their new leaders must fit.
PARTITIONS_PER_TXN = 50
# What is left for those who must be gone; more than so many at once are not asked for.
GONE_PER_TXN = 25
# Enough to hide the way to the store, and few enough to leave room for the ISR changes of a running cluster.
TXNS_IN_FLIGHT = 4
ROUNDS_MAX = 20

Place = tuple[TopicId, int]
# Comparisons, and the error that tells that they no longer hold.
Fence = Callable[[], tuple[Sequence[Compare], PenstockError]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rule decides about: one partition as it is in the store, and who is there."""

    topic: Topic
    index: int
    state: PartitionState
    registered: frozenset[int]
    live: frozenset[int]


# The state that should follow, or None to leave it; raises PenstockError to refuse this partition alone.
Rule = Callable[[Seen], PartitionState | None]
# Written, found as it should be (None), or why not.
Outcome = PartitionState | None | PenstockError


@dataclass(slots=True)
class _Work:
    """One call's progress. What was read from the store is newer than the image until the feed has caught up."""

    rule: Rule
    fence: Fence
    outcomes: dict[Place, Outcome] = field(default_factory=dict[Place, Outcome])
    read: dict[Place, KeyValue | None] = field(default_factory=dict[Place, KeyValue | None])
    gone: set[int] = field(default_factory=set[int])


class PartitionWrites:
    def __init__(self, store: MetadataStore, feed: ImageFeed) -> None:
        self._store = store
        self._feed = feed
        self._image = feed.image
        self._layout = feed.image.layout

    async def rewrite(self, places: Iterable[Place], rule: Rule, fence: Fence) -> dict[Place, Outcome]:
        """Ask the rule about each partition, write what it says; returns when this broker's image holds it."""
        work = _Work(rule, fence)
        pending = list(dict.fromkeys(places))
        for _ in range(ROUNDS_MAX):
            wanted = await self._decide(work, pending)
            pending = await self._write_all(work, wanted)
            if not pending:
                break
        work.outcomes.update((place, Ambiguous("the partition kept changing")) for place in pending)
        written = [each.mod_revision for each in work.outcomes.values() if isinstance(each, PartitionState)]
        await self._feed.reached(max(written, default=0))
        return work.outcomes

    async def _decide(self, work: _Work, places: Sequence[Place]) -> dict[Place, tuple[Seen, PartitionState]]:
        registered = frozenset(self._image.brokers) - work.gone
        live = self._image.live - work.gone
        wanted: dict[Place, tuple[Seen, PartitionState]] = {}
        for count, place in enumerate(places, 1):
            # Thousands at once must not hold up produce and fetch.
            if count % 500 == 0:
                await asyncio.sleep(0)
            topic, state = self._image.topics_by_id.get(place[0]), self._state(work, place)
            if topic is None or state is None:
                work.outcomes[place] = UnknownTopicOrPartition(f"there is no partition {place[1]} of topic {place[0]}")
                continue
            seen = Seen(topic, place[1], state, registered, live)
            try:
                new = work.rule(seen)
            except PenstockError as refusal:
                work.outcomes[place] = refusal
                continue
            if new is None:
                work.outcomes[place] = None
            else:
                check_step(state, new)
                wanted[place] = seen, new
        return wanted

    def _state(self, work: _Work, place: Place) -> PartitionState | None:
        known = self._image.partition(*place)
        if place not in work.read:
            return known
        item = work.read[place]
        if item is None:
            return None
        return known if known is not None and known.mod_revision > item.mod_revision else partition_state(item)

    async def _write_all(self, work: _Work, wanted: Mapping[Place, tuple[Seen, PartitionState]]) -> list[Place]:
        """Write chunk after chunk, a few at a time; gives the places whose round was lost."""
        places = list(wanted)
        chunks = [places[at : at + PARTITIONS_PER_TXN] for at in range(0, len(places), PARTITIONS_PER_TXN)]
        lost: list[Place] = []
        for at in range(0, len(chunks), TXNS_IN_FLIGHT):
            writes = [
                self._write(work, {place: wanted[place] for place in chunk})
                for chunk in chunks[at : at + TXNS_IN_FLIGHT]
            ]
            for chunk_lost in await asyncio.gather(*writes):
                lost.extend(chunk_lost)
        return lost

    async def _write(self, work: _Work, chunk: Mapping[Place, tuple[Seen, PartitionState]]) -> list[Place]:
        try:
            return await self._write_chunk(work, chunk)
        except (Unavailable, Ambiguous) as error:
            if isinstance(error, Ambiguous):
                await self._look_again(work, chunk)
            work.outcomes.update((place, error) for place in chunk if place not in work.outcomes)
        except PenstockError as error:
            work.outcomes.update((place, error) for place in chunk)
        return []

    async def _write_chunk(self, work: _Work, chunk: Mapping[Place, tuple[Seen, PartitionState]]) -> list[Place]:
        fence, refusal = work.fence()
        leaders = {new.leader for seen, new in chunk.values() if new.leader not in (NO_LEADER, seen.state.leader)}
        lives = {
            node: modified_at(self._layout.broker(node), broker.epoch)
            for node in sorted(leaders)
            if (broker := self._image.brokers.get(node)) is not None
        }
        better = {node for seen, new in chunk.values() for node in _passed_over(seen, new)}
        lives |= {node: created_at(self._layout.broker(node), 0) for node in sorted(better)[:GONE_PER_TXN]}
        keys = {place: self._layout.partition(*place) for place in chunk}
        result = await self._store.txn(
            [
                *fence,
                *lives.values(),
                *(modified_at(keys[place], seen.state.mod_revision) for place, (seen, _) in chunk.items()),
            ],
            [Put(keys[place], encode(new.as_json())) for place, (_, new) in chunk.items()],
            [Get(key) for key in (*(each.key for each in (*fence, *lives.values())), *keys.values())],
        )
        if result.ok:
            for place, (_, new) in chunk.items():
                work.outcomes[place] = replace(new, mod_revision=result.revision)
            return []
        reads = iter(result.reads)
        for compare in fence:
            if not holds(compare, next(reads)):
                raise refusal
        for node, compare in lives.items():
            present = next(reads)
            if holds(compare, present):
                continue
            if present is None:
                work.gone.add(node)
            else:
                await self._feed.reached(present.mod_revision)
        work.read.update(zip(chunk, reads, strict=True))
        return list(chunk)

    async def _look_again(self, work: _Work, chunk: Mapping[Place, tuple[Seen, PartitionState]]) -> None:
        """Whether a transaction of unknown outcome was applied shows in the keys, if the store answers at all."""
        try:
            for place, (_, new) in chunk.items():
                item = await self._store.get(self._layout.partition(*place))
                if item is not None and is_written(item, new):
                    work.outcomes[place] = partition_state(item)
        except (Unavailable, Ambiguous):
            logger.warning("the metadata store did not tell whether %d partitions were changed", len(chunk))


def _passed_over(seen: Seen, new: PartitionState) -> set[int]:
    """Whom an unclean election takes for gone: had it known them to be there, one of them would lead."""
    old = seen.state
    members = {*old.isr, *old.elr}
    if new.leader in (NO_LEADER, old.leader) or new.leader in members:
        return set()
    return {node for node in (*members, old.leader) if node != NO_LEADER and node not in seen.registered}


def check_step(old: PartitionState, new: PartitionState) -> None:
    """What holds for every change, whoever decides it: a wrong one must never reach the store."""
    assert new.partition_epoch == old.partition_epoch + 1, (old, new)
    assert new.leader == old.leader or new.leader_epoch == old.leader_epoch + 1, (old, new)
    assert new.leader == NO_LEADER or new.leader in new.isr, (old, new)
    assert {*new.isr, *new.elr, *new.adding, *new.removing} <= set(new.replicas), (old, new)
    assert not set(new.isr) & set(new.elr), (old, new)


def is_written(item: KeyValue, wanted: PartitionState) -> bool:
    """Whether the key holds exactly this state; who wrote it does not matter, as all follow one set of rules."""
    return replace(partition_state(item), mod_revision=0) == replace(wanted, mod_revision=0)
