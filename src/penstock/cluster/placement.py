"""Which brokers hold a new partition: leaders even, replicas spread over racks.

Called by topic_plan. A plain function of what it is given; chance and state stay with the caller.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import InvalidReplicationFactor


@dataclass(frozen=True, slots=True)
class Candidate:
    node_id: int
    rack: str | None = None


def place(
    candidates: Sequence[Candidate], partition_count: int, replication_factor: int, start: int = 0
) -> list[tuple[int, ...]]:
    """Replicas of each new partition, its preferred leader first.

    No broker leads more than one partition above another, no two replicas share a broker, and a rack gets its second
    replica of a partition only when every rack has one. `start` turns the circle, so that topics do not all begin at
    the same broker.
    """
    if not 1 <= replication_factor <= len(candidates):
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} with {len(candidates)} brokers: "
            "it must be at least 1 and at most the number of brokers"
        )
    circle = _alternate_racks(candidates)
    # Where no rack is known every broker counts as a rack of its own.
    racks = [candidate.rack if candidate.rack is not None else f"\0{candidate.node_id}" for candidate in circle]
    # Who leads is settled beforehand, so followers can be laid where fewest partitions will be in the end.
    replicas_held = [0] * len(circle)
    for partition in range(partition_count):
        replicas_held[(start + partition) % len(circle)] += 1
    placed: list[tuple[int, ...]] = []
    for partition in range(partition_count):
        leader = (start + partition) % len(circle)
        chosen = [leader]
        rack_uses = {racks[leader]: 1}
        while len(chosen) < replication_factor:
            # The first brokers after the leader win ties; which they are shifts each time round the circle, so that
            # the partitions of a lost broker do not all fall to its one neighbour.
            shift = 1 + (start + partition) // len(circle) % max(1, len(circle) - 1)
            follower = min(
                (at for at in range(len(circle)) if at not in chosen),
                key=lambda at: (rack_uses.get(racks[at], 0), replicas_held[at], (at - leader - shift) % len(circle)),
            )
            chosen.append(follower)
            rack_uses[racks[follower]] = rack_uses.get(racks[follower], 0) + 1
            replicas_held[follower] += 1
        placed.append(tuple(circle[at].node_id for at in chosen))
    return placed


def _alternate_racks(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Brokers in an order that changes the rack at each step while it can."""
    by_rack: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda each: each.node_id):
        by_rack.setdefault(candidate.rack or "", []).append(candidate)
    circle: list[Candidate] = []
    depth = 0
    while len(circle) < len(candidates):
        circle.extend(rack[depth] for _, rack in sorted(by_rack.items()) if depth < len(rack))
        depth += 1
    return circle
