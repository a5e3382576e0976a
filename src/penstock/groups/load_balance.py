"""Partitions spread over members whose subscriptions differ: as evenly as can be, with few of them moved.

Called by groups.assignors.uniform. A member may hand a partition to any other that is subscribed to its topic, and that
one may hand on another of its own; a chain of such gifts from a member with two or more above the last one's load
evens the loads. Where no chain is left, no other spread is more even (Harvey, Ladner, Lovász, Tamir: "Semi-matchings
for bipartite graphs and load balancing").
Invariants:
- Every gift goes to a subscriber; no partition is lost or given twice.
- The work is bounded: past GIFTS_LOOKED_AT_MAX the spread is valid, but may be less even than possible.
"""

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush, heapreplace, nsmallest
from typing import NamedTuple

Held = dict[int, set[int]]  # partitions by topic, of one member

# About 0.2 s of work. Groups of a thousand members whose subscriptions overlap in part come near it, at a point where
# loads differ by one more than they need to; the largest differences are evened first.
GIFTS_LOOKED_AT_MAX = 500_000


def balance(
    subscribed: Mapping[str, frozenset[int]],
    held: dict[str, Held],
    unowned: Mapping[int, list[int]],
    before: Mapping[str, Held],
) -> None:
    """Gives everything in `unowned` an owner, then moves partitions in `held` until the loads are even."""
    spread = _Spread(subscribed, held, before)
    spread.hand_out(unowned)
    spread.shed()
    spread.even_out()


def beyond(mine: Held, share: int) -> list[tuple[int, int]]:
    """What a member gives up to keep `share`: most from the topics it holds most of."""
    ranked = sorted(
        (rank, topic, partition)
        for topic, partitions in mine.items()
        for rank, partition in enumerate(sorted(partitions))
    )
    return [(topic, partition) for _, topic, partition in ranked[share:]]


class _Gift(NamedTuple):
    giver: str
    topic: int
    receiver: str


class _Spread:
    __slots__ = ("_before", "_held", "_holders", "_loads", "_looked_at", "_topics")

    def __init__(
        self, subscribed: Mapping[str, frozenset[int]], held: dict[str, Held], before: Mapping[str, Held]
    ) -> None:
        # Lists and dictionaries, not sets, wherever one is walked through: the answer must not hang on their order.
        in_order = {topics: sorted(topics) for topics in set(subscribed.values())}
        self._topics = {member: in_order[topics] for member, topics in subscribed.items()}
        self._held = held
        self._before = before
        self._loads = {member: sum(map(len, mine.values())) for member, mine in held.items()}
        self._holders: dict[int, dict[str, None]] = {}
        for member, mine in held.items():
            for topic in mine:
                self._holders.setdefault(topic, {})[member] = None
        self._looked_at = 0

    def hand_out(self, unowned: Mapping[int, list[int]]) -> None:
        """Each to the least loaded of its subscribers, beginning with the topics that fewest may have."""
        subscribers = self._subscribers(unowned)
        for topic in sorted(unowned, key=lambda topic: (len(subscribers[topic]), topic)):
            waiting = [(self._loads[member], member) for member in subscribers[topic]]
            heapify(waiting)
            for partition in unowned[topic]:
                load, member = waiting[0]
                self._receive(member, topic, partition)
                heapreplace(waiting, (load + 1, member))

    def shed(self) -> None:
        """What members hold above the average goes to subscribers below it, as far as one gift each will do.

        Chains would find all of this too, but one at a time; a group that was small has thousands to give.
        """
        average = sum(self._loads.values()) // len(self._loads)
        laden = sorted(member for member, load in self._loads.items() if load > average + 1)
        subscribers = self._subscribers({topic for member in laden for topic in self._held[member]})
        waiting = {topic: [(self._loads[member], member) for member in subscribers[topic]] for topic in subscribers}
        for heap in waiting.values():
            heapify(heap)
        for giver in laden:
            for topic, partition in beyond(self._held[giver], average + 1):
                heap = waiting[topic]
                while heap[0][0] != self._loads[heap[0][1]]:
                    heapreplace(heap, (self._loads[heap[0][1]], heap[0][1]))
                load, receiver = heap[0]
                if load < average:
                    self._give(_Gift(giver, topic, receiver), partition)

    def even_out(self) -> None:
        receivers = [(load, member) for member, load in self._loads.items()]
        heapify(receivers)
        unsettled = set(self._loads)
        unsettled_load = sum(self._loads.values())
        while receivers and self._looked_at < GIFTS_LOOKED_AT_MAX:
            load, receiver = heappop(receivers)
            if receiver not in unsettled or load != self._loads[receiver]:
                continue
            chain, reached = self._find_chain(receiver, unsettled)
            if not chain:
                # None of those who can give to these has enough to give, and later gifts will not change that.
                unsettled -= reached
                unsettled_load -= sum(self._loads[member] for member in reached)
                continue
            self._carry_out(chain, unsettled_load // len(unsettled))
            for member in (receiver, chain[0].giver):
                heappush(receivers, (self._loads[member], member))

    def _subscribers(self, wanted: Collection[int]) -> dict[int, list[str]]:
        subscribers: dict[int, list[str]] = {topic: [] for topic in wanted}
        for member, topics in self._topics.items():
            for topic in topics:
                if topic in subscribers:
                    subscribers[topic].append(member)
        return subscribers

    def _find_chain(self, receiver: str, unsettled: set[str]) -> tuple[list[_Gift], set[str]]:
        """The shortest chain of gifts to the receiver from a member with two more than it, and all who were met."""
        enough = self._loads[receiver] + 2
        gifts: dict[str, _Gift] = {}
        met = {receiver}
        seen_topics: set[int] = set()
        level = [receiver]
        while level:
            following: list[str] = []
            for member in level:
                for topic in self._topics[member]:
                    if topic in seen_topics:
                        continue
                    seen_topics.add(topic)
                    holders = self._holders.get(topic, {})
                    self._looked_at += len(holders) + 1
                    for holder in holders:
                        if holder not in met and holder in unsettled:
                            met.add(holder)
                            gifts[holder] = _Gift(holder, topic, member)
                            following.append(holder)
            giver = max(following, key=self._loads.__getitem__, default=receiver)
            if self._loads[giver] >= enough:
                chain: list[_Gift] = []
                while giver != receiver:
                    chain.append(gifts[giver])
                    giver = gifts[giver].receiver
                return chain, met
            level = following
        return [], met

    def _carry_out(self, chain: list[_Gift], average: int) -> None:
        # As much at once as leaves the first giver above, and the last receiver below, what is fair for most.
        spare = min(self._loads[chain[0].giver] - average - 1, average - self._loads[chain[-1].receiver])
        count = max(1, min(spare, *(len(self._held[gift.giver][gift.topic]) for gift in chain)))
        for gift in chain:
            for partition in self._choose(gift, count):
                self._give(gift, partition)

    def _choose(self, gift: _Gift, count: int) -> list[int]:
        """Rather what the receiver had before, then what the giver had not, then the highest numbers."""
        giver, topic, receiver = gift
        had = self._before[receiver].get(topic, ())
        mine = self._before[giver].get(topic, ())

        def order(partition: int) -> tuple[bool, bool, int]:
            return partition not in had, partition in mine, -partition

        return nsmallest(count, self._held[giver][topic], key=order)

    def _give(self, gift: _Gift, partition: int) -> None:
        giver, topic, receiver = gift
        mine = self._held[giver][topic]
        mine.remove(partition)
        if not mine:
            del self._held[giver][topic]
            del self._holders[topic][giver]
        self._loads[giver] -= 1
        self._receive(receiver, topic, partition)

    def _receive(self, member: str, topic: int, partition: int) -> None:
        self._held[member].setdefault(topic, set()).add(partition)
        self._holders.setdefault(topic, {})[member] = None
        self._loads[member] += 1
