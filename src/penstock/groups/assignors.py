"""Who gets which partitions: the assignors that run in the broker, for groups of the consumer protocol.

Called by groups.consumer_group, which asks for a new target when members, subscriptions or topics have changed, and by
benchmarks/rebalance.py. Plain functions: the same members, target and topics give the same answer, in any order.
Invariants:
- Each partition of a subscribed topic has exactly one owner, and that owner is subscribed to it.
- Every member has an entry in the answer, if only an empty one; a topic without partitions in it has none.
- `uniform` first balances, then keeps: a partition leaves its owner only if the balance asks for it.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from penstock.groups.load_balance import Held, balance, beyond

TopicLayout = Mapping[UUID, int]  # how many partitions a topic has
Assignment = dict[UUID, frozenset[int]]
Assignor = Callable[
    [Sequence["MemberSubscription"], Mapping[str, Mapping[UUID, frozenset[int]]], TopicLayout], dict[str, Assignment]
]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    member_id: str
    instance_id: str | None
    rack: str | None
    topics: frozenset[UUID]


def uniform(
    members: Sequence[MemberSubscription], current: Mapping[str, Mapping[UUID, frozenset[int]]], topics: TopicLayout
) -> dict[str, Assignment]:
    """As many partitions for each as for any other, as far as subscriptions allow; the rest stays where it is."""
    # Hashing and comparing a UUID runs Python code; from here on a topic is its place in this list.
    topic_ids = sorted(topics, key=lambda topic_id: topic_id.int)
    numbers = {topic_id: number for number, topic_id in enumerate(topic_ids)}
    sets: dict[frozenset[UUID], frozenset[int]] = {}
    subscribed: dict[str, frozenset[int]] = {}
    for member in sorted(members, key=lambda member: member.member_id):
        wanted = sets.get(member.topics)
        if wanted is None:
            wanted = frozenset(numbers[topic_id] for topic_id in member.topics if topic_id in numbers)
            sets[member.topics] = wanted
        subscribed[member.member_id] = wanted
    before = {
        member_id: {
            numbers[topic_id]: set(partitions)
            for topic_id, partitions in current.get(member_id, {}).items()
            if topic_id in numbers
        }
        for member_id in subscribed
    }
    held, unowned = _keep(subscribed, before, [topics[topic_id] for topic_id in topic_ids])
    if len(set(subscribed.values())) <= 1:
        _share_alike(held, unowned)
    else:
        balance(subscribed, held, unowned, before)
    return {
        member_id: {topic_ids[number]: frozenset(mine[number]) for number in sorted(mine) if mine[number]}
        for member_id, mine in held.items()
    }


def range_(
    members: Sequence[MemberSubscription], current: Mapping[str, Mapping[UUID, frozenset[int]]], topics: TopicLayout
) -> dict[str, Assignment]:
    """Each topic cut into runs, one for each subscriber in one fixed order: topics of equal size are cut alike.

    What members hold now plays no part. Static members come first, by instance id, so that a restart moves nothing.
    """
    assigned: dict[str, Assignment] = {member.member_id: {} for member in members}
    subscribers: defaultdict[UUID, list[str]] = defaultdict(list)
    for member in sorted(members, key=_range_order):
        for topic_id in member.topics:
            if topic_id in topics:
                subscribers[topic_id].append(member.member_id)
    for topic_id, member_ids in subscribers.items():
        quota, extra = divmod(topics[topic_id], len(member_ids))
        first = 0
        for place, member_id in enumerate(member_ids):
            end = first + quota + (place < extra)
            if end > first:
                assigned[member_id][topic_id] = frozenset(range(first, end))
            first = end
    return assigned


# By the names clients ask for; the first is for a group whose members name none.
ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}


def _range_order(member: MemberSubscription) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member.member_id


def _keep(
    subscribed: Mapping[str, frozenset[int]], before: Mapping[str, Held], counts: Sequence[int]
) -> tuple[dict[str, Held], dict[int, list[int]]]:
    """What each member holds and may go on holding, and what then has no owner."""
    wanted = sorted(frozenset[int]().union(*set(subscribed.values())))
    unowned = {topic: set(range(counts[topic])) for topic in wanted}
    held: dict[str, Held] = {}
    for member_id, topics in subscribed.items():
        mine = held[member_id] = {}
        for topic, partitions in before[member_id].items():
            if topic in topics:
                # Without what an earlier member claimed, and without partitions that the topic does not have.
                valid = partitions & unowned[topic]
                if valid:
                    unowned[topic] -= valid
                    mine[topic] = valid
    return held, {topic: sorted(partitions) for topic, partitions in unowned.items() if partitions}


def _share_alike(held: dict[str, Held], unowned: dict[int, list[int]]) -> None:
    """All members want the same topics: each ends with `quota` partitions, and `extra` of them with one more."""
    if not held:
        return
    loads = {member_id: sum(map(len, mine.values())) for member_id, mine in held.items()}
    quota, extra = divmod(sum(loads.values()) + sum(map(len, unowned.values())), len(held))
    # Who has more than the quota already should be the one to have one more: then fewer partitions move.
    in_order = sorted(held, key=lambda member_id: loads[member_id] <= quota)
    room: deque[tuple[str, int]] = deque()
    for place, member_id in enumerate(in_order):
        share = quota + (place < extra)
        if loads[member_id] > share:
            for topic, partition in beyond(held[member_id], share):
                held[member_id][topic].remove(partition)
                unowned.setdefault(topic, []).append(partition)
        elif loads[member_id] < share:
            room.append((member_id, share - loads[member_id]))
    # Dealt out in turn, so that no member gets a whole topic while another gets none of it.
    for topic in sorted(unowned):
        for partition in sorted(unowned[topic]):
            member_id, left = room.popleft()
            held[member_id].setdefault(topic, set()).add(partition)
            if left > 1:
                room.append((member_id, left - 1))
    assert not room
