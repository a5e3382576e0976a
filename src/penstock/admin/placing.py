"""Which replicas should be where: plans that keep every partition's replicas apart, in number and over racks.

Called by the reassign, drain and rebalance commands. Plain functions; they ask nobody and change nothing.
Laws:
- A partition keeps its number of replicas, each on a broker of its own.
- No plan lets a partition's replicas share a rack more than they did.
- Of the replicas only those move that have to; where a preferred leader changes, an order is enough if it can be.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from penstock.admin.failures import CommandFailed
from penstock.model import TopicPartition

Replicas = tuple[int, ...]  # the preferred leader first
Assignment = Mapping[TopicPartition, Replicas]
Racks = Mapping[int, str | None]


def evacuate(assignment: Assignment, racks: Racks, leaving: Iterable[int] = ()) -> dict[TopicPartition, Replicas]:
    """The assignment with every replica on one of the brokers of `racks` that is not leaving."""
    board = _Board(assignment, {node: rack for node, rack in racks.items() if node not in set(leaving)})
    board.evacuate()
    return board.replicas


def balance(assignment: Assignment, racks: Racks, leaving: Iterable[int] = ()) -> dict[TopicPartition, Replicas]:
    """The same, and even besides: replicas and preferred leaders, as far as racks allow."""
    board = _Board(assignment, {node: rack for node, rack in racks.items() if node not in set(leaving)})
    board.evacuate()
    board.spread_racks()
    board.even_replicas()
    board.even_leaders()
    return board.replicas


def changes(before: Assignment, after: Assignment) -> dict[TopicPartition, Replicas]:
    return {at: replicas for at, replicas in sorted(after.items()) if before.get(at) != replicas}


def copies(before: Assignment, after: Assignment) -> int:
    """How many replicas have to be filled anew: what a plan costs."""
    return sum(len(set(replicas) - set(before.get(at, ()))) for at, replicas in after.items())


def doubled_racks(replicas: Iterable[int], racks: Racks) -> int:
    """How many of the replicas have a neighbour in their rack. A broker without a rack is a rack of its own."""
    uses = Counter(_rack(racks, node) for node in replicas)
    return sum(count - 1 for count in uses.values())


class _Board:
    """An assignment on its way: who holds and leads how much is counted along."""

    def __init__(self, assignment: Assignment, racks: Racks) -> None:
        self.replicas: dict[TopicPartition, Replicas] = dict(sorted(assignment.items()))
        self._racks = racks
        self._held: dict[int, set[TopicPartition]] = {node: set() for node in sorted(racks)}
        self._of_topic: Counter[tuple[int, str]] = Counter()
        for at, replicas in self.replicas.items():
            for node in replicas:
                self._count(node, at)

    def evacuate(self) -> None:
        leads = Counter(replicas[0] for replicas in self.replicas.values() if replicas[0] in self._racks)
        for at, replicas in self.replicas.items():
            if len(replicas) > len(self._racks):
                raise CommandFailed(
                    f"{at} has {len(replicas)} replicas, and only {len(self._racks)} brokers are left for them",
                    "Add a broker first, or lower the replication factor with a plan of your own.",
                )
            for node in replicas:
                if node not in self._racks:
                    self._move(at, node, self._best(at, node))
            if replicas[0] not in self._racks:
                # Whoever leads least, of those that stay if it can be: they have all there is to lead.
                heir = min(self.replicas[at], key=lambda node: (leads[node], node not in replicas, node))
                self._lead(at, heir)
                leads[heir] += 1

    def spread_racks(self) -> None:
        """Where two replicas share a rack and another rack has none, one of them moves there."""
        for at in self.replicas:
            while True:
                uses = Counter(_rack(self._racks, node) for node in self.replicas[at])
                crowded = [node for node in self.replicas[at] if uses[_rack(self._racks, node)] > 1]
                # The last in order: moving a leader costs the most.
                node = max(
                    crowded, key=lambda node: (len(self._held[node]), self.replicas[at].index(node)), default=None
                )
                if node is None:
                    break
                target = self._best(at, node)
                if uses[_rack(self._racks, target)]:
                    break  # all racks are in use
                self._move(at, node, target)

    def even_replicas(self) -> None:
        """Each step takes one from a broker that has at least two more than the one it goes to, so there is an end."""
        while self._take_a_step():
            pass

    def _take_a_step(self) -> bool:
        by_load = sorted(self._held, key=lambda node: (-len(self._held[node]), node))
        for giver in by_load:
            for taker in reversed(by_load):
                if len(self._held[giver]) - len(self._held[taker]) < 2:
                    break
                at = self._best_to_move(giver, taker)
                if at is not None:
                    self._move(at, giver, taker)
                    return True
        return False

    def _best_to_move(self, giver: int, taker: int) -> TopicPartition | None:
        """Of the topic that the two hold most unevenly, so that topics are spread as well."""
        is_same_rack = _rack(self._racks, giver) == _rack(self._racks, taker)
        best: tuple[int, TopicPartition] | None = None
        for at in self._held[giver]:
            if taker in self.replicas[at]:
                continue
            unevenness = self._of_topic[giver, at.topic] - self._of_topic[taker, at.topic]
            if best is not None and (-unevenness, at) >= best:
                continue
            if is_same_rack or self._keeps_racks(at, giver, taker):
                best = (-unevenness, at)
        return None if best is None else best[1]

    def _keeps_racks(self, at: TopicPartition, giver: int, taker: int) -> bool:
        after = [taker if node == giver else node for node in self.replicas[at]]
        return doubled_racks(after, self._racks) <= doubled_racks(self.replicas[at], self._racks)

    def even_leaders(self) -> None:
        """Only by changing the order of replicas, along the shortest chain that leads from too many to too few."""
        leads: dict[int, set[TopicPartition]] = {node: set() for node in self._held}
        for at, replicas in self.replicas.items():
            leads[replicas[0]].add(at)
        # One broker's relief opens ways for another, so all are asked until none finds one.
        while (chain := next(filter(None, (self._chain(leads, giver) for giver in sorted(leads))), None)) is not None:
            for at, taker in chain:
                leads[self.replicas[at][0]].remove(at)
                leads[taker].add(at)
                self._lead(at, taker)

    def _chain(self, leads: Mapping[int, set[TopicPartition]], giver: int) -> list[tuple[TopicPartition, int]] | None:
        """Partitions and who is to lead them, from `giver` to a broker that leads two fewer; each hands on but one."""
        way: dict[int, list[tuple[TopicPartition, int]]] = {giver: []}
        waiting = deque([giver])
        while waiting:
            node = waiting.popleft()
            if len(leads[giver]) - len(leads[node]) >= 2:
                return way[node]
            for at in sorted(leads[node]):
                for taker in self.replicas[at][1:]:
                    if taker not in way:
                        way[taker] = [*way[node], (at, taker)]
                        waiting.append(taker)
        return None

    def _best(self, at: TopicPartition, node: int) -> int:
        """Who takes the place of `node`: a rack without a replica first, then whoever holds least."""
        others = [other for other in self.replicas[at] if other != node]
        uses = Counter(_rack(self._racks, other) for other in others)
        candidates = [other for other in self._held if other not in self.replicas[at]]
        if not candidates:
            return node
        return min(
            candidates,
            key=lambda other: (
                uses[_rack(self._racks, other)],
                len(self._held[other]),
                self._of_topic[other, at.topic],
                other,
            ),
        )

    def _move(self, at: TopicPartition, giver: int, taker: int) -> None:
        assert taker not in self.replicas[at]
        self.replicas[at] = tuple(taker if node == giver else node for node in self.replicas[at])
        if giver in self._held:
            self._held[giver].discard(at)
            self._of_topic[giver, at.topic] -= 1
        self._count(taker, at)

    def _lead(self, at: TopicPartition, taker: int) -> None:
        """The two change places."""
        former = self.replicas[at][0]
        swapped = {former: taker, taker: former}
        self.replicas[at] = tuple(swapped.get(node, node) for node in self.replicas[at])

    def _count(self, node: int, at: TopicPartition) -> None:
        if node in self._held:
            self._held[node].add(at)
            self._of_topic[node, at.topic] += 1


def _rack(racks: Racks, node: int) -> str:
    """Brokers that do not say where they stand, or are not known, share a rack with nobody."""
    rack = racks.get(node)
    return f"\0{node}" if rack is None else rack
